"""How one rank ended, as far as its files tell. Plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gradviz.graph import Call, SourceLine, TensorInfo

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


class Outcome(NamedTuple):
    """One rank. `end` is what it left: exit code, text, files, and what went wrong."""

    rank: int
    state: State
    pid: int = 0
    world: int = 0
    host: str = ""
    end: Mapping[str, Any] = {}
    call: Mapping[str, Any] | None = None  # of torch.distributed, in which it is or was last heard of
    calls: int = 0  # bytes of its notes
    graph: str = ""  # the file with its graph, once that is there
    notes: str = ""  # the file with its calls
    gone: float = 0.0  # when it was seen to have died or failed
    signal: int = 0  # that ended its process, where that is known

    @property
    def failed(self) -> bool:
        """Whether its script raised."""
        return bool(self.end.get("failed"))

    @property
    def code(self) -> int:
        """The exit code that the command would have had for this rank alone."""
        return int(self.end.get("code", 3))


def end_of(outcome: Outcome, outcomes: tuple[Outcome, ...]) -> RankEnd:
    """How a rank ended, for the checks."""
    order = sorted(other.gone for other in outcomes).index(outcome.gone)
    source = outcome.end.get("source")
    whole = outcome.state == "ended" and bool(outcome.end.get("whole"))
    return RankEnd(outcome.state, outcome.end.get("failed", ""), SourceLine(*source) if source else None, order, whole)


def calls_of(outcome: Outcome) -> tuple[Call, ...]:
    """The calls of torch.distributed that a rank has noted."""
    begun: dict[int, Call] = {}
    for record in _records(outcome.notes):
        if "end" in record and record["end"] in begun:
            begun[record["end"]] = begun[record["end"]]._replace(ended=True)
        elif "begin" in record and "source" in record:
            begun[record["begin"]] = call_of(record)
    return tuple(begun.values())


def call_words(outcome: Outcome) -> str:
    """The call in which a rank is, or was last: `all_reduce at train.py:14`."""
    if outcome.call is None:
        return ""
    return f"{outcome.call.get('op')}{at_line(outcome.call.get('source'))}"


def at_line(source: Sequence[Any] | None) -> str:
    """` at train.py:14`, "" where the line is unknown."""
    return f" at {str(source[0]).replace(chr(92), '/').rpartition('/')[2]}:{source[1]}" if source else ""


def last_words(outcome: Outcome) -> str:
    """Where a rank is that is in no call: ` after all_reduce at train.py:14, outside torch.distributed`."""
    calls = calls_of(outcome)
    if not calls:
        return " before any call of torch.distributed"
    last = calls[-1]
    return f" after {last.op}{at_line(last.source) if last.source is not None else ''}, outside torch.distributed"


def call_of(record: Mapping[str, Any]) -> Call:
    """One noted call, which has not ended yet."""
    tensor = record.get("tensor")
    return Call(
        record["op"],
        SourceLine(*record["source"]) if "source" in record else None,
        TensorInfo(tuple(tensor[0]), tensor[1], tensor[2]) if tensor else None,
        tuple(record.get("group", ())),
        record.get("peer"),
        ended=False,
        tag=record.get("tag", 0),
    )


def _records(path: str) -> Iterator[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            for text in file:
                try:
                    yield json.loads(text)
                except ValueError:  # the process was killed while it wrote
                    return
    except OSError:
        return
