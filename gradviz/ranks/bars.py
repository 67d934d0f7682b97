"""The bar chart of what each rank holds, which is drawn under a merged graph and
printed by `gradviz merge`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.draw.chart import Bar, Chart
from gradviz.graph import RankShare
from gradviz.rank import named
from gradviz.wording import bytes_text, one_line, plural

_MOST = 16
# of a RankMemory
_PARTS = ("for backward", "parameters", "gradients", "optimizer state")


def chart(shares: Sequence[RankShare]) -> Chart:
    """A bar for each share; of many that differ the largest, and how many more there
    are.
    """
    longest = max((share.total for share in shares), default=0)
    largest = sorted(shares, key=lambda share: -share.total)
    shown = sorted(largest[:_MOST], key=lambda share: share.ranks)
    bars = [
        Bar(share.total / longest if longest else 0.0, _text(share)) for share in shown
    ]

    left = len(largest) - len(shown)
    if left:
        bars.append(
            Bar(
                0.0,
                f"{plural(left, 'rank')} with less, from {bytes_text(largest[-1].total)} on",
            )
        )
    return Chart("held by each rank", tuple(bars))


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
