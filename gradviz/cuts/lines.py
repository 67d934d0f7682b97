"""Cuts: the lines where a tensor loses its graph, seen while the code runs.

`CutWatch` is told of each call that cuts (`cuts.seen`), and looks which leaves are
behind what is cut off. Where what a line gave enters a graph again, the code says: see
`feeding`. `Cut` is what others read of it: plain data.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import torch

from gradviz.cuts.behind import (
    Leaves,
    callers,
    fed_by,
    leaves_behind,
    lines_before,
    ways_to,
)
from gradviz.cuts.part import CutPart, part_behind
from gradviz.cuts.parts import CutParts, Drop, Taker
from gradviz.graph import SourceLine, column
from gradviz.packages import Place, UserCode, with_text
from gradviz.source.cut import Cut, DetachKind
from gradviz.source.feeding import Line, feeding
from gradviz.walker.description import Attribution
from gradviz.walker.names import flatten
from gradviz.walker.private import peek_sequence
from gradviz.walker.tensors import grad_fn_of
from gradviz.wording import place_text

MOST_PARTS = 100
"""Times in one step that leaves are noted which one line takes, as a frozen model of
many layers does.
"""

PLACES = 5_000
"""Places that are told apart, so that a long run costs no more."""

LOOKS = 4
"""Times that one looks which leaves are behind what a place cuts off."""

Names = tuple[str, ...]


@dataclass(eq=False)
class SeenCut:
    """One place in the code that cuts, called on one way, and the last time that it
    ran.
    """

    kind: DetachKind
    operation: str
    place: Place
    # the lines of the user's that led there, innermost first
    via: tuple[SourceLine, ...]
    number: int = 0  # that the next node would have got
    leaf: weakref.ref[torch.Tensor] | None = None  # what was cut off, if it was one
    into: weakref.ref[torch.Tensor] | None = None  # the leaf that has got the numbers
    leaves: Leaves = field(default_factory=dict)  # behind it, the first few times
    looks: int = 0

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple((line.file, line.line) for line in self.via)


class CutWatch:
    """Of one run, in one thread."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        self._places: dict[tuple[object, ...], SeenCut] = {}
        # what each place dropped last, where that is wanted
        self.parts: dict[SeenCut, list[CutPart]] | None = None
        # ways to nodes that take what no op of the graph computed
        self._taking: dict[tuple[Line, ...], None] = {}
        # backward calls, and the sequence number after the last one
        self.step, self.since = 0, 0
        # the line that has switched recording off for good
        self.off: SourceLine | None = None

    def switched(self, frame: FrameType | None) -> None:
        """A call that is no block has switched recording off; None: or on again."""
        place = self._code.place(frame) if frame is not None else None
        self.off = None
        if place is not None:
            self.off = with_text(place.script_line or place.source)

    def cutting(
        self,
        kind: DetachKind,
        name: str,
        tensors: Sequence[torch.Tensor],
        frame: FrameType,
        into: torch.Tensor | None,
    ) -> None:
        """A function cuts off these tensors, which have a graph. `into` is a leaf that
        gets their numbers.
        """
        seen = self._place(kind, name, frame)
        if seen is None:
            return

        first = tensors[0]
        # a view that was made while nothing is recorded looks like a leaf
        if first.is_leaf and first._base is not None:
            first = first._base

        seen.number = peek_sequence()
        seen.leaf = weakref.ref(first) if first.is_leaf else None
        seen.into = weakref.ref(into) if into is not None else None

        if seen.looks < LOOKS:
            seen.looks += 1
            for tensor in tensors:
                seen.leaves |= leaves_behind(tensor)
        if self.parts is not None:
            self._walk(self.parts.setdefault(seen, []), tensors)

    def _place(self, kind: DetachKind, name: str, frame: FrameType) -> SeenCut | None:
        site = self._code.site(frame)
        if site is None or site.place is None:
            return None

        # sites are made once for each way, and never dropped
        key = kind, name, id(site)
        if key not in self._places and len(self._places) < PLACES:
            self._places[key] = SeenCut(kind, name, site.place, tuple(callers(site)))
        return self._places.get(key)

    def _walk(self, parts: list[CutPart], tensors: Sequence[torch.Tensor]) -> None:
        """Add what is behind tensors that a line drops: a graph once a line and step,
        and leaves.
        """
        if parts and parts[0].step != self.step:
            parts.clear()

        noted = {id(ref()) for part in parts for ref in part.leaves.values()}
        fresh = all(tensor.is_leaf and id(tensor) not in noted for tensor in tensors)
        if not parts or (fresh and len(parts) < MOST_PARTS):
            part = part_behind(tensors, self.step)
            if part is not None:
                parts.append(part)

    def parts_of(
        self, attribution: Attribution | None, outputs: object, frame: FrameType | None
    ) -> CutParts | None:
        """What takes the place of `attribution` in a walk of `outputs`, to put what was
        cut off beside it; None if not wanted.

        `frame` uses the outputs, which may lack a graph because of a cut on the lines
        before.
        """
        if self.parts is None:
            return None

        values = [value for _, value in flatten(outputs)]
        lost = tuple(i for i, value in enumerate(values) if _has_no_graph(value))
        before = lines_before(frame) if lost else ()
        drops: list[Drop] = []

        for seen in sorted(self.parts, key=lambda seen: seen.number):
            parts = self.parts[seen]
            is_before = not set(seen.lines).isdisjoint(before)
            if parts:
                cut = self.cut(seen, lambda leaf: ())
                drops.append(Drop(seen, cut, parts, lost if is_before else ()))

        return CutParts(attribution, drops, self.step, self.entering)

    # -- what is known, for instance at a backward call --------------------------------

    def cut(self, seen: SeenCut, names: Callable[[torch.Tensor], Names]) -> Cut:
        """The last time that a place has cut, as plain data; `names` tells those of a
        leaf.
        """
        place = seen.place
        source = with_text(place.script_line or place.source)
        inside = source.function if source.function != "<module>" else ""
        if place.script_line is not None:
            file = os.path.basename(place.source.file)
            where = place_text(file, place.source.line)
            inside = f"{place.source.package} ({where})"

        leaf = seen.leaf() if seen.leaf is not None else None
        behind = set[str]()
        for ref in seen.leaves.values():
            other = ref()
            if other is not None:
                behind.update(names(other))

        return Cut(
            seen.kind,
            source,
            seen.operation,
            inside,
            seen.number,
            names(leaf) if leaf is not None else (),
            frozenset(behind),
            seen.via,
        )

    def cuts(self, names: Callable[[torch.Tensor], Names]) -> tuple[Cut, ...]:
        """Every place that has cut, with the last time that it ran."""
        return tuple(self.cut(seen, names) for seen in self._places.values())

    def on(self, lines: Collection[Line]) -> list[SeenCut]:
        """The cuts on these lines, or in what they call."""
        every = self._places.values()
        return [seen for seen in every if not set(seen.lines).isdisjoint(lines)]

    def entering(self, nodes: Sequence[Taker]) -> dict[SeenCut, list[int]]:
        """The nodes that take in what lines have cut off, as the code says: the nearest
        ones in each case.

        It goes by lines: two parts of one statement are not told apart, and of several
        statements on a line nothing is said.
        """
        ways = list(ways_to(node.sequence for node in nodes))
        computed = set().union(*ways)
        cutting = self.lines()
        feeding_lines: dict[tuple[Line, ...], frozenset[Line]] = {}
        found: dict[SeenCut, dict[tuple[int, int], list[int]]] = {}

        for node, way in zip(nodes, ways):
            if not node.takes or not way:
                continue
            self._taking[way] = None
            if way not in feeding_lines and cutting:
                feeding_lines[way] = fed_by(way, computed) & cutting
            if not feeding_lines.get(way):
                continue

            for seen in self._places.values():
                depths = _depths(seen, feeding_lines[way])
                if depths:
                    nearness = depths[0], -node.takes
                    by_nearness = found.setdefault(seen, {})
                    by_nearness.setdefault(nearness, []).append(node.node)

        return {seen: places[min(places)] for seen, places in found.items()}

    def lines_behind(self) -> set[Line]:
        """The lines whose result may have gone into graphs that were read."""
        return {line for way in self._taking for one in way for line in feeding(one)}

    def this_step(self, kind: DetachKind) -> list[SeenCut]:
        every = self._places.values()
        return [
            seen for seen in every if seen.kind == kind and seen.number >= self.since
        ]

    def given_to(self, leaf: torch.Tensor) -> list[SeenCut]:
        """The cuts that gave a leaf its numbers."""
        written = [seen for seen in self._places.values() if seen.into is not None]
        return [
            seen for seen in written if seen.into is not None and seen.into() is leaf
        ]

    def lines(self) -> set[Line]:
        """All lines that have cut, or called what did."""
        return {line for seen in self._places.values() for line in seen.lines}

    def cuts_behind(self, tensor: torch.Tensor, name: str) -> Iterator[Cut]:
        """The cuts of what an op computed, or of what was computed from that, as far as
        `parts` were walked.
        """
        function = grad_fn_of(tensor)
        if function is None:
            return

        number = function._sequence_nr()
        for seen, parts in (self.parts or {}).items():
            for graph in (part.graph for part in parts):
                if number not in column(graph.nodes, "sequence"):
                    continue
                cut = self.cut(seen, lambda leaf: ())
                roots = [root.node for root in graph.roots if root.node is not None]
                if number in {graph.nodes[node].sequence for node in roots}:
                    yield cut._replace(leaf=(name,))
                else:
                    yield cut._replace(behind=frozenset((name,)))

    def next_step(self) -> None:
        """A backward call has run: what a line drops from here on is of another step."""
        self.step, self.since = self.step + 1, peek_sequence()


def _depths(seen: SeenCut, lines: Collection[Line]) -> list[int]:
    """How many calls further in than each of these lines a place has cut."""
    return [depth for depth, line in enumerate(seen.lines) if line in lines]


def _has_no_graph(output: object) -> bool:
    return isinstance(output, torch.Tensor) and grad_fn_of(output) is None
