"""Sees whether graphs that a backward call retains are used once more. Keeps numbers of
nodes, and no node.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from gradviz.checks.collect.calls import Observer
from gradviz.checks.collect.lines import nodes_behind
from gradviz.packages import Place
from gradviz.run.engine import EngineCall

_LOOKS, _LARGEST = 16, 100_000
"""Backward calls whose nodes are looked at, and nodes of one."""
_CALLS = 3  # of one line that retain a graph which nobody needs, from which it is said


@dataclass
class _RetainingLine:
    """A line whose backward calls retain their graphs."""

    place: Place | None
    nodes: set[int] = field(default_factory=set)
    calls: int = 0
    needed: bool = False


class RetainedGraphs(Observer):
    """Of one run."""

    def _begin(self) -> None:
        self._lines: dict[object, _RetainingLine] = {}
        self._calls = 0

    def backward(self, call: EngineCall) -> None:
        """A call of backward comes."""
        plain = call.retains and not call.create_graph
        if self._calls >= _LOOKS or not (plain or self._lines):
            return

        self._calls += 1
        # tensors of the user's own classes may refuse anything
        with suppress(Exception):
            nodes = nodes_behind(call.outputs)
            numbers = {
                node._sequence_nr()
                for node in nodes
                if type(node).__name__ != "AccumulateGrad"
            }
            for line in self._lines.values():
                line.needed |= not line.nodes.isdisjoint(numbers)
            place = self._place(call.frame) if plain and len(nodes) < _LARGEST else None
            if place is not None:
                line = self._lines.setdefault(
                    place.script_line or place.source, _RetainingLine(place)
                )
                line.nodes |= numbers
                line.calls += 1

    def ended(self) -> None:
        """The script has come to its end: nothing will use what is retained."""
        for line in self._lines.values():
            if not line.needed and line.calls >= _CALLS:
                self._note("retains in vain", line.place, line.calls)
