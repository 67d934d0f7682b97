"""Notes on memory: saved tensors that are large, and values that are kept twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import CheckContext, Copy
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import title, title_and_code, where as place
from gradviz.graph import Graph
from gradviz.graph.amounts import COUNTED
from gradviz.memory.saved import holders
from gradviz.wording import bytes_text, plural, tensor_line

LARGE_SHARE, LARGE_BYTES = 0.25, 16 * 1024 * 1024
"""`large-saved`: one saved tensor is this part of all that is held for backward, and at least so many bytes."""
WORTH_TELLING = 1024
"""Bytes that are kept twice, from which it is said."""


@check("large-saved", "note", "one saved tensor is a large part of the memory held for backward")
def large_saved(context: CheckContext) -> Iterator[Diagnosis]:
    """One saved tensor is at least 16 MiB, and at least a quarter of all that is held for backward.

    `gradviz saved` lists all of them. Checkpointing that part, a smaller dtype (autocast), or a fused operation that does not keep
    the intermediate result saves it.

    How it is found: The sizes of all storages that saved tensors hold are compared.

    What to do: Run that part under `torch.utils.checkpoint`, in a smaller dtype, or with a fused operation. `gradviz saved
    --budget` says what is enough.

    When to ignore it: When the memory suffices.

    ```python
    import torch

    x = torch.ones(2048, 2048, requires_grad=True)
    loss = torch.exp(x).sum()
    loss.backward()
    ```
    """
    graph = context.graph
    kept = {i: holder for i, holder in holders(graph).items() if graph.storages[i].kind in COUNTED}
    total = sum(graph.storages[i].nbytes or 0 for i in kept)
    for storage, holder in kept.items():
        nbytes = graph.storages[storage].nbytes or 0
        if nbytes >= LARGE_BYTES and nbytes >= LARGE_SHARE * total:
            yield Diagnosis(
                f"{graph.nodes[holder.node].op} saved {bytes_text(nbytes)}, {100 * nbytes / total:.0f} % of what "
                "backward holds",
                graph.nodes[holder.node].names,
                place(graph, holder.node),
                f"{title_and_code(graph, holder.node)} keeps {holder.slot.slot!r}, {tensor_line(holder.slot.tensor)}; in all "
                f"{bytes_text(total)} are held",
                "If memory is short: torch.utils.checkpoint for this part, autocast, or a fused operation. gradviz "
                "saved lists everything.",
                (holder.node,),
            )


@check("duplicate-saved", "note", "one value is saved twice, in two storages")
def duplicate_saved(context: CheckContext) -> Iterator[Diagnosis]:
    """The same numbers are saved twice, because a copy was made between two operations that both keep their input.

    `.contiguous()`, `.clone()` and `.reshape()` of a transposed tensor copy. Making the copy before the first use, or using the
    copy in both places, saves one of them. What is reported is found from the graph: a copying node whose input and output
    are both saved.

    How it is found: A node that copies, and whose input and output are both saved, is looked for in the graph.

    What to do: Make the copy before the first use, or use the copy in both places.

    When to ignore it: When the memory suffices.

    ```python
    import torch

    w = torch.ones(64, 64, requires_grad=True)
    x = torch.exp(w).t()
    y = x.contiguous()
    loss = (x.sin() + y.sin()).sum()
    loss.backward()
    ```
    """
    yield from _copies(context, [copy for copy in context.copies if not _casts(context.graph, copy)])


@check("saved-cast", "note", "a value is saved in two dtypes")
def saved_cast(context: CheckContext) -> Iterator[Diagnosis]:
    """A tensor and its cast to another dtype are both saved, such as a float32 activation beside its float16 copy.

    Mixed precision does that wherever an operation that runs in float32 meets one that runs in half precision. Parameters
    exist anyway and are not counted: only their casts take extra memory.

    How it is found: A node that casts, and whose input and output are both saved, is looked for in the graph.

    What to do: Let both operations run in one dtype, where the precision allows it.

    When to ignore it: When the memory suffices: mixed precision does this everywhere.

    ```python
    import torch

    w = torch.ones(64, 64, requires_grad=True)
    x = torch.exp(w)
    half = x.to(torch.bfloat16)
    loss = half.sin().float().sum() + x.sin().sum()
    loss.backward()
    ```
    """
    yield from _copies(context, [copy for copy in context.copies if _casts(context.graph, copy)])


def _casts(graph: Graph, copy: Copy) -> bool:
    made = graph.nodes[copy.node].outputs
    edges = graph.inputs(copy.node)
    given = graph.nodes[edges[0].producer].outputs if edges else ()
    before = given[edges[0].output] if edges and edges[0].output < len(given) else None
    return bool(made and made[0] is not None and before is not None and made[0].dtype != before.dtype)


def _copies(context: CheckContext, copies: Sequence[Copy]) -> Iterator[Diagnosis]:
    """One finding for all of a kind: there are many under mixed precision."""
    graph = context.graph
    extra = {copy.second: graph.storages[copy.second].nbytes or 0 for copy in copies}
    if sum(extra.values()) < WORTH_TELLING:
        return
    first = max(copies, key=lambda copy: extra[copy.second])
    cast = _casts(graph, first)
    names = tuple(dict.fromkeys(name for copy in copies for name in graph.nodes[copy.node].names))
    what = "cast" if cast else "copy"
    saver = title(graph, first.second_saver)
    original = (
        "is a leaf and exists anyway"
        if first.first_saver in graph.leaf_of
        else f"is saved by {title(graph, first.first_saver)}"
    )
    yield Diagnosis(
        f"{plural(len(copies), 'value')} {'is' if len(copies) == 1 else 'are'} kept twice, as a {what}: "
        f"{bytes_text(sum(extra.values()))} more",
        names,
        place(graph, first.node),
        f"{title_and_code(graph, first.node)} makes a {what} that {saver} saves, while the original {original}; the largest "
        f"takes {bytes_text(extra[first.second])}",
        "Use the cast tensor in both places, or keep the float32 operation away from it."
        if cast
        else "Make the copy first and use it in both places, or leave it out.",
        tuple(copy.node for copy in copies),
    )
