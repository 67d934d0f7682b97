"""What autograd saved for backward in all, and what a reader of these numbers must know: plain numbers, and sentences.

The sentences say what could not be counted, and where the numbers are not those of a real run. Knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from gradviz.graph import Graph, SavedTensor, Storage, StorageKind
from gradviz.graph.amounts import ONLY_GRAPH, tensor_bytes
from gradviz.wording import plural, verb


class Totals(NamedTuple):
    """The whole graph in bytes, each storage once, and in numbers of slots.

    The first block is memory that exists with or without the graph, as far as the graph knows of it. The second sums up
    what was saved: `held_for_backward` is all of it, `held_only_by_graph` what would be freed with the graph.
    """

    parameters: int
    buffers: int
    inputs: int
    gradients: int  # of the `.grad`s that backward() will make for leaves that have none

    activations: int
    outputs: int  # activations that the caller holds, too
    numbers: int  # Python numbers that autograd wrapped into tensors
    held_for_backward: int
    held_only_by_graph: int

    slots: int  # that hold a tensor
    storages: int  # that those slots hold
    freed_slots: int
    modified_slots: int
    modified_bytes: int
    packed_slots: int
    packed_bytes: int  # of the packed objects that are tensors
    packed_unknown: int  # packed objects that are no tensor: nobody can tell their size
    recomputed_slots: int  # packed by a checkpoint: nothing is held for them until backward computes them again
    without_storage: int  # tensors that have no storage that can be asked
    empty_storage: int  # tensors with elements in a storage of 0 bytes


def totals_of(graph: Graph, saved: Collection[int]) -> Totals:
    """The totals, when these storages are saved."""
    slots = [slot for node in graph.nodes for slot in node.saved]
    full = [slot for slot in slots if slot.tensor is not None]
    states = Counter(slot.state for slot in slots)
    kept = by_kind(graph.storages[storage] for storage in saved)
    known = by_kind(graph.storages)
    return Totals(
        parameters=known["parameter"] + _unread_leaves(graph, "parameter"),
        buffers=known["buffer"] + _unread_leaves(graph, "buffer"),
        inputs=known["input"] + _unread_leaves(graph, "input"),
        gradients=sum(tensor_bytes(leaf.tensor) or 0 for leaf in graph.leaves if not leaf.has_grad),
        activations=kept["activation"],
        outputs=kept["output"],
        numbers=kept["number"],
        held_for_backward=sum(kept.values()),
        held_only_by_graph=sum(kept[kind] for kind in ONLY_GRAPH),
        slots=len(full),
        storages=len(saved),
        freed_slots=states["freed"],
        modified_slots=states["modified"],
        modified_bytes=_bytes_in(graph, [slot for slot in full if slot.state == "modified"]),
        packed_slots=states["packed"],
        packed_bytes=_bytes_in(graph, [slot for slot in full if slot.state == "packed"]),
        packed_unknown=sum(
            slot.state == "packed" and slot.tensor is None and slot.packing != "recompute" for slot in slots
        ),
        recomputed_slots=sum(slot.packing == "recompute" for slot in slots),
        without_storage=sum(_nbytes(graph, slot) is None for slot in full),
        empty_storage=sum(_nbytes(graph, slot) == 0 and bool(slot.nbytes) for slot in full),
    )


def _unread_leaves(graph: Graph, kind: StorageKind) -> int:
    """Bytes of the leaves whose storage was not read, by their shapes: those of a graph walked with `saved=False`."""
    return sum(tensor_bytes(leaf.tensor) or 0 for leaf in graph.leaves if leaf.kind == kind and leaf.storage is None)


def _bytes_in(graph: Graph, slots: list[SavedTensor]) -> int:
    return sum(graph.storages[i].nbytes or 0 for i in {storage for slot in slots for storage in slot.storages})


def _nbytes(graph: Graph, slot: SavedTensor) -> int | None:
    return graph.storages[slot.storage].nbytes if slot.storage is not None else None


def by_kind(storages: Iterable[Storage]) -> Counter[StorageKind]:
    """Bytes of storages by their kind."""
    kinds: Counter[StorageKind] = Counter()
    for storage in storages:
        kinds[storage.kind] += storage.nbytes or 0
    return kinds


# -- notes ----------------------------------------------------------------------------------------------------------------

_HIDING = {"checkpoint": "a reentrant checkpoint", "compiled": "a compiled function", "hidden": "C++"}


def memory_notes(graph: Graph, totals: Totals) -> Iterator[str]:
    """One sentence for each thing that makes the numbers smaller, larger or other than they seem.

    What the graph itself has to say comes first, such as that this torch shows no saved tensors.
    """
    yield from graph.notes
    if totals.freed_slots:
        yield f"{_slots(totals.freed_slots)} freed: backward() has run, what they held is gone and not counted"
    if totals.modified_slots:
        yield f"{_slots(totals.modified_slots)} modified in place since it was saved: backward() will raise an error"
    if totals.packed_unknown:
        yield (
            f"{_slots(totals.packed_unknown)} packed by a hook into something that is no tensor: its size is not known "
            "and not counted"
        )
    if totals.recomputed_slots:
        yield (
            f"{_slots(totals.recomputed_slots)} left to checkpoints: nothing is held for them until backward() computes "
            "them again; what is kept for that is counted"
        )
    if totals.without_storage:
        yield f"{_tensors(totals.without_storage)} no storage that can be asked: not counted"
    if totals.empty_storage:
        yield (
            f"{_tensors(totals.empty_storage)} elements but a storage of 0 bytes: sharded away, or held inside a tensor "
            "subclass"
        )
    for flag, what in _HIDING.items():
        count = sum(flag in node.flags for node in graph.nodes)
        if count:
            yield f"{_nodes(count)} what {what} saved or will compute again: not counted"
    attention = _math_attention_on_meta(graph)
    if attention:
        yield (
            f"{_nodes(attention)} a (length x length) matrix for attention. On the meta device "
            "scaled_dot_product_attention always does so; on a CPU or GPU it mostly does not. Use FakeTensorMode instead "
            "of device='meta' for the real size"
        )


def _math_attention_on_meta(graph: Graph) -> int:
    """Nodes that keep the weights of attention, when all is on the meta device: a softmax next to batched products."""
    on_meta = [
        node for node in graph.nodes if any(output is not None and output.device == "meta" for output in node.outputs)
    ]
    if not any(node.op.startswith(("Bmm", "Baddbmm", "UnsafeView", "ExpandBackward")) for node in on_meta):
        return 0
    return sum("Softmax" in node.op and not node.op.startswith("LogSoftmax") for node in on_meta)


def _slots(count: int) -> str:
    return f"{plural(count, 'slot')} {verb(count, 'was', 'were')}"


def _tensors(count: int) -> str:
    return f"{plural(count, 'saved tensor')} {verb(count, 'has', 'have')}"


def _nodes(count: int) -> str:
    return f"{plural(count, 'node')} {verb(count, 'keeps', 'keep')}"


# Which nodes a non-reentrant checkpoint will compute again: it packs every tensor that they save into a placeholder.
# Knows nothing of torch.
