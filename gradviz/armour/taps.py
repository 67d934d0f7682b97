"""Sees calls of torch's own functions from inside the function, whose identity, frame,
line numbers and signature stay as they are.

A wrapper would be one more frame, and so move what `warnings.warn(..., stacklevel=3)`
and a user's `inspect.stack()` name, and it would miss what was imported before. So the
function gets code that is compiled from its own source, with a call put into it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from types import CodeType, FunctionType
from typing import Any

import torch

from gradviz.armour.hooks import keep_from_compiler
from gradviz.armour.signals import uninterrupted

Ended = Callable[[bool, Any], None]
"""Called when the function has ended, with whether it returned, and what; else it
raised.
"""

Began = Callable[..., "Ended | None"]
"""Called with the frame of the function and what that was given."""

_TEMPLATE = """
if _gradviz_compiling_{number}():
    return _gradviz_function_{number}({given})
_gradviz_ended, _gradviz_result = _gradviz_began_{number}({given}), None
try:
    pass
except BaseException:
    while _gradviz_ended:
        _gradviz_ended.pop()(False, None)
    raise
finally:
    while _gradviz_ended:
        _gradviz_ended.pop()(True, _gradviz_result)
"""
_numbers = count()


class _Tap:
    """One function, and who is told of its calls."""

    def __init__(self, function: FunctionType) -> None:
        self._function, self._code = function, function.__code__
        self.listeners: tuple[Began, ...] = ()
        number = next(_numbers)
        code = self._code
        untapped = FunctionType(
            code,
            function.__globals__,
            code.co_name,
            function.__defaults__,
            function.__closure__,
        )
        untapped.__kwdefaults__ = function.__kwdefaults__
        self._names = {
            f"_gradviz_compiling_{number}": torch.compiler.is_compiling,
            f"_gradviz_function_{number}": untapped,
            f"_gradviz_began_{number}": self._began,
        }
        self._with_call = _code_with_call(code, number)

    def listen(self, listeners: tuple[Began, ...]) -> None:
        """From now on these are told. The names that the code asks for stay: another
        thread may just have begun to run it.
        """
        self.listeners = listeners
        if listeners:
            self._function.__globals__.update(self._names)
        self._function.__code__ = self._with_call if listeners else self._code

    @uninterrupted
    def _began(self, *arguments: Any, **options: Any) -> list[Ended]:
        """Who is told when it ends, the first one last. It is taken from the list then,
        or the frame would keep itself alive.
        """
        frame, ended = sys._getframe(1), list[Ended]()
        try:
            # the last one to come is the outermost
            for listener in reversed(self.listeners):
                then = listener(frame, *arguments, **options)
                if then is not None:
                    ended.append(then)
        except BaseException:
            while ended:
                ended.pop()(False, None)
            raise

        return ended


keep_from_compiler(_Tap._began)
# kept, for a recording of each step would compile them each time
_taps: dict[FunctionType, _Tap] = {}


@contextmanager
def tapped(function: Any, listener: Began) -> Iterator[None]:
    """Inside, each call of a function of torch's is told, but for those that torch's
    compiler traces.
    """
    tap = _taps.get(function) or _taps.setdefault(function, _Tap(function))
    tap.listen((*tap.listeners, listener))
    try:
        yield
    finally:
        tap.listen(tuple(other for other in tap.listeners if other is not listener))


@contextmanager
def all_tapped(listeners: Iterable[tuple[Any, Began]]) -> Iterator[None]:
    """The same for several functions, each with its listener."""
    with ExitStack() as until:
        for function, listener in listeners:
            until.enter_context(tapped(function, listener))
        yield


# -- the same function with a call in it -----------------------------------------------


def _code_with_call(code: CodeType, number: int) -> CodeType:
    """The code of a function with a call at its beginning, which is given the same. As
    it is where there is no source of it.
    """
    try:
        definition = _definition(code)
    except (OSError, SyntaxError, IndexError):
        return code

    _insert(definition, number)
    holder: Any = ast.parse(f"def holder({', '.join(code.co_freevars)}): pass")
    name = definition.name
    # a function that names itself means the one of its module
    declarations = [] if name in code.co_freevars else [ast.Global([name])]
    holder.body[0].body = [*declarations, definition]
    ast.fix_missing_locations(holder)
    # compiled only: nothing in it runs
    module = compile(holder, code.co_filename, "exec", dont_inherit=True)
    new_code = _inner_code(_inner_code(module, "holder"), name)
    if (
        set(code.co_names) - {*new_code.co_names}
        or new_code.co_freevars != code.co_freevars
    ):
        # names that mean something else here, as those with two underscores in a class
        return code
    if hasattr(code, "co_qualname"):
        return new_code.replace(co_qualname=code.co_qualname)

    return new_code


def _inner_code(code: CodeType, name: str) -> CodeType:
    return next(
        constant
        for constant in code.co_consts
        if isinstance(constant, CodeType) and constant.co_name == name
    )


def _definition(code: CodeType) -> ast.FunctionDef:
    """The function in its source, at the lines and columns that it has there."""
    lines, first = inspect.getsourcelines(code)
    indented = lines[0][:1].isspace()
    tree: Any = ast.parse("".join(["if 1:\n", *lines] if indented else lines))
    definition: ast.FunctionDef = tree.body[0].body[0] if indented else tree.body[0]
    ast.increment_lineno(definition, first - 1 - indented)
    return definition


def _insert(definition: ast.FunctionDef, number: int) -> None:
    """Put the calls around the body."""
    signature, line = definition.args, definition.body[0].lineno
    passed = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
    passed += [f"*{signature.vararg.arg}"] if signature.vararg is not None else []
    passed += [f"{argument.arg}={argument.arg}" for argument in signature.kwonlyargs]
    passed += [f"**{signature.kwarg.arg}"] if signature.kwarg is not None else []
    inserted: Any = ast.parse(
        _TEMPLATE.format(given=", ".join(passed), number=number)
    ).body

    for part in (
        part
        for statement in inserted
        for part in ast.walk(statement)
        if hasattr(part, "lineno")
    ):
        part.lineno = part.end_lineno = line  # type: ignore[attr-defined]

    returning = _Returning()
    inserted[-1].body, definition.body = (
        [returning.visit(statement) for statement in definition.body],
        inserted,
    )


class _Returning(ast.NodeTransformer):
    """Keeps what the function returns, where it does so itself and no function inside
    it.
    """

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if node.value is not None:
            name = ast.Name("_gradviz_result", ast.Store())
            node.value = ast.copy_location(
                ast.NamedExpr(ast.copy_location(name, node.value), node.value),
                node.value,
            )
        return node

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
