"""Which backward calls belong to one step, and what reaches back into earlier ones."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from gradviz.checks.collect.facts import (
    with_line,
)
from gradviz.checks.collect.held import carried
from gradviz.checks.collect.leaves import LeafWatch
from gradviz.checks.context import (
    CheckContext,
    Earlier,
)
from gradviz.checks.record import RetainedHistory
from gradviz.checks.words import all_names
from gradviz.recording.session import running
from gradviz.run.outputs import LiveOutputs
from gradviz.source.search import (
    CodeLocation,
)
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
            session.event_log().forget(self._forgotten)
            self._forgotten = peek_sequence()

    def with_history(
        self,
        context: CheckContext,
        live: LiveOutputs,
        location: CodeLocation | None,
        attribution: Attribution | None,
    ) -> CheckContext:
        """What reaches back behind the last call of the step before; then this call
        becomes an earlier one.
        """
        earlier = tuple(self._earlier)
        # calls in between were not read, so what grows cannot be told
        if self._unread is not None:
            last = earlier[-1]
            step, since = last.step + 1, last.boundary
            return replace(context, earlier=earlier, since=since, step=step)

        step = self._step(context)
        before = [call.boundary for call in earlier if call.step < step]
        since, retained = max(before, default=0), list[RetainedHistory]()
        if since:
            retained = list(carried(context, live.variables, since, attribution))
        if location is not None:
            retained = [with_line(history, location) for history in retained]

        inputs = (leaf for leaf in context.graph.leaves if leaf.kind == "input")
        output = ", ".join(root.name for root in context.graph.roots[:3])
        call = Earlier(
            live.call or 0,
            output,
            peek_sequence(),
            tuple(retained),
            all_names(inputs),
            step,
        )
        self._earlier.append(call)
        return replace(
            context, retained=call.retained, earlier=earlier, step=step, since=since
        )

    def _step(self, context: CheckContext) -> int:
        """The step that this call belongs to: that of the call before, if nothing was
        updated since.

        An update that nobody can see, as `w = w - lr * gradient` is one, is taken for
        granted where no optimizer holds a leaf of this graph and none was ever changed
        in place.
        """
        updated = self._leaves.updated()
        if not self._earlier:
            return 0
        return self._earlier[-1].step + (
            updated or not (context.optimized or self._leaves.saw_updates)
        )
