"""Reads the numbers of what a graph holds: which saved tensors, leaves and outputs have
NaN or Inf, and who made them.

The only reader of numbers besides the gradients. Hooks do not run: a packed tensor
counts as unread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.armour.isolation import isolated, unseen
from gradviz.graph import Graph, SavedTensor
from gradviz.walker.outputs import flatten
from gradviz.walker.slots import tensors_on
from gradviz.walker.tensors import answers_itself, grad_fn_of, parts_of
from gradviz.walker.walk import Walked

BASE = torch._C.TensorBase
"""Whose methods read numbers: those of `torch.Tensor` may be the user's."""


class Value(NamedTuple):
    """Non-finite elements in a tensor: `made_by` is the node that made it; `slot` says
    where it was found. `log_of_zero` of the elements are minus infinity.
    """

    made_by: int | None
    node: int | None  # the node that saved it
    slot: str
    nonfinite: int
    elements: int
    names: tuple[str, ...] = ()
    log_of_zero: int = 0


class Values(NamedTuple):
    """What was found by reading numbers."""

    bad: tuple[Value, ...]
    finite: frozenset[int]  # nodes whose result was read and is finite
    # the largest number among saved tensors that have no graph and are no parameter
    largest_input: float = 0.0
    largest_name: str = ""  # of the variable that holds it


# Which tensors have numbers that may be read, and why others have none. Asking reads no
# number and runs no code of a subclass. Reading a tensor whose storage was resized
# below it, as fully_shard does between two uses, ends the process.


def why_unreadable(tensor: torch.Tensor) -> str:
    """Why no number of this tensor can be read, to be put after "it"; "" where they can
    be.

    >>> why_unreadable(torch.ones(2))
    ''
    >>> why_unreadable(torch.ones(2, device="meta"))
    'is on the meta device, which has no numbers'
    """
    with isolated():
        if tensor.is_meta:
            return "is on the meta device, which has no numbers"
        return _CLASSES.get(type(tensor).__name__) or outgrown(tensor)


_CLASSES = {
    "FakeTensor": "is a fake tensor, which has no numbers",
    "MaskedTensor": "is a masked tensor, which supports none of the operations that measure it",
}


def outgrown(tensor: torch.Tensor) -> str:
    """The same, only for a tensor, or a part of one, that does not fit into its storage
    any more.
    """
    with unseen():
        for block in [part for _, part in parts_of(tensor)] or [tensor]:
            needed, there = _extent(block)
            if there < needed:
                return (
                    f"needs {needed:,} bytes of a storage that was resized to {there:,}"
                )
    return ""


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """How many bytes of its storage the tensor reaches into, and how many there are;
    nothing where it has no such storage.
    """
    if answers_itself(tensor) or tensor.layout != torch.strided:
        return 0, 0

    try:
        there = tensor.untyped_storage().nbytes()
        if type(there) is not int or tensor.is_nested or not tensor.numel():
            return 0, 0
        last = tensor.storage_offset() + sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride())
        )
        return int(last + 1) * tensor.element_size(), there
    except (RuntimeError, NotImplementedError):
        # no storage, or sizes that are not told
        return 0, 0


def values_of(walked: Walked, outputs: object) -> Values:
    """What can be read of saved tensors, leaves and outputs."""
    names_of = walked.names.leaf
    nodes = walked.graph.nodes
    bad: list[Value] = []
    finite: set[int] = set()
    largest, largest_name = 0.0, ""

    for held in (*held_tensors(walked.graph, walked.nodes), *_outputs(walked, outputs)):
        tensor = held.tensor
        count = nonfinite(tensor)
        if count:
            names = held.names or names_of(tensor)
            size, infinite = tensor.numel(), _minus_infinite(tensor)
            bad.append(Value(*held[:3], count, size, names, infinite))
        elif count is None:
            continue
        elif held.made_by is not None:
            finite.add(held.made_by)
        # numbers of a target are no input's
        elif held.node is not None and "Loss" not in nodes[held.node].op:
            found = _largest(tensor)
            if found > largest:
                largest, largest_name = found, next(iter(names_of(tensor)), "")

    return Values(tuple(bad), frozenset(finite), largest, largest_name)


class Held(NamedTuple):
    """A tensor that a graph holds, the node that made it, and the slot that it is in."""

    made_by: int | None
    node: int | None  # the node that saved it
    slot: str
    tensor: torch.Tensor
    names: tuple[str, ...] = ()
    is_changed: bool = False  # a view, or it was modified after it was saved


def held_tensors(graph: Graph, nodes: Sequence[Any]) -> Iterator[Held]:
    """What is in saved slots, as far as no hook has packed it, and in leaves."""
    position = {function: i for i, function in enumerate(nodes)}
    for node in graph.nodes:
        for slot in node.saved:
            if slot.state in ("live", "modified"):
                tensor = tensor_in(nodes[node.id], slot.slot)
                if tensor is not None:
                    maker = _maker(node.id, slot, tensor, position)
                    is_changed = bool(slot.view) or slot.state == "modified"
                    yield Held(maker, node.id, slot.slot, tensor, is_changed=is_changed)

    for leaf in graph.leaves:
        variable = getattr(nodes[leaf.node], "variable", None)
        if isinstance(variable, torch.Tensor):
            yield Held(leaf.node, None, "", variable, leaf.names)


def _maker(
    node: int, saved: SavedTensor, tensor: torch.Tensor, position: Mapping[Any, int]
) -> int | None:
    """The node that made a saved tensor: what it says itself, its leaf, or the saving
    node for its own result, which has no grad_fn.
    """
    if saved.leaf is not None:
        return saved.leaf
    try:
        function = grad_fn_of(tensor)
    except RuntimeError:
        return None
    if function is not None:
        return position.get(function)
    return node if saved.slot in ("result", "output", "out", "values") else None


def _outputs(walked: Walked, outputs: object) -> Iterator[Held]:
    for (_, output), root in zip(flatten(outputs), walked.graph.roots):
        if isinstance(output, torch.Tensor):
            yield Held(root.node, None, "", output, (root.name,))


def nonfinite(tensor: torch.Tensor) -> int | None:
    """How many elements are NaN or Inf; None where there are no numbers to read, or a
    class of tensors refuses to tell.
    """
    if tensor.is_nested or why_unreadable(tensor):
        return None
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return 0

    try:
        with torch.no_grad():
            dense = _dense(tensor)
            return int(BASE.numel(dense)) - true_in(torch.isfinite(dense))
    except Exception:
        # what a masked tensor, one of a transform, or a dtype without arithmetic does
        # not support
        return None


def true_in(mask: torch.Tensor) -> int:
    """How many elements of a mask are true."""
    return int(BASE.item(torch.sum(mask)))


def _minus_infinite(tensor: torch.Tensor) -> int:
    """How many elements are minus infinity, of a tensor that `nonfinite` could read."""
    if tensor.dtype.is_complex:
        return 0
    with torch.no_grad():
        return true_in(torch.isneginf(_dense(tensor)))


def _largest(tensor: torch.Tensor) -> float:
    """The largest absolute value of a finite tensor of real numbers."""
    if not tensor.dtype.is_floating_point or tensor.dim() < 2 or not tensor.numel():
        return 0.0  # a number, or one for each column
    with torch.no_grad():
        return float(BASE.item(torch.max(torch.abs(_dense(tensor)))))


def is_zero(tensor: torch.Tensor) -> bool | None:
    """Whether all elements are zero; None where there are no numbers to read, or
    another class keeps them.
    """
    if type(tensor) is not torch.Tensor or tensor.is_nested or why_unreadable(tensor):
        return None
    with torch.no_grad():
        return not BASE.item(torch.any(_dense(tensor)))


def _dense(tensor: torch.Tensor) -> Any:
    """The elements that are there: all, those that a sparse tensor names, or those in
    the part of one that is made of others.

    Raises IndexError for a class that does not tell its parts.
    """
    while answers_itself(tensor):
        tensor = parts_of(tensor)[-1][1]
    dense: Any = BASE.detach(tensor)
    if dense.layout != torch.strided:
        if dense.layout == torch.sparse_coo:
            dense = dense.coalesce().values()
        else:
            dense = dense.values()
    return dense


def tensor_in(node: Any, slot: str) -> torch.Tensor | None:
    """The tensor in a slot of a live node, as `SavedTensor.slot` names it; None where
    it is packed, freed, or hidden.
    """
    name, _, index = slot.partition("[")
    if name.startswith("ctx."):
        name = name.removeprefix("ctx.")
        return dict(tensors_on(name, vars(node).get(name))).get(
            slot.removeprefix("ctx.")
        )

    raw = getattr(
        node, "_raw_saved_" + ("tensors" if name == "saved_tensors" else name), None
    )
    if index and isinstance(raw, tuple):
        raw = raw[int(index.rstrip("]"))]

    if raw is None or isinstance(raw, tuple) or raw.unpack_hook is not None:
        return None

    return raw.data if isinstance(raw.data, torch.Tensor) else None
