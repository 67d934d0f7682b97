"""Follows the lines of the user's code backwards, from the ops of a graph and from the
line that calls backward, to what was cut off.

A cut is told only where what goes in had a graph, as the recording says, and what comes
out is an input without gradient of an op that ran.
"""

from __future__ import annotations

import ast
from ast import AST, Call
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.cuts.dataflow import CodeFile
from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.operations import Inflow
from gradviz.cuts.ran import RanCode
from gradviz.graph import Graph, SourceLine
from gradviz.graph.walks import makers, spread
from gradviz.source.bindings import dotted
from gradviz.source.cut import Cut, DetachKind, Origin
from gradviz.source.statements import called, covers, makes_leaf
from gradviz.variables.objects import is_a
from gradviz.variables.scanner import Namespace
from gradviz.wording import clip

DEEPEST = 12
"""Calls inside of each other that are followed."""
Stack = tuple[Call, ...]
State = tuple[AST, Stack]
"""A value, and the calls inside which it is looked at."""
Values = Iterator[Inflow]
_COMPUTING = (Call, ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Subscript)
_OFF = ("no_grad", "inference")


class LostValue(NamedTuple):
    """A value that has no graph because of what goes into it."""

    at: AST
    lost: Inflow

    @property
    def key(self) -> tuple[AST, DetachKind | None]:
        return self.at, self.lost.kind


class FoundCut(NamedTuple):
    """A cut, the nodes of the graph that go on with what it gave (none where an output
    has no graph because of it), what it cuts off, and the leaves behind that.
    """

    cut: Cut
    nodes: tuple[int, ...]
    lost: AST
    behind: frozenset[AST]
    leaves: tuple[torch.Tensor, ...]


class Engine:
    """Of one moment of a program: the graph of its outputs, what its variables hold, and
    the frame that is about to call backward. `since` is the number of the first node
    of this step. Hold it no longer than its tensors.
    """

    def __init__(
        self,
        graph: Graph,
        leaves: Mapping[int, torch.Tensor],
        variables: Sequence[Namespace],
        frame: FrameType | None,
        since: int = 0,
    ) -> None:
        self._graph = graph
        pairs = leaves.items()
        self._leaves = {id(leaf): node for node, leaf in pairs}
        self.ran = RanCode(graph, variables, frame, since)
        self.reads = LeafReads(self.ran, variables)
        self._known: dict[AST, bool] = {}
        self._inflows: dict[AST, Sequence[Inflow]] = {}

    # -- what goes into a value ----------------------------------------------------

    def inputs(self, node: AST) -> Sequence[Inflow]:
        """All that goes into a value, with how it is cut off."""
        if node not in self._inflows:
            code = self.ran.code(node)
            self._inflows[node] = self._find_inputs(code, node)
        return self._inflows[node]

    def _find_inputs(self, code: CodeFile, node: AST) -> Sequence[Inflow]:
        if isinstance(node, ast.arg):
            return list(self._arguments(code, node))
        returned = list(self._returned(node))
        given = returned or code.inputs(node)
        found = [each for one in given for each in self._elements(one)]
        off = code.off(node) if isinstance(node, _COMPUTING) else None
        if off is not None:
            found = [one._replace(kind=one.kind or off.kind) for one in found]
        return found

    def _elements(self, one: Inflow) -> Values:
        """Of what functions return, the element that a name is given."""
        functions = self.ran.callees.get(one.value, ())
        returned = [value for each in functions for value in each.returned]
        if one.element is None or not returned or not isinstance(one.value, Call):
            yield one
            return
        for value in returned:
            parts: Sequence[AST] = getattr(value, "elts", ())
            part = parts[one.element] if one.element < len(parts) else value
            yield Inflow(part, one.kind, leaves=one.value)

    def _returned(self, node: AST) -> Values:
        # an operator or a property may run a function of the user's, too
        if isinstance(node, Call):
            for function in self.ran.callees.get(node, ()):
                for value in function.returned:
                    yield Inflow(value, leaves=node)

    def _arguments(self, code: CodeFile, parameter: ast.arg) -> Values:
        function = code.function_with(parameter)
        for call, argument in self.ran.arguments(function, parameter):
            yield Inflow(argument, enters=call)

    def has_graph(self, node: AST) -> bool:
        """Whether a value had one in this step, as the recording says."""
        if node not in self._known:
            self._known[node] = False  # in a circle, nothing else says so
            self._known[node] = self._had_graph(node)
        return self._known[node]

    def _had_graph(self, node: AST) -> bool:
        def onward(each: AST) -> Iterator[AST]:
            if self._is_computed(each) is None:
                passing = (one for one in self.inputs(each) if one.kind is None)
                yield from (one.value for one in passing)

        return any(
            self._is_leaf(each)
            or self._lives_with_graph(each)
            or self._is_computed(each)
            for each in spread([node], onward)
        )

    def _lives_with_graph(self, node: AST) -> bool:
        """Whether a variable has a tensor with a graph, where nothing was recorded."""
        return not self.ran.computed and self.reads.live(node) is not None

    def _is_computed(self, node: AST) -> bool | None:
        """Whether a node was made for a value; None where that does not say whether it
        has a graph.
        """
        if isinstance(node, ast.arg) or any(self._returned(node)):
            return None
        code = self.ran.code(node)
        off = code.off(node)
        inputs = self.inputs(node)
        if node in self.ran.computed and off is None:
            return not inputs or any(one.kind is None for one in inputs)
        # what a call returns may be what it was given
        passes = isinstance(node, Call) and off is None
        return False if code.effect(node).computes and not passes else None

    def _is_leaf(self, node: AST) -> bool:
        """Whether a value is a leaf that requires grad, or a module's result."""
        if makes_leaf(node):
            return not self._makes_copy(node)
        is_name = isinstance(node, (ast.Name, ast.Attribute))
        is_read = node in self.reads.read
        if is_read and not is_name:
            is_read = self.ran.code(node).off(node) is None
        elif is_read and isinstance(node, ast.Name):
            is_read = not any(self._makes_copy(one.value) for one in self.inputs(node))
        return is_read or node in self.reads.given

    def _makes_copy(self, node: AST) -> bool:
        """Whether an expression makes a new leaf of what had a graph."""
        if not makes_leaf(node):
            return False
        lost = [one for one in self.inputs(node) if one.kind is not None]
        direct = any(self.has_graph(one.value) for one in lost)
        return direct or bool(self._cuts_from(node))

    # -- cuts ----------------------------------------------------------------------

    def cuts(self, every: bool = False) -> list[FoundCut]:
        """What goes into the graph without one, or into an output that has none.
        `every`: also where something else goes into the same value with one.
        """
        entering: dict[object, set[int]] = defaultdict(set)
        found: dict[object, tuple[LostValue, AST]] = {}
        for node, place, operand in (*self._entering(every), *self._written()):
            entering[place.key].add(node)
            found[place.key] = place, operand
        for place, operand in self._losing():
            found.setdefault(place.key, (place, operand))
        return [
            self._found(place, operand, sorted(entering[key]))
            for key, (place, operand) in found.items()
        ]

    def _entering(self, every: bool) -> Iterator[tuple[int, LostValue, AST]]:
        """The nodes that take in what was cut off, and as which operand."""
        for node, site in self.ran.site_of.items():
            value = self.ran.value_at(site)
            takes = self._takes_constants(node)
            for operand in self.inputs(value) if value is not None else ():
                if operand.kind is None and not every and self.has_graph(operand.value):
                    continue
                for place in self._cuts_from(operand.value, every):
                    # a number and an index are inputs of no op
                    if takes or place.lost.kind in ("integer", "number"):
                        yield node, place, operand.value

    def _takes_constants(self, node: int) -> bool:
        graph = self._graph
        is_leaf = not graph.leaf_of.keys().isdisjoint(makers(graph, node))
        return bool(graph.nodes[node].none_inputs) or is_leaf

    def _steps(self, state: State) -> Iterator[tuple[Inflow, State]]:
        """What goes into a value, with the calls inside which that is looked at."""
        value, stack = state
        for one in self.inputs(value):
            after = _outwards(stack, one)
            if after is not None:
                yield one, (one.value, after)

    def _cuts_from(self, node: AST, every: bool = False) -> list[LostValue]:
        """The cuts through which something goes into a value that has no graph; with
        `every` also beside what has one.
        """
        found: list[LostValue] = []

        def onward(state: State) -> Iterator[State]:
            value, _ = state
            off = self.ran.code(value).off(value)
            # the call of a module that has leaves
            if off is not None and isinstance(value, Call) and value in self.reads.read:
                found.append(LostValue(value, Inflow(value, off.kind)))
                return
            for one, inner in self._steps(state):
                has_graph = self.has_graph(one.value)
                if has_graph and one.kind is not None:
                    found.append(LostValue(_cutting(value, one), one))
                elif every or not has_graph:
                    yield inner

        start: State = node, ()
        list(spread([start], onward))
        return found

    def _losing(self) -> Iterator[tuple[LostValue, AST]]:
        """The cuts because of which an output has no graph: the surest ones."""
        lost = list(self._lost_outputs())
        for every in (False, True):
            found = False
            for operand in lost:
                for place in self._cuts_from(operand, every):
                    found = True
                    yield place, operand
            # a backward function on the way has computed without a graph
            for operand in lost if not found else ():
                for place in self._gradients(operand):
                    found = True
                    yield place, operand
            if found:
                return

    def _gradients(self, node: AST) -> Iterator[LostValue]:
        """The calls of `torch.autograd.grad` that a value is computed from."""
        for value in self._behind(node, off=True):
            if isinstance(value, ast.expr):
                effect = self.ran.code(value).effect(value)
                for one in effect.inputs if effect.operation == "grad" else ():
                    yield LostValue(value, one._replace(kind="grad"))

    def _lost_outputs(self) -> Iterator[AST]:
        """What the running line computes backward from, where that has no graph."""
        roots, leaves = self._graph.roots, self._graph.leaf_of
        lost = [root for root in roots if root.node is None or root.node in leaves]
        names = dict.fromkeys(root.name.partition("[")[0] for root in lost)
        frame = self.ran.users_frame() if lost else None
        if frame is None:
            for name in names:
                yield from (one.value for one in self.values_of(name)[-1:])
            return

        code = self.ran.files[frame.f_code.co_filename]
        line = [value for value in code.values if covers(value, frame.f_lineno)]
        calls = [each for each in line if called(each) in ("backward", "grad")]
        for call in calls:
            yield from (getattr(call.func, "value", call), *call.args)
        # a line that calls what calls backward
        if not calls:
            read = [value for value in line if isinstance(value, ast.Name)]
            yield from [value for value in read if value.id in names] or read

    def _written(self) -> Iterator[tuple[int, LostValue, AST]]:
        """The lines that write the values of something into a leaf of the graph."""
        for code in self.ran.files.values():
            for name, one in code.written:
                if self.has_graph(one.value):
                    for tensor in self.reads.values(code, one.value, name):
                        if id(tensor) in self._leaves:
                            node = self._leaves[id(tensor)]
                            yield node, LostValue(one.value, one), one.value

    def _behind(self, node: AST, off: bool) -> frozenset[AST]:
        """The values that go into one with their graph; with `off` also where recording
        is off.
        """

        def onward(state: State) -> Iterator[State]:
            for one, inner in self._steps(state):
                if one.kind is None or (off and one.kind in _OFF):
                    yield inner

        start: State = node, ()
        return frozenset(value for value, _ in spread([start], onward))

    def _found(self, place: LostValue, operand: AST, nodes: Sequence[int]) -> FoundCut:
        at, lost = place
        code = self.ran.code(at)
        off = code.off(at) if lost.kind in _OFF else None
        behind = self._behind(lost.value, off is not None)
        if off is not None:
            behind |= {at}
        leaves: dict[int, torch.Tensor] = {}
        for leaves_of in (self.reads.read, self.reads.given):
            for value in behind & leaves_of.keys():
                leaves |= {id(tensor): tensor for tensor in leaves_of[value]}
        ops = Counter(self._graph.ops[node] for node in nodes)
        assert lost.kind is not None
        cut = Cut(
            lost.kind,
            self.ran.line(at),
            code.effect(at).operation or lost.kind,
            of=clip(ast.unparse(lost.value), 40),
            part=ast.unparse(at),
            off=self.ran.line(off.switch) if off is not None else None,
            term=clip(ast.unparse(operand), 40),
            times=max(ops.values(), default=1),
        )
        tensors = tuple(leaves.values())
        return FoundCut(cut, tuple(nodes), lost.value, behind, tensors)

    # -- cuts elsewhere ------------------------------------------------------------

    def switched_off(self) -> Cut | None:
        """The line that has switched recording off for good, where it is off."""
        if torch.is_grad_enabled():
            return None
        for code in self.ran.files.values():
            for call in code.calls:
                alone = isinstance(code.parents.get(call), ast.Expr)
                if alone and "set_grad_enabled(False" in ast.unparse(call):
                    return Cut("no_grad", self.ran.line(call), "set_grad_enabled")
        return None

    def around_call(self, module: torch.nn.Module) -> Cut | None:
        """The block or decorator that had switched recording off when a module was
        called last.
        """
        for each, site, _ in self.ran.modules:
            for outer in site.chain() if each is module else ():
                value = self.ran.value_at(outer)
                if value is None:
                    continue
                off = self.ran.code(value).off(value)
                if off is not None:
                    line, switch = self.ran.line(value), self.ran.line(off.switch)
                    of = clip(ast.unparse(value), 40)
                    return Cut(off.kind, line, of=of, part=of, off=switch)
        return None

    def origin(self) -> Origin:
        """How the outputs that have no graph came about."""
        made, plain = None, dict[str, None]()
        for operand in self._lost_outputs():
            for one in self.inputs(operand) or [Inflow(operand)]:
                made = made or self.ran.line(one.value)
            for value in sorted(self._behind(operand, off=True), key=_position):
                if value is operand or not self._is_plain(value):
                    continue
                others = self._behind(value, off=True) - {value}
                if not any(map(self._is_plain, others)):
                    plain[dotted(value)] = None
        return Origin(made, tuple(plain))

    def _is_plain(self, node: AST) -> bool:
        """Whether a variable of the running code has a tensor that requires no grad."""
        value = self.reads.value(node)
        return is_a(value, torch.Tensor) and not value.requires_grad

    def values_of(self, name: str) -> list[Inflow]:
        """What a variable of the running code may have."""
        found: list[Inflow] = []
        for code in self.ran.files.values():
            for function in filter(self.ran.runs, code.functions):
                found += function.given(name)
        return found

    def cuts_of(self, name: str) -> list[FoundCut]:
        """The cuts that went into what a variable of the running code has."""
        found = []
        for one in self.values_of(name):
            places = self._cuts_from(one.value)
            # `chosen` of `values, chosen = x.max(1)`
            if one.kind is not None and self.has_graph(one.value):
                places = [LostValue(one.value, one)]
            found += [self._found(place, place.at, ()) for place in places]
        return found

    def lines_behind(self) -> set[tuple[str, int]]:
        """The lines that compute what goes into the graph, whether with a graph or not."""
        values = map(self.ran.value_at, self.ran.site_of.values())
        every = spread(
            filter(None, values), lambda node: [one.value for one in self.inputs(node)]
        )
        return {(line.file, line.line) for line in map(self.ran.line, every)}

    # -- what nothing goes on with -------------------------------------------------

    def dead_ends(self, reads: Iterable[AST]) -> list[AST]:
        """The last values on every way from some on."""

        def onward(state: State) -> Iterator[State]:
            for value, one in self._consumers.get(state[0], ()):
                # the other way round: from what goes in to what it goes into
                turned = one._replace(enters=one.leaves, leaves=one.enters)
                after = _outwards(state[1], turned)
                if after is not None:
                    yield value, after

        starts: list[State] = [(node, ()) for node in reads]
        every = spread(starts, onward)
        return [state[0] for state in every if not any(onward(state))]

    @cached_property
    def _consumers(self) -> Mapping[AST, Sequence[tuple[AST, Inflow]]]:
        """What each value goes into."""
        found = defaultdict(list)
        for code in list(self.ran.files.values()):
            for value in (*code.values, *code.parameters):
                for one in self.inputs(value):
                    found[one.value].append((value, one))
        return found

    def unread(self, node: AST) -> tuple[SourceLine, str] | None:
        """What is said of a value that nothing goes on with; None where that is not
        sure.
        """
        code = self.ran.code(node)
        if isinstance(node, ast.arg):
            function = code.function_with(node)
            line = self.ran.line(function.node)
            return line, f"{function.title}() never reads its argument {node.arg}"
        statement = code.statement(node)
        if isinstance(statement, ast.Expr) and statement.value is node:
            # another call may change what it is given
            if isinstance(node, Call) and node not in self.ran.computed:
                return None
            return self.ran.line(node), "computes with it, and nothing uses the result"
        if isinstance(statement, ast.Assign):
            names = [dotted(part) for part in _parts(statement.targets)]
            # `x[i] = ...` writes into what something else may read
            unread = [name for name in names if name and not code.reads(name)]
            if unread and all(names):
                listed = " and ".join(unread)
                return self.ran.line(node), f"assigns {listed}, which nothing reads"
        return None

    def is_aside(self, node: AST) -> bool:
        """Whether a value is only given to a call that takes nothing of it into a
        result, as an optimizer or `print`.
        """
        code = self.ran.code(node)
        around = code.parents.get(node)
        while isinstance(around, (ast.expr, ast.keyword, ast.comprehension)):
            if isinstance(around, Call):
                return called(around) != "backward"
            around = code.parents.get(around)
        return False


def _cutting(node: AST, one: Inflow) -> AST:
    """`x.max(1)` of `values, chosen = x.max(1)`, and not where `chosen` is read."""
    return one.value if dotted(node) and one.kind != "data" else node


def _outwards(stack: Stack, one: Inflow) -> Stack | None:
    """The calls inside which an input is; None where it goes out by another one."""
    if one.leaves is not None:
        fits = len(stack) < DEEPEST and one.leaves not in stack
        return (*stack, one.leaves) if fits else None
    if one.enters is not None and stack:
        return stack[:-1] if stack[-1] is one.enters else None
    return stack


def _parts(targets: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """`a` and `b` of `a, b = ...`."""
    for target in targets:
        yield from getattr(target, "elts", [target])


def _position(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset
