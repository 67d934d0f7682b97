"""The `gradviz` command: the group, its commands by name, and where it starts.

Each command lives in its own module, imported only when it is used. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from gradviz.cli.failures import explained
from gradviz.cli.streams import keep_late_output_away
from gradviz.errors import did_you_mean

COMMANDS = {
    "render": "gradviz.cli.render",
    "tree": "gradviz.cli.tree",
    "saved": "gradviz.cli.saved",
    "tensors": "gradviz.cli.tensors",
    "flow": "gradviz.cli.flow",
    "paths": "gradviz.cli.paths",
    "diff": "gradviz.cli.diff",
    "merge": "gradviz.cli.merge",
    "check": "gradviz.cli.check",
    "info": "gradviz.cli.info",
}
"""Module of each command, in the order that help shows them. The module's `command` is the click command."""


class Gradviz(click.Group):
    """A group that imports a command when it is asked for, and turns errors that are no bugs into one message."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with explained():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with explained():
            return super().invoke(ctx)


def _unknown(name: str) -> str:
    if name.endswith((".py", ".json")) or ".py:" in name:
        return f"{name!r} is no command. Say what to do with it, such as: gradviz render {name}"
    return f"there is no command {name!r}. {did_you_mean(name, COMMANDS, what='commands')}"


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from gradviz import __version__

        click.echo(f"gradviz {__version__}")
        ctx.exit()


@click.group(
    cls=Gradviz,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="TARGET is script.py, script.py:name, -m package.module, package.module:name or a saved graph.json. Exit codes: 0 done, "
    "1 findings, 2 wrong usage or input, 3 the script failed.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Show, explain and check what PyTorch's autograd recorded."""


def main() -> None:
    """Run the command that `sys.argv` says."""
    try:
        cli(prog_name="gradviz")
    finally:
        keep_late_output_away()
