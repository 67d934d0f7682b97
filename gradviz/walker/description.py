"""Reads nodes that were visited into records, while all of them are alive, and asks an attribution where each came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, repeat
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch

from gradviz.compiled.splice import Part
from gradviz.graph import Base, Edge, Graph, Leaf, Root, Scope, SourceLine, TensorInfo
from gradviz.graph.columns import Columns, NodeColumns, NodeType
from gradviz.stages import Stage
from gradviz.walker import private
from gradviz.walker.attributes import TypeTable, modules_behind, placements
from gradviz.walker.names import Names
from gradviz.walker.outputs import LiveRoot, quiet_grad_fn
from gradviz.walker.private import LAST, Node
from gradviz.walker.saved import SavedReader
from gradviz.walker.tensors import Storages, base_of, device_name, dtype_name, shape_of, storage_of, tensor_info
from gradviz.walker.traversal import Traversal


class BareGraph(NamedTuple):
    """What a walk found: sequence numbers by node id, edges, and the tensor behind each AccumulateGrad by node id.

    `checkpoints` are the modules that a reentrant checkpoint may have run, by the id of its node.
    """

    sequences: Sequence[int]
    edges: Sequence[Edge]
    variables: Mapping[int, torch.Tensor]
    checkpoints: Mapping[int, Sequence[torch.nn.Module]] = MappingProxyType({})


class Places(NamedTuple):
    """Scopes, and for every node the id of its scope, its source line and the script's own line, where known.

    `names` are those of leaves by node id, for the leaves that no variable of the caller leads to.
    """

    scopes: tuple[Scope, ...]
    scope_of: Iterable[int | None]
    source_of: Iterable[SourceLine | None]
    script_line_of: Iterable[SourceLine | None]
    notes: tuple[str, ...] = ()
    names: Mapping[int, str] = MappingProxyType({})


class Attribution(Protocol):
    """Knows where nodes were made."""

    @property
    def kind(self) -> Literal["", "recorded", "inferred"]: ...

    def places(self, bare: BareGraph) -> Places: ...


CHECKPOINT = "CheckpointFunctionBackward"
ACCUMULATE = "AccumulateGrad"
RECORDS_UP_TO = 50_000
"""Above, a graph keeps its nodes, edges and storages in columns: a tenth of the memory, and slower to read one by one."""

_T = TypeVar("_T")
_Record = TypeVar("_Record", bound=tuple[Any, ...])
_UNDEFINED = TensorInfo((), "float32", "cpu")


class Walked(NamedTuple):
    """What a walk went through, while it is alive. Keep nothing of it.

    `nodes` are the live nodes by id, `position_of` their ids, `variables` the tensors behind AccumulateGrad nodes by id.
    `storage_id` gives the id of the graph's storage that a tensor is in, None when no saved tensor and no leaf is in it.
    `parts` says what is part of a compiled function; the live node of such a part is the one that runs it all.
    """

    graph: Graph
    nodes: Sequence[Node]
    position_of: Mapping[Node, int]
    variables: Mapping[int, torch.Tensor]
    names: Names
    storage_id: Callable[[torch.Tensor], int | None]
    parts: Mapping[int, Part]


class Describer:
    """Reads the facts of traversed nodes into records."""

    def __init__(
        self,
        traversal: Traversal,
        roots: Sequence[LiveRoot],
        names: Names,
        saved: bool,
        attribution: Attribution | None,
    ) -> None:
        self._found = traversal
        self._roots = roots
        self._used: set[tuple[int, int]] | None = None  # (node, output) pairs that something uses; made when needed
        self._names = names
        self._variables = self._find_variables()
        self._leaf_ids = {id(variable): node for node, variable in self._variables.items()}
        self._reader = SavedReader(self._leaf_ids, Storages(self._owners())) if saved else None
        self._attribution = attribution.kind if attribution is not None else ""
        self._places = Places((), repeat(None), repeat(None), repeat(None))
        if attribution is not None:
            known = BareGraph(traversal.sequences, traversal.edges, self._variables, self._checkpoints())
            self._places = attribution.places(known)

    def graph(self, bases: Sequence[torch.Tensor | None], title: str) -> Graph:
        roots = self._roots
        nodes = self._nodes()
        leaves = [self._leaf(node, variable) for node, variable in self._variables.items()]
        made = [self._root(root, base, nodes, leaves) for root, base in zip(roots, bases)]
        return Graph(
            nodes=_kept(nodes),
            edges=_kept(self._found.edges),
            leaves=tuple(leaves),
            roots=tuple(made),
            storages=_kept(self._reader.storages.columns) if self._reader is not None else (),
            title=title or ", ".join(root.name for root in roots[:3]) + (", ..." if len(roots) > 3 else ""),
            scopes=self._places.scopes,
            torch=str(torch.__version__),
            attribution=self._attribution,
            notes=(*private.missing(), *self._places.notes),
        )

    @property
    def variables(self) -> Mapping[int, torch.Tensor]:
        return self._variables

    def storage_id(self, tensor: torch.Tensor) -> int | None:
        return self._reader.storages.known(tensor) if self._reader is not None else None

    def _owners(self) -> Mapping[int, str]:
        """Who owns each storage that is known beforehand: the caller's tensors, then the graph's own leaves."""
        owners = dict(self._names.owner_of)
        for variable in self._variables.values():
            storage = storage_of(variable)
            if storage is not None:
                owners[storage[0]] = self._names.kind(variable)
        return owners

    def _checkpoints(self) -> dict[int, list[torch.nn.Module]]:
        """The modules that reentrant checkpoints may have run, by node id."""
        kinds = {kind for kind in set(map(type, self._found.nodes)) if kind.__name__ == CHECKPOINT}
        if not kinds:
            return {}
        return {i: modules_behind(node) for i, node in enumerate(self._found.nodes) if type(node) in kinds}

    def _leaf_names(self, node: int, variable: torch.Tensor) -> tuple[str, ...]:
        """What the caller calls a leaf, else what the recording does."""
        known = self._names.leaf(variable)
        if known or node not in self._places.names:
            return known
        return (self._places.names[node],)

    def _find_variables(self) -> dict[int, torch.Tensor]:
        """The tensor behind each AccumulateGrad, by node id."""
        variables = {}
        for i, sequence in enumerate(self._found.sequences):
            if sequence == LAST:  # other kinds of leaf, such as a received gradient, have the number too
                variable = getattr(self._found.nodes[i], "variable", None)
                if variable is not None:
                    variables[i] = variable
        return variables

    def _nodes(self) -> NodeColumns:
        """The facts of every node, a column at a time."""
        traversal, made = self._found, NodeColumns()
        made.type = self._types()
        with Stage("read", "nodes", made.outputs.__len__, len(traversal.nodes)):
            self._add_outputs(made)
        made.sequence = traversal.sequences
        made.scope = self._column(self._places.scope_of)
        made.source = self._column(self._places.source_of)
        made.script_line = self._column(self._places.script_line_of)
        made.none_inputs = traversal.none_inputs
        if self._reader is not None:
            with Stage("saved", "nodes", made.saved.first.__len__, len(traversal.nodes)):
                self._reader.read(traversal.nodes, made)
        else:
            made.read_nothing()
        self._add_what_is_known_by_name(made)
        edges = zip(traversal.edges.consumer, traversal.edges.producer)
        for i, more in placements(
            traversal.nodes, made.column("op"), edges, self._variables, self._names.shards
        ).items():
            made.attributes[i] = {**made.attributes[i], **more}
        return made

    def _column(self, values: Iterable[_T]) -> list[_T]:
        return list(islice(values, len(self._found.nodes)))

    def _types(self) -> list[NodeType]:
        """The facts of each node's type. Where the type does not tell the op, the node is asked."""
        types, nodes = TypeTable(), self._found.nodes
        node_types = [types[type] for type in map(type, nodes)]
        if not all(node_type.op for node_type in types.values()):
            node_types = [
                node_type if node_type.op else node_type._replace(op=node.name())
                for node_type, node in zip(node_types, nodes)
            ]
        return node_types

    def _add_outputs(self, into: NodeColumns) -> None:
        """Shape, dtype and device of the outputs of each node's forward. Equal ones are one object."""
        nodes, types, made = self._found.nodes, into.type, into.outputs
        if not private.HAS_METADATA:
            made.extend([()] * len(nodes))
            return
        known: dict[Any, tuple[TensorInfo | None, ...]] = {}
        find, add = known.get, made.append
        for node in nodes:
            metadata = node._input_metadata
            try:
                if len(metadata) == 1:
                    (output,) = metadata
                    key: Any = (*output.shape, output.dtype, output.device)
                else:
                    key = tuple([(*output.shape, output.dtype, output.device) for output in metadata])
                infos = find(key)
            except (RuntimeError, TypeError):  # a strided nested tensor has no shape; symbolic sizes have no hash
                add(tuple([_metadata_info(output) for output in metadata]))
                continue
            if infos is None:
                infos = known[key] = tuple([_metadata_info(output) for output in metadata])
            add(infos)
        if any(node_type.function is not None for node_type in set(types)):
            for i, node_type in enumerate(types):
                if node_type.function is not None and len(made[i]) > 1 and _UNDEFINED in made[i]:
                    made[i] = self._without_undefined(i, made[i])

    def _add_what_is_known_by_name(self, made: NodeColumns) -> None:
        """Names and hooks, which few nodes have: those of tensors that the caller holds, and of leaves."""
        names, position_of = self._names, self._found.position_of
        for node in names.results:
            if node in position_of:
                made.names[position_of[node]] = names.result(node)
        hooked = [position_of[node] for node in names.hooked if node in position_of]
        for i, variable in self._variables.items():
            made.names[i] = self._leaf_names(i, variable)
            if _hooks(variable):
                hooked.append(i)
        for i in hooked:
            made.flags[i] = (*made.flags.get(i, made.type[i].flags), "hooks")

    def _without_undefined(self, node: int, infos: tuple[TensorInfo | None, ...]) -> tuple[TensorInfo | None, ...]:
        """None for results of a custom Function that have no gradient: torch describes them all as one float32 number.

        A result that something uses is a real one.
        """
        if self._used is None:
            self._used = {(edge.producer, edge.output) for edge in self._found.edges}
            self._used |= {(self._found.position_of[root.node], root.output) for root in self._roots if root.node}
        used = self._used
        return tuple([None if info == _UNDEFINED and (node, i) not in used else info for i, info in enumerate(infos)])

    def _leaf(self, node: int, variable: torch.Tensor) -> Leaf:
        return Leaf(
            node=node,
            names=self._leaf_names(node, variable),
            tensor=tensor_info(variable),
            kind=self._names.kind(variable),  # type: ignore[arg-type]
            has_grad=variable.is_leaf and variable.grad is not None,  # reading it elsewhere warns
            hooks=_hooks(variable),
            storage=self._storage(variable),
            base=self._base(base_of(variable)),
        )

    def _storage(self, tensor: torch.Tensor) -> int | None:
        return self._reader.storages.number(tensor) if self._reader is not None else None

    def _base(self, base: torch.Tensor | None) -> Base | None:
        if base is None:
            return None
        node = quiet_grad_fn(base)
        at = self._found.position_of.get(node) if node is not None else self._leaf_ids.get(id(base))
        return Base(tensor_info(base), at, base.output_nr if node is not None else 0, self._names.leaf(base))

    def _root(self, root: LiveRoot, base: torch.Tensor | None, nodes: NodeColumns, leaves: list[Leaf]) -> Root:
        tensor = root.tensor
        info = tensor_info(tensor) if tensor is not None else _result_info(root)
        if root.node is not None:
            return Root(self._found.position_of[root.node], root.output, root.name, info, self._base(base))
        if (
            tensor is None or base is not None or not tensor.requires_grad or not tensor.is_leaf
        ):  # of a view it may raise
            return Root(None, 0, root.name, info, self._base(base), root.why)
        return Root(self._leaf_node(tensor, info, nodes, leaves), 0, root.name, info)

    def _leaf_node(self, tensor: torch.Tensor, info: TensorInfo, nodes: NodeColumns, leaves: list[Leaf]) -> int:
        """The AccumulateGrad of an output that is itself a leaf. Torch makes it when it is first used; the model has it always."""
        known = self._leaf_ids.get(id(tensor))
        if known is not None:
            return known
        node = self._leaf_ids[id(tensor)] = len(nodes)
        self._variables[node] = tensor
        nodes.add(NodeType(ACCUMULATE, ("hooks",) if _hooks(tensor) else (), None), (info,), self._names.leaf(tensor))
        leaves.append(self._leaf(node, tensor))
        return node


def _kept(columns: Columns[_Record]) -> Sequence[_Record]:
    """What the graph keeps: the records themselves, quicker to read, or the columns of a graph too large for that."""
    return tuple(columns) if len(columns) <= RECORDS_UP_TO else columns


def _hooks(tensor: torch.Tensor) -> int:
    """How many hooks the user put on a tensor."""
    return len(tensor._backward_hooks or ()) + len(getattr(tensor, "_post_accumulate_grad_hooks", None) or ())


def _result_info(root: LiveRoot) -> TensorInfo:
    """What is known of a result whose tensor was not given."""
    made = getattr(root.node, "_input_metadata", ())
    return _metadata_info(made[root.output]) if root.output < len(made) else TensorInfo(None, "unknown", "unknown")


def _metadata_info(metadata: Any) -> TensorInfo:
    nested = bool(getattr(metadata, "is_nested_tensor", False))
    try:
        shape = shape_of(metadata.shape)
    except RuntimeError:
        shape = None
    layout = "strided" if not nested else "nested" if shape is None else "jagged"
    return TensorInfo(shape, dtype_name(metadata.dtype), device_name(metadata.device), layout)
