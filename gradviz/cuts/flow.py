"""What goes into a value of the user's code, from function to function; whether it had
a graph; and at which values a graph was lost on the way.
"""

from __future__ import annotations

import ast
from ast import AST, Call
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import NamedTuple

from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.operations import Inflow
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph.walks import spread
from gradviz.source.bindings import dotted
from gradviz.source.cut import DetachKind
from gradviz.source.statements import makes_leaf

DEEPEST = 12
"""Calls inside of each other that are followed."""
Calls = tuple[Call, ...]
Visit = tuple[AST, Calls]
"""A value, and the calls inside which it is looked at, the outermost first."""
_CUT_OFF = ast.Pass()
"""In place of what loses its graph on the way to where an item of it is read."""
NO_GRAD_KINDS = ("no_grad", "inference")
_COMPUTING = (Call, ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Subscript)


class CutPoint(NamedTuple):
    """A value that has no graph, because of what goes into it."""

    value: AST
    inflow: Inflow

    @property
    def key(self) -> tuple[AST, DetachKind | None]:
        return self.value, self.inflow.kind


class Flow:
    """Of one moment of a program."""

    def __init__(self, recorded: RecordedCode, reads: LeafReads) -> None:
        self._recorded, self._reads = recorded, reads
        self._inflows: dict[AST, Sequence[Inflow]] = {}
        self._has_graph: dict[AST, bool] = {}
        self._given: dict[tuple[int, str], list[Inflow]] = {}

    # -- what goes into a value ----------------------------------------------------

    def inflows(self, value: AST) -> Sequence[Inflow]:
        """All that goes into a value, with how it is cut off."""
        if value not in self._inflows:
            self._inflows[value] = self._find_inflows(value)
        return self._inflows[value]

    def _find_inflows(self, value: AST) -> Sequence[Inflow]:
        if isinstance(value, ast.arg):
            arguments = self._recorded.arguments(value)
            return [Inflow(value, argument_of=call) for call, value in arguments]

        file = self._recorded.file_of(value)
        written = [*self._results(value)] or self._item(value)
        written = written or self._of_object(value) or file.inflows(value)
        inflows = [part for inflow in written for part in self._elements(inflow)]

        no_grad = file.no_grad(value) if isinstance(value, _COMPUTING) else None
        if no_grad is not None:
            kind = no_grad.kind
            inflows = [inflow._replace(kind=inflow.kind or kind) for inflow in inflows]
        return inflows

    def _results(self, value: AST) -> Iterator[Inflow]:
        """What the functions of a call return."""
        # an operator or a property may run a function of the user's, too
        if isinstance(value, Call):
            for function in self._recorded.callees.get(value, ()):
                for result in function.returned:
                    yield Inflow(result, result_of=value)

    def _elements(self, inflow: Inflow) -> Iterator[Inflow]:
        """Of what functions return, the element that a name is given."""
        results = list(self._results(inflow.value))
        if inflow.element is None or not results:
            yield inflow
            return

        for result in results:
            elements: Sequence[AST] = getattr(result.value, "elts", ())
            if inflow.element < len(elements):
                result = result._replace(value=elements[inflow.element])
            yield result._replace(kind=inflow.kind)

    def _item(self, value: AST) -> Sequence[Inflow]:
        """Of a dict or a list that the code writes out, the item which a constant picks,
        where it is plain how every one came here.
        """
        key = getattr(value, "slice", None)
        if not isinstance(value, ast.Subscript) or not isinstance(key, ast.Constant):
            return []
        start: AST = value.value
        every = spread([start], self._handed_on)
        found = [
            [*_picked(each, key.value)] for each in every if not self._hands_on(each)
        ]
        return [Inflow(item) for items in found for item in items] if all(found) else []

    def _hands_on(self, value: AST) -> bool:
        return isinstance(value, ast.Name | ast.arg) or any(self._results(value))

    def _handed_on(self, value: AST) -> Iterator[AST]:
        for inflow in self.inflows(value) if self._hands_on(value) else ():
            yield inflow.value if inflow.kind is None else _CUT_OFF

    def _of_object(self, value: AST) -> Sequence[Inflow]:
        """What the methods of another object give its attribute that is read."""
        if not isinstance(value, ast.Attribute) or not dotted(value):
            return []
        around = self._recorded.function_around(value)
        if dotted(value.value) == around.first_parameter:
            return []
        kind = type(self._reads.object_at(value.value))
        # by identity: a metaclass of the user's may say what is equal
        key = id(kind), value.attr
        if key not in self._given:
            self._given[key] = [*self._given_by(kind, value.attr)]
        return self._given[key]

    def _given_by(self, kind: type, attribute: str) -> Iterator[Inflow]:
        """What the methods of a class, and functions inside them, give an attribute."""
        for base in kind.__mro__:
            for method in list(vars(base).values()):
                is_function = type(method) is FunctionType
                code = method.__code__ if is_function else None
                function = self._recorded.function_of(code)
                if function is not None:
                    name = f"{function.first_parameter}.{attribute}"
                    yield from function.all_inflows_of(name)

    def upstream(self, value: AST, through_no_grad: bool) -> list[AST]:
        """A value and those that go into it with their graph, the nearest first; also
        while recording is off, where that is asked for.
        """

        def onward(visit: Visit) -> Iterator[Visit]:
            for inflow, inner in self._visits(visit):
                is_off = through_no_grad and inflow.kind in NO_GRAD_KINDS
                if inflow.kind is None or is_off:
                    yield inner

        start: Visit = value, ()
        return list(dict.fromkeys(value for value, _ in spread([start], onward)))

    def _visits(self, visit: Visit) -> Iterator[tuple[Inflow, Visit]]:
        """What goes into a value, with the calls inside which that is looked at."""
        value, calls = visit
        for inflow in self.inflows(value):
            inside = calls_inside(calls, inflow)
            # another function has set what is read, as an attribute, in some call
            if calls and inside == calls and self._leaves_function(value, inflow.value):
                inside = ()
            if inside is not None:
                yield inflow, (inflow.value, inside)

    def _leaves_function(self, value: AST, source: AST) -> bool:
        function_around = self._recorded.function_around
        return function_around(value) is not function_around(source)

    def lines(self) -> set[tuple[str, int]]:
        """The lines that compute what goes into the graph, whether with a graph or not."""
        values = map(self._recorded.value_at, self._recorded.site_of.values())
        every = spread(
            filter(None, values),
            lambda value: [inflow.value for inflow in self.inflows(value)],
        )
        return {(line.file, line.line) for line in map(self._recorded.line_of, every)}

    # -- whether it has a graph ----------------------------------------------------

    def has_graph(self, value: AST) -> bool:
        """Whether a value had one in this step, as the recording says."""
        if value not in self._has_graph:
            self._has_graph[value] = False  # in a circle, nothing else says so
            self._has_graph[value] = self._had_graph(value)
        return self._has_graph[value]

    def _had_graph(self, value: AST) -> bool:
        def onward(value: AST) -> Iterator[AST]:
            if self._is_computed(value) is None:
                for inflow in self.inflows(value):
                    if inflow.kind is None:
                        yield inflow.value

        return any(
            self._is_leaf(source)
            or self._lives_with_graph(source)
            or self._is_computed(source)
            for source in spread([value], onward)
        )

    def _lives_with_graph(self, value: AST) -> bool:
        """Whether a variable has a tensor with a graph, where nothing was recorded."""
        if self._recorded.computed:
            return False
        return self._reads.tensor_with_graph(value) is not None

    def _is_computed(self, value: AST) -> bool | None:
        """Whether a node was made for a value; None where that does not say whether it
        has a graph.
        """
        if isinstance(value, ast.arg) or any(self._results(value)):
            return None

        file = self._recorded.file_of(value)
        is_off = file.no_grad(value) is not None
        inflows = self.inflows(value)
        if value in self._recorded.computed and not is_off:
            return not inflows or any(inflow.kind is None for inflow in inflows)

        # what a call returns may be what it was given
        passes = isinstance(value, Call) and not is_off
        return False if file.effect(value).computes and not passes else None

    def _is_leaf(self, value: AST) -> bool:
        """Whether a value is a leaf that requires grad, or a module's result."""
        if makes_leaf(value):
            return not self._makes_copy(value)

        is_read = value in self._reads.leaves
        if is_read and isinstance(value, ast.Name):
            inflows = self.inflows(value)
            is_read = not any(self._makes_copy(inflow.value) for inflow in inflows)
        elif is_read and not isinstance(value, ast.Attribute):
            is_read = self._recorded.file_of(value).no_grad(value) is None
        return is_read or value in self._reads.models

    def _makes_copy(self, value: AST) -> bool:
        """Whether an expression makes a new leaf of what had a graph."""
        if not makes_leaf(value):
            return False
        cut_off = [inflow for inflow in self.inflows(value) if inflow.kind is not None]
        had_graph = any(self.has_graph(inflow.value) for inflow in cut_off)
        return had_graph or bool(self.cut_points(value))

    # -- where a graph was lost ----------------------------------------------------

    def cut_points(
        self, value: AST, every: bool = False, calls: Calls = ()
    ) -> list[CutPoint]:
        """Where what goes into a value without a graph has lost it; with `every` also
        what goes in beside something that has one. `calls`: those inside which the value
        is looked at.
        """
        points: list[CutPoint] = []

        def onward(visit: Visit) -> Iterator[Visit]:
            value, _ = visit
            no_grad = self._recorded.file_of(value).no_grad(value)
            # the call of a module that has leaves
            is_module = isinstance(value, Call) and value in self._reads.leaves
            if no_grad is not None and is_module:
                points.append(CutPoint(value, Inflow(value, no_grad.kind)))
                return

            for inflow, inner in self._visits(visit):
                has_graph = self.has_graph(inflow.value)
                if has_graph and inflow.kind is not None:
                    points.append(CutPoint(_cutting(value, inflow), inflow))
                elif every or not has_graph:
                    yield inner

        start: Visit = value, calls
        list(spread([start], onward))
        return points


def _cutting(value: AST, inflow: Inflow) -> AST:
    """`x.max(1)` of `values, chosen = x.max(1)`, and not where `chosen` is read."""
    return inflow.value if dotted(value) and inflow.kind != "data" else value


def _picked(value: AST, key: object) -> Iterator[AST]:
    """The item of a display under a constant key or index."""
    if isinstance(value, ast.Dict):
        keys = [getattr(each, "value", None) for each in value.keys]
        yield from [value.values[keys.index(key)]] if key in keys else []
    elif isinstance(value, ast.Tuple | ast.List) and type(key) is int:
        plain = not any(isinstance(each, ast.Starred) for each in value.elts)
        yield from value.elts[key:][:1] if plain else []


def calls_inside(calls: Calls, inflow: Inflow) -> Calls | None:
    """The calls inside which an inflow is, where what it goes into is inside `calls`;
    None where it comes in by another call.
    """
    if inflow.result_of is not None:
        fits = len(calls) < DEEPEST and inflow.result_of not in calls
        return (*calls, inflow.result_of) if fits else None
    if inflow.argument_of is not None and calls:
        return calls[:-1] if calls[-1] is inflow.argument_of else None
    return calls
