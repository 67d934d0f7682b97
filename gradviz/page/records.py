"""Everything the graph knows of its nodes, leaves, outputs and modules, and what
backward does, as columns and tables.

Panel, search, overlays and the backward pass read them in the browser. Knows nothing of
groups and places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from gradviz.features import hook
from gradviz.graph import (
    Absent,
    Base,
    Function,
    Graph,
    SavedTensor,
    SourceLine,
    TensorInfo,
    column,
)
from gradviz.graph.amounts import counted_bytes, known_elements, tensor_bytes
from gradviz.graph.origins import forward_name
from gradviz.graph.ready_queue import engine_order
from gradviz.page.pack import NOTHING, Pack, Table
from gradviz.report import labels
from gradviz.wording import clip, file_text, one_line, tensor_line


def records(graph: Graph, held: Iterable[int]) -> Pack:
    """The block that is read second. Columns of nodes are by node id; -1 stands for
    nothing.

    `held`: bytes that each node holds.
    """
    pack = Pack()
    texts = Table(one_line)
    _nodes(graph, pack, texts)
    _types(graph, pack, texts)
    _slots(graph, pack, texts)
    _backward(graph, pack)
    kinds = Table()
    pack.add(
        held=held,
        storageBytes=column(graph.storages, "nbytes"),
        storageKind=kinds.numbers(column(graph.storages, "kind")),
        producer=graph.producers,
        consumer=graph.users,
        position=column(graph.edges, "position"),
        output=column(graph.edges, "output"),
        leafElements=(known_elements(leaf.tensor) for leaf in graph.leaves),
    )
    pack.put(
        texts=texts.rows,
        storageKinds=kinds.rows,
        leaves=_table(
            graph.leaves,
            "node names tensor kind has_grad hooks storage base",
            storage=NOTHING,
        ),
        roots=_table(graph.roots, "node output name tensor why base", node=NOTHING),
        data=_table(graph.data, "names tensor storage", storage=NOTHING),
        scopes=_table(
            graph.scopes, "path type call parameters output", parameters=0, output=""
        ),
        marks=_table(graph.marks, "number id words nodes edges outputs"),
        absent=[_absent(absent) for absent in graph.absent],
        ofRanks=bool(graph.by_rank),
        formulas=_formulas(graph),
    )

    return pack


def _formulas(graph: Graph) -> dict[str, dict[str, Any]]:
    """What the ops compute, send back and keep, as far as it is known."""
    facts_of = hook("gradviz.formulas.lookup:facts_of")
    # the formulas are a feature, which may be left out
    if facts_of is None:
        return {}

    facts = {op: facts_of(op) for op in sorted(set(column(graph.nodes, "op")))}
    return {op: formula for op, formula in facts.items() if formula}


def _nodes(graph: Graph, pack: Pack, texts: Table) -> None:
    """Columns of the nodes, each read by itself: a large graph has no nodes at hand."""
    nodes = graph.nodes
    outputs = column(nodes, "outputs")
    firsts = [next(filter(None, tensors), None) for tensors in outputs]
    for leaf in graph.leaves:
        firsts[leaf.node] = firsts[leaf.node] or leaf.tensor

    tensors, sources = Table(_tensor_lines), Table(_source)
    attributes, names = Table(_attributes), Table(_cell)
    pack.add(
        op=texts.numbers(column(nodes, "op")),
        outs=tensors.numbers(outputs),
        sequence=column(nodes, "sequence"),
        scope=column(nodes, "scope"),
        source=sources.numbers(column(nodes, "source")),
        scriptLine=sources.numbers(column(nodes, "script_line")),
        attribute=attributes.numbers(map(_as_text, column(nodes, "attributes"))),
        name=names.numbers(column(nodes, "names")),
        noneInputs=column(nodes, "none_inputs"),
        dtype=texts.numbers(first and first.dtype for first in firsts),
        device=texts.numbers(first and first.device for first in firsts),
    )
    pack.put(
        outputs=tensors.rows,
        sources=sources.rows,
        attributes=attributes.rows,
        names=names.rows,
    )


def _types(graph: Graph, pack: Pack, texts: Table) -> None:
    """Columns that hardly differ among nodes of one type."""
    nodes, flags = graph.nodes, Table(_flags)
    types = list(zip(column(nodes, "op"), column(nodes, "function")))
    forward_of: dict[tuple[str, Function | None], str] = {}
    for i, type in enumerate(types):
        # many nodes have one of few types
        if type not in forward_of:
            forward_of[type] = forward_name(nodes[i])

    flag_words: list[tuple[tuple[str, str], ...]] = []
    for i, flagged in enumerate(column(nodes, "flags")):
        words = labels.flag_words(nodes[i]) if flagged else {}
        flag_words.append(tuple(words.items()))

    functions = (function for _, function in types)
    pack.add(
        forward=texts.numbers(forward_of[type] for type in types),
        function=texts.numbers(f and labels.function_line(f) for f in functions),
        flag=flags.numbers(flag_words),
    )
    pack.put(flags=flags.rows)


def _slots(graph: Graph, pack: Pack, texts: Table) -> None:
    slots_of = list(column(graph.nodes, "saved"))
    saved = list(chain.from_iterable(slots_of))
    pack.add(
        slotNode=(node for node, slots in enumerate(slots_of) for _ in slots),
        slotName=texts.numbers(slot.slot for slot in saved),
        slotTensor=texts.numbers(
            slot.tensor and tensor_line(slot.tensor) for slot in saved
        ),
        slotStorage=(slot.storage for slot in saved),
        slotWords=texts.numbers(map(_slot_words, saved)),
        slotBytes=(slot.nbytes for slot in saved),
        slotLeaf=(slot.leaf for slot in saved),
    )


def _slot_words(saved: SavedTensor) -> str:
    state = labels.state_text(saved.state) if saved.state != "live" else ""
    return ", ".join(filter(None, (labels.kind_text(saved), state, saved.note)))


def _tensor_lines(tensors: Iterable[TensorInfo | None]) -> list[str]:
    return [tensor_line(tensor) for tensor in tensors]


def _as_text(attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple([(name, str(value)) for name, value in attributes.items()])


def _attributes(attributes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(one_line(name), clip(value, 300)) for name, value in attributes]


def _flags(flags: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(flag.removeprefix("in_"), words) for flag, words in flags]


def _source(source: SourceLine) -> list[Any]:
    function, text = one_line(source.function), one_line(source.text.strip())
    return [file_text(source.file), source.line, function, text]


def _table(records: Iterable[Any], fields: str, **nothing: Any) -> dict[str, Any]:
    """Rows of these fields, whose names are written once; a field that is None is
    written as what `nothing` has for it.
    """
    names = fields.split()

    def cell(record: Any, name: str) -> Any:
        value = getattr(record, name)
        return nothing.get(name) if value is None else _cell(value)

    rows = [[cell(record, name) for name in names] for record in records]
    return {"fields": names, "rows": rows}


def _cell(value: Any) -> Any:
    """A value as JSON has it: a line for text and for a tensor, a word for a number
    that is not finite.
    """
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, TensorInfo):
        return tensor_line(value)
    if isinstance(value, Base):
        return [", ".join(map(one_line, value.names)), tensor_line(value.tensor)]
    if isinstance(value, tuple):
        return [_cell(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _absent(absent: Absent) -> list[str]:
    source = absent.source
    # a reason such as "set in line 13" has it already
    is_told = source is None or f"line {source.line}" in absent.reason
    where = "" if is_told else f", {labels.source_text(source)}"
    return [
        labels.names_text(absent.names),
        tensor_line(absent.tensor),
        one_line(f"{absent.reason}{where}"),
    ]


# -- what backward does, step by step: which function runs, which bytes it frees, which
# gradients wait
#
# The order is the measured one when the graph has it, else the engine's rule is
# followed: of what is ready, the highest sequence number first, AccumulateGrad before
# all. Memory is counted as autograd keeps it without `retain_graph`: what a function
# saved is freed when it has run, a gradient waits from the first function that sends it
# until its own function runs.
#
# Source: https://docs.pytorch.org/docs/stable/notes/autograd.html


def _backward(graph: Graph, pack: Pack) -> None:
    steps = backward_steps(graph)
    pack.add(
        stepNode=steps.nodes,
        stepFreed=steps.freed,
        stepWaiting=steps.waiting,
        stepFilled=steps.filled,
    )
    small = [
        step
        for step in graph.backward
        if step.arrived or step.value or step.sent or step.spread or step.freed
    ]
    pack.put(
        heldAtFirst=sum(steps.freed),
        measured=bool(graph.backward),
        small=_table(small, "node arrived value sent spread freed"),
    )
    if graph.backward:
        pack.put(norms=[_norm(step.norm) for step in graph.backward])


def _norm(norm: float | None) -> float | str | None:
    """A norm in four digits."""
    if norm is None:
        return None
    if norm < 1e308:
        return float(f"{norm:.4g}")
    # also nan: JSON has neither of the two
    return "inf"


class BackwardSteps(NamedTuple):
    """One entry for each function that backward calls, in order. Bytes; `waiting` is
    after the step.
    """

    nodes: list[int]
    freed: list[int]  # of what is held for backward, by this step
    waiting: list[int]  # gradients that were sent and not yet used
    filled: list[int]  # of a `.grad` that this step makes


def backward_steps(graph: Graph) -> BackwardSteps:
    """The steps of one backward call from all roots."""
    order = [step.node for step in graph.backward] or engine_order(graph)
    return BackwardSteps(order, _freed(graph, order), *_gradients(graph, order))


def _freed(graph: Graph, order: list[int]) -> list[int]:
    """Bytes held for backward that each step frees: at the last one that still needs
    them.
    """
    last: dict[int, int] = {}
    saved = column(graph.nodes, "saved")

    for step, node in enumerate(order):
        for slot in saved[node]:
            if slot.state != "freed":
                for storage in slot.storages:
                    last[storage] = step

    freed = [0] * len(order)
    counted = counted_bytes(graph)
    for storage, step in last.items():
        freed[step] += counted[storage]
    return freed


def _gradients(graph: Graph, order: list[int]) -> tuple[list[int], list[int]]:
    """Bytes of gradients that wait after each step, and bytes of `.grad` that each step
    makes.
    """
    sizes, producers = _gradient_sizes(graph), graph.producers
    unsent = list(sizes)
    waiting: list[int] = []
    filled: list[int] = []
    now = 0

    for root in graph.roots:
        if root.node is not None:
            now += unsent[root.node]
            unsent[root.node] = 0

    for node in order:
        # a gradient that nobody sent was not waiting
        now -= sizes[node] - unsent[node]
        for place in graph.input_places(node):
            now += unsent[producers[place]]
            unsent[producers[place]] = 0
        waiting.append(max(now, 0))
        leaf = graph.leaf_of.get(node)
        filled.append(sizes[node] if leaf is not None and not leaf.has_grad else 0)
    return waiting, filled


def _gradient_sizes(graph: Graph) -> list[int]:
    """Bytes of the gradient that each function gets, as far as they are known."""
    outputs = list(column(graph.nodes, "outputs"))
    for leaf in graph.leaves:
        outputs[leaf.node] = (leaf.tensor,)

    size_of: dict[tuple[TensorInfo | None, ...], int] = {}
    for tensors in outputs:
        # alike nodes share one size
        if tensors not in size_of:
            sizes = (tensor_bytes(tensor) for tensor in filter(None, tensors))
            size_of[tensors] = sum(filter(None, sizes))
    return [size_of[tensors] for tensors in outputs]
