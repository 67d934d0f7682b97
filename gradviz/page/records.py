"""Everything the graph knows of its nodes, leaves, outputs and modules, as columns and tables.

Panel, search, overlays and the backward pass read them in the browser. Knows nothing of groups and places.
"""

from __future__ import annotations

from typing import Any

from gradviz.draw.summary import rank_bars
from gradviz.graph import Base, Graph, Leaf, Node, Root, SavedTensor, Scope, SourceLine, column
from gradviz.graph.amounts import held_bytes, known_elements
from gradviz.graph.origins import forward_name
from gradviz.page.backward import BackwardSteps, backward_steps
from gradviz.page.pack import Pack, Table
from gradviz.report import labels
from gradviz.wording import clip, one_line, tensor_line

NONE = -1


def records(graph: Graph) -> Pack:
    """The block that is read second. Columns of nodes are by node id; -1 stands for nothing."""
    pack = Pack()
    _Writer(graph, pack).write()
    _backward(backward_steps(graph), pack)
    pack.put("leaves", [_leaf(leaf) for leaf in graph.leaves])
    pack.put("roots", [_root(root) for root in graph.roots])
    pack.put("scopes", [_scope(scope) for scope in graph.scopes])
    pack.put("marks", [[mark.number, mark.id, mark.words, list(mark.nodes), [list(e) for e in mark.edges], list(mark.outputs)]
                       for mark in graph.marks])  # fmt: skip
    pack.put("ofRanks", bool(graph.by_rank))
    pack.put("byRank", [list(bar) for bar in rank_bars(graph)])
    return pack


class _Writer:
    def __init__(self, graph: Graph, pack: Pack) -> None:
        self._graph, self._pack = graph, pack
        self._texts, self._outputs, self._names, self._flags = Table(), Table(), Table(), Table()
        self._sources, self._attributes = Table(), Table()

    def write(self) -> None:
        columns: dict[str, list[int]] = {name: [] for name in _NODE_COLUMNS}
        slots: dict[str, list[int]] = {name: [] for name in _SLOT_COLUMNS}
        add = [columns[name].append for name in _NODE_COLUMNS]
        for node in self._graph.nodes:
            for append, value in zip(add, self._node(node)):
                append(value)
            for saved in node.saved:
                for name, value in zip(_SLOT_COLUMNS, self._slot(saved)):
                    slots[name].append(value)
        for name, values in (columns | slots).items():
            self._pack.add(name, values)
        self._pack.add("held", held_bytes(self._graph))
        self._pack.add("storageBytes", [NONE if n is None else n for n in column(self._graph.storages, "nbytes")])
        kinds = Table()
        self._pack.add("storageKind", kinds.numbers(column(self._graph.storages, "kind")))
        self._pack.put("storageKinds", kinds.rows)
        for name, table in (("texts", self._texts), ("outputs", self._outputs), ("names", self._names)):
            self._pack.put(name, table.rows)
        for name, table in (("flags", self._flags), ("sources", self._sources), ("attributes", self._attributes)):
            self._pack.put(name, table.rows)
        for name in ("producer", "output"):
            self._pack.add(name, list(column(self._graph.edges, name)))
        self._pack.add("inputs", [len(self._graph.input_places(i)) for i in range(len(self._graph.nodes))])

    def _node(self, node: Node) -> tuple[int, ...]:
        text = self._texts.number
        first = next((output for output in node.outputs if output is not None), None)
        leaf = self._graph.leaf_of.get(node.id)
        first = first if first is not None or leaf is None else leaf.tensor
        attributes = tuple((one_line(name), clip(str(value), 300)) for name, value in node.attributes.items())
        return (
            text(one_line(node.op)),
            text(one_line(forward_name(node))),
            self._outputs.number(node.outputs, [tensor_line(output) for output in node.outputs]),
            NONE if node.sequence is None else node.sequence,
            NONE if node.scope is None else node.scope,
            self._source(node.source),
            self._source(getattr(node, "script_line", None)),
            self._attributes.number(attributes),
            self._flags.number(node.flags, [[flag, labels.FLAG_WORDS[flag]] for flag in node.flags]),
            self._names.number(node.names, [one_line(name) for name in node.names]),
            node.none_inputs,
            NONE if node.function is None else text(labels.function_line(node.function)),
            NONE if first is None else text(one_line(first.dtype)),
            NONE if first is None else text(one_line(first.device)),
            len(node.saved),
        )

    def _slot(self, saved: SavedTensor) -> tuple[int, ...]:
        text = self._texts.number
        state = labels.state_text(saved.state) if saved.state != "live" else ""
        return (
            text(one_line(saved.slot)),
            NONE if saved.tensor is None else text(tensor_line(saved.tensor)),
            NONE if saved.storage is None else saved.storage,
            text(", ".join(filter(None, (labels.kind_text(saved), state, one_line(saved.note))))),
            NONE if saved.nbytes is None else saved.nbytes,
            NONE if saved.leaf is None else saved.leaf,
        )

    def _source(self, source: SourceLine | None) -> int:
        if source is None:
            return NONE
        file = one_line(source.file)
        return self._sources.number(
            source, [file, source.line, one_line(source.function), one_line(source.text.strip())]
        )


_NODE_COLUMNS = (
    *("op", "forward", "outs", "sequence", "scope", "source", "scriptLine", "attribute", "flag", "name"),
    *("noneInputs", "function", "dtype", "device", "slots"),
)
_SLOT_COLUMNS = ("slotName", "slotTensor", "slotStorage", "slotWords", "slotBytes", "slotLeaf")


def _backward(steps: BackwardSteps, pack: Pack) -> None:
    pack.add("stepNode", steps.nodes)
    pack.add("stepFreed", steps.freed)
    pack.add("stepWaiting", steps.waiting)
    pack.add("stepFilled", steps.filled)
    pack.put("heldAtFirst", steps.held)
    pack.put("measured", steps.measured)
    if steps.measured:
        pack.put(
            "norms", [None if norm is None else float(f"{norm:.4g}") if norm < 1e308 else "inf" for norm in steps.norms]
        )


def _leaf(leaf: Leaf) -> list[Any]:
    return [
        leaf.node,
        [one_line(name) for name in leaf.names],
        tensor_line(leaf.tensor),
        leaf.kind,
        leaf.has_grad,
        leaf.hooks,
        NONE if leaf.storage is None else leaf.storage,
        known_elements(leaf.tensor),
        _base(leaf.base),
    ]


def _root(root: Root) -> list[Any]:
    node = NONE if root.node is None else root.node
    tensor = tensor_line(root.tensor)
    return [node, root.output, one_line(root.name), tensor, one_line(root.why), _base(root.base)]


def _base(base: Base | None) -> list[Any] | None:
    if base is None:
        return None
    names = ", ".join(one_line(name) for name in base.names)
    return [NONE if base.node is None else base.node, names, tensor_line(base.tensor)]


def _scope(scope: Scope) -> list[Any]:
    output = tensor_line(scope.output) if scope.output is not None else ""
    parent = NONE if scope.parent is None else scope.parent
    return [one_line(scope.path), one_line(scope.type), scope.call, parent, scope.parameters or 0, output]
