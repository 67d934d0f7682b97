"""Data that is a square by accident: a line computed with a row and a column."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradviz.checks.collect.behind import Variables
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.recorder import Note
from gradviz.checks.run import Kind
from gradviz.graph import Graph
from gradviz.graph.kinds import kind
from gradviz.graph.walks import makers
from gradviz.packages import users_frame
from gradviz.source.statements import Body, assigned, body_of, flattened
from gradviz.variables.objects import attribute_of
from gradviz.variables.scanner import value_of
from gradviz.walker.tensors import PLAIN, is_plain

_MEETING = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
"""Operators, as torch calls what they do."""
_SAME = {"detach", "clone", "float", "double", "cpu", "to", "data"}
"""Methods and attributes whose result has the shape of the tensor."""
Sizes = tuple[int, ...]


def squared(reading: Reading) -> Iterator[Note]:
    """The lines of the function that calls backward() which make a square that an
    operation takes beside a row; with both shapes, the operation, and how long they are.
    """
    frame, graph = users_frame(reading.live.frame), reading.walked.graph
    if frame is None:
        return
    seen = set[str]()
    for data in graph.data:
        sizes = data.tensor.shape or ()
        if len(sizes) != 2 or sizes[0] != sizes[1] or sizes[0] == 1:
            continue
        column, row = (sizes[0], 1), sizes[:1]
        takers = [node for node in data.nodes if _takes(graph, node, row)]
        if data.text in seen or not takers:
            continue
        seen.add(data.text)
        body = body_of(frame.f_code)
        for value in _made(body, data.text):
            sides = value.left, value.right
            shapes = [_shape(side, body, reading.live.variables) for side in sides]
            if {*shapes} == {column, row}:
                about = " and ".join(map(str, shapes)), _MEETING[type(value.op)]
                yield Kind.SQUARED, body.source(value), *about, str(sizes[0])


def _takes(graph: Graph, node: int, row: Sequence[object]) -> bool:
    """Whether what an operation was given beside data has the shape of a row."""
    if kind(graph, node) not in ("Mul", "Add", "Sub", "Div"):
        return False
    for maker in makers(graph, node):
        made = graph.outputs[maker]
        if made and made[0] is not None and made[0].shape == row:
            return True
    return False


def _made(body: Body, text: str) -> Iterator[ast.BinOp]:
    """What a function computes of two operands under this name, or as this code."""
    for statement in flattened(body.statements):
        names, value = assigned(statement)
        is_bound = text in names and value is not None
        for part in [value] if is_bound else ast.walk(statement):
            if not (isinstance(part, ast.BinOp) and type(part.op) in _MEETING):
                continue
            if is_bound or ast.unparse(part) == text:
                yield part


def _shape(operand: ast.expr, body: Body, variables: Variables) -> Sizes:
    """The shape of a variable, as an operand has it that has another graph at most; ()
    of others, and of one that this function made a column for all pairs.
    """
    while True:
        inner = operand.func if isinstance(operand, ast.Call) else operand
        if not isinstance(inner, ast.Attribute) or inner.attr not in _SAME:
            break
        operand = inner.value
    if not isinstance(operand, (ast.Name, ast.Attribute)):
        return ()
    first, *rest = ast.unparse(operand).split(".")
    for statement in flattened(body.statements):
        names, value = assigned(statement)
        if first in names and value is not None and not rest and _lifts(value):
            return ()
    tensor = attribute_of(value_of(first, variables), rest)
    return tuple(tensor.shape) if type(tensor) in PLAIN and is_plain(tensor) else ()


def _lifts(value: ast.expr) -> bool:
    """Whether an expression gives its result a dimension more.

    >>> def lifts(code):
    ...     return _lifts(ast.parse(code, mode="eval").body)
    >>> lifts("x[:, None]"), lifts("x.unsqueeze(1)"), lifts("x.sum(1, keepdim=True)")
    (True, True, True)
    >>> lifts("x.view(-1, 1)"), lifts("net(x)"), lifts("net(x[:, 0])")
    (True, False, False)
    """
    if isinstance(value, ast.Subscript):
        return any(
            isinstance(part, ast.Constant) and part.value is None
            for part in ast.walk(value.slice)
        )
    if isinstance(value, ast.Call):
        name = getattr(value.func, "attr", "")
        kept = any(word.arg == "keepdim" for word in value.keywords)
        return kept or name in {"unsqueeze", "view", "reshape"}
    return False
