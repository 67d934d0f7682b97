"""Words for ranks: which of them, in as few letters as tell it. Knows no graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def spans(ranks: Iterable[int]) -> str:
    """Ranks as spans of numbers.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in _spans(sorted(set(ranks))))


def named(ranks: Iterable[int]) -> str:
    """The same with its noun: `rank 1`, `ranks 0-2, 5`."""
    found = sorted(set(ranks))
    return f"rank {found[0]}" if len(found) == 1 else f"ranks {spans(found)}"


def _spans(ranks: list[int]) -> Iterator[tuple[int, int]]:
    first: int | None = None
    last = -1
    for rank in ranks:
        if first is not None and rank != last + 1:
            yield first, last
            first = None
        first, last = rank if first is None else first, rank
    if first is not None:
        yield first, last


def grouped(groups: Iterable[tuple[int, ...]]) -> str:
    """Groups of ranks that are equal among each other, the largest first.

    >>> grouped([(7,), (0, 1, 2)])
    '0-2 alike, 7 differs'
    >>> grouped([(0, 1)]), grouped([(0,), (1,)])
    ('0-1 alike', '0 and 1 differ')
    """
    ordered = sorted(groups, key=lambda group: (-len(group), group))
    if not ordered:
        return "none"
    if len(ordered) == 1:
        return f"{spans(ordered[0])} alike" if len(ordered[0]) > 1 else spans(ordered[0])
    if all(len(group) == 1 for group in ordered):
        if len(ordered) == 2:
            return f"{ordered[0][0]} and {ordered[1][0]} differ"
        return f"{spans(rank for group in ordered for rank in group)} all differ"
    words = [f"{spans(group)} alike" for group in ordered if len(group) > 1]
    alone = [rank for group in ordered if len(group) == 1 for rank in group]
    if alone:
        words.append(f"{spans(alone)} {'differs' if len(alone) == 1 else 'differ'}")
    return ", ".join(words)
