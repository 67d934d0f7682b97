"""The bars of what each rank holds, which `gradviz merge` prints, and its page shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradviz.graph import RankShare
from gradviz.rank import named
from gradviz.wording import bar, bytes_text, one_line, plural

_MOST = 16
# of a RankMemory
_PARTS = ("for backward", "parameters", "gradients", "optimizer state")


class Bar(NamedTuple):
    """How long a bar is, as a part of the longest one, and what stands beside it."""

    part: float
    text: str


def chart_lines(shares: Sequence[RankShare]) -> Iterator[str]:
    """The bars as text."""
    if shares:
        yield "held by each rank:"
    for part, text in bars(shares):
        yield f"{bar(part or None, 12):12}  {text}"


def bars(shares: Sequence[RankShare]) -> list[Bar]:
    """A bar for each share; of many that differ the largest, and how many more there
    are.
    """
    longest = max((share.total for share in shares), default=0)
    largest = sorted(shares, key=lambda share: -share.total)
    shown = sorted(largest[:_MOST], key=lambda share: share.ranks)
    drawn = [
        Bar(share.total / longest if longest else 0.0, _text(share)) for share in shown
    ]

    left = len(largest) - len(shown)
    if left:
        drawn.append(
            Bar(
                0.0,
                f"{plural(left, 'rank')} with less, from {bytes_text(largest[-1].total)} on",
            )
        )
    return drawn


def _text(share: RankShare) -> str:
    words = [
        f"{bytes_text(nbytes)} {part}"
        for part, nbytes in zip(_PARTS, share.memory)
        if nbytes is not None
    ]
    if len(words) > 1:
        total = f"{bytes_text(share.total)} ({', '.join(words)})"
    else:
        total = "".join(words)
    machine = f" on {share.host}" if share.host else ""
    return one_line(f"{named(share.ranks)}{machine}: {total}")
