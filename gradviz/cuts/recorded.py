"""The user's files beside what was recorded of them: which values were computed in this
step, which functions a call ran, and where gradients were off.
"""

from __future__ import annotations

import ast
import sys
from ast import AST, Call
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

import torch

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.cuts.operations import Inflow
from gradviz.graph import Graph, SourceLine, column
from gradviz.packages import CallSite, package_of, with_text
from gradviz.recording.session import running
from gradviz.source.bindings import dotted
from gradviz.source.cut import Cut
from gradviz.source.spots import OWN_CODE, span_of
from gradviz.source.statements import (
    blocks_around,
    called,
    loops_around,
    recording_off,
    text_of,
)
from gradviz.source.syntax import value_spans
from gradviz.variables.objects import class_attribute, own_attributes
from gradviz.variables.scanner import Namespace, local_variables
from gradviz.wording import clip

_read = lru_cache(maxsize=200)(CodeFile)


class RecordedCode:
    """Of one moment: the graph of the outputs, what variables hold, and the frame that
    is about to call backward. `since` is the number of the first node of this step.

    `computed` are values for which nodes were made. `callees` are the functions of each
    call, with how many of their parameters stand in front of its arguments, and
    `calls` the calls of each function. `site_of` has the nodes of the graph, and
    `modules` the modules that ran, with the value that called each.
    """

    def __init__(
        self,
        graph: Graph,
        variables: Sequence[Namespace],
        frame: FrameType | None,
        since: int,
    ) -> None:
        self._frame = frame
        self.files: dict[str, CodeFile] = {}
        self.computed: set[AST] = set()
        self.callees: dict[AST, dict[FunctionCode, int]] = defaultdict(dict)
        self.calls: dict[FunctionCode, list[Call]] = defaultdict(list)
        self.site_of: dict[int, CallSite] = {}
        self.modules: list[tuple[torch.nn.Module, CallSite, Any]] = []
        self._hooked: dict[FunctionCode, list[Call]] = defaultdict(list)

        self._read_recording(graph, since)
        self._read_frames(variables)
        self._read_calls()

    def _read_recording(self, graph: Graph, since: int) -> None:
        session = running()
        if session is None:
            return

        log = session.event_log().lines
        for node, number in enumerate(column(graph.nodes, "sequence")):
            site = log.at(number) if number is not None else None
            if site is not None:
                self.site_of[node] = site
        for site in dict.fromkeys((*log.since(since), *self.site_of.values())):
            self._add_site(site, computes=True)

        for module, seen in session.calls.called():
            if seen.began < since or seen.site is None:
                continue
            self._add_site(seen.site, computes=False)
            value = self.value_at(seen.site)
            self.modules.append((module, seen.site, value))
            forward = self.forward_of(module)
            if value is not None and forward is not None:
                self.callees[value][forward] = 1
            for hook in map(self.function_of, _hooks_of(module)):
                if isinstance(value, Call) and hook is not None:
                    self._hooked[hook].append(value)

    def _read_frames(self, variables: Sequence[Namespace]) -> None:
        """The file of the script, and that of the code that calls backward."""
        if self._frame is not None:
            self.file(self._frame.f_code.co_filename)
        for space in variables:
            file = space.get("__file__")
            if type(file) is str and space.get("__name__") == "__main__":
                self.file(file)

    def _add_site(self, site: CallSite | None, computes: bool) -> None:
        inner: CallSite | None = None
        for outer in site.chain() if site is not None else ():
            value = self.value_at(outer)
            # what goes over a comprehension does not compute what that makes
            is_own = inner is None or inner.code.co_name not in OWN_CODE
            if value is not None and is_own and computes:
                self.computed.add(value)

            function = self.function_of(inner.code) if inner is not None else None
            if value is not None and function is not None:
                self.callees[value][function] = _skips(function)
            inner = outer

    # -- files and functions -------------------------------------------------------

    def file(self, name: str) -> CodeFile | None:
        """A file of the user's; None of what is installed."""
        if package_of(name):
            return None
        if name not in self.files:
            self.files[name] = _read(name, text_of(name))
        return self.files[name]

    def function_of(self, code: CodeType | None) -> FunctionCode | None:
        """What a code object was compiled from."""
        file = self.file(code.co_filename) if code is not None else None
        if code is None or file is None:
            return None
        for function in file.named(code.co_name):
            if function.first_line == code.co_firstlineno:
                return function
        return None

    def forward_of(self, module: torch.nn.Module) -> FunctionCode | None:
        """The forward() of a class of the user's."""
        forward = class_attribute(type(module), "forward")
        is_function = type(forward) is FunctionType
        return self.function_of(forward.__code__ if is_function else None)

    def is_running(self, function: FunctionCode) -> bool:
        """Whether a function has not returned yet, or is no function."""
        return function.outer is None or self._frame_of(function) is not None

    def _frame_of(self, function: FunctionCode) -> FrameType | None:
        frame = self._frame
        while frame is not None:
            code = frame.f_code
            file = self.file(code.co_filename)
            is_whole = code.co_name == "<module>" and function.outer is None
            if file is not None and is_whole and function in file.functions:
                return frame
            if self.function_of(code) is function:
                return frame
            frame = frame.f_back
        return None

    def was_passed(self, function: FunctionCode, statement: ast.stmt) -> bool:
        """Whether a step has come to a statement of a function, if its conditions hold."""
        frame = self._frame_of(function)
        if frame is not None:
            return statement.lineno < frame.f_lineno
        return function.outer is not None and self.has_run(statement)

    def users_frame(self) -> FrameType | None:
        """The nearest frame that runs a file of the user's."""
        frame = self._frame
        while frame is not None and self.file(frame.f_code.co_filename) is None:
            frame = frame.f_back
        return frame

    def inflows_of(self, name: str) -> list[Inflow]:
        """What a variable of the running code may have."""
        inflows: list[Inflow] = []
        for file in self.files.values():
            for function in filter(self.is_running, file.functions):
                inflows += function.inflows_of(name)
        return inflows

    # -- which function a call runs ------------------------------------------------

    def _read_calls(self) -> None:
        """Find the functions of calls that made no node, by their names."""
        done: set[str] = set()
        while done != set(self.files):
            for file in list(self.files.values()):
                done.add(file.name)
                for call in file.calls:
                    if call not in self.callees:
                        for function in self._by_name(file, call):
                            self.callees[call][function] = _skips(function)

        for value, functions in self.callees.items():
            if isinstance(value, Call):
                for function in functions:
                    self.calls[function].append(value)

    def _by_name(self, file: CodeFile, call: Call) -> Iterator[FunctionCode]:
        callee: Any = call.func
        if isinstance(callee, ast.Name):
            named = file.named(callee.id)
            functions = [function for function in named if function.owner is None]
            yield from functions or self._imported(file, callee.id)
        elif isinstance(callee, ast.Attribute) and file.is_module(callee.value):
            yield from self._imported(file, dotted(callee))
        elif isinstance(callee, ast.Attribute):
            owner = file.function_of(call).owner
            named = file.named(callee.attr)
            methods = [function for function in named if function.owner]
            if dotted(callee.value) == "self" and owner is not None:
                yield from (method for method in methods if method.owner is owner)
            # of any other object: where there is one such method, and none of torch's
            elif len(methods) == 1 and not hasattr(torch.Tensor, callee.attr):
                yield from methods

    def _imported(self, file: CodeFile, name: str) -> Iterator[FunctionCode]:
        """The function of another file of the user's."""
        first, _, rest = name.partition(".")
        module, original = file.imports.get(first, ("", ""))
        path = getattr(sys.modules.get(module), "__file__", None)
        other = self.file(path) if type(path) is str else None
        functions = other.named(rest or original) if other is not None else []
        yield from (function for function in functions if function.owner is None)

    def arguments(self, parameter: ast.arg) -> Iterator[tuple[Call, AST]]:
        """The calls that give a function a parameter, with what they give."""
        function = self.file_of(parameter).function_with(parameter)
        for call in self.calls.get(function, ()):
            skips = self.callees[call][function]
            named = [keyword.value for keyword in call.keywords]
            for argument in (*call.args, *named):
                if function.parameter(call, argument, skips) is parameter:
                    yield call, argument
        # torch gives a forward hook what the module returned, last
        if function.parameters[-1] is parameter:
            yield from ((call, call) for call in self._hooked.get(function, ()))

    # -- a value -------------------------------------------------------------------

    def value_at(self, site: CallSite) -> Any:
        """The value that an instruction computes; None where nobody can say."""
        file = self.file(site.code.co_filename)
        if file is None:
            return None
        span: object = span_of(site.code, site.instruction)
        if span is None and site.place is not None:
            # before Python 3.11: the only thing of its line that could be meant
            span = site.place.source.line
        return _by_span(file).get(span)

    def calls_around(self, site: CallSite) -> tuple[Call, ...]:
        """The calls inside which an instruction ran, the outermost first; as far as
        code of the user's made them.
        """
        calls: list[Call] = []
        chain = list(site.chain())
        for inner, outer in pairwise(chain):
            value = self.value_at(outer)
            if isinstance(value, Call) and inner.code.co_name not in OWN_CODE:
                calls.append(value)
            elif inner.code.co_name not in OWN_CODE:
                break
        return tuple(reversed(calls))

    def file_of(self, value: AST) -> CodeFile:
        """The file that a value is in."""
        return next(file for file in self.files.values() if value in file)

    def function_around(self, value: AST) -> FunctionCode:
        """The function that computes a value, or has it as a parameter."""
        file = self.file_of(value)
        if isinstance(value, ast.arg):
            return file.function_with(value)
        return file.function_of(value)

    def line_of(self, value: Any) -> SourceLine:
        """The line of a value."""
        file = self.file_of(value)
        function = file.function_of(value).name
        return with_text(SourceLine(file.name, value.lineno, function))

    def has_run(self, value: AST) -> bool:
        """Whether the function around a value made nodes in this step."""
        file = self.file_of(value)
        function = file.function_of(value)
        if function.outer is None:
            return True
        computed = (other for other in self.computed if other in file)
        return any(file.function_of(other) is function for other in computed)

    # -- where gradients are off ---------------------------------------------------

    def switched_off(self) -> Cut | None:
        """The line that has switched gradients off for good, where they are off; or
        that hands a value out of a block which does, to a loop that runs inside it then.
        """
        if torch.is_grad_enabled():
            return None
        for file in list(self.files.values()):
            for call in file.calls:
                is_alone = isinstance(file.parents.get(call), ast.Expr)
                if is_alone and "set_grad_enabled(False" in ast.unparse(call):
                    return Cut("no_grad", self.line_of(call), "set_grad_enabled")
            for value in self._yields(file):
                no_grad = file.no_grad(value)
                # torch switches back for a generator with a decorator
                if no_grad is not None and isinstance(
                    file.parents.get(no_grad.switch), ast.withitem
                ):
                    line, off = self.line_of(value), self.line_of(no_grad.switch)
                    text = clip(ast.unparse(value), 40)
                    return Cut(no_grad.kind, line, "yield", of=text, part=text, off=off)
        return None

    def _yields(self, file: CodeFile) -> Iterator[AST]:
        """What generators of a file hand out to a loop that runs now: as its code calls
        them, or as a variable beside it holds one. Nothing where something else around
        the running line switches gradients off.
        """
        frame, running = self._frame, set[str]()
        while frame is not None:
            name, line = frame.f_code.co_filename, frame.f_lineno
            if self.file(name) is not None:
                blocks = blocks_around(name, line, ast.With, ast.FunctionDef)
                if any(recording_off(head) for head in map(_head, blocks)):
                    return
                for loop in loops_around(name, line):
                    if isinstance(loop, ast.For):
                        running |= {called(part) for part in ast.walk(loop.iter)}
                for value in local_variables(frame).values():
                    if type(value) is GeneratorType and value.gi_frame is not None:
                        running.add(value.gi_code.co_name)
            frame = frame.f_back
        for value in file.parents:
            owner: Any = file.function_of(value) if type(value) is ast.Yield else None
            if owner is not None and getattr(owner.node, "name", "") in running:
                yield value

    def off_around(self, module: torch.nn.Module) -> Cut | None:
        """The block or decorator that had switched gradients off when a module was
        called last.
        """
        sites: list[CallSite] = []
        for one, site, _ in self.modules:
            sites += site.chain() if one is module else ()

        for value in filter(None, map(self.value_at, sites)):
            no_grad = self.file_of(value).no_grad(value)
            if no_grad is not None:
                line, switch = self.line_of(value), self.line_of(no_grad.switch)
                text = clip(ast.unparse(value), 40)
                return Cut(no_grad.kind, line, of=text, part=text, off=switch)
        return None


def _hooks_of(module: torch.nn.Module) -> Iterator[CodeType]:
    """The code of the forward hooks of a module."""
    hooks = own_attributes(module).get("_forward_hooks", {})
    for hook in list(hooks.values()):
        function = hook.__func__ if type(hook) is MethodType else hook
        if type(function) is FunctionType:
            yield function.__code__


def _head(block: Any) -> str:
    """The code of what a block begins with: its context, or decorators."""
    items = [item.context_expr for item in getattr(block, "items", ())]
    heads = [*items, *getattr(block, "decorator_list", ())]
    return " ".join(map(ast.unparse, heads))


def _skips(function: FunctionCode) -> int:
    decorators = getattr(function.node, "decorator_list", ())
    is_static = any(dotted(part) == "staticmethod" for part in decorators)
    return int(function.owner is not None and not is_static)


@lru_cache(maxsize=200)
def _by_span(file: CodeFile) -> Mapping[object, AST]:
    """Values by their span, and by their line where it has one only."""
    by_span: dict[object, AST] = {}
    by_line: dict[int, list[AST]] = defaultdict(list)
    for value in file.values:
        for span in value_spans(value):
            by_span.setdefault(span, value)
        if isinstance(value, (Call, ast.BinOp, ast.AugAssign, ast.Subscript)):
            by_line[value.lineno].append(value)

    for line, values in by_line.items():
        if len(values) == 1:
            by_span[line] = values[0]
    return by_span
