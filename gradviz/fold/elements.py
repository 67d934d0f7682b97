"""Calls that ran some elements of a list: the experts of a mixture, of which each layer
runs others, and another number of them.

Such a call is known by what stands before its first element and after its last one, and
by what an element is; how many ran, and for how many rows of data, may differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gradviz.fold.groups import Groups


class Elements(NamedTuple):
    """The children of a call from the first element of a list to the last one: the
    places where they begin and end, the name of the list, and how many elements it ran.
    """

    first: int
    after: int
    name: str
    number: int


def elements_of(
    groups: Groups,
    group_id: int,
    sign: Callable[[int], int],
) -> Elements | None:
    """The elements that a call ran itself; None unless all have one sign and are of one
    list. The layers of a `Sequential` are no such elements.
    """
    scope_id = groups[group_id].scope
    if scope_id is None or not groups.graph.scopes[scope_id].type:
        return None

    scope = groups.graph.scopes[scope_id]
    signs: set[int] = set()
    places: list[int] = []
    elements: set[str] = set()
    for place, child in enumerate(groups[group_id].children):
        inner = groups[~child].scope if child < 0 else None
        if inner is None:
            continue
        element = groups.graph.scopes[inner].path.removeprefix(f"{scope.path}.")
        if re.fullmatch(r"(\w+\.)*\d+", element):
            signs.add(sign(child))
            places.append(place)
            elements.add(element)

    lists = {element.rpartition(".")[0] for element in elements}
    if len(lists) != 1 or len(signs) > 1:
        return None

    (path,) = lists
    if scope.type == "Sequential" and not path:
        return None
    # of a class of lists that is called itself, the list is the call
    *_, name = (path or scope.path).split(".")
    return Elements(places[0], places[-1] + 1, name, len(elements))


def counted(found: Iterable[tuple[str, int] | None]) -> str:
    """How many elements several calls ran, where that differs.

    >>> counted([("experts", 2), ("experts", 1)]), counted([("experts", 2), None])
    (', 1 to 2 experts', '')
    """
    names: set[str] = set()
    numbers: set[int] = set()
    for ran in found:
        if ran is None:
            return ""
        names.add(ran[0])
        numbers.add(ran[1])

    if len(names) != 1 or len(numbers) == 1:
        return ""
    return f", {min(numbers):,} to {max(numbers):,} {names.pop()}"
