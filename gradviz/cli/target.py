"""The TARGET argument that commands share, with the options about running a script.

What is read of it is in `gradviz.cli.source`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from gradviz.cli.help import GroupedCommand
from gradviz.cli.launch import launched, rank_option
from gradviz.cli.progress import running
from gradviz.cli.source import Source
from gradviz.cli.streams import Command
from gradviz.run.inputs import parse_input
from gradviz.run.target import (
    Target,
    names_script,
    parse_module,
    parse_target,
    with_inputs,
)
from gradviz.wording import few

ARGUMENTS = "gradviz.arguments"  # of a command's context: those of the script


_AFTER = "Arguments of the script go after --"
_NEAR = 0.8  # how like an option a word is that is a misspelled one


class TargetCommand(GroupedCommand):
    """A command whose line may end in `-- ARGUMENTS OF THE SCRIPT`, which click must
    not read, and that several ranks may run.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), rank_option()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            end = args.index("--")
            args, ctx.meta[ARGUMENTS] = args[:end], tuple(args[end + 1 :])
        words = list(args)
        if self._has_module(args):
            args = ["", *args]  # in TARGET's place
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = self._unknown(ctx, words, error.option_name)
            raise click.UsageError(message, ctx) from None
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra"):
                raise
            message = f"{error.message}. {_AFTER}"
            raise click.UsageError(message, ctx) from None

    def _has_module(self, args: Sequence[str]) -> bool:
        """Whether -m stands for TARGET where another argument follows that."""
        arguments = [one for one in self.params if isinstance(one, click.Argument)]
        flags = [word.partition("=")[0] for word in args]
        return len(arguments) > 1 and bool({"-m", "--module"}.intersection(flags))

    def _unknown(self, ctx: click.Context, words: list[str], name: str) -> str:
        """What to do about an option that is the script's, or misspelled."""
        flags = [max(option.opts, key=len) for option in self.get_params(ctx)]
        close = get_close_matches(name, flags, 1, _NEAR)
        hint = f" Did you mean {close[0]}?" if close else ""
        start = next((i for i, word in enumerate(words) if word.startswith(name)), 0)
        end = start + 1
        while end < len(words) and not words[end].startswith("-"):
            end += 1

        before, after = words[:start], words[end:]
        its = [word for word in words[start:end] if not names_script(word)]
        target = [word for word in words[start:end] if names_script(word)]
        line = shlex.join([*before, *target, *after, "--", *its])
        others = few(_commands_with(ctx, name), 4)
        whose = f"{name} is not gradviz's"
        if others:
            whose = f"{ctx.info_name} has no {name}, an option of {others}"
        return f"{whose}.{hint} {_AFTER}: {ctx.command_path} {line}"

    def invoke(self, ctx: click.Context) -> Any:
        with launched(ctx, ctx.params.pop("rank")):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE SCRIPT]"]


def _commands_with(ctx: click.Context, flag: str) -> list[str]:
    """The other commands that have an option."""
    found: list[str] = []
    if ctx.parent is not None and isinstance(ctx.parent.command, click.Group):
        for name in ctx.parent.command.list_commands(ctx.parent):
            command = ctx.parent.command.get_command(ctx.parent, name)
            if command and any(flag in one.opts for one in command.params):
                found.append(name)
    return found


input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SHAPE",
    help="Run forward() of TARGET, a file.py:Model, once with this: 1,3,224,224 or 2,16:int64<1000 or data.py:batch. Repeat it "
    "for each input.",
)
"""For a command that may call a model. `target_argument` makes it a part of the source."""


def target_argument(function: Command) -> Command:
    """Adds TARGET, `-m`, `--at` and `--continue`. The command gets them as one
    `source: Source`.
    """

    @click.pass_context
    def with_source(
        ctx: click.Context,
        /,
        target: str | None,
        module: str | None,
        at: int | None,
        keep_going: bool,
        inputs: Sequence[str] = (),
        **options: Any,
    ) -> Any:
        arguments: Sequence[str] = ctx.meta.get(ARGUMENTS, ())
        parsed = _target(ctx, target or None, module)
        if inputs:
            specs = [parse_input(text) for text in inputs]
            parsed = with_inputs(parsed, specs, at is not None)
        source = Source(parsed, tuple(arguments), at, keep_going)
        if parsed.kind == "graph":
            return ctx.invoke(function, source=source, **options)
        with running(f"gradviz: running {parsed.short} {_until(ctx, source)}"):
            return ctx.invoke(function, source=source, **options)

    with_source.__doc__, with_source.__name__ = function.__doc__, function.__name__
    with_source.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    for decorate in (
        click.option(
            "--continue",
            "keep_going",
            is_flag=True,
            help="Run the script to its end, instead of stopping there.",
        ),
        click.option(
            "--at",
            type=click.IntRange(min=1),
            metavar="K",
            help="Read the K-th backward call instead of the first. With :name, look the name up there.",
        ),
        click.option(
            "-m",
            "--module",
            metavar="MODULE[:NAME]",
            help="Run this module as python -m does, instead of a TARGET.",
        ),
        click.argument(
            "target", required=False, metavar="TARGET", shell_complete=_files
        ),
    ):
        decorate(with_source)
    return with_source  # type: ignore[return-value]


def _until(ctx: click.Context, source: Source) -> str:
    """Up to where a script runs."""
    if source.at is not None:
        return f"up to backward call {source.at}"
    if source.target.name:
        return "to its end"
    event = "optimizer step" if ctx.command.name == "tensors" else "backward()"
    return f"up to its first {event}"


def _files(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shell completes the names of files."""
    return [CompletionItem(incomplete, type="file")]


def _target(ctx: click.Context, target: str | None, module: str | None) -> Target:
    if module is not None and target is not None:
        raise click.UsageError(
            f"-m {module} is the target, so remove {target!r}. Arguments of the module go after --."
        )

    if module is not None:
        return parse_module(module)

    if target is None:
        parameter = next(
            param for param in ctx.command.params if param.name == "target"
        )
        raise click.MissingParameter(ctx=ctx, param=parameter)

    return parse_target(target)
