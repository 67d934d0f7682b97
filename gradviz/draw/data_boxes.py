"""The tensors without gradient that ops were given, by where they enter a drawing: what
reads alike is one box, and at most a few boxes stand at one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from gradviz.draw import details
from gradviz.draw.edge_words import tensors_along
from gradviz.draw.frames import Frames
from gradviz.fold.folding import Folding
from gradviz.fold.groups import Section
from gradviz.fold.sizes import MOST_DATA
from gradviz.graph import Data
from gradviz.graph.origins import ScopeTree
from gradviz.report import labels

T = TypeVar("T")
Lines = tuple[str, ...]


class Entry(NamedTuple):
    """Data that enters the same boxes, and is drawn in this scope."""

    boxes: tuple[int, ...]
    scope: int | None


class _Made(NamedTuple):
    """What a call of a function made: how many nodes, the first that is known of them,
    and the box that holds all, None where they are in several.
    """

    size: int
    node: int
    box: int | None


class Inside:
    """Which data was written in what is closed: by the code of a module, or, of other
    data, by a function all of which is in one box. `users` are the drawn boxes that take
    data, by its place; `drawn` has what is drawn for each box of the folding.
    """

    def __init__(
        self, folding: Folding, frames: Frames, drawn: Mapping[int, int]
    ) -> None:
        self.users = dict(_users(folding, drawn))
        self._folding, self._frames = folding, frames
        self._made: dict[int, _Made] = {}
        if any(data.function is not None for data in folding.graph.data):
            self._made = dict(_made(folding))

    def holds(self, data: Data, takers: Sequence[int]) -> bool:
        """Whether data was written in the closed boxes that take it, or what is computed
        from it.
        """
        if data.scope is not None and data.scope >= 0:
            around = self._frames.around(takers)
            if not self._frames.is_within(around, data.scope):
                return True
        folding = self._folding
        if data.function is None or folding.opening is None:
            return False
        made = self._made.get(data.function)
        if made is None or made.box is None or made.box not in takers:
            return False
        function = folding.graph.program[data.function]
        for group in _around(folding, made.node):
            if group.construct is function:
                return group not in folding.opening.open
        # the box may be all that the function does
        leaves = folding.graph.leaf_of
        ops = [node for node in folding.inside[made.box] if node not in leaves]
        return len(ops) > made.size


def _made(folding: Folding) -> Iterator[tuple[int, _Made]]:
    """What each construct of the program made, with all that is inside it."""
    graph, box_of = folding.graph, folding.box_of
    members = ScopeTree(graph).members
    inside: dict[int | None, list[_Made]] = {}
    # the inner ones come later
    for i, construct in reversed(list(enumerate(graph.program))):
        own = [*construct.nodes, *chain(*map(members.__getitem__, construct.scopes))]
        parts = [_Made(1, node, box_of[node]) for node in own] + inside.pop(i, [])
        if parts:
            boxes = {part.box for part in parts}
            size = sum(part.size for part in parts)
            box = boxes.pop() if len(boxes) == 1 else None
            whole = _Made(size, parts[0].node, box)
            inside.setdefault(construct.parent, []).append(whole)
            yield i, whole


def entries(
    folding: Folding, drawn: Mapping[int, int], frames: Frames, inside: Inside
) -> tuple[dict[Entry, dict[Lines, list[int]]], dict[int, int]]:
    """The data of a graph, by its places there, by where it enters, then by its lines;
    and the boxes in which the rest was written, a closed module's own.
    """
    found: dict[Entry, dict[Lines, list[int]]] = {}
    is_open = folding.opening.open if folding.opening is not None else ()
    rests: dict[Entry, Section] = {}
    turns: dict[tuple[Section | None, Lines], Entry] = {}  # that are shown, of runs
    closed = _closed(folding, inside)
    for place, boxes in inside.users.items():
        if place in closed:
            continue
        tensor = folding.graph.data[place]
        scope = frames.where_written(frames.around(boxes), tensor)
        entry = Entry(tuple([drawn[box] for box in boxes]), scope)
        lines = details.data_lines(tensor)
        found.setdefault(entry, {}).setdefault(lines, []).append(place)
        for group in _around(folding, tensor.nodes[0]):
            if group.is_rest and group not in is_open:
                rests[entry] = group
                break
            turns.setdefault((group, lines), entry)

    # what the shown turn takes and what the others take is one box if it reads alike
    for entry, rest in rests.items():
        for lines in list(found[entry]):
            turn = turns.get((rest.parent, lines), entry)
            if turn != entry and lines in found[turn]:
                data = found[turn].pop(lines) + found[entry].pop(lines)
                both = Entry(turn.boxes + entry.boxes, entry.scope)
                found.setdefault(both, {})[lines] = data
    return found, {place: drawn[boxes[0]] for place, boxes in closed.items()}


def _users(
    folding: Folding, drawn: Mapping[int, int]
) -> Iterator[tuple[int, list[int]]]:
    """The drawn boxes that take data, by its place."""
    for place, tensor in enumerate(folding.graph.data):
        takers = dict.fromkeys(folding.box_of[node] for node in tensor.nodes)
        users = [box for box in takers if box in drawn]
        if users:
            yield place, users


def _closed(folding: Folding, written: Inside) -> dict[int, list[int]]:
    """Data that closed modules and functions made for themselves: what they have, and of
    those that something else enters what their code wrote.
    """
    every, users = folding.graph.data, written.users
    groups = {box: folding.boxes[box].group for box in chain(*users.values())}
    several = {box for box, group in groups.items() if group and group.ops > 1}
    inside = {
        place: boxes
        for place, boxes in users.items()
        if written.holds(every[place], boxes) and several.issuperset(boxes)
    }
    entered = _entered(folding, {*chain(*inside.values())})
    for place, boxes in users.items():
        of = [every[one] for one in every[place].of]
        comes = any(not written.holds(source, boxes) for source in of)
        if place not in inside or comes:
            entered.update(boxes)
    return {
        place: boxes
        for place, boxes in inside.items()
        if every[place].text.startswith("self.") or entered.issuperset(boxes)
    }


def _entered(folding: Folding, boxes: set[int]) -> set[int]:
    """Those of these boxes that an edge enters with more than parameters that another
    call's box has inside.
    """
    leaves, entered = folding.graph.leaf_of.keys(), set[int]()
    for edge in folding.edges:
        if edge.consumer not in boxes or edge.consumer in entered:
            continue
        if not leaves >= {node for node, _ in tensors_along(folding, edge)}:
            entered.add(edge.consumer)
    return entered


def _around(folding: Folding, node: int) -> Iterable[Section]:
    """The groups that a node is in, inner first."""
    opening = folding.opening
    home = opening.groups.home[node] if opening is not None else None
    return home.around() if home is not None else ()


def sources(data: Sequence[Data], drawn: Iterable[int]) -> dict[int, list[int]]:
    """What drawn data is computed from, by the places of both in all data. That which no
    op takes is drawn for this alone.
    """
    shown = set(drawn)
    known = {i for i, one in enumerate(data) if i in shown or not one.nodes}
    return {i: [of for of in data[i].of if of in known] for i in sorted(shown)}


def few_of(alike: dict[Lines, list[T]]) -> Iterator[tuple[Lines, list[T]]]:
    """Data that enters at one place, by its lines: `x[:, t] ×11`, without the shape where
    turns differ in it, and at most `MOST_DATA` boxes.
    """
    titles = Counter(title for title, *_ in alike)
    merged: dict[Lines, list[T]] = {}
    for one, data in alike.items():
        merged.setdefault(one if titles[one[0]] == 1 else (one[0], ""), []).extend(data)
    lines = list(merged.items())
    most = MOST_DATA if len(lines) <= MOST_DATA else MOST_DATA - 1
    for (title, *rest), data in lines[:most]:
        again = f" {labels.again(len(data))}" if len(data) > 1 else ""
        yield (title + again, *rest), data

    others = [data for _, several in lines[most:] for data in several]
    if others:
        yield (labels.more(len(others)), "inputs"), others
