"""Alike modules as one row: those of one class and size whose paths differ in numbers
only. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import prod
from typing import TypeVar

from gradviz.fold.titles import pattern

T = TypeVar("T")
_NUMBER = re.compile(r"\d+")


def series(
    items: Iterable[T], path: Callable[[T], str], alike: Callable[[T], Hashable]
) -> Iterator[tuple[str, list[T]]]:
    """What alike items are called together, such as `blocks.0–5`, and these, in the order
    of the first of each series. `alike` is what all items of one have in common.

    >>> [title for title, _ in series(["a.0.x", "a.1.x", "b", "c.0", "c.2"], str, len)]
    ['a.0–1.x', 'b', 'c.*']
    """
    kinds: dict[Hashable, list[T]] = {}
    for item in items:
        kinds.setdefault((pattern(path(item)), alike(item)), []).append(item)

    for some in kinds.values():
        yield _title(list(map(path, some))), some


def _title(paths: Sequence[str]) -> str:
    if len(paths) == 1:
        return paths[0]

    columns = []
    for column in zip(*map(_NUMBER.findall, paths)):
        columns.append(sorted({*map(int, column)}))
    # a span is true only where every combination of numbers is there
    is_full = prod(map(len, columns)) == len(paths)
    spans = [_span(numbers, is_full) for numbers in columns]
    return _NUMBER.sub(lambda _: spans.pop(0), paths[0])


def _span(numbers: Sequence[int], is_full: bool) -> str:
    first, last = numbers[0], numbers[-1]
    if first == last:
        return str(first)
    return f"{first}–{last}" if is_full and last - first < len(numbers) else "*"
