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
from gradviz.page.pack import NOTHING, Pack, Table
from gradviz.report import labels
from gradviz.wording import clip, one_line, tensor_line


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
        self._texts, self._outputs, self._names, self._flags, self._sources, self._attributes = (
            Table() for _ in range(6)
        )

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
        for name, values in zip((*_NODE_COLUMNS, *_SLOT_COLUMNS), (*nodes, *slots)):
            pack.add(name, values)
        pack.add("held", held_bytes(graph))
        pack.add("storageBytes", column(graph.storages, "nbytes"))
        kinds = Table()
        pack.add("storageKind", kinds.numbers(column(graph.storages, "kind")))
        pack.put("storageKinds", kinds.rows)
        tables = (self._texts, self._outputs, self._names, self._flags, self._sources, self._attributes)
        for name, table in zip(("texts", "outputs", "names", "flags", "sources", "attributes"), tables):
            pack.put(name, table.rows)
        for name in ("producer", "output"):
            pack.add(name, column(graph.edges, name))
        pack.add("inputs", [len(graph.input_places(i)) for i in range(len(graph.nodes))])

    def _text(self, text: str | None) -> int | None:
        return None if text is None else self._texts.number(one_line(text))

    def _node(self, node: Node) -> tuple[int | None, ...]:
        first = next((output for output in node.outputs if output is not None), None)
        leaf = self._graph.leaf_of.get(node.id)
        first = first if first is not None or leaf is None else leaf.tensor
        attributes = tuple((one_line(name), clip(str(value), 300)) for name, value in node.attributes.items())
        flags = tuple(labels.flag_words(self._graph, node).items()) if node.flags else ()
        return (
            self._text(node.op),
            self._text(forward_name(node)),
            self._outputs.number(node.outputs, [tensor_line(output) for output in node.outputs]),
            node.sequence,
            node.scope,
            self._source(node.source),
            self._source(node.script_line),
            self._attributes.number(attributes),
            self._flags.number(flags, [[flag.removeprefix("in_"), words] for flag, words in flags]),
            self._names.number(node.names, [one_line(name) for name in node.names]),
            node.none_inputs,
            self._text(labels.function_line(node.function) if node.function is not None else None),
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
            self._text(", ".join(filter(None, (labels.kind_text(saved), state, saved.note)))),
            saved.nbytes,
            saved.leaf,
        )

    def _source(self, source: SourceLine | None) -> int | None:
        if source is None:
            return None
        file, function, text = map(one_line, (source.file, source.function, source.text.strip()))
        return self._sources.number(source, [file, source.line, function, text])


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
        _known(leaf.storage),
        known_elements(leaf.tensor),
        _base(leaf.base),
    ]


def _root(root: Root) -> list[Any]:
    tensor = tensor_line(root.tensor)
    return [_known(root.node), root.output, one_line(root.name), tensor, one_line(root.why), _base(root.base)]


def _base(base: Base | None) -> list[Any] | None:
    if base is None:
        return None
    names = ", ".join(one_line(name) for name in base.names)
    return [_known(base.node), names, tensor_line(base.tensor)]


def _scope(scope: Scope) -> list[Any]:
    output = tensor_line(scope.output) if scope.output is not None else ""
    return [one_line(scope.path), one_line(scope.type), scope.call, _known(scope.parent), scope.parameters or 0, output]


def _known(number: int | None) -> int:
    return NOTHING if number is None else number
