"""Which backward calls belong to one step, and what reaches back into earlier ones."""

from __future__ import annotations

from collections import deque

from gradviz.checks.call import BackwardCall, Earlier
from gradviz.checks.collect.held import carried
from gradviz.checks.collect.leaves import LeafWatch
from gradviz.checks.run import RetainedHistory
from gradviz.checks.words import all_names
from gradviz.recording.session import running
from gradviz.run.outputs import LiveOutputs
from gradviz.source.search import CodeLocation, addition_to
from gradviz.walker.places import Attribution
from gradviz.walker.private import peek_sequence

KEPT = 100
"""Earlier calls that are remembered."""
REMEMBERED = 1000
"""Backward calls for which lines and modules of nodes are known, at least."""


class Steps:
    """Of one run."""

    def __init__(self, leaves: LeafWatch) -> None:
        self._leaves = leaves
        self._earlier = deque[Earlier](maxlen=KEPT)
        self._forgotten = 0  # the sequence number below which nodes are forgotten next
        # the last call, and the sequence number at it, if it is not read
        self._unread: tuple[int, int] | None = None

    @property
    def in_a_row(self) -> bool:
        """Whether the call before was read."""
        return self._unread is None

    def passed(self, number: int, reading: bool) -> None:
        """Backward call `number` comes, and may not be read. Told of every call, later
        calls know which ran before them.
        """
        if self._unread is not None:
            call, boundary = self._unread
            step = self._earlier[-1].step + 1 if self._earlier else 0
            self._earlier.append(Earlier(call, "", boundary, (), (), step))

        self._unread = None if reading else (number, peek_sequence())
        session = running() if number % REMEMBERED == 0 else None
        if session is not None:
            # up to the mark before, so that at least REMEMBERED calls stay known
            session.event_log().forget(self._forgotten)
            self._forgotten = peek_sequence()

    def read(
        self,
        call: BackwardCall,
        live: LiveOutputs,
        location: CodeLocation | None,
        attribution: Attribution | None,
    ) -> None:
        """Note what reaches back behind the last call of the step before; then this
        call becomes an earlier one.
        """
        call.earlier = tuple(self._earlier)
        # calls in between were not read, so what grows cannot be told
        if self._unread is not None:
            last = call.earlier[-1]
            call.step, call.since = last.step + 1, last.boundary
            return

        step = self._step(call)
        before = [other.boundary for other in call.earlier if other.step < step]
        call.step, call.since = step, max(before, default=0)
        if call.since:
            retained = carried(call, live.variables, attribution)
            call.retained = tuple(_with_line(held, location) for held in retained)

        inputs = (leaf for leaf in call.graph.leaves if leaf.kind == "input")
        output = ", ".join(root.name for root in call.graph.roots[:3])
        self._earlier.append(
            Earlier(
                live.call or 0,
                output,
                peek_sequence(),
                call.retained,
                all_names(inputs),
                step,
            )
        )

    def _step(self, call: BackwardCall) -> int:
        """The step that this call belongs to: that of the call before, if nothing was
        updated since.

        An update that nobody can see, as `w = w - lr * gradient` is one, is taken for
        granted where no optimizer holds a leaf of this graph and none was ever changed
        in place.
        """
        updated = self._leaves.updated()
        if not self._earlier:
            return 0
        seen = call.optimized or self._leaves.saw_updates
        return self._earlier[-1].step + (updated or not seen)


def _with_line(
    history: RetainedHistory, location: CodeLocation | None
) -> RetainedHistory:
    """The same with the line that adds to a variable: `meter.update(loss)` adds to
    `meter.total`.
    """
    name = history.name
    if location is None or not name:
        return history
    file, owner = location.body.file, name.rpartition(".")[0]
    line = addition_to(file, name) or addition_to(file, owner)
    return history._replace(added=line)
