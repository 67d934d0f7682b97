"""Aligns two sequences in which most is the same: near-linear, and exact where they are
equal.

Each element has several keys, from the most telling (its surroundings, when there are
several) to the least. At every level equal beginnings and ends of a gap are matched,
then keys that occur once in both halves of it, as far as they come in the same order,
else the nearest places where both go on alike for a while; what remains between them
are the gaps of the next level. Knows nothing of graphs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

_REACH = 64  # how far to look for a place where both go on alike
_ALIKE = 3  # elements that are alike there, or as many as are left
_PATIENCE = 200  # how often to look in vain

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
    gaps: list[Gap] = [
        (
            0,
            len(before[0]),
            0,
            len(after[0]),
        )
    ]

    for level, (old, new) in enumerate(zip(before, after)):
        waiting, gaps = gaps, []
        # surroundings differ around a difference, too: nothing goes on alike
        surroundings = level == 0 and len(before) > 1
        while waiting:
            gap, matched = trimmed(old, new, waiting.pop())
            pairs += matched
            anchors = _anchors(old, new, gap) or (
                [] if surroundings else _going_on(old, new, gap)
            )
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
    most = min(b - a, d - c)
    head = next(
        (i for i in range(most) if old[a + i] != new[c + i]),
        most,
    )
    most -= head
    tail = next(
        (i for i in range(most) if old[b - 1 - i] != new[d - 1 - i]),
        most,
    )
    ends = zip(
        range(b - tail, b),
        range(d - tail, d),
    )

    return (
        a + head,
        b - tail,
        c + head,
        d - tail,
    ), [
        *zip(
            range(a, a + head),
            range(c, c + head),
        ),
        *ends,
    ]


def _anchors(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    gap: Gap,
) -> Pairs:
    """Keys that occur once on both sides, the longest run of them that is in order on
    both.
    """
    a, b, c, d = gap
    if a == b or c == d:
        return []
    count_old, count_new = Counter(old[a:b]), Counter(new[c:d])
    place = {key: c + i for i, key in enumerate(new[c:d]) if count_new[key] == 1}
    once = [
        (a + i, place[key])
        for i, key in enumerate(old[a:b])
        if count_old[key] == 1 and key in place
    ]
    return _increasing(once)


def _increasing(pairs: Pairs) -> Pairs:
    """The longest part of these pairs whose second numbers increase."""
    ends: list[int] = []
    last: list[int] = []  # the pair that a run of each length ends with
    before: list[int] = []

    for i, (_, position) in enumerate(pairs):
        length = bisect_left(ends, position)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [position]
        # the smallest end for each length: the usual way to the longest increasing run
        last[length : length + 1] = [i]

    longest = []
    i = last[-1] if last else -1
    while i >= 0:
        longest.append(pairs[i])
        i = before[i]

    return longest[::-1]


def _going_on(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    gap: Gap,
) -> Pairs:
    """Read both side by side; where they differ, skip as little as possible to a place
    from which they go on alike.
    """
    a, b, c, d = gap
    pairs: Pairs = []
    vain = 0

    while a < b and c < d and vain < _PATIENCE:
        if old[a] == new[c]:
            pairs.append((a, c))
            a, c = a + 1, c + 1
            continue
        skip = _nearest(old, new, (a, b, c, d))
        if skip is None:
            # nothing alike is near: give up after a while, since looking takes the
            # square of the reach
            vain += 1
        a, c = (a + 1, c + 1) if skip is None else (a + skip[0], c + skip[1])

    return pairs


def _nearest(
    old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap
) -> tuple[int, int] | None:
    """How many to skip on each side, as few as possible, so that both go on alike.

    Of equally near places the one that makes up for what one side has more, so that a
    replaced element is skipped on both.
    """
    a, b, c, d = gap
    more = (d - c) - (b - a)

    for most in range(1, _REACH):
        sides = [(most, k) for k in range(most + 1)] + [(k, most) for k in range(most)]
        for skip_old, skip_new in sorted(
            sides, key=lambda skips: abs(more - skips[1] + skips[0])
        ):
            i, j = a + skip_old, c + skip_new
            length = min(_ALIKE, b - i, d - j)
            if length > 0 and all(old[i + k] == new[j + k] for k in range(length)):
                return skip_old, skip_new

    return None


def _between(gap: Gap, anchors: Pairs) -> list[Gap]:
    a, b, c, d = gap
    gaps = []
    for i, j in [*anchors, (b, d)]:
        if a < i and c < j:
            gaps.append((a, i, c, j))
        a, c = i + 1, j + 1
    return gaps
