"""Lines that change in place what an operation has saved, through `.data`, so that the
count which backward() compares does not tell; as the text of a step says that ran. Runs
nothing.
"""

from __future__ import annotations

import ast
from ast import AST
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph import Graph, SourceLine
from gradviz.graph.origins import op_of
from gradviz.graph.walks import users
from gradviz.recording.given import entries
from gradviz.source.bindings import is_data
from gradviz.source.code_line import out_of_place
from gradviz.source.statements import InPlace, pieces_in_place

_SIGNS = ("relu", "threshold", "leaky_relu", "hardtanh", "hardswish", "abs")
"""Operations whose derivative depends on little more than a sign."""
_RESULTS = {"result", "output"}


class UnseenChange(NamedTuple):
    """A line that changes a variable, an operation that had saved it, and code that
    makes another tensor instead.
    """

    source: SourceLine
    name: str
    saver: str
    instead: str


def unseen_changes(
    recorded: RecordedCode, reads: LeafReads, graph: Graph
) -> Iterator[UnseenChange]:
    """Those before the call of backward."""
    pieces = list(_pieces(recorded, reads))
    made: dict[AST, list[int]] = defaultdict(list)
    for node, site in recorded.site_of.items() if pieces else ():
        for value in filter(None, map(recorded.value_at, site.chain())):
            made[value].append(node)
    for function, piece, value in pieces:
        if value not in made:
            continue
        order = function.syntax.order
        before = {
            node
            for other, nodes in made.items()
            if order.get(other, len(order)) < order[piece.node]
            for node in nodes
        }
        # what computes the value last made it
        last = max(made[value], key=lambda node: graph.nodes[node].sequence or 0)
        for saver in _savers(graph, last, before):
            op, text = op_of(graph.ops[saver]), _without_data(piece)
            source = recorded.line_of(piece.node)
            yield UnseenChange(source, piece.name, op, text)
            break


def _pieces(
    recorded: RecordedCode, reads: LeafReads
) -> Iterator[tuple[FunctionCode, InPlace, ast.expr]]:
    """What changes numbers through `.data` of a variable, on every way behind where it
    got its value, with the code of that.
    """
    for file in recorded.files.values():
        for function, piece in _in_place(file):
            value = _value(function, piece, reads)
            if value is not None and recorded.was_passed(function, piece.statement):
                yield function, piece, value


@lru_cache(maxsize=200)
def _in_place(file: CodeFile) -> list[tuple[FunctionCode, InPlace]]:
    """What a file changes through `.data`."""
    parts = [each for each in file.values if getattr(each, "attr", "") == "data"]
    statements = dict.fromkeys(map(file.statement, parts))
    return [
        (file.function_of(statement), piece)
        for statement in statements
        if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign))
        for piece in pieces_in_place(statement)
    ]


def _value(function: FunctionCode, piece: InPlace, reads: LeafReads) -> ast.expr | None:
    changed: Any = piece.changed
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    if not is_data(changed):
        return None
    syntax = function.syntax
    reaching = function.bindings.before(piece.name, piece.node)
    binding = reaching.binding
    if binding is None or not reaching.is_certain:
        return None
    around = syntax.blocks(binding.place)
    within = syntax.blocks(piece.node)
    if within[: len(around)] != around:
        return None
    # under no condition, but for one such as `self.training`, which is so
    is_met = all(
        isinstance(block, ast.If)
        and field == "body"
        and reads.object_at(block.test) is True
        for block, field in within[len(around) :]
    )
    return binding.value if is_met else None


def _savers(graph: Graph, made: int, before: set[int]) -> Iterator[int]:
    """The operations that have saved what a node made, as far as that is known."""
    if _RESULTS.intersection(_saved(graph, made)):
        yield made
    for user in before.intersection(users(graph, made)):
        uses = graph.inputs(user)
        names = entries(op_of(graph.ops[user]), len(uses))
        places = [use.position for use in uses if use.producer == made]
        given = {names[place] for place in places if place < len(names)}
        if given.intersection(_saved(graph, user)):
            yield user


def _saved(graph: Graph, node: int) -> list[str]:
    """The slots of a node, of which the numbers matter."""
    if op_of(graph.ops[node]) in _SIGNS:
        return []
    return [slot.slot for slot in graph.nodes[node].saved]


def _without_data(piece: InPlace) -> str:
    """The same change to another tensor.

    >>> def written(code):
    ...     return _without_data(next(pieces_in_place(ast.parse(code).body[0])))
    >>> [*map(written, ("h.data.clamp_(max=1)", "h.data *= m", "h.data[m] = 0"))]
    ['h = h.clamp(max=1)', 'h = h * m', 'h = h.clone(); h[m] = 0']
    """
    text = ast.unparse(piece.statement).replace(f"{piece.name}.data", piece.name)
    for other in pieces_in_place(ast.parse(text).body[0]):
        if instead := out_of_place(other):
            return instead
    return f"{piece.name} = {piece.name}.clone(); {text}"
