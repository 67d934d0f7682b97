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
from gradviz.checks.collect.failures import raised
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
from gradviz.run.target import Target
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
        self._reader.steps.passed(number, reading)

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
        every, watch, reader = (
            (captured.result, *captured.later),
            self.calls,
            self._reader,
        )
        failure = _failure(captured)
        stopped = len(every) >= steps
        if runs_on:
            stopped = bool(captured.until) or watch.seen_enough

        record = reader.recorder.result(failure is None and not stopped)
        known = [history for context in every for history in context.retained]
        cuts = dict.fromkeys(cut for context in every for cut in context.cuts)
        again = self._replay.once_more if self._differentiates_again else ()
        seen = reader.misuses.result(reader.cuts.lines_behind())
        record.evaluations = tuple(watch.unused.values())
        record.histories, record.cuts = watch.histories(known), tuple(cuts)
        record.misuses = (*seen, *self._replay.found, *again)
        record.raised = raised(failure.error) if failure is not None else None
        nonzero = {
            name: call
            for key, call in watch.nonzero.items()
            for name in reader.leaf_names.get(key, ())
        }
        used = {name for key in watch.reached for name in record.names.get(key, ())}
        last = replace(every[-1], record=record)
        return _with_other_calls([*every[:-1], last], used, nonzero, watch.looked)

    def told(
        self, findings: Findings, captured: RunResult[CheckContext], runs_on: bool
    ) -> Findings:
        """The findings with what was left out, and why; how far the run was watched;
        and how it failed.
        """
        failure, notes = _failure(captured), findings.notes
        unknown = [f"{name} {why}" for name, why in self._replay.unknown.items() if why]
        left_out = dict(self._reader.dropped)
        if unknown:
            left_out["wrong-backward"] = ", ".join(unknown)
        if captured.unread:
            left_out["later calls"] = one_line(captured.unread)

        later = captured.calls - 1 - len(captured.later)
        if runs_on and later > 0:
            end = "to the end of the script"
            if captured.failure is not None:
                end = "until the script failed"
            elif self.calls.seen_enough:
                end = "until a loss was not finite"
            elif captured.until:
                end = f"until {captured.until}"
            watched = plural(later, "later backward call")
            notes = (*notes, f"Also watched {watched}, {end}.")

        failed = one_line(reason_of(failure.error)) if failure is not None else ""
        skipped = (*findings.skipped, *left_out.items())
        return replace(findings, skipped=skipped, notes=notes, failed=failed)


def _failure(captured: RunResult[CheckContext]) -> Failure | None:
    """How the script failed; to exit is no failure."""
    if captured.failure is not None and captured.failure.exit_code is None:
        return captured.failure
    return None


def _with_other_calls(
    every: Sequence[CheckContext],
    used: set[str],
    nonzero: Mapping[str, int],
    looked: Sequence[int],
) -> list[CheckContext]:
    """Each with what is known of the other backward calls: the parameters that they
    use, and the last one in which a leaf got a gradient that is not zero.

    `used` and `nonzero` are those of calls that were not read; of those in `looked`
    gradients are known.
    """
    users, last = [_users(context) for context in every], dict(nonzero)
    for context in every:
        for leaf in context.leaf_gradients:
            if leaf.zeros < 1:
                names = context.graph.leaf_of[leaf.node].names
                last |= dict.fromkeys(names, context.call or 0)

    return [
        replace(
            context,
            used_later=frozenset(used).union(*users[:i], *users[i + 1 :]),
            nonzero={**last, **nonzero},
            looked=tuple(looked),
            broken_before=any(map(_is_broken, every[:i])),
            before=previous.graph if previous is not None else None,
            loss_before=previous.loss if previous is not None else None,
        )
        for i, (context, previous) in enumerate(zip(every, [None, *every]))
    ]


def _is_broken(context: CheckContext) -> bool:
    """Whether a call has left gradients that are not finite."""
    return any(leaf.nonfinite for leaf in context.leaf_gradients)


def _users(context: CheckContext) -> Names:
    """The names of what takes part in a call: a compiled function is given parameters
    that do not, too.
    """
    parameters = context.parameters
    idle = {one.compiled for one in parameters}
    leaves = [leaf for leaf in context.graph.leaves if leaf.node not in idle]
    filled = [one for one in parameters if one.node is not None or one.filled]
    return all_names([*leaves, *filled])


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
