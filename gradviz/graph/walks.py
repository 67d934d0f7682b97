"""What some steps lead to, such as all that lies behind a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gradviz.graph.model import Graph, Wired

T = TypeVar("T")


def spread(start: Iterable[T], onward: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """What some steps lead to, they themselves first, each once and the nearest first;
    `onward` tells what comes next.
    """
    seen = dict.fromkeys(start)
    waiting = [*seen]
    for item in waiting:  # grows while it is read
        yield item
        new = [other for other in dict.fromkeys(onward(item)) if other not in seen]
        seen |= dict.fromkeys(new)
        waiting += new


def makers(graph: Graph, node: int) -> list[int]:
    """The nodes that made the inputs of an operation."""
    producers = graph.producers
    return [producers[place] for place in graph.input_places(node)]


def users(graph: Wired, node: int) -> list[int]:
    """The nodes that use what an operation made."""
    consumers = graph.users
    return [consumers[place] for place in graph.consumer_places(node)]


def behind(graph: Graph, start: Iterable[int | None]) -> Iterator[int]:
    """The nodes that these lead to, they themselves among them."""
    nodes = (node for node in start if node is not None)
    return spread(nodes, lambda node: makers(graph, node))
