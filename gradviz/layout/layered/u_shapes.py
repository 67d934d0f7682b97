"""Which sheets are U-Nets: a chain of boxes that takes up last what it kept first.

Each skip connection of such a chain lies within the one before. The two halves of the
sheet become two frames without a title, the encoder and the decoder. `frames` places
them beside each other, the decoder upside down.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Drawing, Ints, LayoutFrame
from gradviz.layout.layered.grouping import distinct, distinct_pairs, group
from gradviz.layout.layered.nesting import frame_tree, meeting_items
from gradviz.layout.layered.ranks import Neighbours, heights, neighbours

LEAST_SKIPS, MOST_SKIPS = 3, 200
MOST_EDGES = 2_000  # of a sheet, above which nobody sees its shape
MOST_TARGETS = 3  # of what keeps something; an embedding goes to all blocks
BRIDGE = 4  # boxes on a skip at most
LEAST_COVERED = 0.5  # of all boxes with inputs, from end to end of the outermost skip
LARGEST_BOTTOM = 0.5  # of these, from end to end of the innermost one


class Halves(NamedTuple):
    """A sheet whose content is two columns, by the frames of these: the encoder and the
    decoder of a U, or the frame with a U and what follows on it.
    """

    left: int
    right: int
    skips: Ints  # rows of edges, from the outermost to the innermost; none but in a U
    left_on_top: tuple[int, ...] = ()  # frames that edges leave at the top


class _Skip(NamedTuple):
    """From a place on the chain to a later one, and all nodes on the way."""

    begin: int
    end: int
    way: tuple[int, ...]


def with_columns(drawing: Drawing) -> tuple[Drawing, list[Halves]]:
    """The drawing with two frames more for every sheet that becomes two columns. Edges
    must be distinct.
    """
    halver = _Halver(drawing)
    halver.find()
    return replace(
        drawing, frames=tuple(halver.frames), frame_of=halver.frame_of
    ), halver.shapes


class _Halver:
    """Cuts sheets into halves, the outermost first."""

    def __init__(self, drawing: Drawing) -> None:
        self.tree = frame_tree(drawing.frame_of, drawing.frames)
        self._items = meeting_items(self.tree, drawing.edges)
        sheet = self.tree.home[self._items[0]]
        self._sheets = group(sheet, self.tree.page + 1)
        self.frames = list(drawing.frames)
        self.frame_of = drawing.frame_of.copy()
        self.shapes: list[Halves] = []

    def find(self) -> None:
        """Halve what is a U, and what has one U and goes on after it."""
        tree = self.tree
        around = [*tree.home[tree.boxes :].tolist(), -1]
        within = set[int]()  # frames of a U
        found: list[int] = []

        for sheet in np.argsort(tree.depth, kind="stable").tolist():
            if around[sheet] in within:
                within.add(sheet)
                continue
            rows = self._sheets.of(sheet)
            halves = _halves(rows, self._items[:, rows])
            if halves is not None:
                within.add(sheet)
                found.append(sheet)
                self._halve(sheet, *halves)

        for sheet in found:
            outer = around[sheet]
            alike = [other for other in found if around[other] == outer]
            if len(alike) == 1 and outer >= 0:
                self._put_beside(outer, sheet)

    def _put_beside(self, sheet: int, frame: int) -> None:
        """Put what follows on a frame with a U into a column beside it."""
        number, near = _neighbours(self._items[:, self._sheets.of(sheet)])
        item = self.tree.boxes + frame
        settled = heights(near)[1]
        if item not in number or len(settled) < near.size:
            return

        node = int(np.searchsorted(number, item))
        right = _right_of(near, settled, node, near.next(node))
        if any(right):
            left = len(self.frames)
            no_skips = np.zeros(0, np.int64)
            self._halve(sheet, set(number[right].tolist()), no_skips)
            halves = self.shapes.pop()
            self.shapes.append(halves._replace(left_on_top=(frame, left)))

    def _halve(self, sheet: int, right: set[int], skips: Ints) -> None:
        """Put the items of a sheet into two frames."""
        tree, left = self.tree, len(self.frames)
        self.shapes.append(Halves(left, left + 1, skips))
        parent = None if sheet == tree.page else sheet
        self.frames += [LayoutFrame(parent, 0.0, 0.0)] * 2
        for item in np.flatnonzero(tree.home == sheet).tolist():
            column = left + (item in right)
            if item < tree.boxes:
                self.frame_of[item] = column
            else:
                child = item - tree.boxes
                self.frames[child] = self.frames[child]._replace(parent=column)


def _halves(rows: Ints, items: Ints) -> tuple[set[int], Ints] | None:
    """The items in the right half of a sheet, and the rows of its skips; None where it
    is no U. Of its edges these are the rows, and the items that they join.
    """
    if not 3 * LEAST_SKIPS <= len(rows) <= MOST_EDGES:
        return None

    number, near = _neighbours(items)
    height, settled = heights(near)
    if len(settled) < near.size:
        return None  # frames that feed each other

    chain = _chain(near, height)
    skips = _nested(_skips(near, chain))
    if len(skips) < LEAST_SKIPS or not _is_u(near, skips):
        return None

    # the bottleneck lies half on the left, half on the right
    innermost = skips[-1]
    last = (innermost.begin + innermost.end) // 2
    right = _right_of(near, settled, chain[last], chain[last + 1 : last + 2])
    edges = zip(*np.searchsorted(number, items).tolist())
    first_row: dict[tuple[int, int], int] = {}
    for row, edge in zip(rows.tolist(), edges):
        first_row.setdefault(edge, row)

    # on a skip of several edges, it is one of them that leads to the right
    crossing = []
    for skip in skips:
        crossing.append(next((a, b) for a, b in pairwise(skip.way) if right[b]))
    across = {a for a, b in first_row if not right[a] and right[b]}
    # what else goes from half to half: the bottleneck, an embedding
    if len(across) > 2 * len(skips) + 1:
        return None
    return (
        set(number[right].tolist()),
        np.array([first_row[edge] for edge in crossing], np.int64),
    )


def _neighbours(items: Ints) -> tuple[Ints, Neighbours]:
    """The items that edges join, sorted, and the graph of their places there."""
    number, local = distinct(items.ravel())
    ends = distinct_pairs(local.reshape(2, -1), len(number))
    return number, neighbours(len(number), *ends[:2])


def _chain(near: Neighbours, height: list[int]) -> list[int]:
    """A longest way down."""
    node = max(range(near.size), key=height.__getitem__)
    chain = [node]
    while height[node]:
        node = max(near.next(node), key=height.__getitem__)
        chain.append(node)
    return chain


def _skips(near: Neighbours, chain: list[int]) -> list[_Skip]:
    """Ways from the chain to a later place of it, by an edge or a few boxes in a row."""
    place = {node: i for i, node in enumerate(chain)}
    skips: list[_Skip] = []
    for begin, node in enumerate(chain):
        targets = near.next(node)
        if len(targets) > MOST_TARGETS:
            continue
        for target in targets:
            way = [node, target]
            while way[-1] not in place and len(way) <= BRIDGE:
                # a dead end goes back to the start, which makes it no skip
                way += near.next(way[-1])[:1] or [node]
            end = place.get(way[-1], 0)
            if end > begin + 1:
                skips.append(_Skip(begin, end, tuple(way)))
    return skips


def _nested(skips: list[_Skip]) -> list[_Skip]:
    """As many of them as lie within each other, from the outermost one."""
    if len(skips) > MOST_SKIPS:
        return []

    inwards = sorted(skips)
    best: list[list[_Skip]] = []
    for i, skip in enumerate(inwards):
        around = [
            best[k]
            for k, other in enumerate(inwards[:i])
            if other.begin < skip.begin and other.end > skip.end
        ]
        best.append([*max(around, key=len, default=[]), skip])
    return max(best, key=len, default=[])


def _is_u(near: Neighbours, skips: list[_Skip]) -> bool:
    """Whether nested skips make a U of most of a sheet."""
    outer, *_, inner = (skip.end - skip.begin for skip in skips)
    with_inputs = len(set(near.lower.tolist()))
    is_small = inner <= LARGEST_BOTTOM * outer
    return is_small and outer + 1 >= LEAST_COVERED * with_inputs


def _right_of(
    near: Neighbours, settled: list[int], last: int, first: list[int]
) -> list[bool]:
    """True for nodes of the right half, which begins with `first` after `last`: all
    that these lead to, and what leads to nothing else.
    """
    right, left = [False] * near.size, [False] * near.size
    left[last] = True
    for node in first:
        right[node] = True

    for node in settled:  # from the ends up
        left[node] |= any(left[other] for other in near.next(node))
    for node in reversed(settled):
        for other in near.next(node):
            right[other] |= right[node]
            left[other] |= left[node]
    for node in settled:
        if not left[node]:
            following = near.next(node)
            all_right = all(right[other] for other in following)
            right[node] |= bool(following) and all_right
    return right
