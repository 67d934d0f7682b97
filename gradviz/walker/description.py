"""Reads live roots, nodes and leaves into records, while all of them are alive, and
asks an attribution where each came from.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import torch

from gradviz.graph import (
    Base,
    Data,
    Edge,
    FunctionCall,
    Leaf,
    Root,
    Scope,
    SourceLine,
    TensorInfo,
)
from gradviz.graph.columns import EdgeColumns, NodeColumns, NodeType
from gradviz.stages import Stage
from gradviz.walker import private
from gradviz.walker.names import Names, Output
from gradviz.walker.private import LAST, Node
from gradviz.walker.saved import SavedReader, saved_operand
from gradviz.walker.slots import modules_behind, node_type, nodes_of
from gradviz.walker.tensors import (
    Storages,
    base_of,
    grad_fn_of,
    metadata_info,
    placements,
    storage_of,
    tensor_info,
    why_no_graph,
)
from gradviz.wording import few_lines

# -- where a walk begins ---------------------------------------------------------------


class LiveRoot(NamedTuple):
    """An output and the node that made it, while both are alive. `tensor` is None where
    only the node was given; `base` is the tensor that it is a view of.
    """

    name: str
    tensor: torch.Tensor | None
    base: torch.Tensor | None
    node: Node | None
    output: int = 0
    why: str = ""


def find_root(name: str, output: Output) -> LiveRoot:
    """The node that made an output, or why there is none."""
    if not isinstance(output, torch.Tensor):
        return LiveRoot(name, None, None, output.node, output.output_nr)

    base = base_of(output)
    try:
        node = grad_fn_of(output, asked_for=True)
    except RuntimeError as error:
        # torch refuses: a view whose base was modified in a way it does not allow
        why = f"has a grad_fn that torch refuses to give: {str(error).splitlines()[0]}"
        return LiveRoot(name, output, base, None, why=why)

    if node is None:
        return LiveRoot(name, output, base, None, why=why_no_graph(output))

    return LiveRoot(name, output, base, node, output.output_nr)


def root_name(
    variable: str,
    path: str,
    output: Output,
    names: Names,
) -> str:
    """The variable's name plus the path inside it: "y", "out['loss']"; "output" where
    there is no variable.

    What is known by its node only is called as the tensor that the node made.
    """
    if variable:
        return variable + path
    if not isinstance(output, torch.Tensor):
        result_names = (
            name
            for number, name in names.results.get(output.node, ())
            if number == output.output_nr
        )
        return next(result_names, "output" + path)
    leaf_names = names.leaf(output)
    return leaf_names[0] if leaf_names and not path else "output" + path


def no_graph(roots: Sequence[LiveRoot]) -> str:
    """What to tell the user when none of the outputs has a graph."""
    if len(roots) == 1:
        return f"{roots[0].name} has no graph to show: it {roots[0].why}"
    lines = few_lines([f"{root.name} {root.why}" for root in roots], 10)
    return "\n".join([f"none of the {len(roots)} outputs has a graph to show:", *lines])


def starts(roots: Sequence[LiveRoot]) -> list[Node]:
    """Where a walk begins: the nodes of the roots, then those of the tensors that roots
    are views of.
    """
    nodes = [root.node for root in roots]
    nodes += [grad_fn_of(root.base) for root in roots if root.base is not None]
    return [node for node in nodes if node is not None]


# -- what a walk found, and who knows more of it ---------------------------------------


class Traversal(NamedTuple):
    """Every node that a walk visited, by id, and what it read on the way."""

    nodes: list[Node]
    position_of: dict[Node, int]
    sequences: array[int]
    edges: EdgeColumns
    none_inputs: dict[int, int]


class BareGraph(NamedTuple):
    """What a walk found: sequence numbers by node id, edges, and the tensor behind each
    AccumulateGrad by node id.

    `checkpoints` are the modules that a reentrant checkpoint may have run, by the id of
    its node; `kinds` the types of all nodes, `modules` the outermost ones that the
    caller knows, with their names; `none_inputs` counts inputs that need no gradient.
    """

    sequences: Sequence[int]
    edges: Sequence[Edge]
    variables: Mapping[int, torch.Tensor]
    checkpoints: Mapping[int, Sequence[torch.nn.Module]] = MappingProxyType({})
    kinds: Sequence[Hashable] = ()
    modules: Sequence[tuple[str, torch.nn.Module]] = ()
    none_inputs: Mapping[int, int] = MappingProxyType({})


class Argument(NamedTuple):
    """The parameter of a module's forward that data was passed as, and whether another
    module called that module.
    """

    name: str
    inner: bool


class Operand(NamedTuple):
    """What the code calls an operand that needs no gradient, and where it stands.

    `stays`: a variable of the script, which still holds what the op was given.
    """

    name: str
    position: int
    stays: bool


class Places(NamedTuple):
    """Scopes, and for every node the id of its scope, its source line and the script's
    own line, where known.

    `names` are those of leaves by node id, for the leaves that no variable of the
    caller leads to; `assigned` are names that lines of code give what their last ops
    make; `arguments` are parameters of modules that data was passed as, by its
    identity; `operands` are those of operators, by the node's id; `functions` are calls
    of functions.
    """

    scopes: tuple[Scope, ...] = ()
    scope_of: Iterable[int | None] = repeat(None)
    source_of: Iterable[SourceLine | None] = repeat(None)
    script_line_of: Iterable[SourceLine | None] = repeat(None)
    notes: tuple[str, ...] = ()
    names: Mapping[int, str] = MappingProxyType({})
    assigned: Mapping[int, str] = MappingProxyType({})
    arguments: Mapping[int, Argument] = MappingProxyType({})
    operands: Mapping[int, Operand] = MappingProxyType({})
    functions: tuple[FunctionCall, ...] = ()


class Attribution(Protocol):
    """Knows where nodes were made."""

    @property
    def kind(self) -> Literal["", "recorded", "inferred"]: ...

    def places(self, bare: BareGraph) -> Places: ...


CHECKPOINT = "CheckpointFunctionBackward"
ACCUMULATE = "AccumulateGrad"
_UNDEFINED = TensorInfo((), "float32", "cpu")


class Description:
    """The records of what was traversed: `nodes`, `leaves`, `roots`, and `storages`
    where what is saved was read.

    `variables` are the tensors behind AccumulateGrad nodes, by node id.
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
        self.variables: dict[int, torch.Tensor] = {}
        for i, sequence in enumerate(traversal.sequences):
            # other kinds of leaf, such as a received gradient, have the number too
            if sequence == LAST:
                variable = getattr(traversal.nodes[i], "variable", None)
                if variable is not None:
                    self.variables[i] = variable

        self._leaf_ids = {
            id(variable): node for node, variable in self.variables.items()
        }
        self.storages = Storages(self._owners())
        self.data: tuple[Data, ...] = ()
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

    def _owners(self) -> Mapping[int, str]:
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

    def _nodes(self, roots: Sequence[LiveRoot]) -> NodeColumns:
        """The facts of every node, a column at a time."""
        nodes, columns, places = self._live.nodes, NodeColumns(), self.places
        types = {type: node_type(type) for type in set(map(type, nodes))}
        columns.type = [types[type] for type in map(type, nodes)]

        # it does not tell, so the node is asked
        if not all(type.op for type in types.values()):
            columns.type = [
                type if type.op else type._replace(op=node.name())
                for type, node in zip(columns.type, nodes)
            ]

        with Stage("read", "nodes", columns.outputs.__len__, len(nodes)):
            self._add_outputs(columns)

        if any(type.function is not None for type in types.values()):
            self._leave_out_undefined(columns, roots)

        columns.sequence, columns.none_inputs = (
            self._live.sequences,
            self._live.none_inputs,
        )
        columns.scope = list(islice(places.scope_of, len(nodes)))
        columns.source, columns.script_line = (
            list(islice(lines, len(nodes)))
            for lines in (places.source_of, places.script_line_of)
        )
        columns.assigned = dict(places.assigned)

        if self._saved:
            with Stage(
                "saved",
                "nodes",
                columns.saved.first.__len__,
                len(nodes),
            ):
                operands = dict(self._operands())
                self._given = self._given_as(operands)
                reader = SavedReader(
                    self._leaf_ids, self.storages, columns, self._given
                )
                reader.read(nodes)
            self.storages.name(self._names.named())
            self.data = self._data(reader, operands)
        else:
            columns.read_nothing()

        self._add_what_is_known_by_name(columns)
        edges = zip(
            self._live.edges.consumer,
            self._live.edges.producer,
        )
        for i, more in placements(
            nodes, columns.type, edges, self.variables, self._names.shards
        ).items():
            columns.attributes[i] = {**columns.attributes[i], **more}

        return columns

    def _add_outputs(self, into: NodeColumns) -> None:
        """Shape, dtype and device of the outputs of each node's forward. Equal ones are
        one object.
        """
        nodes, outputs = self._live.nodes, into.outputs
        if not private.HAS_METADATA:
            outputs.extend([()] * len(nodes))
            return

        infos_by_key: dict[Any, tuple[TensorInfo | None, ...]] = {}
        find, add = infos_by_key.get, outputs.append
        for node in nodes:
            metadata = node._input_metadata
            try:
                if len(metadata) == 1:
                    (output,) = metadata
                    key: Any = (*output.shape, output.dtype, output.device)
                else:
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
        self, columns: NodeColumns, roots: Sequence[LiveRoot]
    ) -> None:
        """None for results of a custom Function that have no gradient: torch describes
        them all as one float32 number.

        A result that something uses is a real one.
        """
        outputs, edges = columns.outputs, self._live.edges
        doubtful = [
            i
            for i, type in enumerate(columns.type)
            if type.function is not None
            and len(outputs[i]) > 1
            and _UNDEFINED in outputs[i]
        ]
        used = set(zip(edges.producer, edges.output)) if doubtful else set()
        used |= {
            (self._live.position_of[root.node], root.output)
            for root in roots
            if root.node
        }

        for i in doubtful:
            infos = enumerate(outputs[i])
            outputs[i] = tuple(
                [
                    None if info == _UNDEFINED and (i, number) not in used else info
                    for number, info in infos
                ]
            )

    def _add_what_is_known_by_name(self, columns: NodeColumns) -> None:
        """Names and hooks, which few nodes have: those of tensors that the caller
        holds, and of leaves.
        """
        names, position_of = self._names, self._live.position_of
        for node in names.results:
            if node in position_of:
                columns.names[position_of[node]] = names.result(node)

        hooked = [position_of[node] for node in names.hooked if node in position_of]
        for i, variable in self.variables.items():
            columns.names[i] = self._leaf_names(i, variable)
            if _hooks(variable):
                hooked.append(i)

        for i in hooked:
            columns.flags[i] = (
                *columns.flags.get(
                    i,
                    columns.type[i].flags,
                ),
                "hooks",
            )

    def _operands(self) -> Iterator[tuple[int, torch.Tensor]]:
        """The operands without gradient that the code names, by node id: those that the
        op saved, or that a variable of the script still holds.
        """
        for node, operand in self.places.operands.items():
            tensor = saved_operand(self._live.nodes[node], operand.position)
            if tensor is None and operand.stays:
                tensor = self._names.called(operand.name)
            # a number of the script's is a part of the op's title
            if tensor is not None and tensor.dim() and not tensor.requires_grad:
                yield node, tensor

    def _given_as(self, operands: Mapping[int, torch.Tensor]) -> Mapping[int, Argument]:
        """What data is called where it was given to a module, or to an operator."""
        of_operands = {
            id(tensor): Argument(self.places.operands[node].name, True)
            for node, tensor in operands.items()
        }
        return {**of_operands, **self.places.arguments}

    def _data(
        self, reader: SavedReader, operands: Mapping[int, torch.Tensor]
    ) -> tuple[Data, ...]:
        """One record for each tensor that has a name; a view without a name counts for
        its base, or for who shares its memory.
        """
        found: dict[object, Data] = {}
        unsaved = ((tensor, "", (node,)) for node, tensor in operands.items())
        for tensor, slot, nodes in chain(reader.given(), unsaved):
            tensor, names, inner = self._data_names(tensor)
            storage = self.storages.known(tensor)
            key = id(tensor) if names else ("storage", storage)
            if not names:
                if storage is not None:
                    names = self.storages.columns.names.get(storage, ())
                else:
                    names = ()
                inner = not names
            data = found.setdefault(
                key,
                Data(
                    names or (slot,),
                    tensor_info(tensor),
                    (),
                    storage,
                    inner,
                ),
            )
            found[key] = data._replace(nodes=tuple(sorted({*data.nodes, *nodes})))

        return tuple(found.values())

    def _data_names(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[str, ...], bool]:
        """What the caller calls data, or what it is a view of; else the parameter of
        the module that either was passed as.

        With it, whether only a module inside another one was called with it.
        """
        base = base_of(tensor)
        both = [tensor] if base is None else [tensor, base]
        for candidate in both:
            if names := self._names.leaf(candidate):
                return candidate, names, False

        passed = []
        for i, candidate in enumerate(both):
            parameter = self._given.get(id(candidate))
            if parameter is not None:
                passed.append((parameter.inner, i, parameter.name))
        if not passed:
            return tensor, (), True

        inner, i, name = min(passed)
        return both[i], (name,), inner

    # -- leaves and roots --------------------------------------------------------------

    def _leaf_names(
        self,
        node: int,
        variable: torch.Tensor,
    ) -> tuple[str, ...]:
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
        tensor = root.tensor
        if tensor is None:
            return Root(
                self._live.position_of[root.node],
                root.output,
                root.name,
                _result_info(root),
            )

        info, base = tensor_info(tensor), self._base(root.base)
        if root.node is not None:
            return Root(
                self._live.position_of[root.node],
                root.output,
                root.name,
                info,
                base,
            )

        # of a view it may raise
        if base is not None or not tensor.requires_grad or not tensor.is_leaf:
            return Root(None, 0, root.name, info, base, root.why)

        return Root(
            self._leaf_node(tensor, info),
            0,
            root.name,
            info,
        )

    def _leaf_node(self, tensor: torch.Tensor, info: TensorInfo) -> int:
        """The AccumulateGrad of an output that is itself a leaf. Torch makes it when it
        is first used; the model has it always.
        """
        leaf_id = self._leaf_ids.get(id(tensor))
        if leaf_id is not None:
            return leaf_id

        node = self._leaf_ids[id(tensor)] = len(self.nodes)
        self.variables[node] = tensor
        flags: tuple[Literal["hooks"], ...] = ("hooks",) if _hooks(tensor) else ()
        self.nodes.add(
            NodeType(ACCUMULATE, flags, None),
            (info,),
            self._names.leaf(tensor),
        )
        self.leaves.append(self._leaf(node, tensor))
        return node


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
