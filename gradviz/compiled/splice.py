"""Puts what compiled regions do into the graph, in place of the single function that torch recorded for each.

The operations of a region become ordinary nodes, in ordinary scopes and with ordinary saved slots, so that whatever reads a
graph goes inside. Edges run from the consumer to the producer as everywhere: a gradient that goes from one operation to another
comes from the consumer, and a result that an operation computes again is a producer that no gradient goes to.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from gradviz.compiled.region import ForwardPlace, Region, Use, sized
from gradviz.compiled.scoping import KnownModule, Scoping
from gradviz.graph import Edge, Graph, Node, NodeFlag, Root, SavedTensor, TensorInfo
from gradviz.graph.amounts import tensor_bytes
from gradviz.report.labels import source_text
from gradviz.walker.regions import Opened, RegionPart
from gradviz.wording import bytes_text, few, place_text, plural, verb


class _Source(NamedTuple):
    """Where a gradient comes from: a node, and which result of it or gradient that comes in there; None: it is not known."""

    node: int
    result: int | None


class _Edge(NamedTuple):
    """An edge from an opened node: where to, and which of its results goes along it, None where no gradient does."""

    producer: int
    output: int
    result: int | None


_FLAGS: dict[NodeFlag, NodeFlag] = {"compiled": "in_compiled"}  # of a function that has been opened
_STATES: tuple[Literal["freed", "modified", "packed"], ...] = ("freed", "modified", "packed")
_SLOT = re.compile(r"(saved_tensors|ctx\._tensors_no_vc_check)\[(\d+)\]")


class RegionCall(NamedTuple):
    """A region of one node, and what is known of this call of it.

    `edges` are the places in what the backward returns that the node's edges stand for, `sizes` the values of its size inputs,
    `checked` how many of the saved tensors torch watches for changes in place; the others follow them.
    """

    region: Region
    edges: tuple[int, ...]
    sizes: tuple[int, ...]
    checked: int
    compiled: bool | None = None  # whether the backward has been compiled by now; None where torch does not tell


def splice(graph: Graph, calls: Mapping[int, RegionCall], modules: Mapping[int, KnownModule]) -> Opened:
    """The graph with the operations of these regions, by the id of the node that runs them, and what each node of it is there.

    The ids of operations follow all others, which stay what they are. `modules` are the modules that the caller has names
    for, by identity.
    """
    made = _Spliced(graph, modules)
    for node, call in calls.items():
        made.open(node, call)
    return Opened(made.graph(), made.parts())


class _Spliced:
    def __init__(self, graph: Graph, modules: Mapping[int, KnownModule]) -> None:
        self._before = graph
        self._nodes = list(graph.nodes)
        self._edges = defaultdict[int, list[_Edge]](list)  # of each opened or new node, by position
        self._part_of: dict[int, tuple[int, int | None]] = {}  # region and operation
        self._moved: dict[tuple[int, int], tuple[int, int]] = {}  # node and output that are another node's now
        self._scoping = Scoping(graph, modules)
        self._notes: list[str] = []
        self._described = False

    def graph(self) -> Graph:
        before = self._before
        edges: list[Edge] = []
        for edge in before.edges:
            if edge.consumer not in self._edges:
                producer, output = self._at(edge.producer, edge.output)
                edges.append(edge._replace(producer=producer, output=output))
        for consumer, given in self._edges.items():
            edges.extend(Edge(consumer, edge.producer, edge.output, i) for i, edge in enumerate(given))
        edges.sort(key=lambda edge: (edge.consumer, edge.position))
        if self._described:
            self._place_leaves()
        return replace(
            before,
            nodes=tuple(self._nodes),
            edges=tuple(edges),
            roots=tuple([self._root(root) for root in before.roots]),
            scopes=self._scoping.scopes,
            attribution="recorded" if self._described else before.attribution,
            notes=(*before.notes, *self._notes),
        )

    def parts(self) -> dict[int, RegionPart]:
        return {
            node: RegionPart(*part, tuple([edge.result for edge in self._edges[node]]))
            for node, part in self._part_of.items()
        }

    def _at(self, node: int, output: int) -> tuple[int, int]:
        """The node that an output is of now, and which one."""
        return self._moved.get((node, output), (node, output))

    def _root(self, root: Root) -> Root:
        if root.node is None:
            return root
        node, output = self._at(root.node, root.output)
        return root._replace(node=node, output=output)

    def _place_leaves(self) -> None:
        """Put leaves into the first call of the module that their name tells, where the walk knew of no such call."""
        for leaf in self._before.leaves:
            known = (self._scoping.first(name.rpartition(".")[0]) for name in leaf.names)
            scope = next((scope for scope in known if scope is not None), None)
            if scope is not None:
                self._nodes[leaf.node] = self._nodes[leaf.node]._replace(scope=scope)

    # -- one region ------------------------------------------------------------------------------------------------

    def open(self, node: int, call: RegionCall) -> None:
        region, record = call.region, self._nodes[node]
        first, inputs = len(self._nodes), len(region.inputs)
        sizes = dict(zip((argument.symbol for argument in region.inputs if argument.kind == "size"), call.sizes))
        self._described |= region.described
        outer = self._scoping.around(record.scope, [*region.inputs, *region.operations])
        made = [_made(argument.place, self._scoping.path(argument.place, outer)) for argument in region.inputs]
        slots, rest = _slots(record, call, made)
        flags = tuple([_FLAGS.get(flag, flag) for flag in record.flags])
        scopes = [self._scoping.scope(operation.place, outer) for operation in region.operations]
        self._place_sums(region, scopes, outer)
        for i, scope in enumerate(scopes):
            self._nodes.append(_node(first + i, record, region, i, slots, sizes, scope))
            self._part_of[first + i] = node, i
        entries = self._entries(record._replace(flags=flags, none_inputs=0), region)

        def give(producer: int, output: int, use: Use) -> None:
            """An edge on which a gradient goes from the value `use` to `producer`."""
            computed = _Source(first + use.value - inputs, use.result)
            consumer, result = entries[use.value] if use.value < inputs else computed
            self._edges[consumer].append(_Edge(producer, output, result))

        self._add_recomputed(first, region)
        for i in range(len(region.operations)):
            for output, use in enumerate(region.carrying(i)):
                give(first + i, output, use)
        self._give_back(node, call, give)
        for entry in {node, *(source.node for source in entries.values())}:
            self._edges.setdefault(entry, [])
            self._part_of[entry] = node, None
        if not rest:
            flags = tuple([flag for flag in flags if flag not in _STATES])
        known = {"backward_compiled": call.compiled} if call.compiled is not None else {}
        attributes = {**record.attributes, **known, "operations": len(region.operations)}
        self._nodes[node] = record._replace(flags=flags, saved=rest, none_inputs=0, scope=outer, attributes=attributes)
        if not region.described:
            self._notes.append(_lost(record, region))

    def _add_recomputed(self, first: int, region: Region) -> None:
        """The edges to operations of this region that no gradient goes to."""
        inputs = len(region.inputs)
        for i, operation in enumerate(region.operations, first):
            self._edges[i] += [
                _Edge(first + use.value - inputs, use.result, None)
                for use in operation.uses
                if use.value >= inputs and not region.carries(use.value)
            ]

    def _place_sums(self, region: Region, scopes: list[int | None], outer: int | None) -> None:
        """Put sums of gradients that meet, of which no module is noted, into the innermost call that is around both neighbours."""
        placed = [i for i, operation in enumerate(region.operations) if not operation.meeting]
        for i, operation in enumerate(region.operations):
            if operation.meeting:
                at = bisect(placed, i)
                beside = [scopes[number] for number in placed[max(at - 1, 0) : at + 1]]
                scopes[i] = self._scoping.common(beside) if len(beside) == 2 else outer

    def _give_back(self, node: int, call: RegionCall, give: Callable[[int, int, Use], None]) -> None:
        """The edges to what the region's forward got its inputs from."""
        none = []
        for edge, place in zip(self._before.inputs(node), call.edges):
            use = call.region.gradients[place]
            producer, output = self._at(edge.producer, edge.output)
            if use is None:
                none.append(" = ".join(self._nodes[producer].names) or self._nodes[producer].op)
            else:
                give(producer, output, use)
        if none:
            self._notes.append(
                f"{plural(len(none), 'input')} of a compiled function {verb(none, 'gets', 'get')} no gradient from it: "
                f"{few(none)}"
            )

    def _entries(self, record: Node, region: Region) -> dict[int, _Source]:
        """Where the gradient of each output comes in, by the number of the input that holds it.

        Each has its own where there are several outputs, so that paths from one do not seem to lead through what only the other
        depends on. The first that is used stays the node itself.
        """
        node = record.id
        arriving = [i for i, argument in enumerate(region.inputs) if argument.kind == "gradient"]
        outputs = [i for i, output in enumerate(record.outputs) if output is not None]
        if len(arriving) == 1 or len(outputs) != len(arriving):
            return dict.fromkeys(arriving, _Source(node, outputs[0] if len(outputs) == 1 else None))
        used = {edge.output for edge in self._before.consumers(node)}
        used |= {root.output for root in self._before.roots_of.get(node, ())}
        own = next((output for output in outputs if output in used), outputs[0])
        entries: dict[int, _Source] = {}
        for number, output in zip(arriving, outputs):
            entries[number] = _Source(node, output)
            if output != own:
                new = len(self._nodes)
                entries[number] = _Source(new, 0)
                self._nodes.append(record._replace(id=new, outputs=(record.outputs[output],), saved=(), names=()))
                self._moved[node, output] = new, 0
        return entries


def _node(
    id: int,
    record: Node,
    region: Region,
    number: int,
    slots: Mapping[int, SavedTensor],
    sizes: Mapping[str, int],
    scope: int | None,
) -> Node:
    operation, kind = region.operations[number], region.kind(number)
    flags: list[NodeFlag] = ["in_compiled", "recomputed"] if kind == "recomputed" else ["in_compiled"]
    attributes: dict[str, object] = {"name": operation.name}
    if kind == "gradient" and operation.forward_call is not None and not operation.meeting:
        attributes["forward_call"] = operation.forward_call
        if operation.called:
            attributes["gradient of"] = operation.called
    nbytes = _bytes_spared(region, number, sizes)
    if nbytes:
        attributes["saves"] = bytes_text(nbytes)
    saved = tuple([slots[use.value] for use in dict.fromkeys(operation.uses) if use.value in slots])
    flags += [flag for flag in _STATES if any(slot.state == flag for slot in saved)]
    place = operation.place if operation.place.source is not None else record  # else the line that called the region
    return Node(
        id,
        operation.op,
        tuple([sized(tensor, sizes) for tensor in _outputs(region, number)]),
        record.sequence,
        scope,
        place.source,
        attributes,
        saved,
        tuple(flags),
        script_line=place.script_line,
    )


def _bytes_spared(region: Region, number: int, sizes: Mapping[str, int]) -> int:
    """Bytes of the results that an operation computes again; 0 where that is not known."""
    results = [sized(region.operations[number].results[i], sizes) for i in region.kept_alive_by.get(number, ())]
    nbytes = [tensor_bytes(tensor) for tensor in results if tensor is not None]
    return sum(filter(None, nbytes)) if None not in nbytes else 0


def _outputs(region: Region, number: int) -> list[TensorInfo | None]:
    """The tensors that arrive as gradients, as for every backward function; of any other operation, what it makes."""
    operation = region.operations[number]
    if region.kind(number) == "gradient":
        return [*map(region.result, region.carrying(number))]
    return list(operation.results)


# -- saved tensors -----------------------------------------------------------------------------------------------------


def _slots(
    record: Node, call: RegionCall, made: Sequence[str]
) -> tuple[dict[int, SavedTensor], tuple[SavedTensor, ...]]:
    """The slots of a region's node by the number of the input that they are, and those that are none of its inputs.

    `made` says of each input where in the forward it was made.
    """
    region = call.region
    saved = [i for i, argument in enumerate(region.inputs) if argument.kind == "saved"]
    used = {use.value for operation in region.operations for use in operation.uses}

    slots: dict[int, SavedTensor] = {}
    rest: list[SavedTensor] = []
    for slot in record.saved:
        match = _SLOT.fullmatch(slot.slot)
        place = (
            int(match[2]) + (call.checked if match[1] != "saved_tensors" else 0) if match is not None else len(saved)
        )
        if slot.slot == "saved_tensors" and slot.state == "freed":
            slots.update((i, slot._replace(slot=region.inputs[i].name)) for i in saved if i in used)
        elif place >= len(saved):
            rest.append(slot)
        else:
            number = saved[place]
            note = "; ".join(filter(None, (slot.note, made[number])))
            named = slot._replace(slot=region.inputs[number].name, note=note)
            if number in used:
                slots[number] = named
            else:
                rest.append(named)
    return slots, tuple(rest)


def _made(place: ForwardPlace, path: str) -> str:
    """ "made in model.fc (Linear), train.py:12"; "" where nothing is noted."""
    told = [f"{path} ({place.modules[-1].type})".strip()] if place.modules else []
    if place.source is not None:
        told.append(source_text(place.source._replace(package="")))
    return f"made in {', '.join(told)}" if told else ""


def _lost(record: Node, region: Region) -> str:
    where = f" called in {place_text(record.source.file, record.source.line)}" if record.source is not None else ""
    return (
        f"torch has dropped what it knew of the {plural(len(region.operations), 'operation')} of a compiled function{where} (it "
        "does so when it keeps the function in its cache on disk): their shapes, modules, lines, and which of them compute "
        "again what the forward had computed. To see these, set TORCHINDUCTOR_AUTOGRAD_CACHE=0"
    )
