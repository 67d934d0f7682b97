"""A run of the user's code under watch: reads the calls that matter, and puts what the
watches have seen together in the end.

Judges nothing: it makes the rows that checks are run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gradviz.checks.call import BackwardCall
from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.computed import compute_gradients
from gradviz.checks.collect.failures import raised
from gradviz.checks.collect.functions import FunctionReplay
from gradviz.checks.collect.watch import RunWatch
from gradviz.checks.finding import Findings
from gradviz.checks.run import Kind
from gradviz.checks.words import Names, all_names
from gradviz.errors import reason_of
from gradviz.graph import Graph
from gradviz.run.ending import Failure, RunResult
from gradviz.run.outputs import LiveOutputs
from gradviz.run.reading import with_process
from gradviz.run.target import Target
from gradviz.walker.taps import all_tapped
from gradviz.wording import one_line, plural


class WatchedRun:
    """Of one run. `cuts`: keep what was cut off, to draw it."""

    def __init__(
        self,
        target: Target,
        *,
        values: bool,
        cuts: bool,
    ) -> None:
        self._target, self._values = target, values
        self._collector = Collector(values=values, cuts=cuts)
        self._run = self._collector.run
        self._functions = FunctionReplay(self._collector.recorder)
        self._watch = RunWatch(self._collector)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the user's code may run."""
        listeners = (*self._functions.listeners(), *self._watch.listeners())
        with self._collector.watching(), all_tapped(listeners):
            yield

    def read(self, live: LiveOutputs) -> BackwardCall:
        """What is known at a call."""
        with self._collector.calls.paused():
            call = self._collector.read(live)
            call.graph = with_process(call.graph)
            call.guessed = live.call is None and not self._target.name
            call.unfinished = call.guessed and bool(live.notes)
            if self._values or (call.values is not None and not live.ran):
                compute_gradients(call, live)
            return call

    def hooks(self, runs_on: bool) -> dict[str, Any]:
        """What `Run` calls."""
        hooks: dict[str, Any] = {
            "afterwards": self._afterwards,
            "nothing": BackwardCall(Graph(), self._run),
        }
        if runs_on:
            hooks |= {"look": self._watch, "ended": self._watch.ended}
        return hooks

    def _afterwards(self, call: BackwardCall, filled: bool | None) -> BackwardCall:
        """A call has run."""
        self._watch.engine_ended()
        self._collector.afterwards(call, filled)
        self._watch.seen_enough |= call.is_broken and not self._run.scaled
        return call

    def finish(
        self, captured: RunResult[BackwardCall], steps: int, runs_on: bool
    ) -> list[BackwardCall]:
        """The calls that were read, when the run with all that was seen is complete."""
        run, watch, collector = self._run, self._watch, self._collector
        run.read = [captured.result, *captured.later]
        failure = _failure(captured)
        stopped = len(run.read) >= steps
        if runs_on:
            stopped = bool(captured.until) or watch.seen_enough

        run.ended = failure is None and not stopped
        run.raised = raised(failure.error) if failure is not None else None
        run.trained_with = collector.cuts.lines_behind()
        # a backward() that is not differentiated need not be right in that
        if not watch.differentiates_again:
            run.log = [each for each in run.log if each.kind != Kind.SECOND_SLOPE]
        self._relate()
        return run.read

    def _relate(self) -> None:
        """Note which parameters the calls use, and when a leaf got a gradient that is
        not zero.
        """
        run, watch = self._run, self._watch
        for key in watch.reached:
            run.used.update(run.names.get(key, ()))
        for call in run.read:
            run.used.update(_users(call))
            for leaf in call.leaf_gradients:
                if leaf.norm:
                    names = call.graph.leaf_of[leaf.node].names
                    run.nonzero |= dict.fromkeys(names, call.call or 0)

        for key, number in watch.nonzero.items():
            run.nonzero |= dict.fromkeys(run.names.get(key, ()), number)

    def told(
        self, findings: Findings, captured: RunResult[BackwardCall], runs_on: bool
    ) -> Findings:
        """The findings with what was left out, and why; how far the run was watched;
        and how it failed.
        """
        failure, notes = _failure(captured), findings.notes
        unknown = self._functions.unknown.items()
        reasons = [f"{name} {why}" for name, why in unknown]
        left_out = dict(self._collector.dropped)
        if reasons:
            left_out["wrong-backward"] = ", ".join(reasons)
        if captured.unread:
            left_out["later calls"] = one_line(captured.unread)

        later = captured.calls - 1 - len(captured.later)
        if runs_on and later > 0:
            watched = plural(later, "later backward call")
            notes = (*notes, f"Also watched {watched}, {self._end_of(captured)}.")
        failed = one_line(reason_of(failure.error)) if failure is not None else ""
        skipped = (*findings.skipped, *left_out.items())
        return replace(findings, skipped=skipped, notes=notes, failed=failed)

    def _end_of(self, captured: RunResult[BackwardCall]) -> str:
        if captured.failure is not None:
            return "until the script failed"
        if self._watch.seen_enough:
            return "until a loss was not finite"
        if captured.until:
            return f"until {captured.until}"
        return "to the end of the script"


def _failure(captured: RunResult[BackwardCall]) -> Failure | None:
    """How the script failed; to exit is no failure."""
    if captured.failure is not None and captured.failure.exit_code is None:
        return captured.failure
    return None


def _users(call: BackwardCall) -> Names:
    """The names of what takes part in a call."""
    filled = [parameter for parameter in call.parameters if parameter.filled]
    return all_names([*call.graph.leaves, *filled])
