"""What a process says of itself beside the graph that it read: which rank it is, and what it holds. Reads live objects."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

from gradviz.capture.live import Live
from gradviz.graph import Graph, Process
from gradviz.ranks.here import rank


def in_process(read: Callable[[Live], Graph], live: Live) -> Graph:
    """What `read` gives, with the process that read it."""
    return with_process(read(live), live)


def with_process(graph: Graph, live: Live) -> Graph:
    """The graph with the process that this is, one of several."""
    place = rank()
    if place is None:
        return graph
    return replace(graph, process=Process(place.number, place.world, socket.gethostname()))
