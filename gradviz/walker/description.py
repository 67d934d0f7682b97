"""Reads live roots, nodes and leaves into records, while all of them are alive, and
asks an attribution where each came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple, TypeVar

import torch

from gradviz.graph import (
    NO_ATTRIBUTES,
    Base,
    Data,
    Edge,
    Function,
    Leaf,
    Node,
    NodeFlag,
    Root,
    SavedTensor,
    StorageKind,
    TensorInfo,
)
from gradviz.stages import Stage
from gradviz.walker import private
from gradviz.walker.data import DataReader
from gradviz.walker.names import Names
from gradviz.walker.outputs import LiveRoot
from gradviz.walker.places import Attribution, BareGraph, Places
from gradviz.walker.private import LAST, Node as LiveNode
from gradviz.walker.saved import SavedReader
from gradviz.walker.slots import modules_behind, node_type, nodes_of
from gradviz.walker.tensors import (
    Storages,
    base_of,
    grad_fn_of,
    metadata_info,
    storage_of,
    tensor_info,
)


class Traversal(NamedTuple):
    """Every node that a walk visited, by id, and what it read on the way. `variables`
    are the tensors behind AccumulateGrad nodes.
    """

    nodes: list[LiveNode]
    position_of: dict[LiveNode, int]
    sequences: list[int]
    edges: list[Edge]
    none_inputs: dict[int, int]
    variables: dict[int, torch.Tensor]


CHECKPOINT = "CheckpointFunctionBackward"
ACCUMULATE = "AccumulateGrad"
_UNDEFINED = TensorInfo((), "float32", "cpu")
Outputs = tuple[TensorInfo | None, ...]
Fact = TypeVar("Fact")


class Description:
    """The records of what was traversed: `nodes`, `leaves`, `roots`, and `storages`
    where what is saved was read. `variables` has outputs that are leaves, too.
    """

    def __init__(
        self,
        traversal: Traversal,
        roots: Sequence[LiveRoot],
        names: Names,
        saved: bool,
        attribution: Attribution | None,
    ) -> None:
        self._live, self._names, self._saved = traversal, names, saved
        self.variables = traversal.variables
        self._leaf_ids = {
            id(variable): node for node, variable in self.variables.items()
        }
        self.storages = Storages(self._owners())
        self.data: tuple[Data, ...] = ()
        self._known_data: list[torch.Tensor] = []
        self._no_data: dict[int, int] = {}
        self.places = Places()

        if attribution is not None:
            checkpoints = nodes_of(
                traversal.nodes, lambda kind: kind.__name__ == CHECKPOINT
            )
            modules = {i: modules_behind(node) for i, node in checkpoints.items()}
            kinds = list(map(type, traversal.nodes))
            bare = BareGraph(
                traversal.sequences,
                traversal.edges,
                self.variables,
                modules,
                kinds,
                names.modules,
                traversal.none_inputs,
            )
            self.places = attribution.places(bare)

        self.nodes = self._nodes(roots)
        self.leaves = [
            self._leaf(node, variable) for node, variable in self.variables.items()
        ]
        self.roots = [self._root(root) for root in roots]

    def _owners(self) -> Mapping[int, StorageKind]:
        """Who owns each storage that is known beforehand: the caller's tensors, then
        the graph's own leaves.
        """
        owners = dict(self._names.owner_of)
        for variable in self.variables.values():
            storage = storage_of(variable)
            if storage is not None:
                owners[storage[0]] = self._names.kind(variable)
        return owners

    # -- nodes -------------------------------------------------------------------------

    def _nodes(self, roots: Sequence[LiveRoot]) -> list[Node]:
        """The record of every node, from columns of one fact each."""
        nodes, places = self._live.nodes, self.places
        types = {type: node_type(type) for type in set(map(type, nodes))}
        kinds = [types[type(node)] for node in nodes]
        # a type may not tell its op, so the node is asked
        ops = [kind.op or node.name() for kind, node in zip(kinds, nodes)]
        functions = [kind.function for kind in kinds]

        outputs: list[Outputs] = []
        with Stage("read", "nodes", outputs.__len__, len(nodes)):
            self._add_outputs(outputs)
        if any(type.function is not None for type in types.values()):
            self._leave_out_undefined(outputs, functions, roots)

        flags = [kind.flags for kind in kinds]
        saved: Iterable[tuple[SavedTensor, ...]] = repeat(())
        attributes: Iterable[Mapping[str, Any]] = repeat(NO_ATTRIBUTES)
        if self._saved:
            reader = self._read_saved()
            saved, attributes = reader.saved, reader.attributes
            for i, states in reader.flags.items():
                flags[i] = (*flags[i], *states)

        names = self._add_what_is_known_by_name(flags)
        columns = (
            *(count(), ops, outputs),
            [number if number != LAST else None for number in self._live.sequences],
            *(places.scope_of, places.source_of, attributes, saved, flags),
            _of_each(nodes, names, ()),
            _of_each(nodes, self._live.none_inputs, 0),
            *(functions, repeat(None), places.script_line_of),
            _of_each(nodes, {**self._each_result(), **places.assigned}, ""),
            _of_each(nodes, places.written, ""),
            _of_each(nodes, self._numbers(), 0),
        )
        # the constructor of a named tuple takes longer
        return list(map(tuple.__new__, repeat(Node), zip(*columns)))

    def _each_result(self) -> dict[int, str]:
        """Names of functions that made several tensors: one each, in their order."""
        names, position_of = self._names, self._live.position_of
        return {
            position_of[node]: names.each_result(node)
            for node, held in names.results.items()
            if len(held) > 1 and node in position_of
        }

    def _numbers(self) -> Mapping[int, int]:
        """How many of the entries without gradient of each node are no tensors."""
        places, numbers = self.places, self._no_data
        taken = {node for data in self.data for node in data.nodes}
        known = {id(tensor) for tensor in self._known_data}
        for node in places.in_torch:
            count = self._live.none_inputs.get(node, 0)
            if type(self._live.nodes[node]).__name__ in _MASKED:
                continue  # it may be what was made of a mask
            given = map(id, places.module_inputs.get(node, ()))
            # what is left is the module's own: noise, a first state
            if count and node not in taken and known.issuperset(given):
                numbers[node] = count
        return numbers

    def _add_outputs(self, outputs: list[Outputs]) -> None:
        """Shape, dtype and device of the outputs of each node's forward. Equal ones are
        one object.
        """
        nodes = self._live.nodes
        if not private.HAS_METADATA:
            outputs.extend([()] * len(nodes))
            return

        infos_by_key: dict[Any, Outputs] = {}
        find, add = infos_by_key.get, outputs.append
        for node in nodes:
            metadata = node._input_metadata
            try:
                key = tuple(
                    [
                        (*output.shape, output.dtype, output.device)
                        for output in metadata
                    ]
                )
                infos = find(key)
            except (RuntimeError, TypeError):
                # a strided nested tensor has no shape; symbolic sizes have no hash
                add(tuple(map(metadata_info, metadata)))
                continue
            if infos is None:
                infos = infos_by_key[key] = tuple(map(metadata_info, metadata))
            add(infos)

    def _leave_out_undefined(
        self,
        outputs: list[Outputs],
        functions: Sequence[Function | None],
        roots: Sequence[LiveRoot],
    ) -> None:
        """None for results of a custom Function that have no gradient: torch describes
        them all as one float32 number.

        A result that something uses is a real one.
        """
        doubtful = [
            i
            for i, function in enumerate(functions)
            if function is not None and len(outputs[i]) > 1
        ]
        used = {(self._live.position_of.get(root.node), root.output) for root in roots}
        if doubtful:
            used.update((edge.producer, edge.output) for edge in self._live.edges)

        for i in doubtful:
            outputs[i] = tuple(
                [
                    info if info != _UNDEFINED or (i, number) in used else None
                    for number, info in enumerate(outputs[i])
                ]
            )

    def _add_what_is_known_by_name(
        self, flags: list[tuple[NodeFlag, ...]]
    ) -> dict[int, tuple[str, ...]]:
        """Names by node, of tensors that the caller holds and of leaves; into `flags`
        goes which of those have hooks.
        """
        names, position_of = self._names, self._live.position_of
        found: dict[int, tuple[str, ...]] = {}
        for node in names.results:
            if node in position_of:
                found[position_of[node]] = names.result(node)

        hooked = [position_of[node] for node in names.hooked if node in position_of]
        for i, variable in self.variables.items():
            found[i] = self._leaf_names(i, variable)
            if _hooks(variable):
                hooked.append(i)

        for i in hooked:
            flags[i] = (*flags[i], "hooks")
        return found

    # -- saved tensors and data --------------------------------------------------------

    def _read_saved(self) -> SavedReader:
        """What the nodes saved; `data` are the tensors that the user gave."""
        places = self.places
        given = {
            node: {operand.slot.partition("[")[0] for operand in operands}
            for node, operands in places.operands.items()
        }
        known = set(places.arguments)
        reader = SavedReader(self._leaf_ids, self.storages, known, given)
        nodes = self._live.nodes
        with Stage("saved", "nodes", reader.saved.__len__, len(nodes)):
            reader.read(nodes)

        self.storages.name(self._names.named())
        found = DataReader(self._names, self.storages, places)
        found.read(reader.inputs, places.operands)
        for node, tensor in list(self._given_to_torch(reader, found.taken())):
            found.add_argument(node, tensor)
        found.read_calls()
        self.data, self._known_data = found.records(), found.tensors()
        self._no_data = found.numbers
        return reader

    def _given_to_torch(
        self, reader: SavedReader, taken: Mapping[int, set[int]]
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Data that a module of torch's was called with, by an op in it that nobody else
        names the data of.
        """
        for node, tensors in self.places.module_inputs.items():
            if node in self.places.in_torch:
                # a recurrent layer takes the states that it begins with, too
                others = taken.get(node, set())
                by_id = {id(one): one for one in tensors if id(one) not in others}
                data, saved = [*by_id.values()], reader.saved[node]
                for tensor in self._taken_of(data, node, saved, bool(others)):
                    yield node, tensor

    def _taken_of(
        self,
        data: Sequence[torch.Tensor],
        node: int,
        saved: Sequence[SavedTensor],
        has_others: bool,
    ) -> Sequence[torch.Tensor]:
        """What a node takes of the data of its module: the only one that it can be, by
        its sizes; all masks where it takes what attention makes of them. `has_others`: it
        is known to take more.
        """
        kind = type(self._live.nodes[node]).__name__
        alike = self._alike(data, kind, saved)
        if has_others:
            return alike[:1] if len({id(one) for one in alike}) == 1 else ()
        if not alike and kind == "AddBackward0" and private.HAS_METADATA:
            # `x + attention(x)`
            made = metadata_info(self._live.nodes[node]._input_metadata[0])
            alike = [one for one in data if tuple(one.shape) == made.shape]
        return alike[:1] if len({id(one) for one in alike}) == 1 else ()

    def _alike(
        self, data: Sequence[torch.Tensor], kind: str, saved: Sequence[SavedTensor]
    ) -> list[torch.Tensor]:
        """The data that a saved input may be a copy of."""
        alike = []
        for slot in saved:
            is_input = slot.kind == "activation" and slot.slot in _WORKED_ON
            if slot.tensor is not None and is_input:
                alike += [one for one in data if _may_be_copy(slot.tensor, one, kind)]
        return alike

    # -- leaves and roots --------------------------------------------------------------

    def _leaf_names(self, node: int, variable: torch.Tensor) -> tuple[str, ...]:
        """What the caller calls a leaf, else what the recording does."""
        recorded = self.places.names.get(node)
        return self._names.leaf(variable) or (
            (recorded,) if recorded is not None else ()
        )

    def _leaf(self, node: int, variable: torch.Tensor) -> Leaf:
        return Leaf(
            node=node,
            names=self._leaf_names(node, variable),
            tensor=tensor_info(variable),
            kind=self._names.kind(variable),  # type: ignore[arg-type]
            # reading it elsewhere warns
            has_grad=variable.is_leaf and variable.grad is not None,
            hooks=_hooks(variable),
            storage=self.storages.number(variable) if self._saved else None,
            base=self._base(base_of(variable)),
        )

    def _base(self, base: torch.Tensor | None) -> Base | None:
        if base is None:
            return None

        node = grad_fn_of(base)
        if node is not None:
            node_id = self._live.position_of.get(node)
        else:
            node_id = self._leaf_ids.get(id(base))

        return Base(
            tensor_info(base),
            node_id,
            base.output_nr if node is not None else 0,
            self._names.leaf(base),
        )

    def _root(self, root: LiveRoot) -> Root:
        tensor, base = root.tensor, self._base(root.base)
        info = tensor_info(tensor) if tensor is not None else _result_info(root)
        if tensor is None or root.node is not None:
            node = self._live.position_of[root.node]
            return Root(node, root.output, root.name, info, base)

        # of a view it may raise
        if base is not None or not tensor.requires_grad or not tensor.is_leaf:
            return Root(None, 0, root.name, info, base, root.why)

        return Root(self._leaf_node(tensor, info), 0, root.name, info)

    def _leaf_node(self, tensor: torch.Tensor, info: TensorInfo) -> int:
        """The AccumulateGrad of an output that is itself a leaf. Torch makes it when it
        is first used; the model has it always.
        """
        leaf_id = self._leaf_ids.get(id(tensor))
        if leaf_id is not None:
            return leaf_id

        node = self._leaf_ids[id(tensor)] = len(self.nodes)
        self.variables[node] = tensor
        flags: tuple[NodeFlag, ...] = ("hooks",) if _hooks(tensor) else ()
        names = self._names.leaf(tensor)
        self.nodes.append(Node(node, ACCUMULATE, (info,), flags=flags, names=names))
        self.leaves.append(self._leaf(node, tensor))
        return node


def _of_each(
    nodes: Sequence[LiveNode], facts: Mapping[int, Fact], default: Fact
) -> Iterator[Fact]:
    """A fact that few nodes have, for each of them."""
    return (facts.get(i, default) for i in range(len(nodes)))


def _hooks(tensor: torch.Tensor) -> int:
    """How many hooks the user put on a tensor."""
    return len(tensor._backward_hooks or ()) + len(
        getattr(tensor, "_post_accumulate_grad_hooks", None) or ()
    )


def _result_info(root: LiveRoot) -> TensorInfo:
    """What is known of a result whose tensor was not given."""
    metadata = getattr(root.node, "_input_metadata", ())
    if root.output < len(metadata):
        return metadata_info(metadata[root.output])
    return TensorInfo(None, "unknown", "unknown")


_WORKED_ON = ("input", "mat1", "self")
"""Slots of what a convolution, a recurrent layer, a norm or a linear map works on."""
_MASKED = ("AddBackward0", "BaddbmmBackward0")
"""Ops that take what attention makes of its masks."""


def _may_be_copy(kept: TensorInfo, tensor: torch.Tensor, kind: str) -> bool:
    """Whether this may be the tensor, turned, flattened for a product, or as numbers of
    another precision.
    """
    floats = "float" in kept.dtype and tensor.is_floating_point()
    if not floats and kept.dtype != str(tensor.dtype).removeprefix("torch."):
        return False
    if kind in ("MmBackward0", "AddmmBackward0"):
        return math.prod(kept.shape or ()) == tensor.numel()
    # the factor of a product may be noise of the op's own
    is_same = sorted(kept.shape or ()) == sorted(tensor.shape)
    return is_same and kind != "MulBackward0"
