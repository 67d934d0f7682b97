"""Reads the facts of nodes that were visited into records, while all of them are alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import torch

from gradviz.capture import private
from gradviz.capture.attribution import Attribution, Found, Places
from gradviz.capture.naming import Names
from gradviz.capture.node_types import TypeFacts, type_facts
from gradviz.capture.private import LAST, Node
from gradviz.capture.roots import FoundRoot, quiet_grad_fn
from gradviz.capture.saved import NOTHING, SavedReader
from gradviz.capture.tensors import base_of, device_name, dtype_name, shape_of, storage_of, tensor_info
from gradviz.capture.traversal import Traversal
from gradviz.graph import Base, Graph, Leaf, NodeFlag, Root, TensorInfo
from gradviz.graph import Node as NodeRecord

ACCUMULATE = "AccumulateGrad"
_UNDEFINED = TensorInfo((), "float32", "cpu")


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


class Describer:
    """Reads the facts of traversed nodes into records."""

    def __init__(
        self,
        found: Traversal,
        roots: Sequence[FoundRoot],
        names: Names,
        saved: bool,
        attribution: Attribution | None,
    ) -> None:
        self._found = found
        self._roots = roots
        self._used: set[tuple[int, int]] | None = None  # (node, output) pairs that something uses; made when needed
        self._names = names
        self._types: dict[type, TypeFacts] = {}
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

    def _type_facts(self, node: Node) -> TypeFacts:
        facts = self._types[type(node)] = type_facts(node)
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
        node = quiet_grad_fn(base)
        at = self._found.position_of.get(node) if node is not None else self._leaf_ids.get(id(base))
        return Base(tensor_info(base), at, base.output_nr if node is not None else 0, self._names.leaf(base))

    def _root(self, root: FoundRoot, base: torch.Tensor | None, nodes: list[NodeRecord], leaves: list[Leaf]) -> Root:
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
