"""One run of one target: which tensors are meant, and reading them at the right moment.

That is a name, else the K-th backward call, else what is left when the script ends. How code is run, how backward is seen
and how failures are shown lie in `program`, `engine` and `failure`.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gradviz.errors import GradvizError, NoGraphError, TargetError
from gradviz.rank import rank
from gradviz.run.engine import Afterwards, EngineCall, watching_backward
from gradviz.run.failure import Failure, Stopped, stoppable_main, users_code
from gradviz.run.find import check_tensors, final_tensors, lookup, outputs_of
from gradviz.run.live import Captured, LiveOutputs
from gradviz.run.program import Program
from gradviz.run.selection import (
    Chosen,
    FirstBackward,
    FirstIf,
    InARow,
    Look,
    RunOn,
    Selection,
    WholeStep,
    call_place,
    call_words,
    microbatch_of,
)
from gradviz.run.target_name import Target
from gradviz.source.running import variables_at
from gradviz.variables.scanner import Namespace, name_of

if TYPE_CHECKING:
    from gradviz.recording.record import Recording

# Counts the processes that the user's code starts with multiprocessing: what runs in them cannot be seen from here.

_COUNTER = re.compile(r"count\((\d+)")


def started() -> int:
    """How many this process has started so far, those included that have ended and been forgotten."""
    counter = getattr(sys.modules.get("multiprocessing.process"), "_process_counter", None)
    counted = _COUNTER.match(repr(counter))  # taking a value from it would change the names of processes to come
    return int(counted[1]) - 1 if counted is not None else 0


def hint(count: int) -> str:
    """What to say of them where no graph was found; "" when there were none."""
    if not count:
        return ""
    processes = "a process" if count == 1 else f"{count} processes"
    return (
        f"\nIt started {processes} of its own (multiprocessing), and a backward() in there cannot be seen from here. Have it "
        "train in its own process (many scripts have an option for the number of workers), or name a function of it that "
        "returns the loss (script.py:NAME)."
    )


T = TypeVar("T")


@dataclass
class Run(Generic[T]):
    """One run of one target. `run_target` says what the fields mean."""

    target: Target
    program: Program
    at: Sequence[int]
    keep_going: bool
    read: Callable[[LiveOutputs], T]
    recording: Callable[[], Recording | None]
    need_graph: bool
    steps: int | None
    afterwards: Callable[[T, bool | None], T] | None
    around: Callable[[], AbstractContextManager[object]]
    nothing: Callable[[], T] | None
    look: Look | None
    ended: Callable[[Sequence[Namespace]], None] | None
    whole_step: bool

    def __post_init__(self) -> None:
        place = rank()
        self._title = f"{self.target.title}, {place}" if place is not None else self.target.title
        selection = self._select(self.steps)
        self._chosen_by = type(selection)
        self._selection = WholeStep(selection) if self.whole_step and selection is not None else selection
        self._children = started()
        self._calls = 0
        self._first_place = ""  # of the call that a backward() is preferred to
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._reader: int | None = None  # the thread that is reading
        self._stop_main: Callable[[], None] = lambda: None
        self._results: list[T] = []
        self._error: Exception | KeyboardInterrupt | None = None
        self._failure: Failure | None = None

    def _select(self, steps: int | None) -> Selection | None:
        """Which calls to read; None when they are not looked at, because a name is read when the script has ended."""
        if steps is not None:
            first = self.at[0] if self.at else 1
            return InARow(first, steps) if self.look is None else RunOn(first, steps, self.look, self._out_of_patience)
        if self.at:
            return Chosen(self.at)
        if self.target.name:
            return None
        return FirstBackward(self._out_of_patience) if self.need_graph else FirstIf(self._no_global_tensors)

    def captured(self) -> Captured[T]:
        watching = watching_backward(self._on_backward) if self._selection is not None else nullcontext()
        with users_code() as outcome, stoppable_main() as self._stop_main, watching:
            try:
                self.program.run()
                if self.ended is not None:
                    self.ended([self.program.namespace])
            finally:
                if self._selection is not None:
                    self._selection.close()
        if self.program.problem is not None:
            raise self.program.problem
        self._failure = self._failure or outcome.failure
        if not self._results and self._error is None and self._failure is not None:
            self._guarded(lambda: self._read_unfinished(self._failure))
        if not self._results and self._error is None and self._failure is None:
            self._guarded(self._read_at_end)
        unread = not self._results and self._error is None and self._failure is not None
        if self.nothing is not None and unread and self._failure is not None and self._failure.exit_code is None:
            return Captured(self.nothing(), self.target, self._failure)
        if self._error is not None and not (self._results and self._unread()):
            raise self._error
        if len(self._results) < (len(set(self.at)) or 1):
            if self._failure is None:
                raise NoGraphError(self._too_few_calls())
            self._failure.raise_error(self.target, f" before {self._awaited()}")
        timed_out = isinstance(self._selection, RunOn) and self._selection.timed_out
        later = tuple(self._results[1:])
        return Captured(self._results[0], self.target, self._failure, later, self._unread(), self._calls, timed_out)

    @property
    def _done(self) -> bool:
        assert self._selection is not None
        if self._selection.enough or isinstance(self._error, KeyboardInterrupt) or self._failure is not None:
            return True
        return self._error is not None and not self._selection.standing_in

    def _unread(self) -> str:
        """Why reading several steps ended early. What had been read before must not be lost."""
        error = self._error
        if not (isinstance(error, Exception) and isinstance(self._selection, InARow)):
            return ""
        kind = "" if isinstance(error, GradvizError) else f"{type(error).__name__}: "
        return f"backward call {self._calls} could not be read: {kind}{error}"

    def _awaited(self) -> str:
        if not self.at and self.target.name:
            return f"{self.target.name} could be read"
        return "it called backward()" if max(self.at, default=1) == 1 else f"its backward() call {self.at[-1]}"

    def _guarded(self, action: Callable[[], None]) -> None:
        """Keep what `read` or the search raises: it happens inside the user's code, which must not catch it."""
        try:
            action()
        except (Exception, KeyboardInterrupt) as error:
            self._error = error

    # -- at a backward call --------------------------------------------------------------------------------------------

    def _on_backward(self, call: EngineCall) -> Afterwards | None:
        if self._reader == threading.get_ident():
            return None  # `read` itself computes gradients
        assert self._selection is not None
        with self._lock:  # another thread's backward waits until this one has been read
            self._calls += 1
            self._guarded(_remember_regions)
            before = len(self._results)
            if not self._done and self._selection.wants(self._calls, call):
                self._guarded(lambda: self._read_at_backward(call))
                self._selection.took(call)
            if self.afterwards is not None and len(self._results) > before:
                return self._after_the_engine
            self._stop_when_done()
            if isinstance(self._selection, RunOn) and not self._done:
                return lambda filled: self._after_a_call_not_read(call, filled)
        return None

    def _after_the_engine(self, filled: bool | None) -> None:
        with self._lock:
            self._guarded(lambda: self._put_afterwards(filled))
            self._stop_when_done()

    def _after_a_call_not_read(self, call: EngineCall, filled: bool | None) -> None:
        def action() -> None:
            self._read_at_backward(call, ran=True)
            self._put_afterwards(filled)

        assert isinstance(self._selection, RunOn)
        with self._lock:
            if self._selection.ended(call, filled) and not self._done:
                self._guarded(action)
                self._selection.took(call)
            if filled is not None:  # else what the engine raised ends the code
                self._stop_when_done()

    def _put_afterwards(self, filled: bool | None) -> None:
        assert self.afterwards is not None
        self._results[-1] = self.afterwards(self._results[-1], filled)

    def _out_of_patience(self) -> None:
        """No call came for a while. An optimizer says so, or a thread of its own."""
        assert self._selection is not None
        with self._lock:
            if not self._done or isinstance(self._selection, RunOn):
                self._selection.settle()
                self._stop_when_done()

    def _stop_when_done(self) -> None:
        if isinstance(self._error, KeyboardInterrupt) or (self._done and not self.keep_going):
            if self._selection is not None:
                self._selection.settle()
            self._stop()

    def _no_global_tensors(self) -> bool:
        from gradviz.tensors.inventory import inventory

        return not inventory([self.program.namespace])

    def _read_at_backward(self, call: EngineCall, ran: bool = False) -> None:
        variables = variables_at(call.frame, self.program.namespace, Program.run.__code__)
        if self.target.name:
            self._read_named(variables)
            return
        place = call_place(call.frame, Program.run.__code__)
        title = f"{self._title}: {call_words(call, variables, Program.run.__code__)} at {place}, call {self._calls}"
        names: tuple[str, ...] = ()
        if len(call.outputs) > 1:
            names = tuple(name_of(output, variables) or f"output[{i}]" for i, output in enumerate(call.outputs))
        chosen = call.outputs if names else call.outputs[0]
        self._take(
            LiveOutputs(
                chosen,
                variables,
                title,
                self.recording(),
                names,
                self._remarks(call, place),
                call.frame,
                self._calls,
                call.create_graph,
                ran,
            )
        )

    def _remarks(self, call: EngineCall, place: str) -> tuple[str, ...]:
        """What to know about a call that nobody chose: which were passed over for it, or what it stands in for."""
        if self._chosen_by is not FirstBackward or microbatch_of(call.frame) is not None:
            return ()
        if not call.accumulates:
            self._first_place = place
            return ("no backward() followed it in the same step; --at 2 shows the next call, if there is one",)
        if self._calls == 1:
            return ()
        before = f"{self._calls - 1} calls of autograd.grad" if self._calls > 2 else "a call of autograd.grad"
        return (f"{before} came before this backward(), the first at {self._first_place}: --at 1 shows it",)

    def _take(self, live: LiveOutputs) -> None:
        self._reader = threading.get_ident()
        try:
            with self.around():
                result = self.read(live)
            if self._selection is not None and self._selection.standing_in:
                self._results.clear()
                self._error = None
            self._results.append(result)
        finally:
            self._reader = None

    def _stop(self) -> None:
        """End the user's code. In a thread of its own, end that and the main one (or that at its next backward)."""
        if threading.get_ident() == self._thread:
            raise Stopped
        self._stop_main()
        raise SystemExit from Stopped()  # the one exception that ends a thread without a word

    # -- when the script has ended -------------------------------------------------------------------------------------

    def _read_at_end(self) -> None:
        namespace = self.program.namespace
        if self.at:
            raise NoGraphError(self._too_few_calls())
        if self.target.name:
            self._read_named([namespace])
            return
        if not self.need_graph:
            self._take(LiveOutputs(None, [namespace], self._title, self.recording()))
            return
        with self.around():
            try:
                tensors = final_tensors(namespace, self.target.short, also="called no backward() and ")
            except NoGraphError as error:
                raise NoGraphError(f"{error}{hint(started() - self._children)}") from error
        title = f"{self._title}: {', '.join(list(tensors)[:3])}" + (", ..." if len(tensors) > 3 else "")
        outputs = list(tensors.values())
        self._take(
            LiveOutputs(
                outputs[0] if len(outputs) == 1 else outputs, [namespace], title, self.recording(), tuple(tensors)
            )
        )

    def _read_unfinished(self, failure: Failure | None) -> None:
        """Read what had been computed when the script failed, if a forward pass was under way."""
        recording, last = self.recording(), None
        if recording is not None and failure is not None:
            last = recording.last_outputs(failure.error, [self.program.namespace])
        if last is None or not last.outputs or last.source is None or not self.need_graph:
            return
        at = f"{os.path.basename(last.source.file)}:{last.source.line}"
        inside = f" in {last.module}" if last.module else ""
        notes = (f"stopped at {at}{inside}: {last.source.text}", last.error.splitlines()[0])
        names = tuple(f"{name}, where it failed" if name.startswith("input of") else name for name in last.outputs)
        title = f"{self._title}, until it failed at {at}"
        outputs = list(last.outputs.values())
        self._take(LiveOutputs(outputs, [self.program.namespace], title, self.recording(), names, notes))

    def _read_named(self, variables: Sequence[Namespace]) -> None:
        """Read the value of the target's name, or what it returns when it is a function: that part is the user's code."""
        name, place = self.target.name, self.target.short
        label, outputs = name, None
        with users_code() as outcome:
            value = lookup(name, variables, place)
            outputs = outputs_of(value, name, place)
            label = name if outputs is value else f"{name}()"
        if outcome.failure is not None:
            if isinstance(outcome.failure.error, TargetError):
                raise outcome.failure.error
            self._failure = outcome.failure
            return
        if self.need_graph:
            check_tensors(outputs, label, place)
        self._take(LiveOutputs(outputs, [{label: outputs}, *variables], self._title, self.recording()))

    def _too_few_calls(self) -> str:
        times = {0: "no backward()", 1: "backward() once"}.get(self._calls, f"backward() {self._calls} times")
        return f"{self.target.short} called {times}, so there is no call {self.at[-1]} to look at"


def _remember_regions() -> None:
    """Backward makes torch drop what it knows of compiled functions."""
    from gradviz.walker.compiled import remember_regions

    remember_regions()
