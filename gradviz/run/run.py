"""One run of one target: when to read it, at the right moment, while its tensors are
alive.

That is at the K-th backward call, or when the script has ended. How code is run, how
backward is seen, what there is to look at and how a run ends lie in `program`,
`engine`, `reading` and `ending`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from gradviz.armour.signals import handlers_of_script, signalled
from gradviz.errors import GradvizError, NoGraphError, TargetError
from gradviz.features import hook
from gradviz.run.ending import (
    Failure,
    RunResult,
    Stopped,
    outlast_launcher,
    stoppable_main,
    users_code,
)
from gradviz.run.engine import Afterwards, EngineCall, watching_backward, when_imported
from gradviz.run.outputs import LiveOutputs
from gradviz.run.program import Program
from gradviz.run.reading import Moments
from gradviz.run.selection import (
    CallWatch,
    Chosen,
    FirstBackward,
    InARow,
    Selection,
    after_optimizer_step,
)
from gradviz.run.target import Target
from gradviz.variables.scanner import Namespace

if TYPE_CHECKING:
    from gradviz.recording.record import Recording

T = TypeVar("T")

# backward calls before the one that is read, of whose nodes lines and modules are known
_REMEMBERED = 300


@dataclass(frozen=True)
class Run(Generic[T]):
    """All that is wished of a run: a script to run, or a module to import, and how to
    `read` what it leads to.

    Parameters
    ----------
    target
        what to run, and the name to look at in it if there is one.
    read
        called while everything is alive, once for each call that is looked at;
        its results are `RunResult.result` and `RunResult.later`. Where a backward()
        takes the place of a call of `autograd.grad`, the result of the latter is
        dropped.
    arguments
        the script's own arguments.
    at
        which call of backward to look at, counted from 1, or several: the first is
        `RunResult.result`, others are `RunResult.later`, in the order in which they
        come. With a name: look the name up at that call, among the local variables
        too, and not when the script has ended. Without: the first `backward()`; a
        call of `autograd.grad` before it is read only if no backward() follows in
        the same step (`gradviz.run.selection`).
    keep_going
        let the script run on to its end after the call.
    need_graph
        without it, a script is read after the first step of an optimizer,
        all its variables and whatever they hold; without such a step when it has
        ended. With `keep_going` it is read when it has ended, if a global variable
        holds a tensor. With `at` it is read at that call. A name may be anything.
    around
        makes a context that is entered while tensors are read, and left while
        the user's code runs.
    steps
        how many backward calls in a row to read, from the first one looked at
        on. Those with `create_graph` are read in addition, as parts of a step. A
        script may end before.
    watch
        lets the script run on after those steps, and says which later calls to
        read (`gradviz.run.selection`). A call at which the engine raises is read,
        too. `to_end`: without a limit of time. Ctrl-C then ends the script only.
    afterwards
        called when the engine has ended after a call that was read, with
        that result and whether all leaves got their `.grad`; what it returns takes
        the result's place. The script then is stopped after the engine, not before.
    ended
        called with the variables when the script has come to its end by itself;
        it must not raise.
    nothing
        the result where the script raised before anything was read; without it
        that raises ScriptError. Also where it ended without a graph, and `tells`
        says that there is something to tell all the same.
    """

    target: Target
    read: Callable[[LiveOutputs], T]
    arguments: Sequence[str] = ()
    at: int | Sequence[int] | None = None
    keep_going: bool = False
    need_graph: bool = True
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    steps: int | None = None
    watch: CallWatch | None = None
    to_end: bool = False
    afterwards: Callable[[T, bool | None], T] | None = None
    ended: Callable[[Sequence[Namespace]], None] | None = None
    nothing: T | None = None
    tells: Callable[[], bool] = bool

    @property
    def calls(self) -> tuple[int, ...]:
        """The numbers of the calls to look at; none where it is the first that fits."""
        if isinstance(self.at, int):
            return (self.at,)
        return tuple(self.at or ())

    def captured(self) -> RunResult[T]:
        """Run it and read.

        Raises
        ------
        TargetError, NotATensorError, NoGraphError
            there is nothing to look at; the
            message says why.
        ScriptError
            the script failed before anything was captured. Its traceback
            has been printed.
        """
        if self.target.kind == "graph":
            raise TargetError(
                f"{self.target.place!r} is a saved graph. This needs the script, because it reads live tensors."
            )
        return _Running(self).captured()


class _Running(Generic[T]):
    """A run under way: what was read so far, and what went wrong."""

    def __init__(self, run: Run[T]) -> None:
        self._wishes = run
        self._target, self._watch = run.target, run.watch
        self._program = Program(run.target)
        self._moments = Moments(run.target, self._program, run.need_graph)
        self._selection = self._select()
        self._calls = 0
        self._thread = threading.get_ident()
        # a signal handler may run a backward in the midst of another
        self._lock = threading.RLock()
        self._reader: int | None = None  # the thread that is reading
        self._results: list[T] = []
        self._error: Exception | KeyboardInterrupt | None = None
        self._error_call = 0  # at which that was raised
        self._failure: Failure | None = None
        # closed as soon as nothing will be read any more
        self._recorded, self._watched = ExitStack(), ExitStack()
        self._recording: Recording | None = None
        self._long_past = 0

    def _select(self) -> Selection:
        """Which calls to read: none where a name is read when the script has ended, or
        all variables when an optimizer has stepped.
        """
        run = self._wishes
        if run.steps is not None:
            first = run.calls[0] if run.calls else 1
            patience = self._read_enough
            return InARow(first, run.steps, run.watch, run.to_end, patience)
        is_named = bool(run.target.name) and not run.target.inputs
        if run.need_graph and not run.calls and not is_named:
            return FirstBackward(self._read_enough)
        return Chosen(run.calls)

    def captured(self) -> RunResult[T]:
        """What `Run.captured` returns."""
        with (
            self._program.interpreter(self._wishes.arguments),
            self._moments.borrowed,
            self._recorded,
            when_imported("torch", self._record),
        ):
            self._run()
            outlast_launcher()
            return self._ended()

    def _record(self) -> None:
        """From now on, for torch is there: before there is nothing to record, and to
        import it ourselves would change what the script sees.
        """
        from gradviz.recording.record import record
        from gradviz.walker.private import CAN_RECORD

        if CAN_RECORD:
            self._recording = self._recorded.enter_context(record())
        self._program.library.note()

    def _run(self) -> None:
        """Run the code, and read at the calls that are selected."""
        wishes, process = self._wishes, os.getpid()
        # a name that is read at the end needs no watch over backward calls
        name = "" if wishes.target.inputs else wishes.target.name
        at_end = name and not wishes.calls and wishes.steps is None
        with (
            handlers_of_script(),
            users_code() as outcome,
            stoppable_main() as self._stop_main,
            self._watched,
        ):
            if not at_end:
                self._watched.enter_context(watching_backward(self._on_backward))
            try:
                self._program.run()
                if wishes.ended is not None:
                    with self._guarded(), _isolated():
                        wishes.ended([self._program.namespace])
            except KeyboardInterrupt as error:
                self._error = error
                if not self._interrupted or os.getpid() != process:
                    raise
            finally:
                self._selection.settle()

        self._failure = self._failure or outcome.failure
        if self._raised and "torch" in sys.modules:
            # now: the tensors that filled the memory live as long as the traceback
            explanation = hook("gradviz.memory.oom:explanation")
            if explanation is not None and self._failure is not None:
                variables = [self._program.namespace]
                text = explanation(self._failure.error, self._recording, variables)
                self._failure = replace(self._failure, explanation=text)

    # -- how it ended ------------------------------------------------------------------

    def _ended(self) -> RunResult[T]:
        """What was read at calls, else what can be read now that the code has ended."""
        if not self._results and self._error is None:
            with self._guarded():
                self._read_at_end_or_tell()

        unread, results = self._unread(), self._results
        if self._error is not None and not (unread or self._interrupted):
            raise self._error

        nothing = self._wishes.nothing
        if nothing is not None and not results and (self._raised or unread):
            # a report of nothing is better than the error alone: it says why
            results = [nothing]
        elif len(results) < (len(set(self._wishes.calls)) or 1):
            if self._failure is None:
                raise self._error or NoGraphError(self._too_few_calls())
            self._failure.raise_error(
                self._target, " before gradviz could read a graph"
            )

        return RunResult(
            results[0],
            self._target,
            self._failure,
            tuple(results[1:]),
            unread,
            self._calls,
            self._until,
        )

    def _read_at_end_or_tell(self) -> None:
        """Read what is left when the script has ended; nothing, where that tells enough."""
        try:
            self._read_at_end()
        except NoGraphError:
            nothing = self._wishes.nothing
            if nothing is None or not self._wishes.tells():
                raise
            self._results.append(nothing)

    def _read_at_end(self) -> None:
        """Read what is left when the script has ended, or what it had computed when it
        failed.
        """
        failure, recording = self._failure, self._recording
        if failure is not None and self._target.inputs and not self._wishes.calls:
            with suppress(TargetError):  # it failed before it had the model
                self._take(self._moments.at_end())
        elif failure is None:
            if self._wishes.calls:
                raise NoGraphError(self._too_few_calls())
            # what a name holds may be a function, which is the user's code
            with nullcontext() if self._target.name else self._wishes.around():
                live = self._moments.at_end()
            self._take(live)
        failure = self._failure
        if (
            failure is not None
            and not self._results
            and recording is not None
            and self._wishes.need_graph
        ):
            unfinished = self._moments.unfinished(recording, failure)
            if unfinished is not None:
                self._take(unfinished)

    @property
    def _raised(self) -> bool:
        """Whether the script failed, and did not merely exit."""
        return self._failure is not None and self._failure.exit_code is None

    @property
    def _interrupted(self) -> bool:
        """Whether Ctrl-C ended a script that was watched on, which ends the script only
        and shows what was seen.
        """
        watched = self._watch is not None and bool(self._results)
        return watched and isinstance(self._error, KeyboardInterrupt)

    @property
    def _until(self) -> str:
        """What ended the script before it came to its end by itself."""
        if self._interrupted:
            return "Ctrl-C"
        return "the time limit" if self._selection.timed_out else ""

    @property
    def _done(self) -> bool:
        if self._selection.enough or self._failure is not None:
            return True
        if self._watch is not None or self._selection.standing_in:
            return isinstance(self._error, KeyboardInterrupt)
        return self._error is not None

    def _unread(self) -> str:
        """Why reading several steps ended early, where that is told with what had been
        read before.
        """
        error = self._error
        if self._wishes.steps is None or not isinstance(error, Exception):
            return ""
        ours = isinstance(error, GradvizError)
        if not self._results and (ours or self._watch is None):
            return ""
        kind = "" if ours else f"{type(error).__name__}: "
        return f"backward call {self._error_call} could not be read: {kind}{error}"

    def _too_few_calls(self) -> str:
        times = {0: "no backward()", 1: "backward() once"}.get(
            self._calls, f"backward() {self._calls} times"
        )
        return f"{self._target.short} called {times}, so there is no call {self._wishes.calls[-1]} to look at"

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Keep what `read` or the search raises: it happens inside the user's code,
        which must not catch it.
        """
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            # the user's own handler raised it, in the midst of our reading
            if signalled(error):
                raise
            if self._error is None or isinstance(error, KeyboardInterrupt):
                self._error, self._error_call = error, self._calls

    # -- at a backward call ------------------------------------------------------------

    def _on_backward(self, call: EngineCall) -> Afterwards | None:
        if self._reader == threading.get_ident():
            return None  # `read` itself computes gradients

        with self._lock:  # another thread's backward waits until this one has been read
            self._calls += 1
            if self._calls == 1:
                self._watch_steps()
            elif self._calls % _REMEMBERED == 0:
                self._forget_long_past()
            if self._passes(call):
                return partial(self._after_call, call, False)

            was_read = self._wants(call) and self._read_call(call)
            if was_read and self._wishes.afterwards is not None:
                return partial(self._after_call, call, was_read)
            self._stop_when_done()
            if self._done:
                # called when the engine has ended: a running backward keeps its hooks
                return self._leave_it_alone
            if self._watch is not None:
                return partial(self._after_call, call, was_read)
            return None

    def _passes(self, call: EngineCall) -> bool:
        """Whether hardly anything is looked at while this call runs."""
        if self._watch is None or self._done:
            return False
        with self._guarded():
            return self._watch.passes(self._calls, call)
        return False

    def _wants(self, call: EngineCall) -> bool:
        """Whether to read this call. Where the name is not there yet, a later one is
        read, or what is left when the script ends.
        """
        # what the search for names raises is kept, too
        with self._guarded(), _isolated():
            if self._done or not self._selection.wants(self._calls, call):
                return False
            return bool(self._wishes.calls) or self._moments.has_name(call.frame)
        return False

    def _read_call(self, call: EngineCall, ran: bool = False) -> bool:
        before = len(self._results)
        try:
            # a model that is called may compute gradients itself
            self._reader = threading.get_ident()
            with self._guarded(), self._program.library.as_before():
                place = self._moments.place(call.frame)
                notes = self._selection.remarks(self._calls, call, place)
                self._take(self._moments.at_call(call, self._calls, notes, ran))
        finally:
            self._reader = None
            self._selection.took(call)
        return len(self._results) > before

    def _after_call(
        self, call: EngineCall, was_read: bool, filled: bool | None
    ) -> None:
        """The engine has ended, or raised: then `filled` is None."""
        with self._lock:
            stops = was_read or filled is not None
            if not was_read and self._wants_ended(call, filled):
                was_read = self._read_call(call, ran=True)
            if was_read and self._wishes.afterwards is not None:
                with self._guarded(), _isolated():
                    last = self._results[-1]
                    self._results[-1] = self._wishes.afterwards(last, filled)
            if stops:  # else what the engine raised ends the code
                self._stop_when_done()

    def _wants_ended(self, call: EngineCall, filled: bool | None) -> bool:
        """Whether to read a call that has run and was not read before."""
        looks = self._watch is not None and self._watch.engine_ended()
        if looks or filled is None:
            with self._guarded(), _isolated():
                return not self._done and self._selection.ended(filled, call)
        return False

    def _leave_it_alone(self, filled: bool | None) -> None:
        """The engine has ended, and nothing will be read any more: the rest of the
        script runs as without gradviz.
        """
        with self._lock:
            self._watched.close()
            self._recorded.close()

    def _forget_long_past(self) -> None:
        """What was noted many calls ago: a script that is read late would fill the
        memory with it.
        """
        if self._recording is not None:
            self._long_past = self._recording.forget(self._long_past)

    # -- between backward calls --------------------------------------------------------

    def _watch_steps(self) -> None:
        """A step of an optimizer ends what a call of `autograd.grad` may be a part of;
        after it there are parameters with gradients.
        """
        is_first = isinstance(self._selection, FirstBackward)
        if is_first or not (self._wishes.need_graph or self._wishes.calls):
            self._watched.enter_context(after_optimizer_step(self._optimizer_stepped))

    def _read_enough(self) -> None:
        """No call came for a while, as a thread of its own says, or none will be read."""
        with self._lock:
            if not self._done or self._watch is not None:
                self._selection.settle()
                self._stop_when_done()

    def _optimizer_stepped(self, *_: object) -> None:
        """Without a graph, read after the first step. A script that goes on is read at
        its end, unless all of its tensors are local variables.
        """
        with self._lock:
            if self._done:
                return
            if not self._wishes.need_graph:
                with self._guarded():
                    if self._wishes.keep_going and self._has_global_tensors():
                        return
                    frame = sys._getframe(1)
                    self._take(self._moments.after_step(frame, self._calls))
            self._selection.settle()
            self._stop_when_done()

    def _has_global_tensors(self) -> bool:
        from gradviz.tensors import inventory

        with _isolated():
            return bool(inventory([self._program.namespace]))

    # -- reading and stopping ----------------------------------------------------------

    def _take(self, found: LiveOutputs | Failure) -> None:
        if isinstance(found, Failure):
            self._failure = found
            return

        self._reader = threading.get_ident()
        try:
            with _isolated(), self._program.library.as_before():
                recording, variables = self._recording, found.variables
                if recording is not None:
                    variables = recording.with_modules(variables)
                live = replace(found, recording=recording, variables=variables)
                with self._wishes.around():
                    result = self._wishes.read(live)

                if self._selection.standing_in:
                    # what was read before only stood in for this
                    self._results.clear()
                    self._error = None
                self._results.append(result)
        finally:
            self._reader = None
            self._moments.borrowed.close()

    def _stop_when_done(self) -> None:
        if isinstance(self._error, KeyboardInterrupt) or (
            self._done and not self._wishes.keep_going
        ):
            self._selection.settle()
            self._stop()

    def _stop(self) -> None:
        """End the user's code. In a thread of its own, end that and the main one (or
        that at its next backward).
        """
        if threading.get_ident() == self._thread:
            raise Stopped
        # the exception of this thread would not reach the main one
        self._stop_main()
        # the one exception that ends a thread without a word
        raise SystemExit from Stopped()


@contextmanager
def _isolated() -> Iterator[None]:
    """Around what reads tensors while the user's code is under way. Where nothing has
    imported torch, there are none.
    """
    if "torch" not in sys.modules:
        yield
        return

    from gradviz.armour.isolation import isolated

    with isolated():
        yield
