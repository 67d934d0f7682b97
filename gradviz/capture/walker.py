"""From output tensors to a `Graph`: follows `next_functions` and `AccumulateGrad.variable`, iteratively.

Two steps. `_traverse` visits every node once, breadth first, and makes the edges; ids are the order of discovery, so
they are deterministic and the first root is node 0. `_Describer` then reads each node's facts while all of them are held.
Nothing of the user's graph outlives the walk, and what the walk touched stays safe to delete (`keepalive`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from inspect import unwrap
from itertools import repeat
from typing import Any, NamedTuple

import torch

from gradviz.capture import keepalive, private
from gradviz.capture.attribution import Attribution, Found, Places
from gradviz.capture.naming import Names, Namespace
from gradviz.capture.outputs import flatten
from gradviz.capture.private import LAST, Node
from gradviz.capture.saved import NOTHING, SavedReader
from gradviz.capture.tensors import (
    base_of,
    device_name,
    dtype_name,
    grad_fn_of,
    shape_of,
    storage_of,
    tensor_info,
    why_no_graph,
)
from gradviz.errors import NoGraphError
from gradviz.graph import (
    Base,
    Edge,
    Function,
    Graph,
    Leaf,
    NodeFlag,
    Root,
    SourceLine,
    TensorInfo,
)
from gradviz.graph import Node as NodeRecord

ACCUMULATE = "AccumulateGrad"
_HIDES: dict[str, NodeFlag] = {"CheckpointFunctionBackward": "checkpoint", "CompiledFunctionBackward": "compiled"}
_OPAQUE = ("CopySlices", "CppFunction")
_UNDEFINED = TensorInfo((), "float32", "cpu")
_Function = torch.autograd.Function


def capture(
    outputs: object,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
    saved: bool = True,
    need_graph: bool = True,
    attribution: Attribution | None = None,
    inspect: Callable[[Walked], None] | None = None,
) -> Graph:
    """The graph behind `outputs`, with names from `model`, else `params`, else `variables` (inner namespace first).

    `attribution` knows the scopes and source lines of the nodes. With `saved=False` saved tensors and attributes are not
    read. Raises NotATensorError when there is no tensor in `outputs`, and with `need_graph` NoGraphError when none of them
    has a graph. `inspect` is shown the live nodes behind the graph before they are let go.
    """
    tensors = flatten(outputs)
    names = Names(model, params, variables)
    collecting = gc.isenabled()
    gc.disable()  # a million new records would set off collection after collection
    try:
        with private.without_subclasses():
            variable = _variable_name(outputs, variables)
            roots = [_find_root(_root_name(variable, path, tensor, names), tensor) for path, tensor in tensors]
            if need_graph and all(root.node is None for root in roots):
                raise NoGraphError(_no_graph(roots))
            return _describe(roots, names, title, saved, attribution, inspect)
    finally:
        if collecting:
            gc.enable()


# -- roots -------------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """An output tensor and the node that made it, while both are alive."""

    name: str
    tensor: torch.Tensor
    node: Node | None
    why: str


def _find_root(name: str, tensor: torch.Tensor) -> _Found:
    try:
        node = grad_fn_of(tensor, asked_for=True)
    except RuntimeError as error:  # torch refuses: a view whose base was modified in a way it does not allow
        return _Found(name, tensor, None, f"has a grad_fn that torch refuses to give: {str(error).splitlines()[0]}")
    return _Found(name, tensor, node, "" if node is not None else why_no_graph(tensor))


def _variable_name(outputs: object, variables: Sequence[Namespace]) -> str:
    """What the caller calls `outputs`; "" where no variable holds it."""
    for namespace in variables:
        for name, value in namespace.items():
            if value is outputs and not name.startswith("_"):
                return name
    return ""


def _root_name(variable: str, path: str, tensor: torch.Tensor, names: Names) -> str:
    """The variable's name plus the path inside it: "y", "out['loss']"; "output" where there is no variable."""
    if variable:
        return variable + path
    known = names.leaf(tensor)
    return known[0] if known and not path else "output" + path


def _no_graph(roots: Sequence[_Found]) -> str:
    if len(roots) == 1:
        return f"{roots[0].name} has no graph to show: it {roots[0].why}"
    lines = [f"  {root.name} {root.why}" for root in roots[:10]]
    more = [f"  ... and {len(roots) - 10} more"] if len(roots) > 10 else []
    return "\n".join([f"none of the {len(roots)} outputs has a graph to show:", *lines, *more])


# -- traversal ---------------------------------------------------------------------------------------------------------


class _Traversal(NamedTuple):
    nodes: list[Node]
    position_of: dict[Node, int]
    sequences: list[int]
    edges: list[Edge]
    none_inputs: dict[int, int]


def _traverse(starts: Sequence[Node]) -> _Traversal:
    """Visit everything reachable from `starts`. The caller holds the roots, so no node dies on the way.

    Keepers are set at once as each node is visited, so that even an interrupted walk leaves a graph safe to delete. Only a
    graph that is too small to matter gets none.
    """
    nodes: list[Node] = []
    index: dict[Node, int] = {}
    sequences: list[int] = []
    edges: list[Edge] = []
    none_inputs: dict[int, int] = {}
    waiting: list[tuple[Node, list[Node]]] = []  # keepers of the first nodes, set when the graph turns out to be large
    for node in starts:
        if node not in index:
            index[node] = len(nodes)
            nodes.append(node)
            sequences.append(node._sequence_nr())
    new, find, add_edge = tuple.__new__, index.get, edges.append
    protect, band, last, small = keepalive.NEEDED, keepalive.BAND, LAST, keepalive.SMALL
    for consumer, node in enumerate(nodes):  # grows while it is read
        sequence = sequences[consumer]
        kept: list[Node] | None = None
        position = -1
        for child, output in node.next_functions:
            position += 1
            if child is None:
                none_inputs[consumer] = none_inputs.get(consumer, 0) + 1
                continue
            producer = find(child)
            if producer is None:
                producer = index[child] = len(nodes)
                nodes.append(child)
                number = child._sequence_nr()
                sequences.append(number)
            else:
                number = sequences[producer]
            add_edge(new(Edge, (consumer, producer, output, position, 1)))
            # keepalive.must_keep, written out: this line runs once per edge
            if protect and number != last and (number // band != sequence // band or number >= sequence):
                if kept is None:
                    kept = [child]
                else:
                    kept.append(child)
        if kept is not None:
            if consumer < small:
                waiting.append((node, kept))
            else:
                keepalive.keep(node, kept)
        if waiting and consumer == small:
            keepalive.keep_all(waiting)
    if len(nodes) > small:
        keepalive.keep_all(waiting)
    return _Traversal(nodes, index, sequences, edges, none_inputs)


# -- description -------------------------------------------------------------------------------------------------------


class Walked(NamedTuple):
    """What a walk went through, while it is alive. Keep nothing of it.

    `nodes` are the live nodes by id, `position_of` their ids, `variables` the tensors behind AccumulateGrad nodes by id.
    `storage_id` gives the id of the graph's storage that a tensor is in, None when no saved tensor and no leaf is in it.
    """

    graph: Graph
    nodes: Sequence[Node]
    position_of: Mapping[Node, int]
    variables: Mapping[int, torch.Tensor]
    names: Names
    storage_id: Callable[[torch.Tensor], int | None]


def _describe(
    roots: Sequence[_Found],
    names: Names,
    title: str,
    saved: bool,
    attribution: Attribution | None,
    inspect: Callable[[Walked], None] | None,
) -> Graph:
    bases = [base_of(root.tensor) for root in roots]
    found = _traverse(_starts(roots, bases))
    if keepalive.NEEDED:
        for node in names.results:  # asked for its name only, but it has a wrapper now too
            if node not in found.position_of:
                keepalive.keep(node, [child for child, _ in node.next_functions if child is not None])
    describer = _Describer(found, roots, names, saved, attribution)
    graph = describer.graph(bases, title)
    if inspect is not None:
        inspect(Walked(graph, found.nodes, found.position_of, describer.variables, names, describer.storage_id))
    return graph


def _starts(roots: Sequence[_Found], bases: Sequence[torch.Tensor | None]) -> list[Node]:
    """Where a walk begins: the nodes of the roots, then those of the tensors that roots are views of."""
    starts = [root.node for root in roots if root.node is not None]
    return starts + [node for base in bases if base is not None and (node := _quiet_grad_fn(base)) is not None]


def live_nodes(tensors: Sequence[torch.Tensor]) -> list[Node]:
    """The nodes that `capture` numbers for these outputs, in the same order. Whoever keeps them keeps the graph alive."""
    with private.without_subclasses():
        roots = [_find_root("", tensor) for tensor in tensors]
        return _traverse(_starts(roots, [base_of(tensor) for tensor in tensors])).nodes


def _quiet_grad_fn(tensor: torch.Tensor) -> Node | None:
    try:
        return grad_fn_of(tensor)
    except RuntimeError:
        return None


class _TypeFacts(NamedTuple):
    """What all nodes of one type share."""

    op: str
    flags: tuple[NodeFlag, ...]
    function: Function | None


class _Describer:
    """Reads the facts of traversed nodes into records."""

    def __init__(
        self,
        found: _Traversal,
        roots: Sequence[_Found],
        names: Names,
        saved: bool,
        attribution: Attribution | None,
    ) -> None:
        self._found = found
        self._roots = roots
        self._used: set[tuple[int, int]] | None = None  # (node, output) pairs that something uses; made when needed
        self._names = names
        self._types: dict[type, _TypeFacts] = {}
        self._outputs: dict[Any, tuple[TensorInfo | None, ...]] = {}
        self._variables = self._find_variables()
        self._leaf_ids = {id(variable): node for node, variable in self._variables.items()}
        self._reader = SavedReader(self._leaf_ids, self._owners()) if saved else None
        self._attribution = attribution.kind if attribution is not None else ""
        self._places = Places((), repeat(None), repeat(None))
        if attribution is not None:
            self._places = attribution.places(Found(found.sequences, found.edges, self._variables))

    def graph(self, bases: Sequence[torch.Tensor | None], title: str) -> Graph:
        roots = self._roots
        nodes = self._nodes()
        leaves = [self._leaf(node, variable) for node, variable in self._variables.items()]
        made = [self._root(root, base, nodes, leaves) for root, base in zip(roots, bases)]
        return Graph(
            nodes=tuple(nodes),
            edges=tuple(self._found.edges),
            leaves=tuple(leaves),
            roots=tuple(made),
            storages=self._reader.storages() if self._reader is not None else (),
            title=title or ", ".join(root.name for root in roots[:3]) + (", ..." if len(roots) > 3 else ""),
            scopes=self._places.scopes,
            torch=torch.__version__,
            attribution=self._attribution,
            notes=(*private.missing(), *self._places.notes),
        )

    @property
    def variables(self) -> Mapping[int, torch.Tensor]:
        return self._variables

    def storage_id(self, tensor: torch.Tensor) -> int | None:
        return self._reader.storage_id(tensor) if self._reader is not None else None

    def _owners(self) -> Mapping[int, str]:
        """Who owns each storage that is known beforehand: the caller's tensors, then the graph's own leaves."""
        owners = dict(self._names.owner_of)
        for variable in self._variables.values():
            storage = storage_of(variable)
            if storage is not None:
                owners[storage[0]] = self._names.kind(variable)
        return owners

    def _find_variables(self) -> dict[int, torch.Tensor]:
        """The tensor behind each AccumulateGrad, by node id."""
        found = {}
        for i, sequence in enumerate(self._found.sequences):
            if sequence == LAST:  # other kinds of leaf, such as a received gradient, have the number too
                variable = getattr(self._found.nodes[i], "variable", None)
                if variable is not None:
                    found[i] = variable
        return found

    def _nodes(self) -> list[NodeRecord]:
        """A record for every node. One flat loop, because it runs once per node."""
        types, infos_of = self._types, self._output_infos
        read = self._reader.read if self._reader is not None else None
        results, hooked, none_inputs = self._names.results, self._names.hooked, self._found.none_inputs
        records: list[NodeRecord] = []
        append, new, shapes_known = records.append, tuple.__new__, private.HAS_METADATA
        attributes, saved, states = NOTHING
        names: tuple[str, ...]
        infos: tuple[TensorInfo | None, ...] = ()
        places = zip(self._found.nodes, self._found.sequences, self._places.scope_of, self._places.source_of)
        for i, (node, sequence, scope, source) in enumerate(places):
            op, flags, function = types.get(type(node)) or self._type_facts(node)
            if shapes_known:
                infos = infos_of(node)
            if read is not None:
                attributes, saved, states = read(node)
                if states:
                    flags += states
            if function is not None and len(infos) > 1 and _UNDEFINED in infos:
                infos = self._without_undefined(i, infos)
            names = self._names.result(node) if node in results else ()
            if node in hooked:
                flags += ("hooks",)
            number: int | None = sequence
            if sequence == LAST:
                number = None
                if i in self._variables:
                    names = self._names.leaf(self._variables[i])
                    if _hooks(self._variables[i]):
                        flags += ("hooks",)
            nones = none_inputs.get(i, 0)
            fields = (
                i,
                op or node.name(),
                infos,
                number,
                scope,
                source,
                attributes,
                saved,
                flags,
                names,
                nones,
                function,
                None,
            )
            append(new(NodeRecord, fields))
        return records

    def _type_facts(self, node: Node) -> _TypeFacts:
        facts = self._types[type(node)] = _type_facts(node)
        return facts

    def _output_infos(self, node: Node) -> tuple[TensorInfo | None, ...]:
        """Shape, dtype and device of the outputs of the node's forward. Equal ones are one object."""
        metadata = node._input_metadata
        try:
            if len(metadata) == 1:
                one = metadata[0]
                key: Any = (*one.shape, one.dtype, one.device)
            else:
                key = tuple([(*one.shape, one.dtype, one.device) for one in metadata])
            known = self._outputs.get(key)
        except (RuntimeError, TypeError):  # a strided nested tensor has no shape; symbolic sizes have no hash
            return tuple(_metadata_info(one) for one in metadata)
        if known is None:
            known = self._outputs[key] = tuple([_metadata_info(one) for one in metadata])
        return known

    def _without_undefined(self, node: int, infos: tuple[TensorInfo | None, ...]) -> tuple[TensorInfo | None, ...]:
        """None for results of a custom Function that have no gradient: torch describes them all as one float32 number.

        A result that something uses is a real one.
        """
        if self._used is None:
            self._used = {(edge.producer, edge.output) for edge in self._found.edges}
            self._used |= {
                (self._found.position_of[root.node], root.tensor.output_nr) for root in self._roots if root.node
            }
        used = self._used
        return tuple([None if info == _UNDEFINED and (node, i) not in used else info for i, info in enumerate(infos)])

    def _leaf(self, node: int, variable: torch.Tensor) -> Leaf:
        return Leaf(
            node=node,
            names=self._names.leaf(variable),
            tensor=tensor_info(variable),
            kind=self._names.kind(variable),  # type: ignore[arg-type]
            has_grad=variable.is_leaf and variable.grad is not None,  # reading it elsewhere warns
            hooks=_hooks(variable),
            storage=self._storage(variable),
            base=self._base(base_of(variable)),
        )

    def _storage(self, tensor: torch.Tensor) -> int | None:
        storage = self._reader.storage(tensor) if self._reader is not None else None
        return storage.id if storage is not None else None

    def _base(self, base: torch.Tensor | None) -> Base | None:
        if base is None:
            return None
        node = _quiet_grad_fn(base)
        at = self._found.position_of.get(node) if node is not None else self._leaf_ids.get(id(base))
        return Base(tensor_info(base), at, base.output_nr if node is not None else 0, self._names.leaf(base))

    def _root(self, root: _Found, base: torch.Tensor | None, nodes: list[NodeRecord], leaves: list[Leaf]) -> Root:
        info = tensor_info(root.tensor)
        if root.node is not None:
            return Root(self._found.position_of[root.node], root.tensor.output_nr, root.name, info, self._base(base))
        if (
            base is not None or not root.tensor.requires_grad or not root.tensor.is_leaf
        ):  # `is_leaf` of a view may raise
            return Root(None, 0, root.name, info, self._base(base), root.why)
        return Root(self._leaf_node(root.tensor, info, nodes, leaves), 0, root.name, info)

    def _leaf_node(self, tensor: torch.Tensor, info: TensorInfo, nodes: list[NodeRecord], leaves: list[Leaf]) -> int:
        """The AccumulateGrad of an output that is itself a leaf. Torch makes it when it is first used; the model has it always."""
        known = self._leaf_ids.get(id(tensor))
        if known is not None:
            return known
        node = self._leaf_ids[id(tensor)] = len(nodes)
        self._variables[node] = tensor
        flags: tuple[NodeFlag, ...] = ("hooks",) if _hooks(tensor) else ()
        nodes.append(NodeRecord(node, ACCUMULATE, (info,), flags=flags, names=self._names.leaf(tensor)))
        leaves.append(self._leaf(node, tensor))
        return node


def _hooks(tensor: torch.Tensor) -> int:
    """How many hooks the user put on a tensor."""
    return len(tensor._backward_hooks or ()) + len(getattr(tensor, "_post_accumulate_grad_hooks", None) or ())


def _metadata_info(metadata: Any) -> TensorInfo:
    nested = bool(getattr(metadata, "is_nested_tensor", False))
    try:
        shape = shape_of(metadata.shape)
    except RuntimeError:
        shape = None
    layout = "strided" if not nested else "nested" if shape is None else "jagged"
    return TensorInfo(shape, dtype_name(metadata.dtype), device_name(metadata.device), layout)


def _type_facts(node: Node) -> _TypeFacts:
    """Name, flags and class of a type of node. The op is "" where the type does not say it and each node must be asked."""
    op = type(node).__name__
    flags: list[NodeFlag] = []
    function = None
    if isinstance(node, private.BackwardCFunction):
        flags.append("custom")
        function = _function(node)
    if op in _HIDES:
        flags.append(_HIDES[op])
    elif op in _OPAQUE:
        flags.append("hidden")
    return _TypeFacts("" if op == "CppFunction" else op, tuple(flags), function)


def _function(node: Node) -> Function:
    """The class of a custom Function node, and where its `backward` is defined when Python can tell."""
    cls = getattr(type(node), "_forward_cls", None) or type(node)
    own = cls.vjp if getattr(cls, "vjp", None) is not _Function.vjp else getattr(cls, "backward", None)
    backward = unwrap(own or cls)
    code = getattr(backward, "__code__", None)
    definition = SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
    return Function(f"{cls.__module__}.{cls.__qualname__}", definition)
