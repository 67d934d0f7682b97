"""Where a dimension of an input lies in the result of a call: by name, shapes and arguments, for any call of torch.

A dimension is known by its size and its place: the product of the sizes before it. A reshape keeps both, so that a dimension that
was merged with others is found again when it is cut out once more. Knows no tensor and no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations
from math import prod
from typing import Any

Shape = tuple[int, ...]
Arguments = Sequence[Any]

PRODUCTS = frozenset(("matmul", "rmatmul", "mm", "bmm", "baddbmm", "mv"))
_LOST = frozenset(("flip", "rot90", "movedim", "moveaxis", "roll", "tensordot"))
_MOST_RANK = 6  # whose orders are tried, all of them


def _swapped(rank: int, arguments: Arguments) -> list[int]:
    order = list(range(rank))
    i, j = arguments[1:3] if len(arguments) > 2 else (0, 1)
    order[i], order[j] = order[j], order[i]
    return order


def _permuted(rank: int, arguments: Arguments) -> list[int]:
    given = arguments[1] if isinstance(arguments[1], Sequence) else arguments[1:]
    return [dim % rank for dim in given]


ORDERS: Mapping[str, Callable[[int, Arguments], list[int]]] = {
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "t"), _swapped),
    "permute": _permuted,
}
"""Functions that give dimensions another order: where each dimension of the result comes from."""


def cuts_samples(old: Shape, new: Shape) -> bool:
    """Whether a reshape cuts a tensor anew, across its dimensions: not merged, not split, but one row in parts of several.

    >>> cuts_samples((8, 5, 3), (5, 8, 3)), cuts_samples((8, 4, 10, 16), (8, 10, 64)), cuts_samples((8, 3, 4), (24, 2, 2))
    (True, True, False)
    >>> cuts_samples((8, 12, 12, 3), (8, 3, 12, 12)), cuts_samples((8, 4, 16, 5), (8, 16, 20)), cuts_samples((8, 16, 20), (32, 80))
    (True, True, False)
    >>> cuts_samples((72, 4, 2, 12), (24, 12, 24)), cuts_samples((8, 4, 16, 16), (2048, 4)), cuts_samples((8, 5, 4), (40, 4))
    (False, True, False)
    >>> cuts_samples((48, 8, 32), (48, 4, 8, 8)), cuts_samples((48, 8, 32), (48, 8, 4, 8)), cuts_samples((8, 6), (8, 3, 2))
    (True, False, False)
    """
    before, after = _places(old), _places(new)
    swapped = sorted(old) == sorted(new) and [size for size in old if size > 1] != [size for size in new if size > 1]
    if (
        swapped
        or flattens_classes(old, new)
        or any(new_cut % cut and cut % new_cut for new_cut in after for cut in before)
    ):
        return True
    return (_cuts_inside(before, after) and bool(order_before(old, new))) or _moves(old, new)


def flattens_classes(old: Shape, new: Shape) -> bool:
    """Whether all but dimension 1 are to be merged, as for the scores of each pixel, though it is not the last one."""
    return len(new) == 2 < len(old) and new[1] == old[1] != old[-1] and new[0] > old[0]


def _cuts_inside(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a new dimension begins and ends within old ones."""
    cuts = zip(after, after[1:], after[2:])
    return any(begin < low < cut < high < end for begin, cut, end in cuts for low, high in pairwise(before))


def _moves(old: Shape, new: Shape) -> bool:
    """Whether a dimension that only one has the size of lies at another place, and was not merged, or one is made of two."""
    before, after = _places(old), _places(new)
    return any(
        _straddles(before, place, size)
        if old.count(size) != 1 or new.count(size) != 1
        else before[old.index(size)] != place and not _merged(before, place, size)
        for size, place in zip(new, after)
        if size > 1 and size in old
    )


def _straddles(before: Sequence[int], place: int, size: int) -> bool:
    """Whether a new dimension begins within one old one, and ends within a later one."""
    within = [next((low for low, high in pairwise(before) if low < cut < high), None) for cut in (place, place * size)]
    return None not in within and within[0] != within[1]


@cache
def order_before(old: Shape, new: Shape) -> tuple[int, ...]:
    """The order of the dimensions of `old` in which neighbours make those of `new`; () where none is certain.

    Dimension 0, the batch, stays where it is if its size does. Of several orders the one that moves least is taken. Where
    dimension 0 moves, sizes alone have to tell all of them apart.

    >>> order_before((16, 4, 5, 4), (16, 5, 16)), order_before((8, 5, 3), (5, 8, 3)), order_before((8, 5, 3), (15, 8))
    ((0, 2, 1, 3), (1, 0, 2), ())
    """
    stays, distinct = old[0] == new[0], len({*old}) == len(old) == len(new)
    if len(old) > _MOST_RANK or not (stays or distinct):
        return ()
    orders = [order for order in permutations(range(len(old))) if not (stays and order[0])]
    fitting = [order for order in orders if {*_places(new)} <= {*_places([old[dim] for dim in order])}]
    moves = sorted((sum(i > j for i, j in combinations(order, 2)), order) for order in fitting)
    certain = moves and (len(moves) == 1 or moves[0][0] < moves[1][0])
    return moves[0][1] if certain else ()


def _places(shape: Sequence[int]) -> list[int]:
    return [prod(shape[:dim]) for dim in range(len(shape) + 1)]


def _merged(before: Sequence[int], place: int, size: int) -> bool:
    """Whether a new dimension lies within an old one, or ends where one does: several, and a part of the one before."""
    end = place * size
    return end in before or any(low <= place and end <= high for low, high in pairwise(before))


def terms(equation: str) -> list[str]:
    """The letters of each input of an einsum, and of its result; [] where they are not written out.

    >>> terms("bqd, bkd -> bqk")
    ['bqd', 'bkd', 'bqk']
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    return [*inputs.split(","), result] if arrow and "." not in equation else []


def place_of(shape: Shape, dim: int) -> int:
    """The place of a dimension."""
    return prod(shape[: dim % len(shape)])


def followed(
    name: str, dimension: tuple[int, int], old: Shape, new: Shape, arguments: Arguments, dim: Any
) -> int | None:
    """The place that a dimension, a size and a place, of one input has in the result; None where it is gone or not known.

    `dim` is the option of that name.

    >>> followed("transpose", (8, 1), (8, 5, 3), (5, 8, 3), (None, 0, 1), None), followed("mean", (5, 8), (8, 5, 3), (8, 3), (), 1)
    (5, None)
    >>> followed("view", (5, 8), (8, 5, 3), (40, 3), (), None)
    8
    """
    size, place = dimension
    at = max((i for i in range(len(old)) if prod(old[:i]) <= place and old[i] > 1), default=0)
    if name in _LOST:
        return None
    if name in ORDERS:
        to = ORDERS[name](len(old), arguments).index(at)
        return prod(new[:to]) * (place // prod(old[:at]))
    if prod(old) == prod(new) or new[: len(old)] == old:
        return place
    if prod(old[:at]) != place or old[at] != size:
        return None
    goal = _goal(name, at, old, new, arguments, dim)
    return prod(new[:goal]) if goal is not None and 0 <= goal < len(new) and new[goal] == size else None


def _goal(name: str, at: int, old: Shape, new: Shape, arguments: Arguments, dim: Any) -> int | None:
    """The dimension of the result that one of an input becomes."""
    if name == "getitem":
        return _picked(at, arguments[1], len(old))
    if name == "stack":
        return at + (at >= (dim or 0) % len(new))
    if len(new) < len(old) and isinstance(dim, (int, tuple, list)):
        removed = {one % len(old) for one in ([dim] if isinstance(dim, int) else dim)}
        return None if at in removed else at - sum(one < at for one in removed)
    return at if old[: len(new)] == new else at + len(new) - len(old)  # sizes are aligned at the right


def _picked(at: int, index: Any, rank: int) -> int | None:
    """Where indexing puts a dimension; None where it is picked from, or by several tensors."""
    items = list(index) if isinstance(index, tuple) else [index]
    rest = next((i for i, item in enumerate(items) if item is ...), None)
    if rest is not None:
        items[rest : rest + 1] = [slice(None)] * (rank - sum(item is not None and item is not ... for item in items))
    # of tensors: rows that are picked stand where they were picked from
    ranks = [getattr(item, "ndim", 0) for item in items]
    goal = source = 0
    for item, rank in zip(items, ranks):
        if item is None:
            goal += 1
            continue
        if source == at or not (isinstance(item, (int, slice)) or rank == sum(ranks) == 1):
            return goal if isinstance(item, slice) else None
        goal += isinstance(item, slice) + rank
        source += 1
    return goal + at - source
