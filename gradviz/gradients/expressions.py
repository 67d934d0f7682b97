"""A node as code would have it: `(w + 1)`, `exp(w)`, from the names of its operands and
its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradviz.graph import Graph, Node
from gradviz.graph.origins import forward_name, op_text
from gradviz.wording import one_line

_LONGEST = 24  # letters of an expression
_OPERATORS: dict[str, tuple[str, type[ast.operator]]] = {
    "add": ("+", ast.Add),
    "sub": ("-", ast.Sub),
    "mul": ("*", ast.Mult),
    "div": ("/", ast.Div),
}


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
    >>> line = SourceLine("train.py", 3, text="y = ((x + w) * (w + 1)).exp()")
    >>> adds = [Node(number, "AddBackward0", source=line) for number in range(2)]
    >>> leaves = [Node(2, "AccumulateGrad", names=("w",)), Node(3, "AccumulateGrad", names=("x",))]
    >>> edges = Edge(0, 2, 0, 0), Edge(1, 3, 0, 0), Edge(1, 2, 1, 0)
    >>> graph = Graph((*adds, *leaves), edges)
    >>> [expression(graph, node) for node in range(4)]
    ['(w + 1)', '(x + w)', 'w', 'x']
    """
    if _names(graph, node) or node in graph.leaf_of:
        return one_line(title(graph, node))

    operands = _operands(graph, node)
    op = one_line(op_text(graph.nodes[node]))
    code = _code(graph, graph.nodes[node], op, operands)
    return code if len(code) <= _LONGEST else op


def _operands(graph: Graph, node: int) -> list[str]:
    """The names of what gets a gradient from a node; none where one has no name, since
    an expression of expressions is longer than the path.
    """
    names = [_names(graph, edge.producer) for edge in graph.inputs(node)]
    return [one_line(several[0]) for several in names] if all(names) else []


def _code(
    graph: Graph,
    node: Node,
    op: str,
    operands: Sequence[str],
) -> str:
    if op in _OPERATORS:
        written = _written(graph, node, operands)
        if not written and len(operands) == 2:
            written = f" {_OPERATORS[op][0]} ".join(operands)
        return f"({written})" if written else op

    if len(operands) != 1:
        return op
    (operand,) = operands
    if op.endswith(" -"):
        return f"({op} {operand})"  # 1 - x
    if op.startswith("["):
        return f"{operand}{op}"
    if not op[0].isalpha():
        return f"({operand} {op})"
    return op if node.none_inputs else f"{op}({operand})"


def _written(
    graph: Graph,
    node: Node,
    operands: Sequence[str],
) -> str:
    """What the line of a node has for it, "" where that could be two places."""
    if node.source is None or not operands:
        return ""
    # a place where two operands are named is that of the node that has both
    siblings = []
    for operand in graph.inputs(node.id):
        for other in {edge.consumer for edge in graph.consumers(operand.producer)}:
            if other != node.id and graph.nodes[other].source == node.source:
                siblings.append({*_operands(graph, other)})
    places = [
        code
        for code, sides in _places(node)
        if sides.issuperset(operands) and sides not in siblings
    ]
    return places[0] if len(places) == 1 else ""


def _places(node: Node) -> Iterator[tuple[str, set[str]]]:
    """Where a line has the operator of a node, each with its two operands."""
    assert node.source is not None
    try:
        parts = ast.walk(ast.parse(node.source.text.strip()))
    except (SyntaxError, ValueError):
        return
    _, operator = _OPERATORS[forward_name(node)]
    for part in parts:
        if isinstance(part, ast.BinOp) and isinstance(part.op, operator):
            yield ast.unparse(part), {ast.unparse(part.left), ast.unparse(part.right)}
