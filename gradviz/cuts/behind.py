"""What is behind a tensor or a node: leaves, as the graph says; lines of code, as the
recording and the text say.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch

from gradviz.graph import SourceLine
from gradviz.packages import CallSite, script_lines
from gradviz.recording.session import running
from gradviz.source.feeding import Line, feeding, statement_at
from gradviz.walker.private import LAST

NODES = 5_000
"""Nodes that a look at the leaves of a graph goes over."""

Leaves = dict[int, weakref.ref[torch.Tensor]]
Way = tuple[Line, ...]
"""The lines of the user's that led somewhere, innermost first."""


def fed_by(
    way: Sequence[Line],
    computed: Collection[Line],
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, called on this way; the
    line itself is one.
    """
    return statement_at(way[0]).union(*(feeding(line, computed) for line in way))


def lines_before(frame: FrameType | None) -> frozenset[Line]:
    """The lines whose results go into those that a frame, and those around it, are at."""
    way = lines_of(script_lines(frame))
    return fed_by(way, ()) if way else frozenset()


def lines_of(sources: Iterable[SourceLine]) -> Way:
    return tuple((source.file, source.line) for source in sources)


def ways_to(numbers: Iterable[int]) -> Iterator[Way]:
    """The way to each node, by sequence number; none where nothing is recorded."""
    session = running()
    recorded = session.event_log().lines if session is not None else None
    ways: dict[CallSite | None, Way] = {None: ()}

    for number in numbers:
        site = None
        if recorded is not None and number != LAST:
            site = recorded.at(number)
        if site is not None and site not in ways:
            ways[site] = lines_of(callers(site))
        yield ways[site]


def callers(site: CallSite) -> Iterator[SourceLine]:
    for caller in site.chain():
        # the lines of libraries are nobody's to change
        if caller.place is not None and not caller.place.source.package:
            yield caller.place.source


def leaves_behind(tensor: torch.Tensor) -> Leaves:
    """The leaves that a tensor was computed from; none of a leaf, and none when its
    graph is too large for a look.
    """
    leaves: Leaves = {}
    waiting: list[Any] = [] if tensor.is_leaf else [tensor.grad_fn]
    seen = set(waiting)

    # a node whose Python object is made here keeps that: so not of all of a long chain
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        if type(node).__name__ == "AccumulateGrad":
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor):
                leaves[id(leaf)] = weakref.ref(leaf)
        inputs = {function for function, _ in node.next_functions} - seen - {None}
        seen |= inputs
        waiting += inputs

    return leaves if not waiting else {}
