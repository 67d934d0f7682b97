"""What checks know of several ranks together: their graphs as one, their calls of torch.distributed, and how each ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from gradviz.graph import Call, SourceLine

if TYPE_CHECKING:
    from gradviz.ranks.rank_diff import RankDiff

State = Literal["running", "ended", "died", "stuck", "absent"]
"""Ended: it left its result. Died: its process is gone and left none. Stuck: it waits in a call for one that will not come.
Absent: it never began."""


class RankEnd(NamedTuple):
    """How one rank ended. `failed` is the exception of its script, and `source` its line."""

    state: State = "ended"
    failed: str = ""
    source: SourceLine | None = None
    order: int = 0  # which one of those that died or failed it was
    whole: bool = False  # whether its script ran to its end, so that it makes no further call


class Together(NamedTuple):
    """Several ranks of one launch. `diff` is None when none of them left a graph."""

    diff: RankDiff | None
    calls: Mapping[int, tuple[Call, ...]]
    ends: Mapping[int, RankEnd]
