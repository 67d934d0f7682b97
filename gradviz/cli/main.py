"""The `gradviz` command: the group, its commands by name, and where it starts.

Commands live in modules of their own, imported only when one is used. Nothing here
imports torch.
"""

from __future__ import annotations

import errno
import importlib
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import click

from gradviz.cli.streams import (
    NO_ROOM,
    SHORT,
    abandon_stdout,
    complain,
    keep_late_output_away,
    result_began,
    written,
)
from gradviz.errors import GradvizError, did_you_mean
from gradviz.features import is_there
from gradviz.run.target import names_script
from gradviz.wording import one_line, visible

# How what goes wrong ends a command: one line on standard error, and an exit code.

_LINE_END = "\n"
WRONG_INPUT = 2
INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended
NOBODY_READS = 141  # as a shell reports a process whose reader went away


@contextmanager
def explained() -> Iterator[None]:
    """Turns errors that are no bugs into a message and an exit code. Others keep their
    traceback.
    """
    try:
        yield
    except GradvizError as error:
        if str(error):
            complain(f"Error: {visible(str(error), keep=_LINE_END)}")

        sys.exit(error.exit_code)
    except click.ClickException as error:
        # which click types as final
        vars(error)["message"] = visible(error.message, keep=_LINE_END)
        raise
    except (KeyboardInterrupt, RuntimeError) as error:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(
            error.__cause__, KeyboardInterrupt
        ):
            # the cause: Python up to 3.11 raises another for one that comes while a
            # class is made
            raise
        complain(_interrupted())
        # or `python -m` ends by the signal, if it came inside code made from text, as a
        # dataclass is
        exec("")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        keep_late_output_away()
        sys.exit(NOBODY_READS)
    except Exception as error:
        message = _full(error) or _no_files(error) or _no_torch(error)
        if not message:
            raise
        complain(f"Error: {message}")
        sys.exit(WRONG_INPUT)


def _interrupted() -> str:
    file = written()
    if file:
        return f"Interrupted; {file} was written before."
    return "Interrupted." if result_began() else "Interrupted; nothing was written."


def _full(error: Exception) -> str:
    """What to say when standard output takes nothing more, "" for any other error."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return ""
    abandon_stdout()
    file = written()
    return f"{f'{file} was written, but ' if file else ''}standard output accepts no more data: {error.strerror}."


def _no_files(error: Exception) -> str:
    """What to say when nothing can be opened any more, "" for any other error."""
    if not isinstance(error, OSError) or error.errno not in (
        errno.EMFILE,
        errno.ENFILE,
    ):
        return ""
    return "too many files are open, so gradviz cannot open its own. Close some in the script, or raise the limit: ulimit -n 4096"


def _no_torch(error: Exception) -> str:
    """What to say when gradviz itself could not import torch, "" for any other error."""
    if not _while_importing_torch(error):
        return ""
    reason = one_line(str(error).partition("\n")[0])
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return f"torch is not installed for {sys.executable}. Install it there (https://pytorch.org/get-started)."
    return f"torch cannot be imported: {type(error).__name__}: {reason}. `{sys.executable} -c 'import torch'` shows where it fails."


def _while_importing_torch(error: Exception) -> bool:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return True
    frames = (
        frame
        for frame, _ in walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>"
    )
    return any(
        str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"
        for frame in frames
    )


MODULE_OF = {
    **dict.fromkeys(("render", "tree", "summary"), "gradviz.cli.render"),
    "saved": "gradviz.memory.command",
    "tensors": "gradviz.cli.tensors",
    "why": "gradviz.cli.why",
    **dict.fromkeys(("flow", "paths"), "gradviz.gradients.command"),
    "diff": "gradviz.comparison.command",
    "merge": "gradviz.ranks.command",
    "check": "gradviz.checks.command",
    "formula": "gradviz.formulas.command",
    "demo": "gradviz.cli.demo",
}
"""In the order that help shows them. What click is told there is a command of that
name.
"""

NEEDS = {"demo": ("gradviz.page", "gradviz.checks")}
"""The features that a command needs beside that of its own folder; what these need
themselves, `gradviz.features` knows.
"""

COMMANDS = {
    name: module
    for name, module in MODULE_OF.items()
    if all(map(is_there, (module, *NEEDS.get(name, ()))))
}
"""The module of each command that can work."""

_FIRST = {
    "demo": "gradviz demo             see it all in a small example",
    "check": "gradviz check train.py   what is wrong, and how to fix it",
    "render": "gradviz render train.py  draw the graph",
    "saved": "gradviz saved train.py   memory held for backward, by line",
}
_START = "\n".join(
    [
        *(line for name, line in _FIRST.items() if name in COMMANDS),
        "",
        "gradviz --help lists every command.",
    ]
)
_EPILOG = (
    "TARGET is script.py, script.py:name, train.ipynb, -m package.module, package.module:name or a saved "
    "graph.json. Exit codes: 0 done, 1 findings, a difference or a budget that does not hold, 2 wrong usage or "
    "input, 3 the script failed."
)
if "check" in COMMANDS:
    _EPILOG += " Without a COMMAND, gradviz train.py checks the script."


class Gradviz(click.Group):
    """A group that imports a command when it is asked for, and turns errors that are no
    bugs into one message.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        contents = vars(importlib.import_module(COMMANDS[cmd_name])).values()
        return next(
            item
            for item in contents
            if isinstance(item, click.Command) and item.name == cmd_name
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        short = (
            "check" in COMMANDS
            and bool(args)
            and (args[0] == "-m" or names_script(args[0]))
        )
        with explained():
            context = super().make_context(
                info_name, ["check", *args] if short else args, parent, **extra
            )
        context.meta[SHORT] = short
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with explained():
            return super().invoke(ctx)


def _unknown(name: str) -> str:
    if name.endswith(".json"):
        return f"{name!r} is a saved graph, not a command. To print it: gradviz tree {name}"
    return (
        f"there is no command {name!r}. {did_you_mean(name, COMMANDS, what='commands')}"
    )


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from gradviz.cli.versions import versions

        for name, version in versions().items():
            click.echo(f"{name} {version}")
        ctx.exit()


@click.group(
    cls=Gradviz,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the versions of gradviz, Python, torch and Graphviz.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Show, explain and check what PyTorch's autograd recorded."""
    if ctx.invoked_subcommand is None:
        click.echo(_START)


def main() -> None:
    """Run the command that `sys.argv` says."""
    try:
        sys.exit(_exit_code())
    finally:
        keep_late_output_away()


def _exit_code() -> int:
    """Run it outside of click's own handling of Ctrl-C, which says "Aborted!" of one
    that comes just before or after a command.
    """
    try:
        with explained():
            code = cli.main(prog_name="gradviz", standalone_mode=False)
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        complain(message.getvalue().rstrip("\n"))
        return error.exit_code
    return code if isinstance(code, int) else 0
