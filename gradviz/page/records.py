"""Everything the graph knows of its nodes, leaves, outputs and modules, and what
backward does, as columns and tables.

Panel, search, overlays and the backward pass read them in the browser. Knows nothing of
groups and places.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gradviz.draw.chart import chart_of
from gradviz.features import hook
from gradviz.graph import (
    Absent,
    Base,
    Data,
    Graph,
    Leaf,
    Node,
    Root,
    SavedTensor,
    Scope,
    SourceLine,
    column,
)
from gradviz.graph.amounts import (
    counted_bytes,
    held_bytes,
    known_elements,
    own_seconds,
    tensor_bytes,
)
from gradviz.graph.origins import forward_name
from gradviz.graph.ready_queue import engine_order
from gradviz.page.pack import NOTHING, Pack, Table
from gradviz.report import labels
from gradviz.wording import clip, file_text, one_line, tensor_line


def records(graph: Graph) -> Pack:
    """The block that is read second. Columns of nodes are by node id; -1 stands for
    nothing.
    """
    pack = Pack()
    _Writer(graph, pack).write()
    _backward(graph, pack)
    pack.put(
        leaves=[_leaf(leaf) for leaf in graph.leaves],
        roots=[_root(root) for root in graph.roots],
        data=[_data(data) for data in graph.data],
        scopes=[_scope(scope) for scope in graph.scopes],
        seconds=[float(f"{seconds:.3g}") for seconds in own_seconds(graph)],
        marks=[mark[:-1] for mark in graph.marks],  # all but the kind
        absent=[_absent(absent) for absent in graph.absent],
        ofRanks=bool(graph.by_rank),
        byRank=chart_of(graph).bars,
        formulas=_formulas(graph),
    )

    return pack


def _formulas(
    graph: Graph,
) -> dict[str, dict[str, Any]]:
    """What the ops compute, send back and keep, as far as it is known."""
    facts_of = hook("gradviz.formulas.lookup:facts_of")
    if facts_of is None:
        return {}

    facts = {op: facts_of(op) for op in sorted(set(column(graph.nodes, "op")))}
    return {op: formula for op, formula in facts.items() if formula}


class _Writer:
    def __init__(self, graph: Graph, pack: Pack) -> None:
        self._graph, self._pack = graph, pack
        (
            self._texts,
            self._outputs,
            self._names,
            self._flags,
            self._sources,
            self._attributes,
        ) = (Table() for _ in range(6))

    def write(self) -> None:
        graph, pack = self._graph, self._pack
        nodes: list[list[int | None]] = [[] for _ in _NODE_COLUMNS]
        slots: list[list[int | None]] = [[] for _ in _SLOT_COLUMNS]

        for node in graph.nodes:
            for values, value in zip(nodes, self._node(node)):
                values.append(value)
            for saved in node.saved:
                for values, value in zip(slots, self._slot(saved)):
                    values.append(value)

        pack.add(**dict(zip((*_NODE_COLUMNS, *_SLOT_COLUMNS), (*nodes, *slots))))
        kinds = Table()
        pack.add(
            held=held_bytes(graph),
            storageBytes=column(graph.storages, "nbytes"),
            storageKind=kinds.numbers(column(graph.storages, "kind")),
            producer=column(graph.edges, "producer"),
            position=column(graph.edges, "position"),
            output=column(graph.edges, "output"),
            inputs=(len(graph.input_places(i)) for i in range(len(graph.nodes))),
        )
        pack.put(
            storageKinds=kinds.rows,
            texts=self._texts.rows,
            outputs=self._outputs.rows,
            names=self._names.rows,
            flags=self._flags.rows,
            sources=self._sources.rows,
            attributes=self._attributes.rows,
        )

    def _text(self, text: str | None) -> int | None:
        return None if text is None else self._texts.number(one_line(text))

    def _node(self, node: Node) -> tuple[int | None, ...]:
        first = next(
            (output for output in node.outputs if output is not None),
            None,
        )
        leaf = self._graph.leaf_of.get(node.id)
        first = first if first is not None or leaf is None else leaf.tensor
        attributes = tuple(
            (one_line(name), clip(str(value), 300))
            for name, value in node.attributes.items()
        )

        if node.flags:
            flags = tuple(labels.flag_words(self._graph, node).items())
        else:
            flags = ()

        function = None
        if node.function is not None:
            function = labels.function_line(node.function)

        return (
            self._text(node.op),
            self._text(forward_name(node)),
            self._outputs.number(
                node.outputs, [tensor_line(output) for output in node.outputs]
            ),
            node.sequence,
            node.scope,
            self._source(node.source),
            self._source(node.script_line),
            self._attributes.number(attributes),
            self._flags.number(
                flags, [[flag.removeprefix("in_"), words] for flag, words in flags]
            ),
            self._names.number(
                node.names,
                [one_line(name) for name in node.names],
            ),
            node.none_inputs,
            self._text(function),
            self._text(first.dtype if first is not None else None),
            self._text(first.device if first is not None else None),
            len(node.saved),
        )

    def _slot(self, saved: SavedTensor) -> tuple[int | None, ...]:
        state = labels.state_text(saved.state) if saved.state != "live" else ""
        return (
            self._text(saved.slot),
            self._text(tensor_line(saved.tensor) if saved.tensor is not None else None),
            saved.storage,
            self._text(
                ", ".join(
                    filter(
                        None,
                        (labels.kind_text(saved), state, saved.note),
                    )
                )
            ),
            saved.nbytes,
            saved.leaf,
        )

    def _source(self, source: SourceLine | None) -> int | None:
        if source is None:
            return None
        function, text = map(
            one_line,
            (source.function, source.text.strip()),
        )
        return self._sources.number(
            source, [file_text(source.file), source.line, function, text]
        )


_NODE_COLUMNS = (
    *(
        "op",
        "forward",
        "outs",
        "sequence",
        "scope",
        "source",
        "scriptLine",
        "attribute",
        "flag",
        "name",
    ),
    *("noneInputs", "function", "dtype", "device", "slots"),
)
_SLOT_COLUMNS = (
    "slotName",
    "slotTensor",
    "slotStorage",
    "slotWords",
    "slotBytes",
    "slotLeaf",
)


def _leaf(leaf: Leaf) -> list[Any]:
    return [
        leaf.node,
        [one_line(name) for name in leaf.names],
        tensor_line(leaf.tensor),
        leaf.kind,
        leaf.has_grad,
        leaf.hooks,
        _known(leaf.storage),
        known_elements(leaf.tensor),
        _base(leaf.base),
    ]


def _root(root: Root) -> list[Any]:
    tensor = tensor_line(root.tensor)
    return [
        _known(root.node),
        root.output,
        one_line(root.name),
        tensor,
        one_line(root.why),
        _base(root.base),
    ]


def _data(data: Data) -> list[Any]:
    names = [one_line(name) for name in data.names]
    return [names, tensor_line(data.tensor), _known(data.storage)]


def _base(base: Base | None) -> list[Any] | None:
    if base is None:
        return None
    names = ", ".join(one_line(name) for name in base.names)
    return [_known(base.node), names, tensor_line(base.tensor)]


def _scope(scope: Scope) -> list[Any]:
    output = tensor_line(scope.output) if scope.output is not None else ""
    return [
        one_line(scope.path),
        one_line(scope.type),
        scope.call,
        _known(scope.parent),
        scope.parameters or 0,
        output,
    ]


def _absent(absent: Absent) -> list[str]:
    where = (
        f", {labels.source_text(absent.source)}" if absent.source is not None else ""
    )
    return [
        labels.names_text(absent.names),
        tensor_line(absent.tensor),
        one_line(f"{absent.reason}{where}"),
    ]


def _known(number: int | None) -> int:
    return NOTHING if number is None else number


# -- what backward does, step by step: which function runs, which bytes it frees, which
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
    pack.put(
        heldAtFirst=sum(steps.freed),
        measured=bool(graph.backward),
    )
    small = [step for step in graph.backward if step.arrived or step.value or step.sent]
    pack.put(
        small=[
            [
                step.node,
                *map(
                    _plain,
                    (step.arrived, step.value, step.sent),
                ),
            ]
            for step in small
        ]
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


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: what is not finite as a word."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if math.isfinite(value) else repr(value)


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
    return BackwardSteps(
        order,
        _freed(graph, order),
        *_gradients(graph, order),
    )


def _freed(
    graph: Graph,
    order: list[int],
) -> list[int]:
    """Bytes held for backward that each step frees: at the last one that still needs
    them.
    """
    last: dict[int, int] = {}
    saved = column(graph.nodes, "saved")

    for step, node in enumerate(order):
        for slot in saved[node]:
            if slot.state != "freed":
                last.update(dict.fromkeys(slot.storages, step))

    freed = [0] * len(order)
    counted = counted_bytes(graph)
    for storage, step in last.items():
        freed[step] += counted[storage]
    return freed


def _gradients(
    graph: Graph,
    order: list[int],
) -> tuple[list[int], list[int]]:
    """Bytes of gradients that wait after each step, and bytes of `.grad` that each step
    makes.
    """
    outputs, producers = column(graph.nodes, "outputs"), column(graph.edges, "producer")
    sent = bytearray(len(graph.nodes))
    waiting: list[int] = []
    filled: list[int] = []
    now = 0

    def size(node: int) -> int:
        """Bytes of the gradient that a function gets, as far as they are known."""
        leaf = graph.leaf_of.get(node)
        tensors = outputs[node] if leaf is None else (leaf.tensor,)
        return sum(
            tensor_bytes(tensor) or 0 for tensor in tensors if tensor is not None
        )

    def send(node: int) -> int:
        first, sent[node] = not sent[node], 1
        return size(node) if first else 0

    for root in graph.roots:
        now += send(root.node) if root.node is not None else 0
    for node in order:
        now -= size(node) if sent[node] else 0
        for place in graph.input_places(node):
            now += send(producers[place])
        waiting.append(max(now, 0))
        leaf = graph.leaf_of.get(node)
        filled.append(size(node) if leaf is not None and not leaf.has_grad else 0)
    return waiting, filled
