"""How a tensor without a graph came about: follows assignments in the user's code
upwards, and asks the live variables.

The code says what was written, the variables say which tensors still have a graph.
Where both agree, the place of the cut is known; otherwise what is found is
likely only, and says so. Runs nothing of the user's: no property, no call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch

from gradviz.graph import SourceLine
from gradviz.source.cut import Cut, DetachKind
from gradviz.source.search import CodeLocation, switch_around
from gradviz.source.statements import (
    LOOP,
    Statement,
    assigned,
    called,
    covers,
    expressions_at,
    last_name,
    loops_around,
    names_of,
    nodes_of,
    subject,
    text_of,
)
from gradviz.variables.objects import members, own_attributes, parameters
from gradviz.variables.scanner import Namespace, value_of
from gradviz.walker.isolation import isolated


class Provenance(NamedTuple):
    """How an output came about, as far as the code and the variables tell: cuts, the
    last one first.
    """

    cuts: tuple[Cut, ...] = ()
    made: SourceLine | None = None  # the line that made the output
    # tensors that it was computed from and that do not require grad
    plain: tuple[str, ...] = ()


_MOST = 40  # names that are followed
_METHODS: dict[str, DetachKind] = {
    "detach": "detach",
    "detach_": "detach",
    "item": "number",
    "tolist": "number",
    "numpy": "numpy",
    **dict.fromkeys(
        ("argmax", "argmin", "argsort", "long", "int", "bool", "byte", "short"),
        "integer",
    ),
}
_FUNCTIONS: dict[str, DetachKind] = {"float": "number", "int": "number"}
_MAKERS: dict[str, DetachKind] = {
    **dict.fromkeys(
        ("tensor", "Tensor", "FloatTensor", "DoubleTensor", "LongTensor"), "new"
    ),
    "from_numpy": "numpy",
}
_INTEGERS = {
    "long",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
    "short",
}


def provenance(location: CodeLocation, name: str) -> Provenance:
    """How the value of the variable `name` came about: the lines that gave it and what
    it was computed from their values.

    Follows what has no graph now. A place at which what goes in still has one comes
    first.
    """
    first = re.split(r"[\[(.]", name)[0]
    waiting, origins = [(first, location.line)], dict[str, _Origin]()

    for name, before in waiting:  # grows while it is read
        if name not in origins and len(origins) < _MOST:
            origins[name] = _origin(location, name, before)
            waiting += origins[name].follow

    every = list(origins.values())
    once = {
        (cut.source, cut.kind): cut
        for origin in reversed(every)
        for cut in reversed(origin.cuts)
    }
    made = next(
        (origin.made for origin in every if origin.made is not None),
        None,
    )
    ends = {
        name: value_of(name, location.variables)
        for name, origin in origins.items()
        if not origin.follow and not origin.cuts
    }
    plain = (
        name
        for name, value in ends.items()
        if isinstance(value, torch.Tensor) and not _has_graph(value)
    )

    return Provenance(
        tuple(once.values())[::-1],
        made,
        tuple(name for name in plain if name != first),
    )


class _Origin(NamedTuple):
    """One name: the cuts in what gave it its value, the names to follow, each with the
    line that reads it, and that line.
    """

    cuts: Sequence[Cut] = ()
    follow: Sequence[tuple[str, int | None]] = ()
    made: SourceLine | None = None


def _origin(
    location: CodeLocation,
    name: str,
    before: int | None,
) -> _Origin:
    statement = _assignment(location, name, before)
    value = assigned(statement.node)[1] if statement is not None else None
    if statement is None or value is None:
        return _Origin()

    found = list(_cuts(location, statement, value))
    names = {
        name: value_of(name, location.variables)
        for _, under in found
        for name in names_of(under)
    }
    unknown = (
        name
        for name, value in names.items()
        if isinstance(value, _VALUES) and not _has_graph(value)
    )
    follow = [(name, statement.node.lineno) for name in unknown]
    return _Origin(
        [cut for cut, _ in found if cut is not None],
        follow,
        location.body.source(statement.node),
    )


def unrecorded(source: SourceLine) -> Cut:
    """What a line did that called something while recording was off."""
    called_there = (
        part
        for part in expressions_at(source.file, source.line)
        if isinstance(part, ast.Call)
    )
    of = next((text_of(part, 40) for part in called_there), "")

    return Cut(
        "no_grad",
        source,
        of=of,
        alive=True,
        off=switch_around(source.file, source.line),
    )


def _assignment(
    location: CodeLocation, name: str, before: int | None
) -> Statement | None:
    """The last assignment to a name above a line; in a loop it may stand below, and
    comes before one outside of the loop.
    """
    assignments = [
        statement
        for statement in location.body.statements
        if name in assigned(statement.node)[0]
    ]
    if before is None:
        return next(iter(assignments[-1:]), None)

    above = [statement for statement in assignments if statement.node.lineno < before]
    loops = loops_around(location.body.file, before)
    loop = next(
        (
            node
            for node in nodes_of(location.body.file, *LOOP)
            if loops and node.lineno == loops[-1]
        ),
        None,
    )

    if loop is not None:
        inside = [
            statement
            for statement in assignments
            if covers(loop, statement.node.lineno)
        ]
        earlier = [statement for statement in above if statement in inside]
        above = earlier or inside or above

    return next(
        iter([*above[-1:], *assignments[-1:]]),
        None,
    )


def _cuts(
    location: CodeLocation, statement: Statement, value: ast.expr
) -> Iterator[tuple[Cut | None, ast.expr]]:
    """The cuts of a statement, each with what is to be followed behind it; names that
    no cut is about alone.
    """
    source, pieces = location.body.source, list(_pieces(value))
    if statement.off:
        pieces.append((statement.off, value, value))

    for kind, node, under in pieces:
        at = source(node if not statement.off else statement.node)
        if kind in ("no_grad", "inference"):
            off = switch_around(at.file, at.line)
        else:
            off = None
        alive = bool(kind) and any(
            _has_graph(_value(part, location.variables)) for part in ast.walk(under)
        )
        cut = None
        if kind:
            name = cast("DetachKind", kind)
            cut = Cut(name, at, of=text_of(under, 40), alive=alive, off=off)
        yield cut, ast.Constant(None) if alive else under


_VALUES = (
    torch.Tensor,
    int,
    float,
    list,
    tuple,
    dict,
    type(None),
)


def _pieces(
    expression: ast.expr,
) -> Iterator[tuple[DetachKind | str, ast.expr, ast.expr]]:
    """The innermost cuts of an expression, each with what is under it; and the names
    that reach its value without one.
    """
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        kind, under = _cut(node)
        if kind and under is not None:
            inner = [piece for piece in _pieces(under) if piece[0]]
            yield from inner or [(kind, node, under)]
        elif isinstance(node, ast.Name):
            yield "", node, node
        elif not isinstance(node, (ast.Lambda, ast.Constant)):
            children = ast.iter_child_nodes(node)
            inside = [
                child.value if isinstance(child, ast.keyword) else child
                for child in children
            ]
            waiting += [child for child in inside if isinstance(child, ast.expr)][::-1]


def _cut(
    node: ast.expr,
) -> tuple[DetachKind | str, ast.expr | None]:
    """How this expression drops a graph and what loses it; ("", None) when it does not."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return "data", node.value
    if isinstance(node, ast.Compare):
        return "integer", node.left
    if not isinstance(node, ast.Call):
        return "", None

    name, library = (
        called(node),
        getattr(getattr(node.func, "value", None), "id", ""),
    )
    if isinstance(node.func, ast.Attribute):
        kind = _METHODS.get(name, "")
    else:
        kind = _FUNCTIONS.get(name, "")

    if library in ("np", "numpy"):
        kind = "numpy"
    elif library == "torch":
        kind = _MAKERS.get(name, kind)
    elif name in ("to", "type") and any(
        last_name(argument) in _INTEGERS for argument in node.args
    ):
        kind = "integer"

    return kind, next(iter(subject(node)), None)


def _value(expression: ast.AST, variables: Sequence[Namespace]) -> Any:
    """The live value of a name or dotted name; None when unknown. Runs no property."""
    if isinstance(expression, ast.Name):
        return value_of(expression.id, variables)
    if not isinstance(expression, ast.Attribute):
        return None

    owner, name = _value(expression.value, variables), expression.attr
    own = own_attributes(owner)
    registered = (
        members(owner, table)
        for table in ("_modules", "_parameters", "_buffers")
        if table in own
    )

    return own.get(
        name,
        next(
            (value for pairs in registered for key, value in pairs if key == name), None
        ),
    )


def _has_graph(value: Any) -> bool:
    """Whether a value is a tensor that requires grad, or a module that could give it a
    graph.
    """
    if issubclass(type(value), torch.Tensor):
        with isolated():
            return bool(value.requires_grad)
    return issubclass(type(value), torch.nn.Module) and any(
        one.requires_grad for one in parameters(value)
    )
