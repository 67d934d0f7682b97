"""A node as code would have it: `(w + 1)`, `exp(w)`, from the names of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.graph import Graph, Node
from gradviz.graph.origins import op_text
from gradviz.wording import one_line

_LONGEST = 24  # letters of an expression
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def title(graph: Graph, node: int) -> str:
    """What to call a node in one word or two: the output's or the leaf's name, a
    variable's, else its op.
    """
    names = _names(graph, node)
    leaf = graph.leaf_of.get(node)
    if not names and leaf is not None:
        return f"an {leaf.kind}" if leaf.kind == "input" else f"a {leaf.kind}"
    return " = ".join(names) or graph.nodes[node].op


def _names(graph: Graph, node: int) -> tuple[str, ...]:
    return graph.nodes[node].names or tuple(
        root.name for root in graph.roots_of.get(node, ())
    )


def expression(graph: Graph, node: int) -> str:
    """The name of a node, else its code where its operands have names and that is
    short, else its op.

    >>> from gradviz.graph import Edge, SourceLine
    >>> line = SourceLine("train.py", 3, text="y = (x * (w + 1)).exp()")
    >>> ops = [Node(0, "AddBackward0", source=line, written="+ 1", none_inputs=1), Node(1, "MulBackward0", source=line)]
    >>> leaves = [Node(2, "AccumulateGrad", names=("w",)), Node(3, "AccumulateGrad", names=("x",))]
    >>> edges = Edge(0, 2, 0, 0), Edge(1, 3, 0, 0), Edge(1, 2, 1, 0)
    >>> graph = Graph((*ops, *leaves), edges)
    >>> [expression(graph, node) for node in range(4)]
    ['(w + 1)', '(x * w)', 'w', 'x']
    """
    if _names(graph, node) or node in graph.leaf_of:
        return one_line(title(graph, node))

    operands = _operands(graph, node)
    op = one_line(op_text(graph.nodes[node]))
    code = _code(graph.nodes[node], op, operands)
    return code if len(code) <= _LONGEST else op


def _operands(graph: Graph, node: int) -> list[str]:
    """The names of what gets a gradient from a node; none where one has no name, since
    an expression of expressions is longer than the path.
    """
    names = [_names(graph, edge.producer) for edge in graph.inputs(node)]
    return [one_line(several[0]) for several in names] if all(names) else []


def _code(node: Node, op: str, operands: Sequence[str]) -> str:
    if op in _OPERATORS and len(operands) == 2:
        return f"({f' {_OPERATORS[op]} '.join(operands)})"

    if len(operands) != 1:
        return op
    (operand,) = operands
    if op.endswith((" +", " -", " *", " /")):
        return f"({op} {operand})"  # 1 - x
    if op.startswith("["):
        return f"{operand}{op}"
    if not op[0].isalpha():
        return f"({operand} {op})"
    return op if node.none_inputs else f"{op}({operand})"
