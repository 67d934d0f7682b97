"""Windows: of an open group that the page does not hold its first children, its last
ones, and a box for what lies between.
"""

from __future__ import annotations

from itertools import groupby, pairwise

from gradviz.fold.groups import Child, Section
from gradviz.fold.opening import Limits, Opening
from gradviz.fold.titles import is_list, list_of, scopes_in

LEAST = 3
"""Children that a window closes."""
SHARE = 0.4
"""The part of a group's ops above which no window closes one of its children, and of
all ops above which room is made for it.
"""


def window(
    opening: Opening, group: Section, limits: Limits, *, of_any: bool = False
) -> bool:
    """Show as many of the first and last children of an open group as the page
    holds; False when it holds none.

    What is closed between them are loose ops, and elements of one list: of other
    modules each stands for itself. Loose ops are `of_any` kind, or those of which all
    that leaves a box depends on all that enters it.
    """
    least, too_many = -1, len(group.children)
    windows_before = len(opening.windows)
    fits: dict[tuple[tuple[int, int], ...], bool] = {}
    # by halving: each try lays out the sizes anew
    while too_many - least > 1:
        shown = (least + too_many) // 2
        pieces = tuple(between(opening, group, shown, of_any=of_any))
        if pieces not in fits:
            opening.enclose(group, pieces)
            fits[pieces] = opening.fits(limits)
            opening.undo_to(windows_before)
        if fits[pieces]:
            least = shown
        else:
            too_many = shown

    if least >= 0:
        opening.enclose(group, between(opening, group, least, of_any=of_any))

    return least >= 0


def between(
    opening: Opening, group: Section, shown: int, *, of_any: bool = False
) -> list[tuple[int, int]]:
    """Of the stretches that a window leaves closed those of elements of one list, and
    those of loose ops.
    """
    pieces = []
    for first, after in _stretches(opening, group, shown):
        for sort, alike in groupby(group.children[first:after], key=_sort):
            end = first + len(list(alike))
            if sort == "" and not of_any:
                pieces += _joined(opening, group, first, end)
            elif end - first >= LEAST:
                pieces.append((first, end))
            first = end
    return pieces


def _joined(
    opening: Opening, group: Section, first: int, after: int
) -> list[tuple[int, int]]:
    """The fewest boxes that loose ops can be, from one place up to another: those of
    several children.
    """
    joinable = opening.dependences.joinable(
        list(map(opening.sizes.span, group.children))
    )
    boxes, ends = {after: 0}, dict[int, int]()
    for start in reversed(range(first, after)):
        ends[start] = start + 1
        for end in range(start + LEAST, after + 1):
            if joinable[start] >> end - 1 & 1 and boxes[end] <= boxes[ends[start]]:
                ends[start] = end
        boxes[start] = 1 + boxes[ends[start]]

    pieces = []
    while first < after:
        if ends[first] > first + 1:
            pieces.append((first, ends[first]))
        first = ends[first]
    return pieces


def _sort(child: Child) -> object:
    """Equal for children that one box may hold: "" for ops, the list for its
    elements, else the child itself, such as a loop.
    """
    if isinstance(child, int):
        return ""
    if child.is_loop:
        return child
    paths = [scope.path for scope in scopes_in(child)]
    if not paths:
        return ""
    return list_of(paths[0]) if is_list(paths) and list_of(paths[0]) else child


def _stretches(opening: Opening, group: Section, shown: int) -> list[tuple[int, int]]:
    """The stretches of children but some at both ends, what is open, and a large
    part.
    """
    children = group.children
    if group.kind == "run":
        return []

    first, after = -(-shown // 2), len(children) - shown // 2
    most = SHARE * opening.sizes.ops(group)
    kept = [
        i
        for i, child in enumerate(children[first:after], first)
        if isinstance(child, Section) and _is_kept(opening, child, most)
    ]
    ends = pairwise([first - 1, *kept, after])

    return [(a + 1, b) for a, b in ends if LEAST <= b - a - 1 < len(children)]


def _is_kept(opening: Opening, group: Section, most: float) -> bool:
    return (
        group in opening.open
        or group in opening.kept
        or group in opening.windows
        or opening.sizes.ops(group) > most
    )
