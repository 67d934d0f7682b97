"""Which sheets are U-Nets: a chain of boxes that takes up last what it kept first.

Each skip connection of such a chain lies within the one before. Such a sheet becomes
two, each in a frame without a border: the encoder and, beside it and upside down, the
decoder. `halves` places them; all that a sheet knows of a U is that some boxes keep to a
side, and which pairs of boxes will be joined by a level line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Drawing, Ints, LayoutFrame
from gradviz.layout.layered.grouping import distinct, distinct_pairs, group
from gradviz.layout.layered.neighbours import Neighbours
from gradviz.layout.layered.nesting import FrameTree, frame_tree, meeting_items

LEAST_SKIPS, MOST_SKIPS = 3, 200
FEWEST_SKIPS = 2  # where an embedding, as of time, goes to the blocks of both halves
MOST_EDGES = 2_000  # of a sheet, above which nobody sees its shape
MOST_TARGETS = 3  # of what keeps something; an embedding goes to all blocks
BRIDGE = 4  # boxes on a skip at most
LEAST_COVERED = 0.5  # of all boxes with inputs, from end to end of the outermost skip
LARGEST_BOTTOM = 0.6  # of these, from end to end of the innermost one


class UShape(NamedTuple):
    """A sheet that is drawn as a U: the node of the frame whose content it is, and of
    the frames of its halves. `skips` are the rows of edges from half to half, from the
    outermost to the innermost.
    """

    frame: int
    left: int
    right: int
    skips: Ints


class _Skip(NamedTuple):
    """From a place on the chain to a later one, and all nodes on the way."""

    begin: int
    end: int
    way: tuple[int, ...]


def in_halves(drawing: Drawing) -> tuple[Drawing, list[UShape]]:
    """The drawing with the halves of its outermost U-Nets in frames of their own. Edges
    must be distinct.
    """
    tree = frame_tree(drawing.frame_of, drawing.frames)
    first_frame = tree.page + 1
    frames, frame_of = [*drawing.frames], drawing.frame_of.copy()
    shapes: list[UShape] = []

    for sheet, right_items, skips in _u_sheets(tree, drawing.edges):
        left, right = len(frames), len(frames) + 1
        shapes.append(UShape(sheet, first_frame + left, first_frame + right, skips))
        parent = None if sheet == tree.page else sheet - first_frame
        frames += [LayoutFrame(parent, 0.0)] * 2
        for item in np.flatnonzero(tree.home == sheet).tolist():
            half = right if item in right_items else left
            if item < tree.page:
                frame_of[item] = half
            else:
                frame = item - first_frame
                frames[frame] = frames[frame]._replace(parent=half)

    return replace(drawing, frames=tuple(frames), frame_of=frame_of), shapes


def _u_sheets(tree: FrameTree, edges: Ints) -> Iterator[tuple[int, set[int], Ints]]:
    """The outermost frames whose content is a U, with the items in the right half of
    each, and the rows of its skips.
    """
    items = meeting_items(tree, edges)
    sheets = group(tree.home[items[0]], len(tree.home))
    within = set[int]()  # frames of a U
    for sheet in np.concatenate(tree.levels()).tolist():
        if int(tree.home[sheet]) in within:
            within.add(sheet)
            continue
        rows = sheets.of(sheet)
        halves = _halves(rows, items[:, rows])
        if halves is not None:
            within.add(sheet)
            yield (sheet, *halves)


def is_u(edges: Sequence[tuple[int, int]]) -> bool:
    """Whether a sheet with these edges alone is a U."""
    rows = np.arange(len(edges))
    return _halves(rows, np.array(edges, np.int64).reshape(-1, 2).T) is not None


def _halves(rows: Ints, items: Ints) -> tuple[set[int], Ints] | None:
    """The items in the right half of a sheet, and the rows of its skips; None where it
    is no U. Of its edges these are the rows, and the items that they join.
    """
    if not 3 * FEWEST_SKIPS <= len(rows) <= MOST_EDGES:
        return None

    number, index = distinct(items.ravel())
    ends = index.reshape(2, -1)
    near = Neighbours(len(number), *distinct_pairs(ends, len(number))[:2])
    chain = _chain(near)
    skips = _skips_of_u(near, chain)
    if not skips:
        return None

    # the bottleneck lies half on the left, half on the right
    last = (skips[-1].begin + skips[-1].end) // 2
    right = _right_of(near, chain[last], chain[last + 1])
    row_of = dict(zip(reversed(list(zip(*ends.tolist()))), reversed(rows.tolist())))
    sources = {a for a, b in row_of if right[b] and not right[a]}
    # what else goes from half to half: the bottleneck, an embedding
    if len(sources) > 2 * len(skips) + 1:
        return None

    skip_rows = list[int]()
    for skip in skips:
        # of several edges on a skip, it is one that leads to the right
        skip_rows.append(next(row_of[a, b] for a, b in pairwise(skip.way) if right[b]))
    return set(number[right].tolist()), np.array(skip_rows)


def _skips_of_u(near: Neighbours, chain: list[int]) -> list[_Skip]:
    """The skips of a sheet, from the outermost one; none where it is no U."""
    skips = _nested(_skips(near, chain))
    if len(skips) < FEWEST_SKIPS:
        return []

    outer, *_, inner = (skip.end - skip.begin for skip in skips)
    with_inputs = len(set(near.lower.tolist()))
    is_u = inner <= LARGEST_BOTTOM * outer
    is_most = outer + 1 >= LEAST_COVERED * with_inputs
    is_enough = len(skips) >= LEAST_SKIPS or _is_conditioned(near, chain, skips[0])
    return skips if is_u and is_most and is_enough else []


def _chain(near: Neighbours) -> list[int]:
    """A longest way down; none where frames feed each other."""
    height, settled = near.heights
    if len(settled) < near.size:
        return []

    node = max(range(near.size), key=height.__getitem__)
    chain = [node]
    while height[node]:
        node = max(near.below[node], key=height.__getitem__)
        chain.append(node)
    return chain


def _skips(near: Neighbours, chain: list[int]) -> list[_Skip]:
    """Ways from the chain to a later place of it, by an edge or a few boxes in a row."""
    place = {node: i for i, node in enumerate(chain)}
    skips: list[_Skip] = []
    for begin, node in enumerate(chain):
        targets = near.below[node]
        if len(targets) > MOST_TARGETS:
            continue
        for target in targets:
            way = [node, target]
            while way[-1] not in place and len(way) <= BRIDGE:
                # a dead end goes back to the start, which makes it no skip
                way += near.below[way[-1]][:1] or [node]
            end = place.get(way[-1], 0)
            if end > begin + 1:
                skips.append(_Skip(begin, end, tuple(way)))
    return skips


def _nested(skips: list[_Skip]) -> list[_Skip]:
    """As many of them as lie within each other, from the outermost one."""
    if len(skips) > MOST_SKIPS:
        return []

    nests: list[list[_Skip]] = []
    for begin, end, way in sorted(skips):
        around = [n for n in nests if n[-1].begin < begin and n[-1].end > end]
        nests.append([*max(around, key=len, default=[]), _Skip(begin, end, way)])
    return max(nests, key=len, default=[])


def _is_conditioned(near: Neighbours, chain: list[int], outer: _Skip) -> bool:
    """Whether one box goes to many of the chain within its outermost skip, in both
    halves.
    """
    inside = chain[outer.begin : outer.end + 1]
    middle = len(inside) // 2
    users: dict[int, list[int]] = {}
    for place, node in enumerate(inside):
        for source in near.above[node]:
            users.setdefault(source, []).append(place)
    return any(
        len(places) > MOST_TARGETS and places[0] < middle < places[-1]
        for places in users.values()
    )


def _right_of(near: Neighbours, last: int, first: int) -> list[bool]:
    """True for nodes of the right half, which begins with `first` after `last`: all
    that this leads to, and what leads to nothing else.
    """
    right, left = [False] * near.size, [False] * near.size
    right[first] = left[last] = True
    _, settled = near.heights

    for node in settled:  # from the ends up
        left[node] |= any(left[other] for other in near.below[node])
    for node in reversed(settled):
        for other in near.below[node]:
            right[other] |= right[node]
            left[other] |= left[node]
    for node in settled:
        following = near.below[node]
        if following and not left[node]:
            right[node] |= all(right[other] for other in following)
    return right
