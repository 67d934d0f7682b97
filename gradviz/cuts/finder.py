"""Finds cuts: follows the user's code backwards, from the ops of a graph and from the
line that calls backward, to what was cut off.

A cut is told only where what goes in had a graph, as the recording says, and what comes
out is an input without gradient of an op that ran.
"""

from __future__ import annotations

import ast
from ast import AST
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.cuts.dataflow import FunctionCode
from gradviz.cuts.flow import NO_GRAD_KINDS, CutPoint, Flow
from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph import Graph
from gradviz.graph.origins import around
from gradviz.graph.walks import makers
from gradviz.source.bindings import dotted
from gradviz.source.cut import Cut, Origin
from gradviz.source.statements import called, covers
from gradviz.variables.objects import is_a
from gradviz.wording import clip


class FoundCut(NamedTuple):
    """A cut, the nodes of the graph that go on with what it gave (none where an output
    has no graph because of it), the value that it cuts off, the values upstream of
    that, and the leaves among these.
    """

    cut: Cut
    nodes: tuple[int, ...]
    value: AST
    upstream: frozenset[AST]
    leaves: tuple[torch.Tensor, ...]


class CutFinder:
    """Of one moment of a program. `leaves` are those of the graph, by node. Hold it no
    longer than its tensors.
    """

    def __init__(
        self,
        graph: Graph,
        leaves: Mapping[int, torch.Tensor],
        recorded: RecordedCode,
        reads: LeafReads,
        flow: Flow,
    ) -> None:
        self._graph, self._recorded = graph, recorded
        self._reads, self._flow = reads, flow
        self._node_of = {id(leaf): node for node, leaf in leaves.items()}

    def cuts(self, every: bool = False) -> list[FoundCut]:
        """What goes into the graph without one, or into an output that has none.
        `every`: also where something else goes into the same value with one.
        """
        nodes: dict[object, set[int]] = defaultdict(set)
        points: dict[object, tuple[CutPoint, AST]] = {}
        for node, point, operand in (*self._entering(every), *self._written()):
            nodes[point.key].add(node)
            points[point.key] = point, operand
        for point, operand in self._of_outputs():
            points.setdefault(point.key, (point, operand))

        return [
            self._found(point, operand, sorted(nodes[key]))
            for key, (point, operand) in points.items()
        ]

    def cuts_of(self, name: str) -> list[FoundCut]:
        """The cuts that went into what a variable of the running code has."""
        cuts = []
        for inflow in self._recorded.inflows_of(name):
            points = self._flow.cut_points(inflow.value)
            # `chosen` of `values, chosen = x.max(1)`
            if inflow.kind is not None and self._flow.has_graph(inflow.value):
                points = [CutPoint(inflow.value, inflow)]
            cuts += [self._found(point, point.value, ()) for point in points]
        return cuts

    # -- into the graph ------------------------------------------------------------

    def _entering(self, every: bool) -> Iterator[tuple[int, CutPoint, AST]]:
        """The nodes that take in what was cut off, and as which operand."""
        for node, site in self._recorded.site_of.items():
            value = self._recorded.value_at(site)
            if value is None:
                continue

            calls = self._recorded.calls_around(site)
            takes_constants = self._takes_constants(node)
            for inflow in self._flow.inflows(value):
                operand = inflow.value
                is_cut = inflow.kind is not None or every
                if not is_cut and self._flow.has_graph(operand):
                    continue
                for point in self._flow.cut_points(operand, every, calls):
                    # a number and an index are inputs of no op
                    is_number = point.inflow.kind in ("integer", "number")
                    if takes_constants or is_number:
                        yield node, point, operand

    def _takes_constants(self, node: int) -> bool:
        graph = self._graph
        is_leaf = not graph.leaf_of.keys().isdisjoint(makers(graph, node))
        return bool(graph.nodes[node].none_inputs) or is_leaf

    def _written(self) -> Iterator[tuple[int, CutPoint, AST]]:
        """The lines that write the values of something into a leaf of the graph."""
        for file in self._recorded.files.values():
            for name, inflow in file.written:
                value = inflow.value
                if not self._flow.has_graph(value):
                    continue
                for tensor in self._reads.objects(file, value, name):
                    if id(tensor) in self._node_of:
                        node = self._node_of[id(tensor)]
                        yield node, CutPoint(value, inflow), value

    # -- into an output ------------------------------------------------------------

    def _of_outputs(self) -> Iterator[tuple[CutPoint, AST]]:
        """The cuts because of which an output has no graph: the surest ones."""
        outputs = self._outputs()
        for every in (False, True):
            points = [
                (point, output)
                for output in outputs
                for point in self._flow.cut_points(output, every)
            ]

            # a backward function on the way has computed without a graph
            points = points or [
                (point, output)
                for output in outputs
                for point in self._gradients(output)
            ]
            if points:
                yield from points
                return

    def _gradients(self, value: AST) -> Iterator[CutPoint]:
        """The calls of `torch.autograd.grad` that a value is computed from."""
        for source in self._flow.upstream(value, through_no_grad=True):
            if isinstance(source, ast.expr):
                effect = self._recorded.file_of(source).effect(source)
                for inflow in effect.inflows if effect.operation == "grad" else ():
                    yield CutPoint(source, inflow._replace(kind="grad"))

    def _outputs(self) -> list[AST]:
        """The outputs that have no graph, as the running line has them."""
        roots, leaves = self._graph.roots, self._graph.leaf_of
        lost = [root for root in roots if root.node is None or root.node in leaves]
        names = dict.fromkeys(root.name.partition("[")[0] for root in lost)
        frame = self._recorded.users_frame() if lost else None
        if frame is not None:
            return self._outputs_in(frame, names)

        last = [self._recorded.inflows_of(name)[-1:] for name in names]
        return [inflow.value for inflows in last for inflow in inflows]

    def _outputs_in(self, frame: FrameType, names: Collection[str]) -> list[AST]:
        """What the line of a frame computes backward from."""
        file = self._recorded.files[frame.f_code.co_filename]
        line = [value for value in file.values if covers(value, frame.f_lineno)]
        calls = [value for value in line if called(value) in ("backward", "grad")]
        outputs: list[AST] = []
        for call in calls:
            outputs += (getattr(call.func, "value", call), *call.args)
        if calls:
            return outputs

        # a line that calls what calls backward
        read: list[AST] = [value for value in line if isinstance(value, ast.Name)]
        return [value for value in read if dotted(value) in names] or read

    def origin(self) -> Origin:
        """How the outputs that have no graph came about."""
        line, plain = None, dict[str, None]()
        for output in self._outputs():
            inputs = [inflow.value for inflow in self._flow.inflows(output)] or [output]
            line = line or self._recorded.line_of(inputs[0])

            values = self._flow.upstream(output, through_no_grad=True)[1:]
            for value in sorted(filter(self._is_plain, values), key=_position):
                others = self._flow.upstream(value, through_no_grad=True)[1:]
                if not any(map(self._is_plain, others)):
                    plain[dotted(value)] = None
        return Origin(line, tuple(plain))

    def _is_plain(self, value: AST) -> bool:
        """Whether a variable has a tensor that does not require grad."""
        tensor = self._reads.object_at(value)
        return is_a(tensor, torch.Tensor) and not tensor.requires_grad

    # -- what is said of it --------------------------------------------------------

    def _found(self, point: CutPoint, operand: AST, nodes: Sequence[int]) -> FoundCut:
        value, inflow = point
        assert inflow.kind is not None
        file, line_of = self._recorded.file_of(value), self._recorded.line_of
        no_grad = file.no_grad(value) if inflow.kind in NO_GRAD_KINDS else None
        upstream = set(self._flow.upstream(inflow.value, no_grad is not None))
        if no_grad is not None:
            upstream.add(value)

        leaves: dict[int, torch.Tensor] = {}
        for leaves_of in (self._reads.leaves, self._reads.models):
            # in the order of the text, not in that of a set
            for source in filter(upstream.__contains__, leaves_of):
                leaves |= {id(leaf): leaf for leaf in leaves_of[source]}

        cut = Cut(
            inflow.kind,
            line_of(value),
            file.effect(value).operation or inflow.kind,
            of=clip(ast.unparse(inflow.value), 40),
            part=ast.unparse(value),
            off=line_of(no_grad.switch) if no_grad is not None else None,
            term=clip(ast.unparse(operand), 40),
            times=self._times(value, nodes),
        )
        tensors = tuple(leaves.values())
        return FoundCut(cut, tuple(nodes), inflow.value, frozenset(upstream), tensors)

    def _times(self, value: AST, nodes: Sequence[int]) -> int:
        """In how many calls a value was computed, as these nodes that use it tell."""
        graph = self._graph
        used = defaultdict[tuple[int | None, str, str, object], set[int]](set)
        for node in nodes:
            scopes = list(around(graph.scopes, graph.nodes[node].scope))
            types = self._types_around(value, node)
            calls = (scope for scope in scopes if graph.scopes[scope].type in types)
            call = next(calls, None)
            # of a part of a module each call counts once
            part = scopes[0] if scopes and scopes[0] != call else None
            path = graph.scopes[part].path if part is not None else ""
            site = self._recorded.site_of.get(node)
            place = (site.code, site.instruction) if site is not None else None
            used[call, graph.ops[node], path, place].add(node if part is None else part)

        most: dict[int | None, int] = {}
        for (call, *_), uses in used.items():
            most[call] = max(most.get(call, 0), len(uses))
        return sum(most.values()) or 1

    def _types_around(self, value: AST, node: int) -> set[str]:
        """The classes of modules in whose forward() the function that computes a value
        is, or was called, where it led to a node.
        """
        recorded, inside = self._recorded, False
        home, site = recorded.function_around(value), recorded.site_of.get(node)
        for frame in site.chain() if site is not None else ():
            function = recorded.function_of(frame.code)
            inside |= function is home
            if inside and function in self._types:
                return self._types[function]
        return set()

    @cached_property
    def _types(self) -> Mapping[FunctionCode | None, set[str]]:
        """The classes of the modules that ran, by their forward()."""
        types = defaultdict[FunctionCode | None, set[str]](set)
        for module, *_ in self._recorded.modules:
            forward = self._recorded.forward_of(module)
            if forward is not None:
                types[forward].add(type(module).__name__)
        return types


def _position(value: Any) -> tuple[int, int]:
    return value.lineno, value.col_offset
