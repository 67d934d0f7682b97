"""Finds lines of code by what their text says they do: assign to something, call it, change it in place, compute for nobody.

In a file, around a line, or in the function where the user's code is at. Reads text only and runs nothing; whether such a line
ran, and on what, is for whoever asks to find out.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    FUNCTION,
    Body,
    around,
    assigned,
    bodies,
    body_around,
    body_at,
    called,
    covers,
    expressions_at,
    flattened,
    is_empty,
    last_name,
    line_of,
    method_calls,
    names_in,
    names_of,
    nodes_of,
    own_parts,
    pieces_in_place,
    subject,
    switches,
    targets_of,
    text_of,
    tree_of,
    without_index,
)
from gradviz.variables.scanner import Namespace

_FOLLOWED = 20  # lines that are followed upwards from one


def sets_attribute(file: str, *endings: str) -> SourceLine | None:
    """The first line of a file that assigns to something that ends so, such as "head.weight" for `self.head.weight = ...`."""
    dotted = tuple(f".{ending}" for ending in endings)
    targets = (target for statement in nodes_of(file, ast.Assign) for target in statement.targets)
    attributes = (target for target in targets if isinstance(target, ast.Attribute))
    return _first(file, (target.lineno for target in attributes if f".{ast.unparse(target)}".endswith(dotted)))


def changes_gradients(source: SourceLine | None) -> bool:
    """Whether the file of a line assigns to a `.grad`, or calls a method of one whose name ends in `_`."""
    file = source.file if source is not None else ""
    targets: Iterator[Any] = (
        target for node in nodes_of(file, ast.Assign, ast.AugAssign) for target in targets_of(node)
    )
    functions = (call.func for call in nodes_of(file, ast.Call))
    owners = (function.value for function in functions if getattr(function, "attr", "").endswith("_"))
    return any(getattr(part, "attr", "") == "grad" for node in (*targets, *owners) for part in ast.walk(node))


def imports_first(file: str, name: str) -> SourceLine | None:
    """The first line of a file that imports something, where none imports this module."""
    every = [node for node in nodes_of(file, ast.Import, ast.ImportFrom) if "__future__" not in ast.unparse(node)]
    known = any(alias.name == name for node in every for alias in node.names)
    return _first(file, sorted(node.lineno for node in every if not known))


def sets_item(file: str, key: str) -> SourceLine | None:
    """The first line of a file that assigns to an item with this key, such as "lr" for `group["lr"] = 0.1`."""
    targets = (target for kind in nodes_of(file, ast.Assign, ast.AugAssign) for target in targets_of(kind))
    items = (target for target in targets if isinstance(target, ast.Subscript))
    return _first(file, (item.lineno for item in items if getattr(item.slice, "value", None) == key))


def _first(file: str, numbers: Iterable[int]) -> SourceLine | None:
    return next((line_of(file, number) for number in numbers), None)


def only_compares(file: str) -> SourceLine | None:
    """The first line of a file that compares `requires_grad` of something and does nothing with the answer."""
    values = (statement.value for statement in nodes_of(file, ast.Expr))
    compared = (value.left for value in values if isinstance(value, ast.Compare))
    return _first(file, (left.lineno for left in compared if getattr(left, "attr", "") == "requires_grad"))


def registers_buffer(file: str, name: str) -> SourceLine | None:
    """The first line of a file that registers a buffer of this name."""
    calls = (call for call in _calls_of(file, "register_buffer") if call.args)
    return _first(file, (call.lineno for call in calls if getattr(call.args[0], "value", None) == name))


def calls_method(file: str, method: str, *, bare: bool = True) -> Iterator[tuple[str, SourceLine]]:
    """The lines of a file that call a method of this name, and what they call it on. `bare`: only those without arguments."""
    for call in _calls_of(file, method):
        if not (bare and call.args):
            yield ast.unparse(call.func.value), line_of(file, call.func.end_lineno or call.lineno)


def loads_back(source: SourceLine) -> bool:
    """Whether a line gives a name to a state_dict(), and the file loads that name into the same object, and never changes it."""
    file, text = source.file, ast.unparse
    statement = next((node for node in nodes_of(file, ast.Assign) if node.lineno == source.line), None)
    if statement is None or called(statement.value) != "state_dict":
        return False
    name, owner, state = text(statement.targets[0]), last_name(statement.value.func.value), text(statement.value)
    given = {text(node.value) for node in nodes_of(file, ast.Assign) if name in map(text, node.targets)}
    items = (part for part in nodes_of(file, ast.Subscript) if isinstance(part.ctx, ast.Store))
    changed = {*(text(item.value) for item in items), *dict(calls_method(file, "update", bare=False))}
    loads = (call for call in _calls_of(file, "load_state_dict") if last_name(call.func.value) == owner)
    return given <= {state, "None"} and name not in changed and any(name in map(text, call.args) for call in loads)


def keys_read(file: str, names: Sequence[str]) -> set[object] | None:
    """The keys by which a file reads what has one of these names; None where it hands all of it on."""
    items = [node for node in nodes_of(file, ast.Subscript) if ast.unparse(node.value) in names]
    gets = [call for call in _calls_of(file, "get") if ast.unparse(call.func.value) in names and call.args]
    inside = {id(node.value) for node in items} | {id(call.func.value) for call in gets}
    loads = (node for node in nodes_of(file, ast.Name, ast.Attribute) if isinstance(node.ctx, ast.Load))
    if any(ast.unparse(node) in names and id(node) not in inside for node in loads):
        return None
    return {getattr(key, "value", None) for key in [*(node.slice for node in items), *(call.args[0] for call in gets)]}


def second_name(file: str, *names: str) -> tuple[str, str, SourceLine] | None:
    """The last line that gives one of these names to what has a name already: the new name, the old one, and the line."""
    assigns = (node for node in nodes_of(file, ast.Assign) if isinstance(node.value, (ast.Name, ast.Attribute)))
    named = [(node, target) for node in assigns for target in node.targets[:1] if last_name(target) in names]
    if not named:
        return None
    node, target = max(named, key=lambda pair: pair[0].lineno)
    return ast.unparse(target), ast.unparse(node.value), line_of(file, node.lineno)


def follows(file: str, *names: str) -> bool:
    """Whether the code, under no condition of its own, copies what one of these names has to what the other one has."""
    loads = [
        call for call in _calls_of(file, "load_state_dict") if any(called(given) == "state_dict" for given in call.args)
    ]
    changed = (loop for loop in nodes_of(file, ast.For) if any(called(part).endswith("_") for part in ast.walk(loop)))
    copies = [*loads, *(loop.iter for loop in changed if called(loop.iter) == "zip")]
    return any(set(names) <= {last_name(part) for part in ast.walk(copy)} for copy in copies)


def calls_of(file: str, name: str) -> list[SourceLine]:
    """The lines of a file that call a function or class of this name."""
    return [line_of(file, call.lineno) for call in nodes_of(file, ast.Call) if called(call) == name]


def _calls_of(file: str, method: str) -> Iterator[Any]:
    calls = nodes_of(file, ast.Call)
    return (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == method)


def passes(file: str, keyword: str, *values: str) -> list[SourceLine]:
    """The lines of a file that pass a keyword argument with one of these values, as the code spells them."""
    lines = {
        argument.value.lineno
        for call in nodes_of(file, ast.Call)
        for argument in call.keywords
        if argument.arg == keyword and ast.unparse(argument.value) in values
    }
    return [line_of(file, number) for number in sorted(lines)]


def lines_behind(source: SourceLine | None, term: str = "") -> list[SourceLine]:
    """The lines of the same function that give a value to what a line, or a term in it, reads, and to what those read in turn."""
    if source is None:
        return []
    parts = (part for part in expressions_at(source.file, source.line) if isinstance(part, ast.Name))
    wanted = set(names_of(ast.parse(term))) or {part.id for part in parts if isinstance(part.ctx, ast.Load)}
    body, lines = body_around(source.file, source.line), list[SourceLine]()
    for statement in reversed(body.statements):
        names, value = assigned(statement.node)
        if value is not None and wanted.intersection(names) and len(lines) < _FOLLOWED:
            lines.append(body.source(statement.node))
            wanted.update(names_of(value))
    return lines


def repeated_modules(file: str) -> Iterator[tuple[SourceLine, str, str]]:
    """Where a list of modules is made of one object, several times: the line, the code of the list, and that of another one."""
    lists = (call for call in nodes_of(file, ast.Call) if called(call) in ("ModuleList", "Sequential"))
    for node in dict.fromkeys(part for call in lists for part in ast.walk(call)):
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List) and len(node.left.elts) == 1:
            one = ast.unparse(node.left.elts[0])
            new = one if "(" in one else f"copy.deepcopy({one})"
            yield line_of(file, node.lineno), ast.unparse(node), f"[{new} for _ in range({ast.unparse(node.right)})]"


def returned_by(source: SourceLine) -> SourceLine:
    """Where the function that begins at a line returns, if at one place only; else that line."""
    body = body_at(source.file, source.function, source.line)
    return body.source(body.returns[0]) if len(body.returns) == 1 else source


def ignores_argument(source: SourceLine) -> bool:
    """Whether the function or lambda at a line returns something and never reads its last argument. A call may return None."""
    for node in nodes_of(source.file, ast.Lambda, *FUNCTION):
        if node.lineno == source.line and node.args.args:
            values = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
            values = [node.body] if isinstance(node, ast.Lambda) else values
            plain = any(not isinstance(value, (ast.Call, ast.Constant, type(None))) for value in values)
            return plain and node.args.args[-1].arg not in names_of(node)
    return False


def taken_over(source: SourceLine) -> dict[str, SourceLine]:
    """What statements around a line both read and give a value, as `out, state = cell(x, state)` does with `state`."""
    body = body_around(source.file, source.line)
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        loaded = (part for part in own_parts(statement.node) if isinstance(getattr(part, "ctx", None), ast.Load))
        read = set(map(ast.unparse, loaded))
        for name in filter(read.__contains__, assigned(statement.node)[0]):
            lines.setdefault(name, body.source(statement.node))
    return lines


def step_begins(source: SourceLine | None) -> SourceLine | None:
    """The line with which the innermost loop around a line begins."""
    loops = around(source.file, source.line).loops if source is not None else ()
    return line_of(source.file, loops[-1]) if source is not None and loops else None


def switch_around(file: str, number: int) -> SourceLine | None:
    """The `with torch.no_grad():`, or the like, that a line stands in, within its function."""
    blocks = (node for node, _, _ in switches(file) if hasattr(node, "items"))
    inside = [node.lineno for node in blocks if node.lineno < number <= node.end_lineno]
    return line_of(file, max(inside)) if inside else None


def switch_above(file: str, first: int) -> SourceLine | None:
    """The `@torch.no_grad()`, or the like, above a function whose first line, decorators included, is this."""
    above = ((getattr(node, "decorator_list", []), switch.lineno) for node, switch, _ in switches(file))
    return _first(file, (number for marks, number in above if first in [mark.lineno for mark in marks[:1]]))


def inference_modes(file: str) -> list[SourceLine]:
    """The lines of a file that switch inference mode on, for a block or a function."""
    lines = {switch.lineno for _, switch, how in switches(file) if how == "inference"}
    return [line_of(file, number) for number in sorted(lines)]


def draws_by_chance(file: str) -> list[SourceLine]:
    """The lines of modules and checkpointed functions that ask Python's or NumPy's generator for a number, and not torch's."""
    calls = [(ast.unparse(call.func), call) for call in nodes_of(file, ast.Call)]
    rerun = {
        ast.unparse(arg).rpartition(".")[2]
        for name, call in calls
        if name.endswith("checkpoint")
        for arg in call.args[:1]
    }
    generators = ("random.", "np.random.", "numpy.random.")
    drawn = {call.lineno for name, call in calls if name.startswith(generators) and not name.endswith("seed")}
    inside = (number for number in sorted(drawn) if body_around(file, number).function in {"forward", *rerun})
    return [line_of(file, number) for number in inside]


# -- where the code is at ----------------------------------------------------------------------------------------------


class CodeLocation(NamedTuple):
    """Where the user's code is at. `line` is None when it has ended."""

    body: Body
    line: int | None
    variables: Sequence[Namespace]


class Change(NamedTuple):
    """A line of code that changes a variable in place."""

    source: SourceLine
    names: tuple[str, ...]
    what: str  # as the code spells it


def changes(body: Body) -> Iterator[Change]:
    """The statements that change a tensor in place, or take a step, as far as their text shows it."""
    source = body.source
    for statement in body.statements:
        for piece in pieces_in_place(statement.node):
            whole = statement.node if isinstance(piece.node, ast.Subscript) else piece.node
            yield Change(source(piece.node), (piece.name,), text_of(whole))
        for call, method in method_calls(statement.node):
            if method.attr == "step":
                yield Change(source(call), (ast.unparse(method.value),), text_of(call))


_ADDING = ("add", "append", "appendleft", "extend", "insert", "setdefault", "update")


def additions(body: Body) -> dict[str, SourceLine]:
    """Where the code puts something into a container, by the container's name: `losses.append(loss)`, `losses[step] = loss`."""
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        node = statement.node
        targets = node.targets if isinstance(node, ast.Assign) else ()
        into = [target.value for target in targets if isinstance(target, ast.Subscript)]
        if is_empty(getattr(node, "value", None)):
            into = []  # an empty list for a key is filled elsewhere
        into += [called.value for _, called in method_calls(node) if called.attr in _ADDING]
        for container in into:
            lines.setdefault(ast.unparse(without_index(container)), body.source(node))
    return lines


def addition_to(file: str, name: str) -> SourceLine | None:
    """The first line of a file that puts something into a container with this last name, in whichever function: `self.values`."""
    last = name.rpartition(".")[2]
    for body in bodies(file):
        for container, source in additions(body).items():
            if container.rpartition(".")[2] == last:
                return source
    return None


def grad_reads(body: Body) -> dict[str, SourceLine]:
    """Where the code reads `.grad` of a variable, by the variable's name."""
    lines: dict[str, SourceLine] = {}
    for statement in body.statements:
        for node in own_parts(statement.node):
            if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load):
                lines.setdefault(ast.unparse(node.value), body.source(node))
    return lines


# -- what computes something and gives it to nobody --------------------------------------------------------------------


_MADE = (
    "abs clamp clip clamp_min clamp_max relu sigmoid tanh softmax log_softmax gelu silu elu leaky_relu softplus normalize dropout "
    "exp log sqrt square pow add sub mul div detach clone contiguous to cuda float double half bfloat16 long int bool type view "
    "reshape flatten permute transpose squeeze unsqueeze expand repeat masked_fill scatter scatter_add index_add index_fill "
    "index_copy nan_to_num pad roll flip round neg lerp masked_scatter type_as hardtanh mish selu"
)
"""Functions of torch that only make a tensor. Left out are those that somebody may call to wait for the device, or to measure."""
_OPERATORS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("add", "__radd__"),
    ast.Sub: ("sub", "__rsub__"),
    ast.Mult: ("mul", "__rmul__"),
    ast.Div: ("div", "__rdiv__"),
    ast.Pow: ("pow", "__rpow__"),
}
_ACTS = frozenset(("step", "zero_grad", "backward", "eval", "train", "half", "cuda", "detach_", "requires_grad_"))
"""Methods of which the name alone, without a call, can only be meant as a call."""


class Alone(NamedTuple):
    """One such statement: its first line, the code, the name of what is lost, and the line as it should be ("" when unclear).

    `functions` are the names of torch for the operation; () for a method that is named and not called.
    """

    line: int
    text: str
    of: str
    mended: str
    functions: tuple[str, ...] = ()


def alone(file: str) -> dict[int, Alone]:
    """By every line that it goes over. The last statement of a file, which a notebook shows, and those inside `try` are left out.

    >>> import linecache
    >>> text = ["x.clamp(0, 1)\\n", "x.add_(1)\\n", "loss / 4\\n", "optimizer.step\\n", "x.exp()\\n"]
    >>> linecache.cache["a.py"] = 0, None, text, "a.py"
    >>> [line.mended for line in alone("a.py").values()]
    ['x = x.clamp(0, 1)', 'loss = loss / 4', 'optimizer.step()']
    """
    by_line: dict[int, Alone] = {}
    found = [(_alone(statement), statement) for statement in _statements(tree_of(file).body)]
    for told, statement in [*found, *_rebound(file), *_not_returned(file)]:
        if told is not None and told.mended.startswith(f"{told.of} = "):
            loops = [
                loop for loop in nodes_of(file, ast.For) if covers(loop, told.line) and told.of in names_in(loop.target)
            ]
            lost = loops and not _read_behind(file, told.of, statement)  # the next round gives it another value
            if lost or "." in told.of:
                new = f"{told.of}.copy_({told.text})" if switch_around(file, told.line) else told.mended
                told = told._replace(mended="" if lost and new == told.mended else new)
        if told is not None:
            by_line |= dict.fromkeys(range(told.line, (statement.end_lineno or told.line) + 1), told)
    return by_line


def _rebound(file: str) -> Iterator[tuple[Alone, ast.stmt]]:
    """Assignments to the variable of a loop, of something computed, that nothing reads: `for p in weights: p = p - update`."""
    for loop in nodes_of(file, ast.For):
        for statement, _ in flattened(loop.body):
            (name, *others), value = assigned(statement)[0] or ("",), getattr(statement, "value", None)
            if type(statement) is not ast.Assign or not isinstance(value, ast.BinOp) or others:
                continue
            inner = around(file, statement.lineno).loops[-1:] == (loop.lineno,)
            if inner and name in names_in(loop.target) and not _read_behind(file, name, statement):
                new = f"with torch.no_grad(): {name}.copy_({ast.unparse(value)})"
                yield Alone(statement.lineno, ast.unparse(statement), name, new, _functions(value)), statement


def _functions(value: ast.expr) -> tuple[str, ...]:
    """The names of torch for the operations of an expression."""
    parts = list(ast.walk(value))
    operators = (name for part in parts if isinstance(part, ast.BinOp) for name in _OPERATORS.get(type(part.op), ()))
    return (*operators, *filter(None, map(called, parts)))


def _not_returned(file: str) -> Iterator[tuple[Alone, ast.stmt]]:
    """The last lines of functions that return nothing and compute something of a parameter: `def hook(grad): grad * mask`."""
    for function in nodes_of(file, *FUNCTION):
        *_, (last, _) = flattened(function.body)
        value, given = getattr(last, "value", None), [parameter.arg for parameter in function.args.args]
        goes_on = any(
            isinstance(part, (ast.Return, ast.Yield, ast.Global, ast.Nonlocal)) for part in ast.walk(function)
        )
        if not isinstance(last, (ast.Assign, ast.Expr)) or value is None or goes_on or around(file, last.lineno).loops:
            continue
        name = assigned(last)[0] if isinstance(last, ast.Assign) else (getattr(_alone(last), "of", ""),)
        if len(name) == 1 and name[0] in given and name[0] in names_of(value):
            yield (
                Alone(last.lineno, ast.unparse(last), name[0], f"return {ast.unparse(value)}", _functions(value)),
                last,
            )


def _read_behind(file: str, name: str, statement: ast.stmt) -> bool:
    """Whether a name is read below a statement, but for loops that give it a value of their own."""
    loops = [
        loop for loop in nodes_of(file, ast.For) if name in names_in(loop.target) and not covers(loop, statement.lineno)
    ]
    # `p.grad = None` sets something of it, and reads nothing
    set_of = {id(part.value) for part in nodes_of(file, ast.Attribute) if isinstance(part.ctx, ast.Store)}
    read = (part for part in nodes_of(file, ast.Name) if part.id == name and isinstance(part.ctx, ast.Load))
    below = (part.lineno for part in read if part.lineno > (statement.end_lineno or 0) and id(part) not in set_of)
    return any(not any(covers(loop, number) for loop in loops) for number in below)


def reads_again(file: str, name: str, statement: ast.stmt) -> bool:
    """Whether the function around reads a name below a statement, or in the next round of its loop."""
    inside = [node for node in nodes_of(file, *FUNCTION) if covers(node, statement.lineno)]
    parts = [
        part
        for part in ast.walk(inside[-1] if inside else tree_of(file))
        if isinstance(part, ast.Name) and part.id == name
    ]
    first = min((part.lineno for part in parts if isinstance(part.ctx, ast.Store)), default=0)
    own = range(statement.lineno, (getattr(statement, "value", statement).end_lineno or 0) + 1)
    own = own if isinstance(statement, ast.Assign) else range(statement.lineno, statement.lineno + 1)
    loads = [part.lineno for part in parts if isinstance(part.ctx, ast.Load) and part.lineno not in own]
    return any(number > own[-1] or number < first for number in loads)


def _statements(statements: Sequence[ast.stmt]) -> Iterator[ast.Expr]:
    waiting: deque[ast.AST] = deque(statements)
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Expr):
            if node is not statements[-1]:
                yield node
        elif not isinstance(node, (ast.Try, ast.expr)):
            waiting += ast.iter_child_nodes(node)


def _alone(statement: ast.Expr) -> Alone | None:
    value, text, about, functions = statement.value, ast.unparse(statement.value), None, tuple[str, ...]()
    if isinstance(value, ast.Attribute) and value.attr in _ACTS:
        return Alone(statement.lineno, text, ast.unparse(value.value), f"{text}()")
    if isinstance(value, ast.BinOp):
        about = value.right if isinstance(value.left, ast.Constant) else value.left
        functions = _OPERATORS.get(type(value.op), ())
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MADE.split():
        changes = any(keyword.arg in ("out", "inplace", None) for keyword in value.keywords)
        about, functions = next(iter(subject(value)), None), () if changes else (value.func.attr,)
        while isinstance(about, ast.Call) and called(about) in _MADE.split():  # x.detach().clamp(0)
            about = next(iter(subject(about)), None)
    if about is None or not functions:
        return None
    takes, name = isinstance(about, (ast.Name, ast.Attribute, ast.Subscript)), ast.unparse(about)
    return Alone(statement.lineno, text, name, f"{name} = {text}" if takes else "", functions)
