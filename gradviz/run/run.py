"""One run of one target: which tensors are meant, and reading them at the right moment,
while they are alive.

That is a name, else the K-th backward call, else what is left when the script ends. How
code is run, how backward is seen and how a run ends lie in `program`, `engine` and
`ending`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gradviz.errors import GradvizError, NoGraphError, TargetError
from gradviz.features import hook
from gradviz.graph import Graph
from gradviz.rank import rank
from gradviz.run.ending import (
    Failure,
    RunResult,
    Stopped,
    outlast_launcher,
    stoppable_main,
    users_code,
)
from gradviz.run.engine import (
    Afterwards,
    EngineCall,
    call_place,
    call_words,
    watching_backward,
    when_imported,
)
from gradviz.run.outputs import (
    LiveOutputs,
    check_tensors,
    final_tensors,
    lookup,
    no_graph_words,
    outputs_of,
)
from gradviz.run.program import Program, Target, usual_builtins
from gradviz.run.selection import (
    Chosen,
    FirstBackward,
    FirstStep,
    InARow,
    Look,
    RunOn,
    Selection,
)
from gradviz.variables.scanner import Namespace, name_of, variables_at
from gradviz.walker.signals import handlers_of_script, signalled
from gradviz.wording import place_text

if TYPE_CHECKING:
    from gradviz.recording.reasons import SeenCuts
    from gradviz.recording.record import Recording

T = TypeVar("T")

_OUTERMOST = Program.run.__code__
# backward calls before the one that is read, of whose nodes lines and modules are known
_REMEMBERED = 100


@contextmanager
def _recording_from_torch_on(
    until: ExitStack,
) -> Iterator[Callable[[], Recording | None]]:
    """Around the user's code: record as soon as torch is there. Yields what tells the
    recording, once there is one.

    Before that there is nothing to record, and importing torch ourselves would change
    what the script sees. There is none either where torch cannot tell what a recording
    needs. Who closes `until` ends it earlier.
    """
    recordings: list[Recording] = []

    def begin() -> None:
        from gradviz.recording.record import record
        from gradviz.walker.private import CAN_RECORD

        if CAN_RECORD:
            recordings.append(until.enter_context(record()))

    with until, when_imported("torch", begin):
        yield lambda: recordings[0] if recordings else None


def read_graph(
    live: LiveOutputs,
    cuts: Sequence[SeenCuts] = (),
) -> Graph:
    """The graph behind the outputs, for `Run.read`; with what `cuts` saw cut off of it,
    where something watched.
    """
    from gradviz.recording.reasons import Reasons, without_gradient
    from gradviz.variables.objects import reading_once
    from gradviz.walker.walk import Walked, capture

    walks: list[Walked] = []
    options: dict[str, Any] = {"frame": live.frame} if cuts else {}
    walk = cuts[0].capture if cuts else capture
    with reading_once():
        graph = walk(
            live.outputs,
            variables=live.variables,
            title=live.title,
            attribution=live.attribution,
            inspect=walks.append,
            **options,
        )
        reasons = Reasons(live.variables, live.recording, *cuts)
        absent = tuple(without_gradient(walks[0], reasons))

    notes = (*live.notes, *graph.notes)
    return replace(graph, absent=absent, notes=notes).with_root_names(live.names)


@dataclass
class Run(Generic[T]):
    """A script to run, or a module to import, and how to `read` what it leads to. For
    one use.

    Args:
        target: what to run, and the name to look at in it if there is one.
        read: called while everything is alive, once for each call that is looked at;
            its results are `RunResult.result` and `RunResult.later`. Where a backward()
            takes the place of a call of `autograd.grad`, the result of the latter is
            dropped.
        arguments: the script's own arguments.
        at: which call of backward to look at, counted from 1, or several: the first is
            `RunResult.result`, others are `RunResult.later`, in the order in which they
            come. With a name: look the name up at that call, among the local variables
            too, and not when the script has ended. Without: the first `backward()`; a
            call of `autograd.grad` before it is read only if no backward() follows in
            the same step (`gradviz.run.selection`).
        keep_going: let the script run on to its end after the call.
        record: note module calls and source lines while the script runs, which takes
            some time.
        need_graph: without it, a script is read after the first step of an optimizer,
            all its variables and whatever they hold; without such a step when it has
            ended, or at the first call, if no global variable holds a tensor there.
            With `keep_going` it is read when it has ended, if one does. With `at` it is
            read at that call. A name may be anything.
        around: makes a context that is entered while tensors are read, and left while
            the user's code runs.
        steps: how many backward calls in a row to read, from the first one looked at
            on. Those with `create_graph` are read in addition, as parts of a step. A
            script may end before.
        look: lets the script run on after those steps, and says which later calls to
            read (`gradviz.run.selection`). A call at which the engine raises is read,
            too. `to_end`: without a limit of time. Ctrl-C then ends the script only.
        afterwards: called when the engine has ended after a call that was read, with
            that result and whether all leaves got their `.grad`; what it returns takes
            the result's place. The script then is stopped after the engine, not before.
        ended: called with the variables when the script has come to its end by itself;
            it must not raise.
        nothing: the result where the script raised before anything was read; without it
            that raises ScriptError.
    """

    target: Target
    read: Callable[[LiveOutputs], T]
    arguments: Sequence[str] = ()
    at: int | Sequence[int] | None = None
    keep_going: bool = False
    record: bool = True
    need_graph: bool = True
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    steps: int | None = None
    look: Look | None = None
    to_end: bool = False
    afterwards: Callable[[T, bool | None], T] | None = None
    ended: Callable[[Sequence[Namespace]], None] | None = None
    nothing: T | None = None

    def __post_init__(self) -> None:
        place = rank()
        if place is not None:
            self._title = f"{self.target.title}, {place}"
        else:
            self._title = self.target.title

        self._at = (self.at,) if isinstance(self.at, int) else tuple(self.at or ())
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
        self._recorded, self._watched = ExitStack(), ExitStack()
        self._long_past = 0

    def _select(self) -> Selection:
        """Which calls to read: none where a name is read when the script has ended."""
        if self.steps is not None:
            first = self._at[0] if self._at else 1
            # a fixed number of steps is read, and then the run is over
            if self.look is None:
                return InARow(first, self.steps)
            return RunOn(
                first, self.steps, self.look, self._out_of_patience, self.to_end
            )

        if self._at:
            return Chosen(self._at)
        if self.target.name:
            return Selection()
        if self.need_graph:
            return FirstBackward(self._out_of_patience)

        return FirstStep(self._no_global_tensors, self._read_after_step)

    def captured(self) -> RunResult[T]:
        """Run it and read.

        Raises:
            TargetError, NotATensorError, NoGraphError: there is nothing to look at; the
                message says why.
            ScriptError: the script failed before anything was captured. Its traceback
                has been printed.
        """
        if self.target.kind == "graph":
            raise TargetError(
                f"{self.target.place!r} is a saved graph. This needs the script, because it reads live tensors."
            )

        self._program = Program(self.target)
        with self._program.interpreter(self.arguments):
            recording: AbstractContextManager[Callable[[], Recording | None]]
            if self.record:
                recording = _recording_from_torch_on(self._recorded)
            else:
                recording = nullcontext(lambda: None)

            with recording as self._recording:
                self._run()
                outlast_launcher()
                return self._ended()

    def _run(self) -> None:
        """Run the code, and read at the calls that are selected."""
        # a name that is read at the end needs no watch over backward calls
        unwatched, process = type(self._selection) is Selection, os.getpid()
        with (
            handlers_of_script(),
            users_code() as outcome,
            stoppable_main() as self._stop_main,
            self._watched,
        ):
            if not unwatched:
                self._watched.enter_context(watching_backward(self._on_backward))
            try:
                self._program.run()
                if self.ended is not None:
                    with self._guarded(), _isolated():
                        self.ended([self._program.namespace])
            except KeyboardInterrupt as error:
                self._error = self._error or error
                # a watch that goes on is ended by Ctrl-C, and shows what it has seen
                if not self._watches_on or os.getpid() != process:
                    raise
            finally:
                self._selection.close()

        self._failure = self._failure or outcome.failure
        if (
            "torch" in sys.modules
            and self._failure is not None
            and self._failure.exit_code is None
        ):
            # now: the tensors that filled the memory live as long as the traceback
            explanation = hook("gradviz.memory.oom:explanation")
            if explanation:
                text = explanation(
                    self._failure.error, self._recording(), [self._program.namespace]
                )
            else:
                text = ""
            self._failure = replace(self._failure, explanation=text)

    def _ended(self) -> RunResult[T]:
        """What was read at calls, else what can be read now that the code has ended."""
        if not self._results and self._error is None:
            with self._guarded():
                if self._failure is None:
                    self._read_at_end()
                else:
                    self._read_unfinished(self._failure)

        failure, results, unread = self._failure, self._results, self._unread()
        self._raise_unless(bool(unread))
        failed = failure is not None and failure.exit_code is None

        if self.nothing is not None and not results and (failed or unread):
            # a report of nothing is better than the error alone: it says why
            return RunResult(
                self.nothing, self.target, failure, (), unread, self._calls
            )

        if len(results) < (len(set(self._at)) or 1):
            if failure is None:
                raise NoGraphError(self._too_few_calls())
            failure.raise_error(self.target, f" before {self._awaited()}")

        return RunResult(
            results[0],
            self.target,
            failure,
            tuple(results[1:]),
            unread,
            self._calls,
            self._until,
        )

    def _raise_unless(self, shown: bool) -> None:
        """Raise what reading raised, but where results or a report without any tell it."""
        if isinstance(self._error, KeyboardInterrupt) and self._watches_on:
            return

        # as where the script holds all open files
        if isinstance(self._error, OSError) and self._failure is not None:
            self._failure.raise_error(
                self.target,
                f"; gradviz could not read its graph: {self._error.strerror}",
            )

        reported = self._results or (
            self.look is not None and not isinstance(self._error, GradvizError)
        )
        if self._error is not None and not (reported and shown):
            raise self._error

    @property
    def _watches_on(self) -> bool:
        """Whether something was read, and the script is watched on: then Ctrl-C ends
        the script only.
        """
        return self.look is not None and bool(self._results)

    @property
    def _until(self) -> str:
        """What ended the script before it came to its end by itself."""
        if isinstance(self._error, KeyboardInterrupt):
            return "Ctrl-C"
        return "the time limit" if self._selection.timed_out else ""

    @property
    def _done(self) -> bool:
        if (
            self._selection.enough
            or isinstance(self._error, KeyboardInterrupt)
            or self._failure is not None
        ):
            return True
        return (
            self._error is not None
            and not self._selection.standing_in
            and self.look is None
        )

    def _unread(self) -> str:
        """Why reading several steps ended early. What had been read before must not be
        lost.
        """
        error = self._error
        if self.steps is None or not isinstance(error, Exception):
            return ""
        kind = "" if isinstance(error, GradvizError) else f"{type(error).__name__}: "
        return f"backward call {self._error_call} could not be read: {kind}{error}"

    def _awaited(self) -> str:
        if not self._at and self.target.name:
            return f"{self.target.name} could be read"
        if max(self._at, default=1) == 1:
            return "it called backward()"
        return f"its backward() call {self._at[-1]}"

    def _too_few_calls(self) -> str:
        times = {0: "no backward()", 1: "backward() once"}.get(
            self._calls, f"backward() {self._calls} times"
        )
        return f"{self.target.short} called {times}, so there is no call {self._at[-1]} to look at"

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
            before, wanted = len(self._results), False
            with self._guarded(), _isolated():
                # what the search for names raises is kept, too
                wanted = (
                    not self._done
                    and self._selection.wants(self._calls, call)
                    and self._has_name(call)
                )
            if wanted:
                self._read_wanted(call)
            elif self.look is None and self._calls % _REMEMBERED == 0:
                self._forget_long_past()
            if self.afterwards is not None and len(self._results) > before:
                return self._after_the_engine
            self._stop_when_done()
            if self._done:
                # called when the engine has ended: a running backward keeps its hooks
                return self._leave_it_alone
            if self.look is not None and not self._done:
                return partial(self._after_a_call_not_read, call)
            return None

    def _has_name(self, call: EngineCall) -> bool:
        """Whether what the target names is there already; else a later call is read, or
        what is left when the script ends.
        """
        first = self.target.name.partition(".")[0]
        if not first or self._at:
            return True
        return any(
            first in space
            for space in variables_at(call.frame, self._program.namespace, _OUTERMOST)
        )

    def _read_wanted(self, call: EngineCall, ran: bool = False) -> None:
        try:
            with self._guarded():
                self._read_at_backward(call, ran)
        finally:
            self._selection.took(call)

    def _after_the_engine(self, filled: bool | None) -> None:
        with self._lock:
            with self._guarded():
                self._put_afterwards(filled)
            self._stop_when_done()

    def _after_a_call_not_read(self, call: EngineCall, filled: bool | None) -> None:
        with self._lock:
            wanted = False
            if filled is None or (self.look is not None and self.look.awaits_end):
                with self._guarded(), _isolated():
                    wanted = self._selection.ended(filled) and not self._done

            if wanted:
                before = len(self._results)
                self._read_wanted(call, ran=True)
                with self._guarded():
                    if len(self._results) > before:
                        self._put_afterwards(filled)

            if filled is not None:  # else what the engine raised ends the code
                self._stop_when_done()

    def _put_afterwards(self, filled: bool | None) -> None:
        assert self.afterwards is not None
        with _isolated():
            self._results[-1] = self.afterwards(
                self._results[-1],
                filled,
            )

    def _out_of_patience(self) -> None:
        """No call came for a while. An optimizer says so, or a thread of its own."""
        with self._lock:
            if not self._done or self.look is not None:
                self._selection.settle()
                self._stop_when_done()

    def _stop_when_done(self) -> None:
        if isinstance(self._error, KeyboardInterrupt) or (
            self._done and not self.keep_going
        ):
            self._selection.settle()
            self._stop()

    def _forget_long_past(self) -> None:
        """What was noted many calls ago: a script that is read late would fill the
        memory with it.
        """
        recording = self._recording()
        if recording is not None:
            self._long_past = recording.forget(self._long_past)

    def _leave_it_alone(self, filled: bool | None) -> None:
        """The engine has ended, and nothing will be read any more: the rest of the
        script runs as without gradviz.
        """
        with self._lock:
            self._watched.close()
            self._recorded.close()

    def _no_global_tensors(self) -> bool:
        from gradviz.tensors import inventory

        return not inventory([self._program.namespace])

    def _read_at_backward(self, call: EngineCall, ran: bool = False) -> None:
        variables = variables_at(call.frame, self._program.namespace, _OUTERMOST)
        if self.target.name:
            self._read_named(variables)
            return

        place = call_place(call.frame, _OUTERMOST)
        title = f"{self._title}: {call_words(call, variables, _OUTERMOST)} at {place}, call {self._calls}"
        outputs, names = call.outputs, tuple[str, ...]()

        if len(outputs) > 1:
            # what no variable holds is called by its place in the call
            names = tuple(
                name_of(output, variables) or f"output[{i}]"
                for i, output in enumerate(outputs)
            )

        notes = self._selection.remarks(self._calls, call, place)
        seen = LiveOutputs(
            outputs if names else outputs[0], variables, title, names, notes
        )
        seen = replace(
            seen, create_graph=call.create_graph, accumulates=call.accumulates
        )
        self._take(
            replace(
                seen,
                frame=call.frame,
                call=self._calls,
                ran=ran,
            )
        )

    def _read_after_step(self) -> None:
        """An optimizer has stepped: the first time, its parameters, their gradients and
        all else are there to read.
        """
        with self._lock:
            if not self._done and (self._selection.standing_in or not self.keep_going):
                # the optimizer's frames lie between this one and the user's
                frame = sys._getframe()
                variables = variables_at(frame, self._program.namespace, _OUTERMOST)
                title = f"{self._title}: after the first optimizer step at {call_place(frame, _OUTERMOST)}"

                with self._guarded():
                    self._take(
                        LiveOutputs(
                            None,
                            variables,
                            title,
                            frame=frame,
                            call=self._calls,
                            ran=True,
                        )
                    )

                self._selection.settle()
                self._stop_when_done()

    def _take(self, live: LiveOutputs) -> None:
        self._reader = threading.get_ident()
        try:
            with _isolated():
                recording = self._recording()
                if recording is None:
                    variables = live.variables
                else:
                    variables = recording.with_modules(live.variables)

                with self.around():
                    result = self.read(
                        replace(live, recording=recording, variables=variables)
                    )

                if self._selection.standing_in:
                    # what was read before only stood in for this
                    self._results.clear()
                    self._error = None

                self._results.append(result)
        finally:
            self._reader = None

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

    # -- when the script has ended -----------------------------------------------------

    def _read_at_end(self) -> None:
        namespace = self._program.namespace
        if self._at:
            raise NoGraphError(self._too_few_calls())
        if self.target.name:
            self._read_named([namespace])
            return
        if not self.need_graph:
            self._take(LiveOutputs(None, [namespace], self._title))
            return

        with self.around():
            tensors = final_tensors(
                self._program.made,
                *no_graph_words(self.target, self._program.processes),
            )

        title = f"{self._title}: {', '.join(list(tensors)[:3])}" + (
            ", ..." if len(tensors) > 3 else ""
        )
        outputs = list(tensors.values())
        self._take(
            LiveOutputs(
                outputs[0] if len(outputs) == 1 else outputs,
                [namespace],
                title,
                tuple(tensors),
            )
        )

    def _read_unfinished(self, failure: Failure) -> None:
        """Read what had been computed when the script failed, if a forward pass was
        under way.
        """
        recording, namespace = self._recording(), self._program.namespace
        if recording is None or not self.need_graph:
            return

        last = recording.last_outputs(failure.error, [namespace])
        # a cell of a notebook also sees the variables of other cells
        new_names = self._program.made
        outputs = {
            name: value
            for name, value in last.outputs.items()
            if name in new_names or namespace.get(name) is not value
        }
        if not outputs or last.source is None:
            return

        place = place_text(
            os.path.basename(last.source.file),
            last.source.line,
        )
        inside = f" in {last.module}" if last.module else ""
        notes = (
            f"stopped at {place}{inside}: {last.source.text}",
            last.error.splitlines()[0],
        )
        names = tuple(
            f"{name}, where it failed" if name.startswith("input of") else name
            for name in outputs
        )
        title = f"{self._title}, until it failed at {place}"
        self._take(
            LiveOutputs(
                list(outputs.values()),
                [namespace],
                title,
                names,
                notes,
            )
        )

    def _read_named(self, variables: Sequence[Namespace]) -> None:
        """Read the value of the target's name, or what it returns when it is a
        function: that part is the user's code.
        """
        name, place = self.target.name, self.target.short
        label, outputs = name, None

        # the value may be a function, which is the user's to fail
        with users_code() as outcome:
            value = lookup(name, variables, place)
            outputs = outputs_of(value, name, place)
            label = name if outputs is value else f"{name}()"

        if outcome.failure is not None:
            self._failure = outcome.failure
            return

        if self.need_graph:
            check_tensors(outputs, label, place)

        self._take(
            LiveOutputs(
                outputs,
                [{label: outputs}, *variables],
                self._title,
            )
        )


def _isolated() -> AbstractContextManager[None]:
    """Around what reads tensors while the user's code is under way. Where nothing has
    imported torch, there are none.
    """
    if "torch" not in sys.modules:
        return nullcontext()
    return _within_the_run()


@contextmanager
def _within_the_run() -> Iterator[None]:
    with usual_builtins():
        from gradviz.walker.isolation import isolated

        with isolated():
            yield
