"""Runs the backward of a compiled function operation by operation, without compiling it and without calling its node.

torch keeps the program that it compiles backward from. Each operation of it is one of torch's own, a function of tensors
alone, so it can be called for one gradient at a time, as any backward function. What an operation needs beside gradients is
computed once, when it is first asked for. A program that does anything else is left alone, and `programs` says why.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.compiled.live import region_behind
from gradviz.compiled.region import Region
from gradviz.errors import GradientError
from gradviz.gradients.values import outgrown
from gradviz.graph import Graph, TensorInfo
from gradviz.walker import private
from gradviz.walker.isolation import isolated
from gradviz.walker.private import Node
from gradviz.walker.regions import RegionPart

Gradient = torch.Tensor | None
_VIEW, _RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default
_OWN = ("aten", "prims")
_ON_LAYOUT = "aten.as_strided"  # their result depends on how its input lies in memory, which compiled code may choose


class RegionStep:
    """One node of a compiled function: called with the gradients of its outputs, it gives those along its edges, by position."""

    def __init__(self, program: _Program, part: RegionPart, graph: Graph, node: int) -> None:
        self._program, self._part = program, part
        self._op = graph.nodes[node].op
        self._seen = {i: _known(output) for i, output in enumerate(graph.nodes[node].outputs)}

    def __call__(self, *incoming: Gradient) -> tuple[Gradient, ...]:
        self._seen.update(
            (i, _Like(tuple(t.shape), t.dtype, t.device)) for i, t in enumerate(incoming) if t is not None
        )
        operation, gives = self._part.operation, self._part.gives
        taken = gives if operation is None else range(len(incoming))  # an entry takes no gradient that goes nowhere
        given = [self._zeros(i) if arrived is None and i in taken else arrived for i, arrived in enumerate(incoming)]
        made = given if operation is None else self._program.run(operation, given)
        return tuple([None if result is None else made[result] for result in gives])

    def _zeros(self, output: int) -> torch.Tensor:
        """What an operation gets for an output that no gradient came to: the program takes all of them."""
        known = self._seen[output]
        if known is None:
            raise GradientError(
                f"{self._op} in a compiled function takes a gradient that does not come, and torch has dropped how large it is. "
                "TORCHINDUCTOR_AUTOGRAD_CACHE=0 keeps it."
            )
        return torch.zeros(known.shape, dtype=known.dtype, device=known.device)


class _Like(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def _known(tensor: TensorInfo | None) -> _Like | None:
    """What a tensor was like by its record, where all of its sizes are numbers."""
    if tensor is None or tensor.shape is None or any(not isinstance(size, int) for size in tensor.shape):
        return None
    return _Like(tuple(map(int, tensor.shape)), getattr(torch, tensor.dtype), torch.device(tensor.device))


def programs(
    graph: Graph, nodes: Sequence[Node], parts: Mapping[int, RegionPart]
) -> tuple[Mapping[int, RegionStep], Mapping[int, str]]:
    """What runs the parts of compiled functions, by node id; and why the others do not run, by the id of their function.

    `nodes` are the live nodes of the graph by id. Nothing runs yet.
    """
    runnable: dict[int, _Program] = {}
    closed = {node.id: _UNKNOWN for node in graph.nodes if {"custom", "compiled"} <= {*node.flags}}
    of_region: dict[int, dict[int, RegionPart]] = {}
    for node, part in parts.items():
        of_region.setdefault(part.region, {})[node] = part
    for region, own in of_region.items():
        made = _program(nodes[region])
        reason = _LOST if made is None else next(made.obstacles(own.values()), "")
        if made is None or reason:
            closed[region] = reason
        else:
            runnable[region] = made
    steps = {
        node: RegionStep(runnable[part.region], part, graph, node)
        for node, part in parts.items()
        if part.region in runnable
    }
    return steps, closed


_UNKNOWN = "torch does not tell what its backward does"
_LOST = (
    "torch has dropped the program of its backward, as it does when it keeps it in its cache on disk "
    "(TORCHINDUCTOR_AUTOGRAD_CACHE=0 keeps it)"
)


def _program(node: Node) -> _Program | None:
    region = region_behind(type(node))
    _, module, _ = private.compiled_backward(type(node))
    if region is None or module is None:
        return None
    calls = {call.name: call for call in module.graph.nodes if call.op not in ("placeholder", "output")}
    if any(operation.name not in calls for operation in region.operations):
        return None
    return _Program(node, region, module, [calls[operation.name] for operation in region.operations])


class _Program:
    """The program of one live node."""

    def __init__(self, node: Node, region: Region, module: Any, calls: Sequence[Any]) -> None:
        self._node, self._region, self._module, self._calls = node, region, module, calls
        self._given = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._values: dict[Any, Any] = {}
        ordered = (*self._given, *calls)
        self._carrying = {call for i, call in enumerate(ordered) if region.carries(i)}
        for call in module.graph.nodes:
            if call.op == "call_function" and call.target is operator.getitem and call.args[0] in self._carrying:
                self._carrying.add(call)

    def obstacles(self, parts: Iterable[RegionPart]) -> Iterator[str]:
        """What speaks against calling the operations of these parts one by one."""
        if any(part.operation is None and None in part.gives for part in parts):
            yield "which of its outputs each gradient belongs to is not known"
        if private.takes_subclasses(type(self._node)):
            yield "it takes the tensors of its inputs' class apart"
        given = dict(zip(self._given, self._region.inputs))
        for node in self._module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if any(taken in given and given[taken].kind == "other" for taken in node.all_input_nodes):
                yield f"{node.name} takes a state that is no tensor, such as that of random numbers"
            reason = self._refused(node)
            if reason:
                yield reason
            if self._sizes_a_gradient(node) and node.meta.get("val") is None:
                yield f"{node.name} is the size of a gradient, which torch has dropped"

    def _sizes_a_gradient(self, node: Any) -> bool:
        return node not in self._carrying and not self._carrying.isdisjoint(node.all_input_nodes)

    def _refused(self, node: Any) -> str:
        if node.op == "get_attr":
            return (
                "" if isinstance(getattr(self._module, node.target, None), torch.Tensor) else "it runs programs within"
            )
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            plain = getattr(target, "__module__", "") in ("_operator", "math", "torch", "torch._C")
            return "" if plain or target is torch.sym_sum else f"{node.name} is no operation on tensors alone"
        name = f"{target.namespace}.{target._opname}"
        if target.namespace not in _OWN:
            return f"{name} may do more than compute"
        if target._schema.is_mutable:
            return f"{name} changes a tensor in place"
        if torch.Tag.nondeterministic_seeded in target.tags or "inductor_" in name:
            return f"{name} draws random numbers"
        return f"{name} depends on the layout in memory" if name == _ON_LAYOUT else ""

    def run(self, number: int, incoming: Sequence[Gradient]) -> Sequence[Any]:
        """The results of one operation for these gradients, one for each gradient that it reads, in the order of its arguments."""
        arriving = iter(incoming)

        def value(argument: Any) -> Any:
            return next(arriving) if argument in self._carrying else self._value(argument)

        call = self._calls[number]
        made = self._call(call, *torch.fx.node.map_arg((call.args, call.kwargs), value))
        return made if isinstance(made, (tuple, list)) else (made,)

    def _value(self, wanted: Any) -> Any:
        """What the program computes without any gradient, or is given."""
        if not self._values:
            self._read()
        waiting = [wanted]
        while waiting:
            node = waiting[-1]
            if self._sizes_a_gradient(node):
                self._values[node] = self._size(node.meta["val"])
            known = node in self._values
            missing = [] if known else [taken for taken in node.all_input_nodes if taken not in self._values]
            waiting += missing
            if not missing:
                waiting.pop()
                if node not in self._values:
                    self._values[node] = self._call(
                        node, *torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
                    )
        return self._values[wanted]

    def _size(self, size: Any) -> int:
        """The value of a symbolic size in this call."""
        if type(size) is int:
            return size
        known = {
            taken.symbol: self._values[node] for taken, node in zip(self._region.inputs, self._given) if taken.symbol
        }
        expression = size.node.expr
        return int(expression.subs({symbol: known[str(symbol)] for symbol in expression.free_symbols}))

    def _read(self) -> None:
        """What the node holds. The gradients come after it, and are none of these."""
        given = private.compiled_inputs(self._node)
        for tensor in given:
            if isinstance(tensor, torch.Tensor) and (problem := outgrown(tensor)):
                raise GradientError(f"a tensor that a compiled function saved {problem}, as fully_shard does.")
        self._values.update(zip(self._given, given))

    def _call(self, node: Any, args: Any, kwargs: Any) -> Any:
        if node.op == "get_attr":
            return getattr(self._module, node.target)
        # for gradients that lie otherwise than torch expects
        target = _RESHAPE if node.target is _VIEW else node.target
        with isolated(), private.without_autocast(), torch.no_grad():
            return target(*args, **kwargs)
