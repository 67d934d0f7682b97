"""The user's files beside what was recorded of them: which values were computed in this
step, and which functions a call ran.
"""

from __future__ import annotations

import ast
import sys
from ast import AST, Call, Module
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.cuts.dataflow import CodeFile, FunctionCode
from gradviz.graph import Graph, SourceLine, column
from gradviz.packages import CallSite, package_of, with_text
from gradviz.recording.session import running
from gradviz.source.bindings import dotted
from gradviz.source.spots import OWN_CODE, span_of
from gradviz.source.statements import tree_of
from gradviz.source.syntax import value_spans
from gradviz.variables.objects import class_attribute
from gradviz.variables.scanner import Namespace


@lru_cache(maxsize=200)
def _read(file: str, tree: Module) -> CodeFile:
    return CodeFile(file, tree)


class RanCode:
    """Of one moment. `since` is the number of the first node of this step.

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
        for site in {*log.since(since), *self.site_of.values()}:
            self._add_site(site, computes=True)
        for module, seen in session.calls.called():
            if seen.began >= since and seen.site is not None:
                self._add_site(seen.site, computes=False)
                node = self.value_at(seen.site)
                self.modules.append((module, seen.site, node))
                forward = self.forward_of(module)
                if node is not None and forward is not None:
                    self.callees[node][forward] = 1

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
        for each in site.chain() if site is not None else ():
            node = self.value_at(each)
            # what goes over a comprehension does not compute what that makes
            own = inner is None or inner.code.co_name not in OWN_CODE
            if node is not None and own and computes:
                self.computed.add(node)
            function = self.function(inner.code) if inner is not None else None
            if node is not None and function is not None:
                self.callees[node][function] = _skips(function)
            inner = each

    # -- files and functions -------------------------------------------------------

    def file(self, file: str) -> CodeFile | None:
        """A file of the user's; None of what is installed."""
        if package_of(file):
            return None
        if file not in self.files:
            self.files[file] = _read(file, tree_of(file))
        return self.files[file]

    def value_at(self, site: CallSite) -> Any:
        """The value that an instruction computes; None where nobody can say."""
        code = self.file(site.code.co_filename)
        if code is None:
            return None
        span: object = span_of(site.code, site.instruction)
        if span is None and site.place is not None:
            # before Python 3.11: the only thing of its line that could be meant
            span = site.place.source.line
        return _by_span(code).get(span)

    def function(self, code: CodeType | None) -> FunctionCode | None:
        """What a code object was compiled from."""
        written = self.file(code.co_filename) if code is not None else None
        if code is None or written is None:
            return None
        for function in written.named(code.co_name):
            if function.first_line == code.co_firstlineno:
                return function
        return None

    def forward_of(self, module: torch.nn.Module) -> FunctionCode | None:
        """The forward() of a class of the user's."""
        forward = class_attribute(type(module), "forward")
        return self.function(getattr(forward, "__code__", None))

    def runs(self, function: FunctionCode) -> bool:
        """Whether a function has not returned yet, or is no function."""
        frame = self._frame
        while frame is not None and function.outer is not None:
            if self.function(frame.f_code) is function:
                return True
            frame = frame.f_back
        return function.outer is None

    def users_frame(self) -> FrameType | None:
        """The nearest frame that runs a file of the user's."""
        frame = self._frame
        while frame is not None and self.file(frame.f_code.co_filename) is None:
            frame = frame.f_back
        return frame

    # -- which function a call runs ------------------------------------------------

    def _read_calls(self) -> None:
        """Find the functions of calls that made no node, by their names."""
        read: set[str] = set()
        while read != set(self.files):
            for code in list(self.files.values()):
                read.add(code.file)
                for call in code.calls:
                    if call not in self.callees:
                        for function in self._by_name(code, call):
                            self.callees[call][function] = _skips(function)
        for value, functions in self.callees.items():
            if isinstance(value, Call):
                for function in functions:
                    self.calls[function].append(value)

    def _by_name(self, code: CodeFile, call: Call) -> Iterator[FunctionCode]:
        called: Any = call.func
        if isinstance(called, ast.Name):
            found = [each for each in code.named(called.id) if each.owner is None]
            yield from found or self._imported(code, called.id)
        elif isinstance(called, ast.Attribute) and code.is_module(called.value):
            yield from self._imported(code, dotted(called))
        elif isinstance(called, ast.Attribute):
            owner = code.function_of(call).owner
            methods = [each for each in code.named(called.attr) if each.owner]
            if dotted(called.value) == "self" and owner is not None:
                yield from (each for each in methods if each.owner is owner)
            # of any other object: where there is one such method, and none of torch's
            elif len(methods) == 1 and not hasattr(torch.Tensor, called.attr):
                yield from methods

    def _imported(self, code: CodeFile, name: str) -> Iterator[FunctionCode]:
        """The function of another file of the user's."""
        first, _, rest = name.partition(".")
        module, original = code.imports.get(first, ("", ""))
        file = getattr(sys.modules.get(module), "__file__", None)
        other = self.file(file) if type(file) is str else None
        functions = other.named(rest or original) if other is not None else []
        yield from (each for each in functions if each.owner is None)

    def arguments(
        self, function: FunctionCode, parameter: ast.arg
    ) -> Iterator[tuple[Call, AST]]:
        """The calls that give a function a parameter, with what they give."""
        for call in self.calls.get(function, ()):
            skips = self.callees[call][function]
            named = [keyword.value for keyword in call.keywords]
            for argument in (*call.args, *named):
                if function.parameter(call, argument, skips) is parameter:
                    yield call, argument

    # -- a value -------------------------------------------------------------------

    def code(self, node: AST) -> CodeFile:
        """The file that a value is in."""
        return next(code for code in self.files.values() if node in code)

    def line(self, node: Any) -> SourceLine:
        """The line of a value."""
        code = self.code(node)
        name = code.function_of(node).name
        return with_text(SourceLine(code.file, node.lineno, name))

    def ran(self, node: AST) -> bool:
        """Whether the function around a value made nodes in this step."""
        code = self.code(node)
        function = code.function_of(node)
        if function.outer is None:
            return True
        return any(
            code.function_of(each) is function for each in self.computed if each in code
        )


def _skips(function: FunctionCode) -> int:
    decorators = getattr(function.node, "decorator_list", ())
    is_static = any(dotted(part) == "staticmethod" for part in decorators)
    return int(function.owner is not None and not is_static)


@lru_cache(maxsize=200)
def _by_span(code: CodeFile) -> Mapping[object, AST]:
    """Values by their span, and by their line where it has one only."""
    found: dict[object, AST] = {}
    by_line: dict[int, list[AST]] = defaultdict(list)
    for value in code.values:
        for span in value_spans(value):
            found.setdefault(span, value)
        if isinstance(value, (Call, ast.BinOp, ast.AugAssign, ast.Subscript)):
            by_line[value.lineno].append(value)
    for line, values in by_line.items():
        if len(values) == 1:
            found[line] = values[0]
    return found
