"""Reads the user's source text: which statements a function has, in which order, what
they assign and what they change in place.

Only parses; runs nothing and imports nothing. Text that is not there or does not parse
gives no statements.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from copy import copy
from types import CodeType
from typing import Any, NamedTuple

from gradviz.graph import SourceLine
from gradviz.packages import package_of, with_text
from gradviz.source.bindings import part_holder
from gradviz.source.files import SourceText, file_of, inside, lines_of
from gradviz.source.syntax import BLOCKS, FUNCTIONS, LOOPS

_LIBRARY = re.compile("copy|torch|autograd|F|nn|functional|init|np|numpy")
# `add_`, as torch names what changes a tensor
_METHOD = re.compile(r"_?[a-z](\w*[a-z0-9])?_")
EMPTY = r"(?:\[\]|\{\}|(?:list|dict|deque|OrderedDict|Counter)\(\))"
"""A new container with nothing in it."""


# -- a file ----------------------------------------------------------------------------


class Body(NamedTuple):
    """The statements of one function or of a module's top level, in the order of the
    text. Nested functions are left out.
    """

    file: str
    function: str
    statements: tuple[ast.stmt, ...]

    def source(self, node: ast.AST) -> SourceLine:
        """The line of a node."""
        return self.line(getattr(node, "lineno", 0))

    def line(self, number: int) -> SourceLine:
        """A line of the file, with its text."""
        package = package_of(self.file)
        return with_text(SourceLine(self.file, number, self.function, package=package))


NOWHERE = Body("", "", ())


def body_of(code: CodeType) -> Body:
    """What a code object was compiled from, empty where there is no text."""
    is_module = code.co_name == "<module>"
    return body_around(code.co_filename, 0 if is_module else code.co_firstlineno)


def body_around(file: str, number: int) -> Body:
    """The body of the innermost function around a line, else of the module's top level,
    as for line 0.
    """
    inner = next(iter(blocks_around(file, number)), None)
    return _body_of(file, inner)


def bodies(file: str) -> Iterator[Body]:
    """The top level of a file, and the body of each function in it."""
    for function in (None, *text_of(file).statements):
        if function is None or isinstance(function, FUNCTIONS):
            yield _body_of(file, function)


def _body_of(file: str, function: Any) -> Body:
    name, block = "<module>", text_of(file).tree
    if function is not None:
        name, block = function.name, function
    return Body(file, name, tuple(flattened(block.body)))


def text_of(file: str) -> SourceText:
    """A file, empty where there is no text, or it does not parse."""
    linecache.checkcache(file)  # a script may have been edited while it ran
    return file_of(file)


def flattened(statements: Sequence[Any]) -> Iterator[ast.stmt]:
    """All statements in the order of the text, those inside blocks included."""
    todo = [*reversed(statements)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        # what is inside these runs at another time
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo += reversed(inside(node))


# -- a line ----------------------------------------------------------------------------


def covers(node: Any, line: int) -> bool:
    """Whether a statement or expression goes over a line. Decorators are part of it."""
    return line in lines_of(node)


def statements_at(source: SourceLine | None) -> list[ast.stmt]:
    """The innermost statements that go over a line, each as a whole however many lines
    it has; of a block its head alone.
    """
    if source is None:
        return []
    every = text_of(source.file).by_line.get(source.line, ())
    simple = [node for node in every if not inside(node)]
    if simple or not every:
        return simple
    head = copy(every[-1])
    for name in BLOCKS:
        if hasattr(head, name):
            setattr(head, name, [])
    return [head]


def written_at(source: SourceLine | None) -> str:
    """The same as Python spells it."""
    return "; ".join(map(ast.unparse, statements_at(source)))


def assigned_at(source: SourceLine | None) -> tuple[str, ...]:
    """The names that the statements of a line give a value to."""
    given = (assigned(statement)[0] for statement in statements_at(source))
    return tuple(name for names in given for name in names)


def reads_at(source: SourceLine | None) -> Iterator[str]:
    """The names that the statements of a line read."""
    for statement in statements_at(source):
        yield from reads(statement)


def expressions_at(file: str, line: int) -> list[ast.expr]:
    """The expressions of a file that begin on a line, or that go across it."""
    # grows while it is read
    nodes: list[Any] = [*text_of(file).by_line.get(line, ())]
    for node in nodes:
        for part in ast.iter_child_nodes(node):
            outside = isinstance(part, ast.expr) and not covers(part, line)
            if not isinstance(part, ast.stmt) and not outside:
                nodes.append(part)
    return [node for node in nodes if isinstance(node, ast.expr)]


def blocks_around(file: str, number: int, *kinds: type[ast.AST]) -> list[Any]:
    """The innermost function around a line, if it is in one, and the blocks of these
    kinds around it there, the outermost first.
    """
    blocks: list[Any] = []
    for node in text_of(file).by_line.get(number, ()):
        if isinstance(node, FUNCTIONS):
            blocks = [node]
        elif isinstance(node, kinds):
            blocks.append(node)
    return blocks


def loops_around(file: str, number: int) -> list[Any]:
    """The loops around a line, within the function that it is in."""
    blocks = blocks_around(file, number, *LOOPS)
    return [block for block in blocks if isinstance(block, LOOPS)]


# -- a statement -----------------------------------------------------------------------


def recording_off(code: str) -> str:
    """ "no_grad" or "inference" for code such as `torch.no_grad()`, else ""."""
    if re.search(r"\b(no_grad\b|set_grad_enabled\(False)", code):
        return "no_grad"
    # inference_mode(False) switches nothing off
    is_inference = re.search(r"\binference_mode\b(?!\((mode=)?False)", code)
    return "inference" if is_inference else ""


def assigned(statement: ast.stmt) -> tuple[tuple[str, ...], ast.expr | None]:
    """The plain names that a statement gives a value to, as `x` of `for x in data:`,
    and the expression that they get it from.
    """
    target = getattr(statement, "target", None)
    targets = [target] if target is not None else getattr(statement, "targets", [])
    value = getattr(statement, "value", getattr(statement, "iter", None))
    given = [name for target in targets for name in _named(target, ast.Store)]
    return tuple(given), value


def _named(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    """The plain and dotted names in a piece of code that are read, or given a value: `a`
    and `self.b` of `(a, self.b)`, none of `c[0]`.
    """
    for part in ast.walk(node):
        is_name = isinstance(part, (ast.Name, ast.Attribute))
        if is_name and isinstance(getattr(part, "ctx", None), context):
            yield ast.unparse(part)


def names_of(node: ast.AST) -> Iterator[str]:
    """The plain names in a piece of code."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def reads(node: ast.AST) -> Iterator[str]:
    """The plain and dotted names that a piece of code reads."""
    if isinstance(node, ast.AugAssign):
        yield from assigned(node)[0]
    yield from _named(node, ast.Load)


# -- an expression ---------------------------------------------------------------------


def last_name(node: object) -> str:
    """`step` of `optimizer.step` and of `step`; "" for what is no name."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def called(node: ast.AST) -> str:
    """The name of the function or method that is called, if one is."""
    return last_name(getattr(node, "func", None))


def subject(call: ast.Call) -> Sequence[ast.expr]:
    """What a call is about: the object of a method, or the first argument of a
    function, if it has one.
    """
    # `torch.argmax(x)` is about x, `x.argmax()` too
    owner = getattr(call.func, "value", None)
    if owner is None or _LIBRARY.fullmatch(last_name(owner)):
        return call.args[:1]
    return [owner]


def makes_leaf(node: ast.AST) -> bool:
    """Whether an expression makes a leaf that requires grad, as its text says."""
    if not isinstance(node, ast.Call):
        return False
    name = called(node)
    asked = [part.value for part in node.keywords if part.arg == "requires_grad"]
    if not asked and name not in ("Parameter", "requires_grad_"):
        return False
    if name == "requires_grad_":
        asked += node.args
    return all(getattr(value, "value", False) is True for value in asked)


# -- a change in place -----------------------------------------------------------------


class InPlace(NamedTuple):
    """A piece of a statement that changes something in place: all of it, a target such
    as `h[0]`, or a call.
    """

    statement: ast.stmt
    node: ast.AST
    changed: ast.expr

    @property
    def code(self) -> str:
        return ast.unparse(self.node)

    @property
    def name(self) -> str:
        """What holds the tensor that is changed, as the code calls it: "self.h" of
        `self.h.data[0] += 1` and of `self.h.neg_().add_(1)`.
        """
        holder = part_holder(self.changed)
        while given := given_in_place(holder):
            holder = part_holder(given[0])
        return ast.unparse(holder)


def pieces_in_place(statement: ast.stmt) -> Iterator[InPlace]:
    """The pieces of a statement that change something in place, but not of the
    statements inside it.

    >>> [(piece.name, piece.code) for piece in pieces_in_place(ast.parse("h[0] = g.add_(torch.relu_(f))").body[0])]
    [('h', 'h[0]'), ('g', 'g.add_(torch.relu_(f))'), ('f', 'torch.relu_(f)')]
    """
    if isinstance(statement, ast.AugAssign):
        yield InPlace(statement, statement, statement.target)
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Subscript):
            yield InPlace(statement, target, target)
    for call, _ in method_calls(statement):
        for changed in given_in_place(call):
            yield InPlace(statement, call, changed)


def given_in_place(call: ast.AST) -> Sequence[ast.expr]:
    """What a call changes in place, and returns: nothing for other code."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    # of a module that is made so, it is an option
    told = any(ast.unparse(part) == "inplace=True" for part in call.keywords)
    method = call.func.attr
    is_told = told and method[0].islower()
    return subject(call) if is_told or _METHOD.fullmatch(method) else ()


def method_calls(statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """The calls of methods, and of functions of modules, that a statement makes, each
    with what it calls; none of the head of a block.
    """
    for node in ast.walk(statement) if not hasattr(statement, "body") else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func
