"""The TARGET argument that commands share, the options about running a script, and reading the graph they name.

Imports torch only when a script is run: a saved graph is read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gradviz.cli.options import feature_option
from gradviz.cli.progress import Waiting, progress
from gradviz.cli.role import role
from gradviz.errors import TargetError
from gradviz.features import hook, is_there
from gradviz.rank import rank
from gradviz.run.program import Target, parse_module, parse_target
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings
    from gradviz.gradients.flow import GradientFlow
    from gradviz.gradients.live import LiveGraph
    from gradviz.gradients.numbers import ComputedNumbers
    from gradviz.graph import Graph
    from gradviz.memory.checkpoint import StepTime
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs


# Measures the gradients of what a script led to, while its tensors are alive, for the commands that show them.

run_custom_option = feature_option(
    "gradients",
    "--run-custom",
    is_flag=True,
    help="Also call the backward of custom Functions. They may keep state, so the script's own run may change.",
)


def measured(live: LiveOutputs, run_custom: bool = False, values: Sequence[ComputedNumbers] = ()) -> GradientFlow:
    """The gradients behind the outputs; with `values` the numbers of small ones, too."""
    from gradviz.gradients.flow import measure

    kept = values[0] if values else False
    return measure(opened(live), run_custom=run_custom, values=kept).with_names(live.names)


def opened(live: LiveOutputs) -> LiveGraph:
    """The live graph behind the outputs."""
    from gradviz.gradients.live import open_graph

    return open_graph(live.outputs, variables=live.variables, title=live.title, attribution=live.attribution)


def with_backward(live: LiveOutputs, run_custom: bool = False, values: Sequence[ComputedNumbers] = ()) -> Graph:
    """The graph behind the outputs, with its gradients and the order of backward, and what must be known of them."""
    flow = measured(live, run_custom, values)
    notes = (*live.notes, *(note for note in flow.notes if note not in live.notes))
    return replace(flow.graph, notes=notes)


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@contextmanager
def watched(target: str, *arguments: Any) -> Iterator[list[Any]]:
    """Around the script: what `target` (`module:name`) makes watches the calls of torch, from the moment torch is there.

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
_FIRST_CALL, _END = "until its first backward()", "to its end"  # what a script is run for


class TargetCommand(click.Command):
    """A command whose line may end in `-- ARGUMENTS OF THE SCRIPT`, which click must not read, and that several ranks may run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += _rank_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args
        if "--" in args:
            end = args.index("--")
            ours, ctx.meta[ARGUMENTS] = args[:end], tuple(args[end + 1 :])
        return super().parse_args(ctx, ours)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Where a launcher started several processes of it, they report together unless told otherwise."""
        ranks, wait = ctx.params.pop("ranks"), ctx.params.pop("ranks_wait")
        one_of_several = hook("gradviz.ranks.part:one_of_several") if rank() is not None else None
        if one_of_several is None:
            return super().invoke(ctx)
        return one_of_several(ctx, super().invoke, ranks == "merged", wait)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE SCRIPT]"]


def _rank_options() -> list[click.Option]:
    return [
        click.Option(
            ["--ranks"],
            type=click.Choice(["merged", "each"]),
            default="merged",
            show_default=True,
            help="Under torchrun: one report for all ranks of this machine, or one for each rank.",
        ),
        click.Option(
            ["--ranks-wait"],
            type=click.FloatRange(min=0),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Under torchrun: how long a rank may wait in a torch.distributed call that no other rank joins.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Source:
    """What to look at and how to run it, as the command line gave it."""

    target: Target
    arguments: tuple[str, ...]
    at: int | Sequence[int] | None
    keep_going: bool
    record: bool = True
    run_custom: bool = False  # for gradients only
    values: bool = False  # of small tensors, with the gradients

    def graph(self, *, backward: bool = False, read: Callable[[LiveOutputs], Graph] | None = None) -> RunResult[Graph]:
        """Read the saved graph, or run the script. Call `raise_failure()` of the result when its graph is written.

        With `backward` the graph knows its gradients and the order of backward, unless it was saved without them. `read`
        reads what a script led to, where `gradviz.run.run.read_graph` is not to do it.
        """
        if self.target.kind != "graph":
            return role().left_graph(self.target) or self._graph_of_run(backward, read)
        from gradviz.graph.files import load
        from gradviz.run.ending import RunResult

        self._refuse_script_options()
        with reading():
            return RunResult(load(self.target.place), self.target)

    def _graph_of_run(self, backward: bool, read: Callable[[LiveOutputs], Graph] | None) -> RunResult[Graph]:
        from gradviz.run.run import read_graph

        nothing: AbstractContextManager[list[Any]] = nullcontext([])
        noted = watched("gradviz.gradients.numbers:ComputedNumbers") if self.values else nothing
        whole_step = not backward and not isinstance(self.at, Sequence) and is_there("gradviz.ranks")
        with noted as values:
            gradients = partial(with_backward, run_custom=self.run_custom, values=values)
            read = gradients if backward else read or read_graph
            captured = self.read(role().reads(read, whole_step), whole_step=whole_step)
        if whole_step and captured.later:
            from gradviz.ranks.pipeline import joined

            captured = replace(captured, result=joined((captured.result, *captured.later)), later=())
        role().leave_graph(captured)
        return captured

    def timed_graph(self) -> tuple[RunResult[Graph], StepTime | None]:
        """The same with the seconds of every module, measured over a few steps, and of a step; None for a saved graph."""
        if self.target.kind == "graph":
            return self.graph(), None
        from gradviz.gradients.times import STEPS, ended, timed, together

        captured = self.read(timed, steps=STEPS, afterwards=ended)
        graph, step = together((captured.result, *captured.later))
        return replace(captured, result=graph, later=()), step  # type: ignore[arg-type, return-value]

    def read(
        self,
        read: Callable[[LiveOutputs], T],
        *,
        need_graph: bool = True,
        whole_step: bool = False,
        steps: int | None = None,
        afterwards: Callable[[T, bool | None], T] | None = None,
    ) -> RunResult[T]:
        """Run the script and `read` what it leads to, while it is alive. Raises TargetError for a saved graph.

        The options are those of `Run`.
        """
        from gradviz.run.run import Run

        calls = None  # where it is read when it has ended, nobody waits for it
        if need_graph or self.at is not None:
            calls = 0 if self.target.name and self.at is None else self._last_call
        until = _FIRST_CALL if need_graph else _END if self.keep_going else "until its first optimizer step"
        with self._waiting(until, _END if self.keep_going else "") as around:
            return Run(
                self.target,
                read,
                self.arguments,
                at=self.at,
                keep_going=role().runs_on(self.keep_going, calls),
                record=self.record,
                need_graph=need_graph,
                around=around,
                whole_step=whole_step,
                steps=steps,
                afterwards=afterwards,
            ).captured()

    @contextmanager
    def _waiting(self, until: str, then: str) -> Iterator[Callable[[], AbstractContextManager[object]]]:
        """Say what is waited for while the script runs. Yields what goes around each reading."""
        if self.at is not None:
            until = f"until its backward() call {self._last_call}"
        elif self.target.name:
            until = _END
        script, waiting = one_line(self.target.short), Waiting()
        if rank() is not None:
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

    def findings(self, **options: Any) -> RunResult[Findings]:
        """Run the script and check its graphs. Options: `gradviz.checks.check.check_target`."""
        left = role().left_findings(self.target, options.get("only", ()), options.get("ignore", ()))
        return left or self._findings_of_run(options)

    def _findings_of_run(self, options: Mapping[str, Any]) -> RunResult[Findings]:
        from gradviz.checks.check import STEPS, check_target

        if self.target.kind == "graph":
            raise TargetError(
                f"{self.target.place!r} is a saved graph, and checks read live tensors, models and optimizers: give the script."
            )
        own = role()
        calls = None if self.target.name else self._last_call + (options.get("steps") or STEPS) - 1
        read_on = self.at is not None or options.get("steps") is not None
        then = "until its last call" if read_on else "and watching later calls (Ctrl-C: report now)"
        with self._waiting(_FIRST_CALL, then) as around:
            captured = check_target(
                self.target,
                self.arguments,
                at=self.at,
                keep_going=own.runs_on(self.keep_going, calls),
                record=self.record,
                around=around,
                process=own.process,
                seen=own.seen,
                **options,
            )
        own.leave_findings(captured)
        return captured

    def _refuse_script_options(self) -> None:
        for given, what in (
            (self.arguments, "arguments after --"),
            (self.at is not None, "--at"),
            (self.keep_going, "--continue"),
        ):
            if given:
                raise TargetError(f"{self.target.place!r} is a saved graph, which runs no script: leave out {what}.")


def reading() -> AbstractContextManager[object]:
    """Shows how far it is while a graph is read."""
    return progress("reading the graph")


time_option = feature_option(
    "gradients",
    "--time",
    "with_time",
    is_flag=True,
    help="Time forward and backward of each module, over the first 6 backward calls: medians, without the first.",
)


def target_argument(function: F) -> F:
    """Adds TARGET, `-m`, `--at` and `--continue`. The command gets them as one `source: Source`."""

    @click.pass_context
    def with_source(
        ctx: click.Context,
        /,
        target: str | None,
        module: str | None,
        at: int | None,
        keep_going: bool,
        record: bool,
        **options: Any,
    ) -> Any:
        arguments: Sequence[str] = ctx.meta.get(ARGUMENTS, ())
        source = Source(_target(ctx, target, module), tuple(arguments), at, keep_going, record)
        return ctx.invoke(function, source=source, **options)

    with_source.__doc__, with_source.__name__ = function.__doc__, function.__name__
    with_source.__click_params__ = list(getattr(function, "__click_params__", ()))  # type: ignore[attr-defined]
    for decorate in (
        click.option(
            "--record/--no-record",
            default=True,
            show_default=True,
            help="Record modules and source lines; --no-record runs faster.",
        ),
        click.option(
            "--continue", "keep_going", is_flag=True, help="Run the script to its end after that backward call."
        ),
        click.option(
            "--at",
            type=click.IntRange(min=1),
            metavar="K",
            help="Read the K-th backward call instead of the first. With :name, look the name up there.",
        ),
        click.option(
            "-m", "--module", metavar="MODULE[:NAME]", help="Run this module as python -m does, instead of a TARGET."
        ),
        click.argument("target", required=False, metavar="TARGET", shell_complete=_files),
    ):
        decorate(with_source)
    return with_source  # type: ignore[return-value]


def _files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes the names of files."""
    return [CompletionItem(incomplete, type="file")]


def _target(ctx: click.Context, target: str | None, module: str | None) -> Target:
    if module is not None and target is not None:
        raise click.UsageError(f"-m {module} is the target, so remove {target!r}. Arguments of the module go after --.")
    if module is not None:
        return parse_module(module)
    if target is None:
        parameter = next(param for param in ctx.command.params if param.name == "target")
        raise click.MissingParameter(ctx=ctx, param=parameter)
    return parse_target(target)
