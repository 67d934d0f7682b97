"""Where a node comes from, as its reader knows it: the op of the forward pass, and the line of code.

`Node.source` is the line that called torch, `Node.script_line` the script's own where that is a library's: where a library
called torch, the script's own line says more to its author.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from gradviz.graph.model import Graph, Node, SourceLine, column


def own_line(node: Node) -> SourceLine | None:
    """The script's line that made a node, directly or through a library; the library's where no script was running."""
    return node.script_line or node.source


def op_line(node: Node) -> SourceLine | None:
    """The line that called torch, a library's perhaps."""
    return node.source


class Lines(NamedTuple):
    """Which line stands for a node, and what a reader must know about that."""

    of: Callable[[Node], SourceLine | None]
    note: str = ""


def telling_lines(nodes: Iterable[Node]) -> Lines:
    """The script's lines where more than half of these nodes were made by a library's, else the lines that called torch."""
    packages: Counter[str] = Counter()
    known = 0
    for node in nodes:
        known += node.source is not None
        if node.source is not None and node.script_line is not None:
            packages[node.source.package] += 1
    library = sum(packages.values())
    if 2 * library <= known:
        return Lines(op_line)
    names = " and ".join(name for name, _ in packages.most_common(2))
    return Lines(own_line, f"lines are the script's own: {library:,} of {known:,} ops were made in lines of {names}")


def calls_from(graph: Graph) -> dict[int, SourceLine]:
    """The script's line that each scope's ops come from, where a library made them all and one line of the script is behind."""
    lines: dict[int, SourceLine | None] = {}
    nodes = (graph.original or graph).nodes
    for scope, line, sequence in zip(*(column(nodes, name) for name in ("scope", "script_line", "sequence"))):
        if sequence is None:
            continue  # a leaf was made by no line
        while scope is not None and not (scope in lines and lines[scope] is None):
            if scope in lines and lines[scope] == line:
                break  # and so for every scope around it, or that one is told to differ already
            lines[scope] = line if scope not in lines else None
            line = lines[scope]
            scope = graph.scopes[scope].parent
    return {scope: line for scope, line in lines.items() if line is not None}


# Names of forward ops in place of backward functions: `AddmmBackward0` becomes `addmm`. Autograd names a backward
# function after the op of torch that it differentiates, in capitals, with `Backward` and a number for the overload.
# This writes the op's own name again. A custom Function keeps the name of its class.

_BACKWARD = re.compile(r"Backward\d*$")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_DIMENSIONS = re.compile(r"(\d)D")


def forward_name(node: Node) -> str:
    """The op that a node is the backward of.

    >>> forward_name(Node(0, "NativeLayerNormBackward0"))
    'native_layer_norm'
    >>> forward_name(Node(0, "MaxPool2DWithIndicesBackward0"))
    'max_pool2d_with_indices'
    """
    if node.function is not None:
        return node.function.name.rpartition(".")[2]
    if node.op == "CopySlices":
        return "copy_ into a view"
    name = _BACKWARD.sub("", node.op)
    if name == node.op:  # AccumulateGrad, and names that are not made by autograd's rule
        return node.op
    return _WORD_STARTS.sub("_", _DIMENSIONS.sub(r"\1d", name)).lower()


def with_forward_names(graph: Graph) -> Graph:
    """The graph with every op named as in the forward pass."""
    nodes = tuple(node._replace(op=forward_name(node)) for node in graph.nodes)
    return replace(graph, nodes=nodes)
