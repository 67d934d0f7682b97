"""A run of the user's code under watch: reads the calls that matter, and puts what the
watches have seen together in the end.

Judges nothing: it makes the rows that checks are run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gradviz.armour.taps import all_tapped
from gradviz.checks.call import BackwardCall
from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.computed import compute_gradients
from gradviz.checks.collect.failures import raised
from gradviz.checks.collect.functions import FunctionReplay, used_functions
from gradviz.checks.collect.watch import RunWatch
from gradviz.checks.finding import Findings
from gradviz.checks.run import Kind
from gradviz.errors import reason_of
from gradviz.graph import Graph
from gradviz.run.ending import RunResult
from gradviz.run.outputs import LiveOutputs
from gradviz.run.reading import with_process
from gradviz.run.target import Target
from gradviz.wording import one_line, plural


class WatchedRun:
    """Of one run, which `runs_on` after the calls that are read. `cuts`: keep what was
    cut off, to draw it.
    """

    def __init__(
        self, target: Target, *, runs_on: bool, values: bool, cuts: bool
    ) -> None:
        self._target, self._values, self._runs_on = target, values, runs_on
        self._collector = Collector(values=values, cuts=cuts)
        recorder = self._collector.recorder
        self._run = recorder.run
        self._functions = FunctionReplay(recorder)
        self._watch = RunWatch(recorder)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the user's code may run."""
        listeners = (*self._functions.listeners(), *self._watch.listeners())
        with self._collector.watching(), all_tapped(listeners):
            yield

    def read(self, live: LiveOutputs) -> BackwardCall:
        """What is known at a call."""
        call = self._collector.read(live)
        call.graph = with_process(call.graph)
        call.guessed = live.call is None and not self._target.name
        if self._values or (call.values is not None and not live.ran):
            compute_gradients(call, live)
        return call

    def hooks(self) -> dict[str, Any]:
        """What `Run` calls."""
        hooks: dict[str, Any] = {
            "afterwards": self._afterwards,
            "nothing": BackwardCall(Graph(), self._run),
            "tells": lambda: self._run.stepped,
        }
        if self._runs_on:
            hooks |= {"watch": self._watch, "ended": self._watch.ended}
        return hooks

    def _afterwards(self, call: BackwardCall, filled: bool | None) -> BackwardCall:
        """A call has run."""
        self._watch.engine_ended()
        self._collector.afterwards(call, filled)
        self._watch.seen_enough |= call.is_broken and not self._run.scaled
        return call

    def finish(
        self, captured: RunResult[BackwardCall], steps: int
    ) -> list[BackwardCall]:
        """The calls that were read, when the run with all that was seen is complete."""
        run, watch = self._run, self._watch
        run.read = [captured.result, *captured.later]
        stopped = len(run.read) >= steps
        if self._runs_on:
            stopped = bool(captured.until) or watch.seen_enough

        error = captured.error
        run.ended = error is None and not stopped
        if error is not None:
            run.raised = raised(error, self._collector.recorder)
        # a backward() that is not differentiated need not be right in that
        if not run.differentiated:
            run.log = [each for each in run.log if each.kind != Kind.SECOND_SLOPE]
        # nor need that of the loss itself ask for its gradient, which is 1
        if any(each.kind == Kind.NO_CHAIN for each in run.log):
            used = {name for call in run.read for name in used_functions(call.graph)}
            run.log = [
                each
                for each in run.log
                if each.kind != Kind.NO_CHAIN or each.about[0] in used
            ]
        return run.read

    def told(self, findings: Findings, captured: RunResult[BackwardCall]) -> Findings:
        """The findings with what was left out, and why; how far the run was watched;
        and how it failed.
        """
        error, notes = captured.error, findings.notes
        left_out = dict(self._collector.recorder.dropped)
        graphs = [call.graph for call in self._run.read]
        unknown = [*self._functions.unknown, *self._functions.unseen(graphs)]
        if unknown:
            left_out["wrong-backward"] = ", ".join(unknown)
        if captured.unread:
            left_out["later calls"] = one_line(captured.unread)

        later = captured.calls - len(self._run.read)
        if self._runs_on and later > 0:
            watched = plural(later, "later backward call")
            notes = (*notes, f"Also watched {watched}, {self._end_of(captured)}.")
        failed = one_line(reason_of(error)) if error is not None else ""
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
