"""Cuts: the lines where a tensor loses its graph, seen while the code runs.

`CutWatch` is told of each call that cuts (`cuts.seen`), and looks which leaves are
behind what is cut off. Where what a line gave enters a graph again, the code says: see
`feeding`. `Cut` is what others read of it: plain data.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import torch

from gradviz.cuts.parts import CutPart, WithCuts, part_behind
from gradviz.graph import Graph, SourceLine, column
from gradviz.packages import CallSite, Place, UserCode, script_lines
from gradviz.recording.session import running
from gradviz.source.cut import Cut, DetachKind
from gradviz.source.feeding import Line, feeding, statement_at
from gradviz.walker.places import Attribution
from gradviz.walker.private import peek_sequence
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked
from gradviz.wording import place_text

PLACES = 5_000
"""Places that are told apart, so that a long run costs no more."""

WALKS = 2
"""Times that one walks to the leaves behind what a place cuts off."""

Names = tuple[str, ...]
Way = tuple[Line, ...]
"""The lines of the user's that led somewhere, innermost first."""


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
    lines: Way
    number: int = 0  # that the next node would have got
    step: int = -1
    leaf: weakref.ref[torch.Tensor] | None = None  # what was cut off, if it was one
    into: weakref.ref[torch.Tensor] | None = None  # the leaf that has got the numbers
    # the leaves behind it, the first few times
    leaves: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    walks: int = 0
    # what it dropped first in its last step, where that is to be drawn
    part: CutPart | None = None

    @property
    def source(self) -> SourceLine:
        return self.place.own_line

    def cut(self, names: Callable[[torch.Tensor], Names]) -> Cut:
        """The last time, as plain data; `names` tells those of a leaf."""
        inner, inside = self.place.source, ""
        if self.place.script_line is not None:
            place = place_text(os.path.basename(inner.file), inner.line)
            inside = f"{inner.package} ({place})"

        leaf = self.leaf() if self.leaf is not None else None
        behind = set[str]()
        for ref in self.leaves.values():
            other = ref()
            if other is not None:
                behind.update(names(other))

        return Cut(
            self.kind,
            self.source,
            self.operation,
            inside,
            self.number,
            names(leaf) if leaf is not None else (),
            frozenset(behind),
            self.via,
        )


class CutWatch:
    """Of one run, in one thread. `draws`: what the lines drop is walked, to be drawn."""

    def __init__(self, draws: bool = False) -> None:
        self.draws, self._code = draws, UserCode()
        self._places: dict[tuple[object, ...], SeenCut] = {}
        # ways to nodes that take what no op of the graph computed
        self._taking: dict[Way, None] = {}
        self.step = 0  # backward calls so far
        # the line that has switched recording off for good
        self.off: SourceLine | None = None

    def next_step(self) -> None:
        """A backward call has run: what a line drops from here on is of another step."""
        self.step += 1

    def switched(self, frame: FrameType | None) -> None:
        """A call that is no block has switched recording off; None: or on again."""
        place = self._code.place(frame)
        self.off = place.own_line if place is not None else None

    def cutting(
        self,
        kind: DetachKind,
        name: str,
        tensors: Sequence[torch.Tensor],
        frame: FrameType,
        into: object,
    ) -> None:
        """A function cuts off these tensors, which have a graph. `into` is what gets
        their numbers, a leaf perhaps.
        """
        seen = self._place(kind, name, frame)
        if seen is None:
            return

        first = tensors[0]

        seen.leaf = weakref.ref(first) if first.is_leaf else None
        seen.into = weakref.ref(into) if isinstance(into, torch.Tensor) else None

        # of a loop over layers the first one is drawn, and stands for all
        is_drawn = self.draws and (seen.part is None or seen.step != self.step)
        seen.number, seen.step = peek_sequence(), self.step
        # every step cuts the same leaves off, and a walk goes over a graph
        if seen.walks < WALKS or is_drawn:
            seen.walks += 1
            part = part_behind(tensors)
            if part is not None:
                seen.leaves |= {id(leaf): leaf for leaf in part.tensors.values()}
            if is_drawn:
                seen.part = part

    def _place(
        self,
        kind: DetachKind,
        name: str,
        frame: FrameType,
    ) -> SeenCut | None:
        site = self._code.site(frame)
        if site is None or site.place is None:
            return None

        # sites are made once for each way, and never dropped
        key = kind, name, id(site)
        if key not in self._places and len(self._places) < PLACES:
            via = tuple(callers(site))
            seen = SeenCut(kind, name, site.place, via, lines_of(via))
            self._places[key] = seen
        return self._places.get(key)

    def joined(
        self,
        walked: Walked,
        attribution: Attribution | None,
        frame: FrameType | None,
    ) -> Graph:
        """A graph that was walked, with what was cut off beside it.

        `frame` uses the outputs, which may lack a graph because of a cut on the lines
        before.
        """
        lost = [i for i, root in enumerate(walked.graph.roots) if root.node is None]
        before = self.on(lines_before(frame)) if lost else ()
        entered = self.entering(walked.graph)

        joined = WithCuts(walked)
        for seen in sorted(self.every, key=lambda seen: seen.number):
            outputs = lost if seen in before else ()
            users = entered.get(seen, ())
            if seen.part is not None and (outputs or users):
                joined.add(seen, seen.part, outputs, users)
        return joined.graph(attribution)

    # -- what is known, for instance at a backward call --------------------------------

    @property
    def every(self) -> list[SeenCut]:
        """All places that have cut."""
        return list(self._places.values())

    def cutting_off(
        self,
        tensor: torch.Tensor,
    ) -> Iterator[tuple[SeenCut, bool]]:
        """The cuts of a tensor, or of what was computed from it, and whether of itself.
        Of what an op has computed, as far as it is to be drawn.
        """
        function = grad_fn_of(tensor)
        number = function._sequence_nr() if function is not None else None
        for seen in self.every:
            same = seen.leaf is not None and seen.leaf() is tensor
            computed = any(leaf() is tensor for leaf in seen.leaves.values())
            if seen.part is not None and number is not None:
                graph = seen.part.graph
                sequences = column(graph.nodes, "sequence")
                same |= number in [sequences[root.node or 0] for root in graph.roots]
                computed |= number in sequences
            if same or computed:
                yield seen, same

    def entering(
        self,
        graph: Graph,
    ) -> dict[SeenCut, list[int]]:
        """The nodes that take in what lines have cut off, as the code says: the nearest
        ones in each case.

        It goes by lines: two parts of one statement are not told apart, and of several
        statements on a line nothing is said.
        """
        sequences = column(graph.nodes, "sequence")
        ops = [node for node, number in enumerate(sequences) if number is not None]
        ways = dict(zip(ops, ways_to(sequences[node] for node in ops)))
        computed = set().union(*ways.values())
        cutting = {line for seen in self.every for line in seen.lines}
        feeding_lines: dict[Way, frozenset[Line]] = {}
        found: dict[SeenCut, dict[tuple[int, bool], list[int]]] = {}

        others = column(graph.nodes, "none_inputs")
        edges = zip(column(graph.edges, "consumer"), column(graph.edges, "producer"))
        fed = {node for node, producer in edges if producer in ways}
        for node, way in ways.items():
            # what has all its inputs from the graph takes nothing else in
            if not way or (node in fed and not others[node]):
                continue
            self._taking[way] = None
            if way not in feeding_lines and cutting:
                feeding_lines[way] = fed_by(way, computed) & cutting

            for seen in self.on(feeding_lines.get(way, ())):
                in_way = [line in feeding_lines[way] for line in seen.lines]
                # how many calls further in it has cut
                nearness = in_way.index(True), not others[node]
                by_nearness = found.setdefault(seen, {})
                by_nearness.setdefault(nearness, []).append(node)

        return {seen: places[min(places)] for seen, places in found.items()}

    def lines_behind(self) -> set[Line]:
        """The lines whose result may have gone into graphs that were read."""
        return {line for way in self._taking for step in way for line in feeding(step)}

    def on(self, lines: Collection[Line]) -> list[SeenCut]:
        """The cuts on these lines, or in what they call."""
        every = self.every if lines else ()
        return [seen for seen in every if not set(seen.lines).isdisjoint(lines)]

    def numbers(self) -> list[SeenCut]:
        """The lines that made Python numbers in this step."""
        made = [seen for seen in self.every if seen.kind == "number"]
        return [seen for seen in made if seen.step == self.step]

    def given_to(self, leaf: torch.Tensor) -> list[SeenCut]:
        """The cuts that gave a leaf its numbers."""
        every = self.every
        return [seen for seen in every if seen.into is not None and seen.into() is leaf]


# -- the lines behind a node or a frame, as the recording and the text say --------------


def fed_by(
    way: Sequence[Line],
    computed: Collection[Line],
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, called on this way; the
    line itself is one.
    """
    return statement_at(way[0]).union(*(feeding(line, computed) for line in way))


def lines_before(frame: FrameType | None) -> frozenset[Line]:
    """The lines whose results go into those that a frame, and those around it, are at."""
    way = lines_of(script_lines(frame))
    return fed_by(way, ()) if way else frozenset()


def lines_of(sources: Iterable[SourceLine]) -> Way:
    return tuple((source.file, source.line) for source in sources)


def ways_to(numbers: Iterable[int]) -> Iterator[Way]:
    """The way to each node, by sequence number; none where nothing is recorded."""
    session = running()
    recorded = session.event_log().lines if session is not None else None
    ways: dict[CallSite | None, Way] = {None: ()}

    for number in numbers:
        site = recorded.at(number) if recorded is not None else None
        if site is not None and site not in ways:
            ways[site] = lines_of(callers(site))
        yield ways[site]


def callers(site: CallSite) -> Iterator[SourceLine]:
    for caller in site.chain():
        # the lines of libraries are nobody's to change
        if caller.place is not None and not caller.place.source.package:
            yield caller.place.source
