"""The numbers of a first lesson: a few ops on single numbers are drawn with their values
and gradients unasked, where that disturbs nothing and is what backward will do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradviz.errors import GradvizError
from gradviz.graph import Graph, Node

if TYPE_CHECKING:
    from gradviz.run.outputs import LiveOutputs

OPS = 15
"""How many ops a lesson has at most."""


def graph_with_lesson(live: LiveOutputs) -> Graph:
    """The graph behind the outputs; of a lesson with its values and gradients."""
    from gradviz.gradients.flow import measure
    from gradviz.gradients.live import opened
    from gradviz.run.reading import read_graph

    graph = read_graph(live)
    if not is_lesson(graph):
        return graph

    try:
        flow = measure(opened(live), values=True)
    except GradvizError:
        return graph  # nobody asked for numbers, so their lack ends nothing
    # nobody asked for numbers, so their lack is no news
    steps = tuple(step._replace(freed=False) for step in flow.graph.backward)
    return replace(graph, backward=steps)


def is_lesson(graph: Graph) -> bool:
    """Whether a graph is a few plain ops on single real numbers.

    >>> from gradviz.graph import TensorInfo
    >>> number = TensorInfo((), "float32", "cpu")
    >>> is_lesson(Graph((Node(0, "ExpBackward0", (number,)),)))
    True
    >>> is_lesson(Graph((Node(0, "ExpBackward0", (number,), flags=("hooks",)),)))
    False
    """
    ops = [node for node in graph.nodes if node.id not in graph.leaf_of]
    return 0 < len(ops) <= OPS and all(map(_is_plain, graph.nodes))


def _is_plain(node: Node) -> bool:
    # a flag is a hook, a custom Function, or a tensor that is freed, packed or changed:
    # to measure would run the user's code, fail, or give other numbers than backward
    return not node.flags and all(
        output is not None
        and output.shape == ()
        and output.device != "meta"
        and not output.dtype.startswith("complex")
        for output in node.outputs
    )
