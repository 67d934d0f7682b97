"""Aligns two sequences in which most is the same: near-linear, and exact where they are
equal.

Each element has several keys, from the most telling to the least. At every level keys
that occur once in both halves of a gap are matched, then what is equal side by side or
`difflib` finds near; what remains between them are the gaps of the next level. Knows
nothing of graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

_REACH = 100  # how far to look for a place where both go on alike

Keys = Sequence[Hashable]
Pair = tuple[int, int]


def align(before: Sequence[Keys], after: Sequence[Keys]) -> list[Pair]:
    """Matched positions. `before[level][i]` is the key of element i at one level; both
    have the same levels.

    >>> align([["a", "b", "c"]], [["a", "x", "c"]])
    [(0, 0), (2, 2)]
    """
    pairs: list[Pair] = []
    for old, new in zip(before, after):
        for match in (_single, _common):
            found = [*pairs]
            for a, b, c, d in _gaps(pairs, len(old), len(new)):
                inside = match(old[a:b], new[c:d])
                found += [(a + i, c + j) for i, j in inside]
            pairs = sorted(found)
    return pairs


def _gaps(
    pairs: Sequence[Pair], old_end: int, new_end: int
) -> Iterator[tuple[int, int, int, int]]:
    """Where each gap between pairs begins and ends, before and after."""
    a = c = 0
    for i, j in [*pairs, (old_end, new_end)]:
        if a < i and c < j:
            yield a, i, c, j
        a, c = i + 1, j + 1


def _single(old: Keys, new: Keys) -> list[Pair]:
    """Keys that occur once on both sides, as far as they come in the same order."""
    count_old, count_new = Counter(old), Counter(new)
    single = {key for key, count in count_old.items() if count == count_new[key] == 1}
    ours = [i for i, key in enumerate(old) if key in single]
    theirs = [j for j, key in enumerate(new) if key in single]
    places = _matching([old[i] for i in ours], [new[j] for j in theirs])
    return [(ours[i], theirs[j]) for i, j in places]


def _common(old: Keys, new: Keys) -> list[Pair]:
    """Read both side by side; where they differ, match what is near."""
    pairs: list[Pair] = []
    a = c = 0
    while a < len(old) and c < len(new):
        if old[a] == new[c]:
            near = [(0, 0)]
        elif len(old) - a == len(new) - c and old[a + 1 : a + 4] == new[c + 1 : c + 4]:
            # neither side has more left, so this one was replaced
            a, c = a + 1, c + 1
            continue
        else:
            near = _matching(old[a : a + _REACH], new[c : c + _REACH])

        pairs += [(a + i, c + j) for i, j in near]
        i, j = near[-1] if near else (_REACH - 1, _REACH - 1)
        a, c = a + i + 1, c + j + 1

    return pairs


def _matching(old: Keys, new: Keys) -> list[Pair]:
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(i + k, j + k) for i, j, size in blocks for k in range(size)]
