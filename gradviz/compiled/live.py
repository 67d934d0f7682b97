"""Reads the compiled regions of a live graph into records: what their backward does, while their nodes are alive.

The backward is neither compiled nor run by this, and the module that torch keeps of it is left as it is. What was read once is
kept as long as the region lives: torch drops what it noted as soon as it has put the region into its cache on disk.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from gradviz.compiled.region import (
    ForwardPlace,
    GraphBreak,
    Input,
    Operation,
    Region,
    TracedModule,
    Use,
    input_kind,
    region_of,
)
from gradviz.compiled.scoping import KnownModule
from gradviz.compiled.splice import RegionCall, splice
from gradviz.graph import Graph, SourceLine, TensorInfo
from gradviz.packages import package_of, with_text
from gradviz.variables.objects import is_compiled, parameters
from gradviz.variables.scanner import Namespace
from gradviz.walker import private
from gradviz.walker.names import below, outermost_modules
from gradviz.walker.private import Node
from gradviz.walker.regions import Opened
from gradviz.walker.slots import nodes_of
from gradviz.walker.tensors import elements, tensor_info
from gradviz.wording import plural, verb

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")  # what runs on after a break, as part of the function
_regions: WeakKeyDictionary[type, Region] = WeakKeyDictionary()


def opened(
    graph: Graph, nodes: Sequence[Node], model: torch.nn.Module | None, variables: Sequence[Namespace]
) -> Opened:
    """The graph with the operations of its compiled functions; it notes how many could not be opened."""
    compiled = nodes_of(nodes, lambda kind: kind.__name__ == private.COMPILED)
    calls = {i: _call(node) if private.is_compiled(type(node)) else None for i, node in compiled.items()}
    regions = {i: call for i, call in calls.items() if call is not None}
    made = splice(graph, regions, _named_modules(model, variables)) if regions else Opened(graph, {})
    if len(regions) < len(calls):
        note = _closed(len(calls) - len(regions))
        made = made._replace(graph=replace(made.graph, notes=(*made.graph.notes, note)))
    return made


def _closed(count: int) -> str:
    which = plural(count, "compiled function")
    stays = verb(count, "it stays", "they stay")
    return f"what the backward of {which} does cannot be read with this torch, {torch.__version__}: {stays} closed"


def remember_regions() -> None:
    """Read the regions that exist now, before a backward makes torch drop what it knows of them."""
    for kind in private.compiled_kinds():
        region_behind(kind)


def region_behind(kind: type) -> Region | None:
    """The region that nodes of this type run; None where this torch does not tell."""
    region = _regions.get(kind)
    if region is None or not region.described:
        read = _read(kind)
        if read is not None and (region is None or read.described):
            region = _regions[kind] = read
    return region


def saved_input(node: Node, name: str) -> torch.Tensor | None:
    """The saved tensor that a region's program calls `name`; None where a hook has packed it, it is freed, or there is none."""
    region = region_behind(type(node))
    names = [argument.name for argument in region.inputs if argument.kind == "saved"] if region is not None else []
    if name not in names:
        return None
    raw, at = getattr(node, "_raw_saved_tensors", None) or (), names.index(name)
    unwatched = vars(node).get("_tensors_no_vc_check") or ()
    if at >= len(raw):
        return unwatched[at - len(raw)] if at - len(raw) < len(unwatched) else None
    return raw[at].data if raw[at].unpack_hook is None and isinstance(raw[at].data, torch.Tensor) else None


def graph_breaks() -> Iterator[GraphBreak]:
    """Where `torch.compile` broke graphs apart in this process, each line once, in the order in which it met them."""
    seen: set[tuple[str, int]] = set()
    for reason, frames in private.break_reasons():
        lines = [line for frame in frames if (line := _frame_line(frame)).package != "torch"]
        if lines and (lines[-1].file, lines[-1].line) not in seen:
            seen.add((lines[-1].file, lines[-1].line))
            told = [line.strip() for line in reason.splitlines() if line.strip()]
            hint = next((line.removeprefix("Hint: ") for line in told if line.startswith("Hint: ")), "")
            yield GraphBreak(with_text(lines[-1]), told[0] if told else "", hint)


def _frame_line(frame: Any) -> SourceLine:
    return SourceLine(
        frame.filename, frame.lineno or 0, _RESUMED.sub(r"\1", frame.name), "", package_of(frame.filename)
    )


def _named_modules(model: torch.nn.Module | None, variables: Sequence[Namespace]) -> dict[int, KnownModule]:
    """The modules that the caller has a name for, by identity. torch's wrapper around a compiled module is none."""
    modules: dict[int, KnownModule] = {}
    for path, module in below(outermost_modules(model, variables)):
        if not is_compiled(module):
            modules.setdefault(id(module), KnownModule(path, type(module).__name__, elements(parameters(module))))
    return modules


def _call(node: Node) -> RegionCall | None:
    region = region_behind(type(node))
    if region is None:
        return None
    unwatched, sizes, needed = private.compiled_state(node)
    edges = tuple([i for i, needs in enumerate(needed) if needs])
    there = [child for child, _ in node.next_functions if child is not None]
    if len(there) != len(edges) or any(i >= len(region.gradients) for i in edges):
        return None
    saved = sum(argument.kind == "saved" for argument in region.inputs)
    return RegionCall(region, edges, sizes, saved - unwatched, private.is_backward_compiled(type(node)))


def _read(kind: type) -> Region | None:
    sizes, module, text = private.compiled_backward(kind)
    try:
        if module is not None:
            return _of_graph(module.graph, sizes)
        return _with_views(region_of(text, sizes)) if text is not None else None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):  # torch keeps it in another form
        return None


def _with_views(region: Region | None) -> Region | None:
    """The same with the operations that only look at their input marked, which the text does not say."""
    if region is None:
        return None
    marked = [
        operation._replace(view=_is_view(_overload(operation.op)), op=_short(operation.op))
        for operation in region.operations
    ]
    return Region(region.inputs, tuple(marked), region.gradients, region.described)


def _overload(name: str) -> Any:
    attribute: Any = torch.ops
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    return attribute


# -- the backward as a graph of torch.fx ---------------------------------------------------------------------------------


def _of_graph(graph: Any, sizes: int) -> Region:
    described = any(node.meta for node in graph.nodes)
    given = [node for node in graph.nodes if node.op == "placeholder"]
    inputs = [_input(node, i, sizes) for i, node in enumerate(given)]
    known: dict[Any, Use] = {node: Use(i) for i, node in enumerate(given)}
    operations: list[Operation] = []
    gradients: tuple[Use | None, ...] = ()
    for node in graph.nodes:
        if node.op == "output":
            (returned,) = node.args
            gradients = tuple(map(known.get, returned))
        elif node.op in ("call_function", "call_module", "call_method") and not _is_size(node):
            if node.target is operator.getitem and node.args[0] in known and type(node.args[1]) is int:
                known[node] = Use(known[node.args[0]].value, node.args[1])
                continue
            known[node] = Use(len(given) + len(operations))
            operations.append(_operation(node, [use for use in _uses(node, known) if _is_tensor(inputs, use)]))
    return Region(*_renumbered(inputs, operations), gradients, described)


def _renumbered(
    inputs: Sequence[Input], operations: Sequence[Operation]
) -> tuple[tuple[Input, ...], tuple[Operation, ...]]:
    """With calls numbered from 1: torch counts them through the whole process."""
    numbers = [*(made.forward_call for made in inputs), *(made.forward_call for made in operations)]
    place = {number: i for i, number in enumerate(sorted({number for number in numbers if number is not None}), 1)}
    return (
        tuple([made._replace(forward_call=place.get(made.forward_call or 0)) for made in inputs]),
        tuple([made._replace(forward_call=place.get(made.forward_call or 0)) for made in operations]),
    )


def _is_tensor(inputs: Sequence[Input], use: Use) -> bool:
    """Whether a use is not that of a size."""
    return use.value >= len(inputs) or inputs[use.value].kind != "size"


def _input(node: Any, number: int, sizes: int) -> Input:
    value = node.meta.get("val")
    kind = input_kind(node.name, number, sizes)
    tensor = tensor_info(value) if isinstance(value, torch.Tensor) else None
    if kind == "saved" and value is not None and tensor is None:
        kind = "other"
    symbol = str(value) if kind == "size" and value is not None else ""
    return Input(node.name, kind, tensor, symbol, _place(node.meta), node.meta.get("seq_nr"))


def _operation(node: Any, uses: Sequence[Use]) -> Operation:
    meta = node.meta
    return Operation(
        node.name,
        _name(node.target),
        tuple(uses),
        _results(meta.get("val")),
        _place(meta),
        forward=meta.get("partitioner_tag") == "is_forward",
        view=_is_view(node.target),
        meeting=bool(meta.get("is_gradient_acc")),
        forward_call=meta.get("seq_nr"),
        called=_called(meta),
    )


def _called(meta: Mapping[str, Any]) -> str:
    """The function or module of the forward pass that an operation comes from."""
    stack = meta.get("fwd_source_fn_stack") or meta.get("source_fn_stack") or ()
    target = stack[-1][1] if stack else ""
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))


def _results(value: Any) -> tuple[TensorInfo | None, ...]:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return tuple([tensor_info(result) if isinstance(result, torch.Tensor) else None for result in values])


def _uses(node: Any, known: Mapping[Any, Use]) -> list[Use]:
    uses: list[Use] = []

    def note(argument: Any) -> Any:
        if argument in known:
            uses.append(known[argument])
        return argument

    torch.fx.node.map_arg((node.args, node.kwargs), note)
    return uses


def _is_size(node: Any) -> bool:
    """Whether a call computes with sizes: then it makes no tensor."""
    value = node.meta.get("val")
    if value is not None:
        return not isinstance(value, (torch.Tensor, tuple, list))
    if isinstance(node.target, torch._ops.OpOverload):
        return not any("Tensor" in str(result.type) for result in node.target._schema.returns)
    return node.target is not operator.getitem and getattr(node.target, "__module__", "") in ("_operator", "math")


def _name(target: Any) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return _short(str(target))
    name = getattr(target, "name", None)
    return name() if callable(name) else getattr(target, "__name__", str(target))


def _short(name: str) -> str:
    """ "aten.sum" for "aten.sum.dim_IntList"."""
    namespace, _, rest = name.partition(".")
    return f"{namespace}.{rest.partition('.')[0]}" if rest else name


def _is_view(target: Any) -> bool:
    """Whether an operator only looks at its input in another way, by what its schema says of its results."""
    schema = getattr(target, "_schema", None)
    return any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in getattr(schema, "returns", None) or ()
    )


# -- where it comes from ---------------------------------------------------------------------------------------------------


def _place(meta: Mapping[str, Any]) -> ForwardPlace:
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    modules = tuple([_module_call(str(key), *value) for key, value in stack.items()])
    lines = list(_lines(meta.get("stack_trace") or ""))
    if not lines:
        return ForwardPlace(modules)
    source = with_text(lines[-1])
    own = next((line for line in reversed(lines) if not line.package), None)
    return ForwardPlace(modules, source, with_text(own) if source.package and own is not None else None)


def _module_call(key: str, expression: str, type: Any) -> TracedModule:
    identity, _, count = key.partition("@")
    name = type if isinstance(type, str) else type.__name__
    number = int(identity) if identity.isdecimal() else 0
    return TracedModule(number, expression, name.rpartition(".")[2], int(count) + 1 if count.isdecimal() else 1)


def _lines(trace: str) -> Iterator[SourceLine]:
    """The lines of a traceback outside torch, outermost first."""
    for file, line, function in _FRAME.findall(trace):
        package = package_of(file)
        if package != "torch":
            yield SourceLine(file, int(line), _RESUMED.sub(r"\1", function), "", package)
