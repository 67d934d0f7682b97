"""A run of the user's code under watch: reads the calls that matter, and puts what the
watches have seen together in the end.

Judges nothing: it makes the contexts that checks are run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.lines import raised
from gradviz.checks.collect.replay import FunctionReplay
from gradviz.checks.collect.watch import RunWatch
from gradviz.checks.context import CheckContext, Gradients, LeafGradient
from gradviz.checks.finding import Findings
from gradviz.checks.words import Names, all_names
from gradviz.errors import GradvizError, reason_of
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph, stopped_note
from gradviz.graph import Graph
from gradviz.run.ending import Failure, RunResult
from gradviz.run.engine import EngineCall
from gradviz.run.outputs import LiveOutputs
from gradviz.run.program import Target
from gradviz.wording import one_line, plural


class WatchedRun:
    """Of one run. `process` puts the process into each graph. `cuts`: keep what was cut
    off, to draw it.
    """

    def __init__(
        self,
        target: Target,
        limits: Gradients,
        *,
        values: bool,
        run_custom: bool,
        cuts: bool,
        process: Callable[[Graph, LiveOutputs], Graph] | None,
    ) -> None:
        self._target, self._limits, self._values, self._run_custom = (
            target,
            limits,
            values,
            run_custom,
        )
        self._process = process
        self._differentiates_again = False  # whether a call had create_graph=True
        self._reader = reader = Collector(
            values=values,
            limits=limits,
            cuts=cuts,
        )
        self._record, paused = reader.recorder.record, reader.calls.paused
        self._replay = FunctionReplay(run_custom)
        self.calls = RunWatch(
            reader.recorder, reader.place, reader.misuses, self._passed, paused
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the user's code may run."""
        reader = self._reader
        watches: list[Any] = [
            reader.recorder,
            *reader.observers,
            self._replay,
            reader.calls,
        ]
        with ExitStack() as until:
            for watch in watches:
                until.enter_context(watch.watching())
            yield

    def _passed(
        self,
        number: int,
        call: EngineCall,
        reading: bool,
    ) -> None:
        self._differentiates_again |= call.create_graph
        self._reader.recorder.backward(number, call.frame, call.accumulates)
        self._reader.passed(number, reading)

    def read(self, live: LiveOutputs) -> CheckContext:
        """What is known at a call."""
        with self._reader.calls.paused():
            context = self._reader.read(live, scaled=self._record.scaled)
            if self._process is not None:
                graph = self._process(context.graph, live)
            else:
                graph = context.graph

            guessed = live.call is None and not self._target.name
            context = replace(
                context,
                graph=graph,
                guessed=guessed,
                unfinished=guessed and bool(live.notes),
                losses=tuple(self.calls.losses)[:-1],
                in_step=self._reader.recorder.in_step,
            )
            told = self._values or (context.values is not None and not live.ran)

            if told:
                return with_gradients(
                    context, live, None, self._limits, self._run_custom
                )

            return context

    def hooks(self, runs_on: bool) -> dict[str, Any]:
        """What `Run` calls."""
        if runs_on:
            later = {
                "look": self.calls,
                "ended": self.calls.ended,
            }
        else:
            later = {}

        return {
            "afterwards": self._afterwards,
            "nothing": CheckContext(Graph()),
            **later,
        }

    def _afterwards(self, context: CheckContext, filled: bool | None) -> CheckContext:
        """The same when the call has run."""
        context = self._reader.afterwards(context, filled)
        self.calls.seen_enough |= _is_broken(context) and not self._record.scaled
        return context

    def contexts(
        self, captured: RunResult[CheckContext], steps: int, runs_on: bool
    ) -> list[CheckContext]:
        """Those of all calls; the last one has the record of the run."""
        every, watch, failure = (
            [captured.result, *captured.later],
            self.calls,
            _failure(captured),
        )
        if runs_on:
            stopped = bool(captured.until) or watch.seen_enough
        else:
            stopped = len(every) >= steps

        record = self._reader.recorder.result(failure is None and not stopped)
        record.evaluations = tuple(watch.unused.values())
        record.histories = watch.histories(
            [history for context in every for history in context.retained]
        )
        record.cuts = tuple(
            dict.fromkeys(cut for context in every for cut in context.cuts)
        )
        seen = self._reader.misuses.result(self._reader.cuts.lines_behind())
        again = self._replay.once_more if self._differentiates_again else ()
        record.misuses = (*seen, *self._replay.found, *again)
        record.raised = raised(failure.error) if failure is not None else None
        awake = {
            name: call
            for key, call in watch.nonzero.items()
            for name in self._reader.leaf_names.get(key, ())
        }
        used = {name for key in watch.reached for name in record.names.get(key, ())}
        return _with_other_calls(
            [*every[:-1], replace(every[-1], record=record)],
            used,
            awake,
            watch.looked,
        )

    def told(
        self, findings: Findings, captured: RunResult[CheckContext], runs_on: bool
    ) -> Findings:
        """The findings with what was left out, and why; how far the run was watched;
        and how it failed.
        """
        skipped, notes, failure = (
            (*findings.skipped, *self._reader.dropped.items()),
            findings.notes,
            _failure(captured),
        )
        unknown = [f"{name} {why}" for name, why in self._replay.unknown.items() if why]

        if unknown:
            skipped = (
                *skipped,
                ("wrong-backward", ", ".join(unknown)),
            )

        if captured.unread:
            skipped = (*skipped, ("later calls", one_line(captured.unread)))

        later = captured.calls - 1 - len(captured.later)
        if runs_on and later > 0:
            if captured.until:
                end = f"until {captured.until}"
            else:
                end = "to the end of the script"
            end = "until a loss was not finite" if self.calls.seen_enough else end
            end = "until the script failed" if captured.failure is not None else end
            notes = (
                *notes,
                f"Also watched {plural(later, 'later backward call')}, {end}.",
            )

        failed = one_line(reason_of(failure.error)) if failure is not None else ""
        return replace(findings, skipped=skipped, notes=notes, failed=failed)


def _failure(captured: RunResult[CheckContext]) -> Failure | None:
    """How the script failed; to exit is no failure."""
    if captured.failure is not None and captured.failure.exit_code is None:
        return captured.failure
    return None


def _with_other_calls(
    every: Sequence[CheckContext],
    used: set[str],
    awake: Mapping[str, int],
    looked: Sequence[int],
) -> list[CheckContext]:
    """Each with what is known of the other backward calls: the parameters that they
    use, and those that get a gradient there.

    `used` and `awake` are those of calls that were not read, with the last call;
    `looked` are those of which gradients are known.
    """
    users = [_users(context) for context in every]
    zero = next(
        (
            _names(context, zero=True)
            for context in every
            if context.gradients is not None
        ),
        frozenset[str](),
    )
    nonzero = [_names(context, zero=False) for context in every]

    return [
        replace(
            context,
            used_later=frozenset(used).union(
                *users[:i],
                *users[i + 1 :],
            ),
            nonzero_later=frozenset(awake).union(
                *nonzero[:i],
                *nonzero[i + 1 :],
            ),
            nonzero_after=frozenset(
                name
                for name, call in awake.items()
                if context.call is None or call > context.call
            ).union(*nonzero[i + 1 :]),
            looked_after=sum(
                context.call is not None and call > context.call for call in looked
            ),
            zero_at_first=zero,
            broken_before=any(map(_is_broken, every[:i])),
            before=last.graph if last is not None else None,
            loss_before=last.loss if last is not None else None,
        )
        for i, (context, last) in enumerate(zip(every, [None, *every]))
    ]


def _is_broken(context: CheckContext) -> bool:
    """Whether a call has left gradients that are not finite."""
    return any(leaf.nonfinite for leaf in context.leaf_gradients)


def _users(context: CheckContext) -> Names:
    """The names of what takes part in a call: a compiled function is given parameters
    that do not, too.
    """
    idle = {one.compiled for one in context.parameters}
    leaves = (leaf for leaf in context.graph.leaves if leaf.node not in idle)
    return all_names(
        [
            *leaves,
            *(one for one in context.parameters if one.node is not None or one.filled),
        ]
    )


def _names(context: CheckContext, *, zero: bool) -> frozenset[str]:
    """Names of the leaves with a gradient that is all zero, or that is not."""
    leaves = (
        context.graph.leaf_of[leaf.node]
        for leaf in context.leaf_gradients
        if (leaf.zeros == 1.0) == zero
    )
    return frozenset(name for leaf in leaves for name in leaf.names)


def with_gradients(
    context: CheckContext,
    outputs: LiveOutputs,
    model: torch.nn.Module | None,
    limits: Gradients,
    run_custom: bool,
) -> CheckContext:
    """The context with what backward would compute, or with why it is not computed:
    that takes no other finding away.
    """
    graph = context.graph
    if all(root.node is None for root in graph.roots):
        return context

    # computing them would run code of the user's that may not bear it
    packed = (
        f"saved tensors are packed by a hook, which would have to run ({slot.note})"
        for node in graph.nodes
        for slot in node.saved
        if slot.state == "packed" and slot.packing != "offload"
    )
    problem = next(packed, "")
    if not problem:
        try:
            live = open_graph(outputs.outputs, model=model, variables=outputs.variables)
            flow = measure(live, run_custom=run_custom)
        except GradvizError as error:
            problem = str(error)
        except Exception as error:
            # out of memory, or an operation that a class of tensors does not have
            problem = f"computing them raised {reason_of(error)}"

    if problem:
        return replace(context, gradients=limits._replace(problem=problem))

    leaves = tuple(
        LeafGradient(leaf.node, leaf.norm, leaf.zeros, leaf.nonfinite)
        for leaf in flow.leaves
    )
    leaving = {
        measured.edge.consumer
        for measured in flow.edges
        if measured.size is not None and measured.size.nonfinite
    }
    arriving = {node for node, size in flow.incoming.items() if not size.nonfinite}
    broken = tuple(node for node in flow.order if node in leaving & arriving)
    stopped = "; ".join(stopped_note(flow.graph, flow.stopped, flow.unmeasured))
    gradients = limits._replace(leaves=leaves, nonfinite=broken, problem=stopped)
    return replace(context, gradients=gradients)
