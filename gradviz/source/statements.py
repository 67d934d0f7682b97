"""Reads the user's source text: which statements a function has, in which order, what
they assign and what they change in place.

Only parses; runs nothing and imports nothing. Text that is not there or does not parse
gives no statements.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from gradviz.graph import SourceLine
from gradviz.packages import package_of, with_text

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOP = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (*FUNCTION, ast.Lambda, ast.ClassDef)
_OFF = {"no_grad": "no_grad", "inference_mode": "inference"}
_LIBRARIES = (
    "copy",
    "torch",
    "autograd",
    "F",
    "nn",
    "functional",
    "init",
    "np",
    "numpy",
)
_CONTAINERS = ("list", "dict", "deque", "OrderedDict", "Counter")
_parsed: dict[str, tuple[str, ast.Module]] = {}


class Statement(NamedTuple):
    """One statement, and the mode that it is in: "no_grad" or "inference" inside such a
    block, else "".
    """

    node: ast.stmt
    off: str


class Body(NamedTuple):
    """The statements of one function or of a module's top level, in the order of the
    text. Nested functions are left out.
    """

    file: str
    function: str
    statements: tuple[Statement, ...]

    def source(self, node: ast.AST) -> SourceLine:
        """The line of a node."""
        return self.line(getattr(node, "lineno", 0))

    def line(self, number: int) -> SourceLine:
        return line_of(self.file, number, self.function)


def body_of(code: CodeType) -> Body:
    """What a code object was compiled from, empty where there is no text."""
    return body_at(code.co_filename, code.co_name, code.co_firstlineno)


def body_at(file: str, name: str = "<module>", first_line: int = 0) -> Body:
    """The body of the function `name` that begins at `first_line`, or of the module's
    top level; empty where there is none.
    """
    if name == "<module>":
        return next(bodies(file))
    for node in nodes_of(file, *FUNCTION):
        lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
        if node.name == name and min(lines) <= first_line <= max(lines):
            return _body_of(file, node)
    return Body(file, name, ())


def bodies(file: str) -> Iterator[Body]:
    """The top level of a file, and the body of each function in it."""
    yield Body(file, "<module>", tuple(flattened(tree_of(file).body)))
    for node in nodes_of(file, *FUNCTION):
        yield _body_of(file, node)


def body_around(file: str, number: int) -> Body:
    """The body of the innermost function around a line, or of the module's top level."""
    functions = [node for node in nodes_of(file, *FUNCTION) if covers(node, number)]
    inner = max(functions, key=lambda node: node.lineno, default=None)
    return _body_of(file, inner) if inner is not None else body_at(file)


def _body_of(file: str, function: Any) -> Body:
    switches = filter(None, map(recording_off, function.decorator_list))
    statements = flattened(function.body, next(switches, ""))
    return Body(file, function.name, tuple(statements))


def expressions_at(file: str, line: int) -> Sequence[ast.expr]:
    """The expressions of a file that begin on a line, or that go across it."""
    return _expressions_at(tree_of(file), line)


@lru_cache(maxsize=1_000)
def _expressions_at(
    tree: ast.Module,
    line: int,
) -> tuple[ast.expr, ...]:
    return tuple(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and covers(node, line)
    )


def loops_around(file: str, line: int) -> tuple[int, ...]:
    """The first lines of the loops around a line of a file, within the function that it
    is in: the outermost first.
    """
    blocks = [node for node in nodes_of(file, *FUNCTION, *LOOP) if covers(node, line)]
    loops: list[int] = []
    for block in sorted(blocks, key=lambda node: node.lineno):
        loops = [*loops, block.lineno] if isinstance(block, LOOP) else []
    return tuple(loops)


def covers(node: Any, line: int) -> bool:
    """Whether a statement or expression goes over a line."""
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))


def line_of(
    file: str,
    number: int,
    function: str = "",
) -> SourceLine:
    """A line of a file, with its text."""
    return with_text(SourceLine(file, number, function, package=package_of(file)))


def nodes_of(
    file: str,
    *kinds: type[ast.AST],
) -> Iterator[Any]:
    """All nodes of these kinds in a file, from the outermost inwards."""
    return (node for node in ast.walk(tree_of(file)) if isinstance(node, kinds))


def tree_of(file: str) -> ast.Module:
    """A file as a tree, empty where there is no text, or it does not parse."""
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file))
    if file not in _parsed or _parsed[file][0] != text:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            tree = ast.Module([], [])
        _parsed[file] = text, tree
    return _parsed[file][1]


def flattened(statements: Sequence[ast.stmt], off: str = "") -> Iterator[Statement]:
    """All statements in the order of the text, those inside blocks included."""
    waiting: list[tuple[Any, str]] = [(node, off) for node in reversed(statements)]
    while waiting:
        node, mode = waiting.pop()
        if isinstance(node, ast.stmt):
            yield Statement(node, mode)
        if isinstance(node, _FUNCTIONS):
            continue

        for item in getattr(node, "items", ()):
            mode = recording_off(item.context_expr) or mode
        # handlers and cases are blocks that are no statements
        for name in ("cases", "finalbody", "orelse", "handlers", "body"):
            waiting += [(part, mode) for part in reversed(getattr(node, name, ()))]


def recording_off(node: ast.expr) -> str:
    """ "no_grad" or "inference" for an expression such as `torch.no_grad()`, else ""."""
    name = last_name(getattr(node, "func", node))
    for argument in getattr(node, "args", [])[:1]:
        if getattr(argument, "value", None) is False:
            return "no_grad" if name == "set_grad_enabled" else ""
    return _OFF.get(name, "")


def switches(
    file: str,
) -> Iterator[tuple[Any, ast.expr, str]]:
    """What switches recording off in a file: the block, function or class, the
    expression that does, and how.
    """
    for node in nodes_of(
        file,
        ast.With,
        ast.AsyncWith,
        *FUNCTION,
        ast.ClassDef,
    ):
        items = [item.context_expr for item in getattr(node, "items", ())]
        for switch in getattr(node, "decorator_list", items):
            mode = recording_off(switch)
            if mode:
                yield node, switch, mode


def assigned(
    statement: ast.stmt,
) -> tuple[tuple[str, ...], ast.expr | None]:
    """The plain names that a statement gives a value to, and the expression they get it
    from.
    """
    if not isinstance(
        statement,
        (ast.Assign, ast.AugAssign, ast.AnnAssign),
    ):
        return (), None
    names: list[str] = []
    for target in targets_of(statement):
        names += names_in(target)
    return tuple(names), statement.value


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    """What a statement gives a value to, as `a, h[0]` is in `a, h[0] = f()` and `x` in
    `for x in data:`.
    """
    if isinstance(statement, ast.Assign):
        return statement.targets
    target = getattr(statement, "target", None)
    return [target] if target is not None else []


def names_in(target: ast.expr) -> Iterator[str]:
    """The names that a target of an assignment gives a value to: `a` and `self.b` of
    `(a, self.b)`, none of `c[0]`.
    """
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from names_in(element)
    elif isinstance(target, ast.Starred):
        yield from names_in(target.value)
    elif isinstance(target, ast.Attribute):
        yield ast.unparse(target)


def names_of(node: ast.AST) -> Iterator[str]:
    """The plain names in a piece of code."""
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """All parts of the expressions that belong to a statement itself, not to the
    statements inside it.
    """
    for value in ast.iter_child_nodes(statement):
        if isinstance(value, (ast.expr, ast.withitem)):
            yield from ast.walk(getattr(value, "context_expr", value))


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
    if (
        isinstance(call.func, ast.Attribute)
        and last_name(call.func.value) not in _LIBRARIES
    ):
        return [call.func.value]
    return call.args[:1]


def is_empty(value: ast.AST | None) -> bool:
    """Whether an expression makes a new container with nothing in it: `[]`,
    `deque(maxlen=9)`.
    """
    if isinstance(value, ast.Call):
        return called(value) == "defaultdict" or (
            called(value) in _CONTAINERS and not value.args
        )
    return isinstance(value, (ast.List, ast.Dict)) and not (
        getattr(value, "elts", None) or getattr(value, "keys", None)
    )


def text_of(node: ast.AST, limit: int = 60) -> str:
    """A piece of code as text, cut when it is long."""
    text = ast.unparse(node)
    return text if len(text) <= limit else text[: limit - 1] + "…"
