"""The TARGET argument that commands share, the options about running a script, and
reading the graph they name.

Imports torch only when a script is run: a saved graph is read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gradviz.cli.help import GroupedCommand
from gradviz.cli.launch import launched, process_hook, rank_option, reports
from gradviz.cli.options import with_feature
from gradviz.cli.progress import Waiting, progress
from gradviz.cli.streams import complain
from gradviz.errors import OutputError, TargetError
from gradviz.features import hook, load
from gradviz.run.program import Target, parse_module, parse_target
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs


run_custom_option = with_feature(
    "gradients",
    click.option(
        "--run-custom",
        is_flag=True,
        help="Also call the backward of custom Functions. They may keep state, so the script's own run may change.",
    ),
)


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@contextmanager
def watched(
    target: str,
    *arguments: Any,
) -> Iterator[list[Any]]:
    """Around the script: what `target` (`module:name`) makes watches the calls of
    torch, from the moment torch is there.

    Nothing does where its feature is not there.
    """
    from gradviz.run.engine import when_imported

    made: list[Any] = []

    def begin() -> None:
        make = hook(target)
        if make is not None:
            made.append(make(*arguments))
            until.enter_context(made[0].watching())

    with ExitStack() as until, when_imported("torch", begin):
        yield made


ARGUMENTS = "gradviz.arguments"
# what a script is run for
FIRST_CALL, _END = "until its first backward()", "to its end"


@contextmanager
def shown_in_any_case(captured: RunResult[Any]) -> Iterator[None]:
    """Around what writes a result to a file: where that fails, how the script failed is
    told all the same.
    """
    try:
        yield
    except OutputError as error:
        if captured.failure is not None:
            complain(f"Error: {error}")
        captured.raise_failure()
        raise


class TargetCommand(GroupedCommand):
    """A command whose line may end in `-- ARGUMENTS OF THE SCRIPT`, which click must
    not read, and that several ranks may run.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), rank_option()]

    def parse_args(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> list[str]:
        ours = args
        if "--" in args:
            end = args.index("--")
            ours, ctx.meta[ARGUMENTS] = args[:end], tuple(args[end + 1 :])
        return super().parse_args(ctx, ours)

    def invoke(self, ctx: click.Context) -> Any:
        with launched(ctx, ctx.params.pop("rank")):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE SCRIPT]"]


@dataclass(frozen=True, slots=True)
class Source:
    """What to look at and how to run it, as the command line gave it."""

    target: Target
    arguments: tuple[str, ...]
    at: int | Sequence[int] | None
    keep_going: bool
    run_custom: bool = False  # for gradients only
    values: bool = False  # of small tensors, with the gradients

    def graph(
        self,
        *,
        backward: bool = False,
        read: Callable[[LiveOutputs], Graph] | None = None,
    ) -> RunResult[Graph]:
        """Read the saved graph, or run the script. Call `raise_failure()` of the result
        when its graph is written.

        With `backward` the graph knows its gradients and the order of backward, unless
        it was saved without them. `read` reads what a script led to, where
        `gradviz.run.run.read_graph` is not to do it.
        """
        if self.target.kind != "graph":
            return self._graph_of_run(backward, read)
        from gradviz.graph.files import load
        from gradviz.run.ending import RunResult

        self._refuse_script_options()
        with reading():
            return RunResult(load(self.target.place), self.target)

    def _graph_of_run(
        self, backward: bool, read: Callable[[LiveOutputs], Graph] | None
    ) -> RunResult[Graph]:
        from gradviz.run.run import read_graph

        graph_of = read or read_graph
        if backward:
            with_backward = load("gradviz.gradients.command:with_backward")
            graph_of = partial(
                with_backward, run_custom=self.run_custom, values=self.values
            )
        process = process_hook()

        def graph_of_process(live: LiveOutputs) -> Graph:
            graph = graph_of(live)
            return graph if process is None else process(graph, live)

        return self.read(graph_of_process)

    def read(
        self,
        read: Callable[[LiveOutputs], T],
        *,
        need_graph: bool = True,
        steps: int | None = None,
    ) -> RunResult[T]:
        """Run the script and `read` what it leads to, while it is alive. Raises
        TargetError for a saved graph.

        The options are those of `Run`.
        """
        from gradviz.run.run import Run

        if need_graph:
            until = FIRST_CALL
        elif self.keep_going:
            until = _END
        else:
            until = "until its first optimizer step"
        with self.waiting(until, _END if self.keep_going else "") as around:
            return Run(
                self.target,
                read,
                self.arguments,
                at=self.at,
                keep_going=self.keep_going,
                need_graph=need_graph,
                around=around,
                steps=steps,
            ).captured()

    @contextmanager
    def waiting(
        self, until: str, then: str
    ) -> Iterator[Callable[[], AbstractContextManager[object]]]:
        """Say what is waited for while the script runs. Yields what goes around each
        reading.
        """
        if self.at is not None:
            until = f"until its backward() call {self._last_call}"
        elif self.target.name:
            until = _END
        script, waiting = one_line(self.target.short), Waiting()
        if not reports():
            until = then = ""

        @contextmanager
        def around() -> Iterator[object]:
            waiting.end()
            with progress("reading the graph") as line:
                yield line
            waiting.begin(script, then)

        waiting.begin(script, until)
        try:
            yield around
        finally:
            waiting.end()

    @property
    def _last_call(self) -> int:
        """The number of the last backward call that is looked at."""
        return max(self.at) if isinstance(self.at, Sequence) else self.at or 1

    def _refuse_script_options(self) -> None:
        for given, what in (
            (self.arguments, "arguments after --"),
            (self.at is not None, "--at"),
            (self.keep_going, "--continue"),
        ):
            if given:
                raise TargetError(
                    f"{self.target.place!r} is a saved graph, which runs no script: leave out {what}."
                )


def reading() -> AbstractContextManager[object]:
    """Shows how far it is while a graph is read."""
    return progress("reading the graph")


def target_argument(function: F) -> F:
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
        **options: Any,
    ) -> Any:
        arguments: Sequence[str] = ctx.meta.get(ARGUMENTS, ())
        source = Source(
            _target(ctx, target, module),
            tuple(arguments),
            at,
            keep_going,
        )
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


def _files(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shell completes the names of files."""
    return [CompletionItem(incomplete, type="file")]


def _target(
    ctx: click.Context,
    target: str | None,
    module: str | None,
) -> Target:
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
