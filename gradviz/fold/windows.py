"""Windows: of an open group that the page does not hold its first children, its last
ones, and a box for what lies between.
"""

from __future__ import annotations

from itertools import pairwise

from gradviz.fold.opening import Limits, Opening
from gradviz.fold.titles import calls_in, is_list, list_of

LEAST = 3
"""Children that a window closes."""
SHARE = 0.4
"""The part of a group's ops above which no window closes one of its children, and of
all ops above which room is made for it.
"""


def window(opening: Opening, group_id: int, limits: Limits) -> bool:
    """Show as many of the first and last children of an open group as the page
    holds; False when it holds none.

    What is closed between them are loose ops, and elements of one list: of other
    modules each stands for itself.
    """
    least, too_many = -1, len(opening.groups[group_id].children)
    windows_before = len(opening.windows)
    # by halving: each try lays out the sizes anew
    while too_many - least > 1:
        shown = (least + too_many) // 2
        opening.enclose_all(group_id, between(opening, group_id, shown))
        if opening.fits(limits):
            least, too_many = (shown, too_many)
        else:
            least, too_many = (least, shown)
        opening.undo_to(windows_before)

    if least >= 0:
        opening.enclose_all(group_id, between(opening, group_id, least))

    return least >= 0


def between(opening: Opening, group_id: int, shown: int) -> list[tuple[int, int]]:
    """Of the stretches that a window leaves closed those of loose ops, and those of
    elements of one list.
    """
    pieces = []
    children = opening.groups[group_id].children

    for first, after in _stretches(opening, group_id, shown):
        start = first
        for end in range(first + 1, after + 1):
            if end == after or _sort(opening, children[end]) != _sort(
                opening, children[start]
            ):
                if end - start >= LEAST:
                    pieces.append((start, end))
                start = end

    return pieces


def _sort(opening: Opening, child: int) -> object:
    """Equal for children that one box may hold: "" for ops, the list for its
    elements, else the child itself, such as a loop.
    """
    if child >= 0:
        return ""
    if opening.groups.is_loop(~child):
        return child
    paths = [scope.path for scope in calls_in(opening.groups, ~child).values()]
    if not paths:
        return ""
    return list_of(paths[0]) if is_list(paths) and list_of(paths[0]) else child


def _stretches(opening: Opening, group_id: int, shown: int) -> list[tuple[int, int]]:
    """The stretches of children but some at both ends, what is open, and a large
    part.
    """
    children = opening.groups[group_id].children
    if opening.groups[group_id].kind == "run":
        return []

    first, after = -(-shown // 2), len(children) - shown // 2
    most = SHARE * opening.sizes.ops(group_id)
    kept = [
        i
        for i, child in enumerate(children)
        if child < 0 and _is_kept(opening, ~child, most)
    ]
    ends = pairwise([first - 1, *(i for i in kept if first <= i < after), after])

    return [(a + 1, b) for a, b in ends if LEAST <= b - a - 1 < len(children)]


def _is_kept(opening: Opening, group_id: int, most: float) -> bool:
    return (
        group_id in opening.open
        or group_id in opening.kept
        or group_id in opening.windows
        or opening.sizes.ops(group_id) > most
    )
