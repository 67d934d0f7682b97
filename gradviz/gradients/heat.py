"""Pictures coloured by time: the seconds at each box, as far as modules were timed.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.draw.heat import Heat
from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.graph.amounts import own_seconds
from gradviz.wording import seconds_text


def time_heat(graph: Graph) -> Heat:
    """How long every box takes. Raises FormatError when nobody measured."""
    seconds = seconds_by_box(graph)
    return Heat(
        seconds,
        max(seconds, default=0),
        2,
        "takes",
        seconds_text,
        note=_seconds_line(seconds),
    )


def _seconds_line(seconds: Sequence[float]) -> str:
    """What the times of boxes are."""
    return (
        f"time of forward and backward: {seconds_text(sum(seconds))} in these boxes; modules are timed, so several ops of "
        "one open module have no time of their own"
    )


def seconds_by_box(graph: Graph) -> tuple[float, ...]:
    """Seconds of every box: own ones of the calls whose ops are all in it. Raises
    FormatError when nobody measured.

    >>> from gradviz.graph import Node, Scope
    >>> scopes = Scope("net", "Net", 0, None, forward=3.0), Scope("net.a", "Linear", 0, 0, forward=1.0, backward=1.0)
    >>> nodes = (Node(i, "ExpBackward0", sequence=i, scope=scope) for i, scope in enumerate((1, 0, 0)))
    >>> seconds_by_box(Graph(tuple(nodes), scopes=scopes))  # the last two share one second, and no one knows how
    (2.0, 0.0, 0.0)
    """
    original = graph.original or graph
    self_seconds = own_seconds(original)

    if not self_seconds:
        raise FormatError(
            "this graph does not know how long its modules took. On the command line, draw the script itself, not a graph "
            "saved without times."
        )

    boxes: list[set[int]] = [set() for _ in self_seconds]
    for box, inside in enumerate(graph.inside):
        for node in map(original.nodes.__getitem__, inside):
            # an AccumulateGrad has none
            if node.scope is not None and node.sequence is not None:
                boxes[node.scope].add(box)

    seconds = [0.0] * len(graph.nodes)
    for call_seconds, call_boxes in zip(self_seconds, boxes):
        if len(call_boxes) == 1:
            seconds[call_boxes.pop()] += call_seconds

    return tuple(seconds)
