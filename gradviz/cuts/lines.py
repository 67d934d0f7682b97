"""Cuts: the lines where a tensor loses its graph, seen while the code runs.

`CutWatch` is told of each call that cuts (`cuts.seen`), and looks which leaves are
behind what is cut off. Where what a line gave enters a graph again, the code says: see
`feeding`. `Cut` is what others read of it: plain data.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.cuts.parts import CutPart, CutParts, Drop, Taker, part_behind
from gradviz.graph import SourceLine, column
from gradviz.packages import CallSite, Place, UserCode, script_lines, with_text
from gradviz.recording.session import running
from gradviz.source.cut import Cut, DetachKind
from gradviz.source.feeding import Line, feeding, statement_at
from gradviz.walker.description import Attribution
from gradviz.walker.names import flatten
from gradviz.walker.private import LAST, peek_sequence
from gradviz.walker.tensors import grad_fn_of
from gradviz.wording import place_text

MOST_PARTS = 100
"""Times in one step that leaves are noted which one line takes, as a frozen model of
many layers does.
"""

PLACES = 5_000
"""Places that are told apart, so that a long run costs no more."""

# that one looks what is behind a line that cuts, and nodes that one goes over
_TIMES, _NODES = 4, 5000

Names = tuple[str, ...]
_Leaves = dict[int, weakref.ref[torch.Tensor]]


class CutPlace(NamedTuple):
    """One place in the code that cuts, called on one way: one object for all times that
    it runs.
    """

    kind: DetachKind
    operation: str
    place: Place
    # the lines of the user's that led there, innermost first
    via: tuple[SourceLine, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple((line.file, line.line) for line in self.via)


class CutEvent(NamedTuple):
    """One cut: the number that the next node would have got, and the leaf that was cut
    off, when it was one.
    """

    where: CutPlace
    at: int
    leaf: weakref.ref[torch.Tensor] | None = None
    into: weakref.ref[torch.Tensor] | None = None  # the leaf that has got the numbers


class CutWatch:
    """Of one run, in one thread."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        self._places: dict[tuple[object, ...], CutPlace] = {}
        self._behind: dict[CutPlace, list[_Leaves]] = {}  # leaves, each time one looked
        self._last: dict[CutPlace, CutEvent] = {}
        # what each line dropped last, where that is wanted
        self.parts: dict[CutPlace, list[CutPart]] | None = None
        # ways to nodes that take what no op of the graph computed
        self._taking: dict[tuple[Line, ...], None] = {}
        # backward calls, and the sequence number after the last one
        self.step, self.since = 0, 0
        # the line that has switched recording off for good
        self.off: SourceLine | None = None

    def switched(self, frame: FrameType | None) -> None:
        place = self._code.place(frame) if frame is not None else None
        if place is not None:
            self.off = with_text(place.script_line or place.source)
        else:
            self.off = None

    def cutting(
        self,
        kind: DetachKind,
        name: str,
        tensors: Sequence[torch.Tensor],
        frame: FrameType,
        into: torch.Tensor | None,
    ) -> None:
        where = self._where(kind, name, frame)
        if where is None:
            return

        first = tensors[0]
        # a view that was made while nothing is recorded looks like one
        if first.is_leaf and first._base is not None:
            first = first._base

        leaf = weakref.ref(first) if first.is_leaf else None
        given = weakref.ref(into) if into is not None else None
        event = self._last[where] = CutEvent(where, peek_sequence(), leaf, given)
        looked = self._behind.setdefault(where, [])

        if len(looked) < _TIMES:
            leaves = [
                _leaves_behind(tensor) for tensor in tensors if not tensor.is_leaf
            ]
            looked.append({key: ref for found in leaves for key, ref in found.items()})

        self._walk(event, tensors)

    def _where(
        self,
        kind: DetachKind,
        name: str,
        frame: FrameType,
    ) -> CutPlace | None:
        site = self._code.site(frame)
        # sites are made once for each way, and never dropped
        key = kind, name, id(site)
        if (
            site is None
            or site.place is None
            or (key not in self._places and len(self._places) >= PLACES)
        ):
            return None

        if key not in self._places:
            self._places[key] = CutPlace(
                kind,
                name,
                site.place,
                tuple(_via(site)),
            )

        return self._places[key]

    def _walk(
        self,
        event: CutEvent,
        tensors: Sequence[torch.Tensor],
    ) -> None:
        """Note what is behind tensors that a line drops, where that is wanted: a graph
        once a line and step, and leaves.
        """
        if self.parts is None:
            return

        known = [
            part for part in self.parts.get(event.where, ()) if part.step == self.step
        ]
        leaves = {id(ref()) for part in known for ref in part.leaves.values()}
        if known and (
            len(known) >= MOST_PARTS
            or any(not one.is_leaf or id(one) in leaves for one in tensors)
        ):
            return

        part = part_behind(tensors, self.step)
        if part is not None:
            self.parts[event.where] = [*known, part]

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

        lost = tuple(
            i for i, (_, output) in enumerate(flatten(outputs)) if _has_no_graph(output)
        )
        before = lines_before(frame) if lost else ()
        drops = [
            Drop(
                where,
                self._bare(where),
                parts,
                lost if not set(where.lines).isdisjoint(before) else (),
            )
            for where, parts in sorted(
                self.parts.items(), key=lambda item: self._last[item[0]].at
            )
        ]

        return CutParts(attribution, drops, self.step, self.entering)

    # -- what is known, for instance at a backward call --------------------------------

    def cut(
        self,
        event: CutEvent,
        names: Callable[[torch.Tensor], Names],
    ) -> Cut:
        """An event as plain data; `names` tells those of a leaf."""
        where, place = event.where, event.where.place
        source = with_text(place.script_line or place.source)
        inside = source.function if source.function != "<module>" else ""
        if place.script_line is not None:
            inside = f"{place.source.package} ({place_text(os.path.basename(place.source.file), place.source.line)})"

        leaf = event.leaf() if event.leaf is not None else None
        return Cut(
            where.kind,
            source,
            where.operation,
            inside,
            event.at,
            names(leaf) if leaf is not None else (),
            frozenset(name for leaf in self._leaves(where) for name in names(leaf)),
            where.via,
        )

    def _bare(self, where: CutPlace) -> Cut:
        return self.cut(self._last[where], lambda leaf: ())

    def _leaves(self, where: CutPlace) -> list[torch.Tensor]:
        """The leaves that the graph led to which was cut off there, the first few
        times.
        """
        refs = {
            key: ref
            for leaves in self._behind.get(where, ())
            for key, ref in leaves.items()
        }
        return [leaf for ref in refs.values() if (leaf := ref()) is not None]

    def cuts(
        self,
        names: Callable[[torch.Tensor], Names],
    ) -> tuple[Cut, ...]:
        """Every place that has cut, with the last time that it ran."""
        return tuple(self.cut(event, names) for event in self._last.values())

    def on(self, lines: Collection[Line]) -> list[CutEvent]:
        """The cuts on these lines, or in what they call."""
        return [
            event
            for where, event in self._last.items()
            if not set(where.lines).isdisjoint(lines)
        ]

    def entering(
        self,
        nodes: Sequence[Taker],
    ) -> dict[CutPlace, list[int]]:
        """The nodes that take in what lines have cut off, as the code says: the nearest
        ones in each case.
        """
        ways = list(_ways(node.sequence for node in nodes))
        taking = dict.fromkeys(
            way for node, way in zip(nodes, ways) if node.takes and way
        )
        self._taking.update(taking)
        computed, cutting = set().union(*ways), self.lines()
        fed = {way: _fed(way, computed) & cutting for way in taking if cutting}
        found: dict[CutPlace, dict[tuple[int, int], list[int]]] = {}

        for node, way in zip(nodes, ways):
            for where in self._last if node.takes and fed.get(way) else ():
                depth = next(
                    (i for i, line in enumerate(where.lines) if line in fed[way]), None
                )
                if depth is not None:
                    found.setdefault(where, {}).setdefault(
                        (depth, -node.takes), []
                    ).append(node.node)

        return {where: nearest[min(nearest)] for where, nearest in found.items()}

    def lines_behind(self) -> set[Line]:
        """The lines whose result may have gone into graphs that were read."""
        return {line for way in self._taking for one in way for line in feeding(one)}

    def last(self, where: CutPlace) -> CutEvent:
        """The last time that a place has cut."""
        return self._last[where]

    def this_step(self, kind: DetachKind) -> list[CutEvent]:
        return [
            event
            for event in self._last.values()
            if event.where.kind == kind and event.at >= self.since
        ]

    def given_to(self, leaf: torch.Tensor) -> list[CutEvent]:
        """The cuts that gave a leaf its numbers."""
        return [
            event
            for event in self._last.values()
            if event.into is not None and event.into() is leaf
        ]

    def lines(self) -> set[Line]:
        """All lines that have cut, or called what did."""
        return {line for where in self._last for line in where.lines}

    def cuts_behind(
        self,
        tensor: torch.Tensor,
        name: str,
    ) -> Iterator[Cut]:
        """The cuts of what an op computed, or of what was computed from that, as far as
        `parts` were walked.
        """
        made_by = grad_fn_of(tensor)
        number = made_by._sequence_nr() if made_by is not None else None
        walked = (
            (where, part.graph)
            for where, parts in (self.parts or {}).items()
            for part in parts
        )

        for where, graph in walked:
            if number is not None and number in column(graph.nodes, "sequence"):
                cut = self._bare(where)
                is_it = any(
                    root.node is not None and graph.nodes[root.node].sequence == number
                    for root in graph.roots
                )
                yield (
                    cut._replace(leaf=(name,))
                    if is_it
                    else cut._replace(behind=frozenset((name,)))
                )

    def next_step(self) -> None:
        """A backward call has run: what a line drops from here on is of another step."""
        self.step, self.since = self.step + 1, peek_sequence()


def _fed(
    way: Sequence[Line],
    computed: Collection[Line],
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, called on this way; the
    line itself is one.
    """
    return statement_at(way[0]).union(*(feeding(line, computed) for line in way))


def lines_before(frame: FrameType | None) -> frozenset[Line]:
    """The lines whose results go into those that a frame, and those around it, are at."""
    way = [(one.file, one.line) for one in script_lines(frame)]
    return _fed(way, ()) if way else frozenset()


def _ways(
    numbers: Iterable[int],
) -> Iterator[tuple[Line, ...]]:
    """The lines of the user's that led to each node, by sequence number, innermost
    first; none where nothing is recorded.
    """
    session = running()
    lines = session.event_log().lines if session is not None else None
    known: dict[int, tuple[Line, ...]] = {}
    for number in numbers:
        site = lines.at(number) if lines is not None and number != LAST else None
        if id(site) not in known:
            if site is not None:
                known[id(site)] = tuple((one.file, one.line) for one in _via(site))
            else:
                known[id(site)] = ()
        yield known[id(site)]


def _via(site: CallSite) -> Iterator[SourceLine]:
    for caller in site.chain():
        if caller.place is not None and not caller.place.source.package:
            yield caller.place.source


def _has_no_graph(output: object) -> bool:
    return isinstance(output, torch.Tensor) and grad_fn_of(output) is None


def _leaves_behind(tensor: torch.Tensor) -> _Leaves:
    """The leaves that a tensor was computed from; none when its graph is too large for
    a look.
    """
    leaves: _Leaves = {}
    start: Any = tensor.grad_fn
    seen, waiting = {start}, [start]

    while waiting and len(seen) < _NODES:
        node: Any = waiting.pop()
        if type(node).__name__ == "AccumulateGrad":
            leaf = getattr(node, "variable", None)
        else:
            leaf = None
        if isinstance(leaf, torch.Tensor):
            leaves[id(leaf)] = weakref.ref(leaf)
        inputs = {
            function for function, _ in node.next_functions if function is not None
        } - seen
        seen |= inputs
        waiting += inputs

    return leaves if not waiting else {}
