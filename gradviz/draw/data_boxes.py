"""The tensors without gradient that ops were given, by where they enter a drawing: what
reads alike is one box, and at most a few boxes stand at one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from gradviz.draw import details
from gradviz.draw.frames import Frames
from gradviz.fold.folding import Folding
from gradviz.fold.groups import Section
from gradviz.fold.sizes import MOST_DATA
from gradviz.graph import Data
from gradviz.report import labels

T = TypeVar("T")
Lines = tuple[str, ...]


class Entry(NamedTuple):
    """Data that enters the same boxes, and is drawn in this scope."""

    boxes: tuple[int, ...]
    scope: int | None


def entries(
    folding: Folding, drawn: Mapping[int, int], frames: Frames
) -> tuple[dict[Entry, dict[Lines, list[int]]], dict[int, int]]:
    """The data of a graph, by its places there, by where it enters, then by its lines;
    and the boxes in which the rest was written, a closed module's own.
    `drawn` has what is drawn for each box of the folding.
    """
    found: dict[Entry, dict[Lines, list[int]]] = {}
    is_open = folding.opening.open if folding.opening is not None else ()
    rests: dict[Entry, Section] = {}
    turns: dict[tuple[Section | None, Lines], Entry] = {}  # that are shown, of runs
    users = dict(_users(folding, drawn))
    closed = _closed(folding, users, frames)
    for place, boxes in users.items():
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


def _closed(
    folding: Folding, users: Mapping[int, list[int]], frames: Frames
) -> dict[int, list[int]]:
    """Data that closed modules made for themselves: what they have, and of modules that
    something else enters what their code wrote.
    """
    every = folding.graph.data
    groups = {box: folding.boxes[box].group for box in chain(*users.values())}
    several = {box for box, group in groups.items() if group and group.ops > 1}
    inside = {
        place: boxes
        for place, boxes in users.items()
        if is_inside(every[place], frames.around(boxes), frames)
        and several.issuperset(boxes)
    }
    entered = {
        edge.consumer for edge in folding.edges if edge.producer not in folding.leaf_in
    }
    for place, boxes in users.items():
        around, of = frames.around(boxes), [every[one] for one in every[place].of]
        comes = any(not is_inside(source, around, frames) for source in of)
        if place not in inside or comes:
            entered.update(boxes)
    return {
        place: boxes
        for place, boxes in inside.items()
        if every[place].text.startswith("self.") or entered.issuperset(boxes)
    }


def _around(folding: Folding, node: int) -> Iterable[Section]:
    """The groups that a node is in, inner first."""
    opening = folding.opening
    home = opening.groups.home[node] if opening is not None else None
    return home.around() if home is not None else ()


def is_inside(data: Data, around: int | None, frames: Frames) -> bool:
    """Whether it was written in a module that is closed."""
    if data.scope is None or data.scope < 0:
        return False
    return not frames.is_within(around, data.scope)


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
