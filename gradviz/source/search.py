"""Finds lines of code by what their text says they do: assign to something, call it,
change it in place, compute for nobody.

In a file, around a line, or in the function where the user's code is at. Reads text
only and runs nothing; whether such a line ran, and on what, is for whoever asks to find
out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from gradviz.graph import SourceLine
from gradviz.source.feeding import ADDING
from gradviz.source.statements import (
    EMPTY,
    Body,
    assigned,
    bodies,
    body_around,
    body_of,
    called,
    loops_around,
    method_calls,
    pieces_in_place,
    reads,
    text_of,
)

# -- in a file -------------------------------------------------------------------------


def matching(
    file: str, pattern: str, function: Body | None = None
) -> Iterator[tuple[SourceLine, re.Match[str]]]:
    """The statements of a file, or of a function, whose code as Python spells it has a
    pattern, at each place: without comments, a block by its head. Each with the line
    where it begins.
    """
    for body in [function] if function is not None else bodies(file):
        for node in body.statements:
            for match in re.finditer(pattern, _head(node)):
                yield body.source(node), match


@lru_cache(maxsize=10_000)
def _head(node: ast.stmt) -> str:
    """The first line of a statement; "" of a docstring, which does nothing of what it
    says.
    """
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ""
    return ast.unparse(node).partition("\n")[0]


def freezes(file: str, name: str = "") -> SourceLine | None:
    """The first line of a file that sets `requires_grad` to False, of what has this
    name, or has it inside: `for p in net.body.parameters(): p.requires_grad = False`.
    """
    for source, match in matching(file, r"([\w.\[\]]+)\.requires_grad(_\(| = )False"):
        holder = match[1]
        for loop in reversed(loops_around(file, source.line)):
            if holder in assigned(loop)[0]:
                holder = ast.unparse(assigned(loop)[1] or loop)
        if not name or not set(re.findall(r"\w+", holder)).isdisjoint(name.split(".")):
            return source
    return None


def addition_to(file: str, name: str) -> SourceLine | None:
    """The first line of a file that puts something into a container with this last
    name, in whichever function, such as `self.values.append(value)`.
    """
    last = name.rpartition(".")[2]
    # `self.values` here is `agent.values` to the caller
    for line, match in matching(file, _ADDITION):
        if match[1].rpartition(".")[2] == last:
            return line
    return None


def stores_by_key(file: str, name: str) -> bool:
    """Whether a line of a file puts something at a place of a container with this last
    name, as `self.states[key] = value`.
    """
    last = re.escape(name.rpartition(".")[2])
    return any(matching(file, rf"^(?:[\w.]+\.)?{last}\[[^=]+\] = "))


_SHOWS = ("print", "info", "debug", "add_scalar", "add_histogram")


def uses_gradients(file: str) -> bool:
    """Whether the code of a file changes `.grad`, or hands it on. What is only shown, or
    compared with None, trains nothing; a number may, as one for the size of a batch.
    """
    tree = text_of(file).tree
    shown, waiting = _only_shown(tree), list[tuple[ast.AST, bool]]([(tree, False)])
    while waiting:
        node, is_shown = waiting.pop()
        parts = ast.iter_child_nodes(node)
        if isinstance(node, ast.Assign):
            is_shown = {ast.unparse(target) for target in node.targets} <= shown
        elif isinstance(node, ast.Call):
            name = called(node)
            is_shown = name in _SHOWS or (is_shown and not name.endswith("_"))
            # `torch.autograd.grad` is a function
            if name == "grad":
                parts = iter([*node.args, *node.keywords])
        elif isinstance(node, ast.Compare):
            is_shown |= isinstance(node.ops[0], (ast.Is, ast.IsNot))
        elif isinstance(node, ast.JoinedStr):
            is_shown = True
        elif isinstance(node, ast.Attribute) and node.attr == "grad" and not is_shown:
            return True
        waiting += [(part, is_shown) for part in parts]
    return False


def _only_shown(tree: ast.AST) -> set[str]:
    """The variables that are read for nothing but to be shown."""
    shown, read, waiting = set[str](), set[str](), [(tree, False)]
    while waiting:
        node, is_shown = waiting.pop()
        if isinstance(node, ast.Call) and called(node) in _SHOWS:
            is_shown = True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            (shown if is_shown else read).add(node.id)
        waiting += [(part, is_shown) for part in ast.iter_child_nodes(node)]
    return shown - read


# -- around a line ---------------------------------------------------------------------


def returned_by(source: SourceLine) -> SourceLine:
    """Where the function that begins at a line returns, if at one place only; else that
    line.
    """
    body = body_around(source.file, source.line)
    returns = [line for line, _ in matching(source.file, "^return ", body)]
    return returns[0] if len(returns) == 1 else source


def keeps_on_first_argument(code: CodeType) -> SourceLine | None:
    """The first line of a function that reads an attribute of its first argument which
    is not what torch puts there, as `ctx.x`.
    """
    own = "(?!saved_tensors|needs_input_grad|saved_variables)"
    pattern = rf"\b{code.co_varnames[0]}\.{own}\w"
    lines = matching(code.co_filename, pattern, body_of(code))
    return next((line for line, _ in lines), None)


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as
    `out, state = cell(x, state)` does with `state`.
    """
    body = body_around(source.file, source.line)
    lines: dict[str, SourceLine] = {}
    for node in body.statements:
        names, value = assigned(node)
        read = set(reads(value)) if value is not None else set()
        for name in read.intersection(names):
            lines.setdefault(name, body.source(node))
    return lines


def changed_in_forward(source: SourceLine) -> SourceLine | None:
    """The first line of the forward() nearest to a line that changes what it is given in
    place.
    """
    methods = [body for body in bodies(source.file) if body.function == "forward"]
    if not methods:
        return None
    body = min(methods, key=lambda body: abs(body.statements[0].lineno - source.line))
    made = set[str]()
    for node in body.statements:
        made.update(assigned(node)[0] if isinstance(node, ast.Assign) else ())
    lines = (change.source for change in changes(body) if change.name not in made)
    return next(lines, None)


# -- in a function ---------------------------------------------------------------------


class Change(NamedTuple):
    """A line of code that changes a variable in place, or with `steps` calls `step()`
    of one.
    """

    source: SourceLine
    name: str
    steps: bool = False


def changes(body: Body) -> Iterator[Change]:
    """The statements that change a tensor in place, or take a step, as far as their
    text shows it.
    """
    for statement in body.statements:
        for piece in pieces_in_place(statement):
            yield Change(body.source(piece.node), piece.name)
        for call, method in method_calls(statement):
            if method.attr == "step":
                yield Change(body.source(call), ast.unparse(method.value), True)


_ADDED = rf"\.(?:{'|'.join(ADDING)})\(|\[[^=]*\] = (?!{EMPTY}$)"
# an empty list for a key is filled elsewhere
_ADDITION = rf"([\w.]+?)(?:\[[^=]*?\])?(?:{_ADDED})"


_GRAD = r"([\w.\[\]]+)\.grad\b(?! [-+*/]?= )"


def grad_reads(body: Body) -> dict[str, SourceLine]:
    """Where the code reads `.grad` of a variable, by the variable's name."""
    lines: dict[str, SourceLine] = {}
    for line, match in matching(body.file, _GRAD, body):
        lines.setdefault(match[1], line)
    return lines
