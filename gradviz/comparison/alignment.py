"""Aligns two sequences in which most is the same: near-linear, and exact where they are
equal.

Each element has several keys, from the most telling (its surroundings, when there are
several) to the least. At every level equal beginnings and ends of a gap are matched,
then keys that occur once in both halves of it, else what `difflib` finds near; what
remains between them are the gaps of the next level. Knows nothing of graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

_REACH = 100  # how far to look for a place where both go on alike

Gap = tuple[int, int, int, int]
Pairs = list[tuple[int, int]]


def align(
    before: Sequence[Sequence[Hashable]], after: Sequence[Sequence[Hashable]]
) -> Pairs:
    """Matched positions. `before[level][i]` is the key of element i at one level; both
    have the same levels.

    >>> align([["a", "b", "c"]], [["a", "x", "c"]])
    [(0, 0), (2, 2)]
    """
    pairs: Pairs = []
    gaps: list[Gap] = [(0, len(before[0]), 0, len(after[0]))]

    for level, (old, new) in enumerate(zip(before, after)):
        waiting, gaps = gaps, []
        # surroundings differ around a difference, too: only single ones tell
        surroundings = level == 0 and len(before) > 1
        while waiting:
            gap, matched = trimmed(old, new, waiting.pop())
            pairs += matched
            anchors = _single(old, new, gap)
            if not anchors and not surroundings:
                anchors = _common(old, new, gap)
            if anchors:
                pairs += anchors
                waiting += _between(gap, anchors)
            elif gap[0] < gap[1] and gap[2] < gap[3]:
                # the next level may tell these by less
                gaps.append(gap)

    return sorted(pairs)


def trimmed(
    old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap
) -> tuple[Gap, Pairs]:
    """A gap without its equal beginnings and ends, and these, in order."""
    a, b, c, d = gap
    pairs: Pairs = []
    while a < b and c < d and old[a] == new[c]:
        pairs.append((a, c))
        a, c = a + 1, c + 1

    ends: Pairs = []
    while a < b and c < d and old[b - 1] == new[d - 1]:
        b, d = b - 1, d - 1
        ends.append((b, d))

    return (a, b, c, d), pairs + ends[::-1]


def _single(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap) -> Pairs:
    """Keys that occur once on both sides, as far as they come in the same order."""
    a, b, c, d = gap
    count_old, count_new = Counter(old[a:b]), Counter(new[c:d])
    single = {key for key, count in count_old.items() if count == count_new[key] == 1}
    ours = [i for i in range(a, b) if old[i] in single]
    theirs = [j for j in range(c, d) if new[j] in single]
    places = _matching([old[i] for i in ours], [new[j] for j in theirs])
    return [(ours[i], theirs[j]) for i, j in places]


def _common(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap) -> Pairs:
    """Read both side by side; where they differ, match what is near."""
    a, b, c, d = gap
    pairs: Pairs = []
    while a < b and c < d:
        if old[a] == new[c]:
            near = [(0, 0)]
        elif b - a == d - c and old[a + 1 : a + 4] == new[c + 1 : c + 4]:
            # neither side has more left, so this one was replaced
            near, ends = [], (a + 1, c + 1)
        else:
            ends = min(a + _REACH, b), min(c + _REACH, d)
            near = _matching(old[a : ends[0]], new[c : ends[1]])
        if near:
            pairs += [(a + i, c + j) for i, j in near]
            a, c = pairs[-1][0] + 1, pairs[-1][1] + 1
        else:
            a, c = ends

    return pairs


def _matching(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(i + k, j + k) for i, j, size in blocks for k in range(size)]


def _between(gap: Gap, anchors: Pairs) -> list[Gap]:
    a, b, c, d = gap
    gaps = []
    for i, j in [*anchors, (b, d)]:
        if a < i and c < j:
            gaps.append((a, i, c, j))
        a, c = i + 1, j + 1
    return gaps
