"""What a reader of memory numbers must know: what could not be counted, and where the numbers are not those of a real run.

Plain sentences about one graph. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradviz.graph import Graph
from gradviz.wording import plural, verb

if TYPE_CHECKING:
    from gradviz.memory.saved import Totals


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
