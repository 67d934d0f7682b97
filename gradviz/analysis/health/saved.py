"""Checks on saved tensors that make backward fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.analysis.health.code_line import changed_in_place
from gradviz.analysis.health.registry import Found, check
from gradviz.analysis.health.words import code, line, listed, title_and_code, verb
from gradviz.analysis.health.words import where as place
from gradviz.evidence import Change, Evidence, Held
from gradviz.graph import Graph, SavedTensor, SourceLine
from gradviz.wording import one_line, tensor_line


class _Stale(NamedTuple):
    """One slot whose tensor was modified, and the node that saved it."""

    node: int
    slot: SavedTensor


@check("stale-saved", "error", "a tensor that was saved for backward has been modified in place: backward() will fail")
def stale_saved(evidence: Evidence) -> Iterator[Found]:
    """A saved tensor was modified in place, so `backward()` will raise "modified by an inplace operation".

    Autograd saves tensors, not copies, and each tensor counts its in-place changes. `backward()` compares the count with the one
    at saving and refuses. All such tensors are reported at once: who saved them where, whose they are, and the lines that may
    have changed them. PyTorch does not tell the count at saving, only that it was another one.

    ```python
    import torch

    x = torch.randn(3, requires_grad=True)
    activation = torch.exp(x)
    activation.add_(1)
    loss = activation.sum()
    loss.backward()
    ```
    """
    groups: dict[object, list[_Stale]] = {}
    for node in evidence.graph.nodes:
        if "modified" in node.flags:
            for slot in node.saved:
                if slot.state == "modified":
                    key = slot.storage if slot.storage is not None else (node.id, slot.slot)
                    groups.setdefault(key, []).append(_Stale(node.id, slot))
    for members in groups.values():
        yield _finding(evidence, members)


def _finding(evidence: Evidence, members: list[_Stale]) -> Found:
    graph, first = evidence.graph, members[0]
    owners = _owners(evidence, first.slot)
    names = tuple(dict.fromkeys(name for names, _ in owners for name in names))
    whose = one_line(names[0]) if names else f"a tensor {tensor_line(first.slot.tensor)}"
    savers = [f"{title_and_code(graph, one.node)} saved it as {one_line(one.slot.slot)!r}" for one in members[:4]]
    if len(members) > 4:
        savers.append(f"{len(members) - 4:,} more slots hold it")
    now = f"it is at version {first.slot.version} now, and was at another when it was saved"
    saved_at = graph.nodes[first.node].source
    changed = _changes(evidence, names, saved_at, owners) or _recorded_changes(graph, first.node)
    why = "; ".join([*savers, now])
    if changed:
        why += (
            f"; {verb(changed, 'the change is', 'the changes that the code shows are')} in "
            f"{listed(code(one) for one in changed)}"
        )
    else:
        why += "; the code around the call does not show where it was changed"
    if first.slot.leaf is not None or any(storage_kind == "parameter" for _, storage_kind in owners):
        fix = (
            "Call backward() before the parameter is updated (optimizer.step(), an in-place update), or compute "
            "the loss again after it."
        )
    elif names or (changed and changed_in_place(changed[0])):
        it = whose if names else changed_in_place(changed[0])[0]
        fix = (
            f"Make a new tensor instead of changing this one: {it} = {it} + ... rather than {it}.add_(...) or +=; or change a "
            f"copy, {it} = {it}.clone() before it."
        )
    else:
        fix = (
            "Make a new tensor instead of changing this one, x = x + ... rather than x.add_(...) or x += ...; or change a "
            "copy, x.clone()."
        )
    modified = f", changed in {line(changed[0])}" if changed else ""
    where = (place(graph, first.node) or "") + modified
    return Found(
        f"{whose} was modified in place after it was saved for backward",
        names,
        where.lstrip(", "),
        why,
        fix,
        tuple(one.node for one in members),
    )


def _owners(evidence: Evidence, slot: SavedTensor) -> list[tuple[tuple[str, ...], str]]:
    """Names of the tensors that share the slot's storage, and what kind they are."""
    found: list[tuple[tuple[str, ...], str]] = []
    for leaf in evidence.graph.leaves:
        if leaf.names and (leaf.node == slot.leaf or (leaf.storage is not None and leaf.storage == slot.storage)):
            found.append((leaf.names, leaf.kind))
    for held in _sharing(evidence, slot):
        found.append((held.names, "variable"))
    return found


def _sharing(evidence: Evidence, slot: SavedTensor) -> list[Held]:
    return [one for one in evidence.held if one.storage is not None and one.storage == slot.storage]


def _changes(
    evidence: Evidence, names: tuple[str, ...], saved_at: SourceLine | None, owners: list[tuple[tuple[str, ...], str]]
) -> list[SourceLine]:
    """Lines that change one of these tensors: the node that made its present value, then what the code shows."""
    found: list[SourceLine] = []
    for held in evidence.held:
        if held.node is not None and not held.leaf and set(held.names) & set(names):
            source = evidence.graph.nodes[held.node].source
            if source is not None and source != saved_at:
                found.append(source)
    parameter = any(kind == "parameter" for _, kind in owners)
    for change in evidence.changes:
        concerned = set(change.names) & set(names) or (
            parameter and _is_step(change) and _updates(evidence, change, names)
        )
        if concerned and change.source != saved_at and change.source not in found:
            found.append(change.source)
    return found


def _recorded_changes(graph: Graph, saver: int) -> list[SourceLine]:
    """Lines of operations that were recorded later, and took the place of what the saver made or used, as their text says."""
    makers = {saver, *(edge.producer for edge in graph.inputs(saver))}
    found = []
    for maker in sorted(makers):
        for edge in graph.consumers(maker):
            node = graph.nodes[edge.consumer]
            later = (node.sequence or 0) > (graph.nodes[saver].sequence or 0)
            if later and edge.position == 0 and node.source is not None and changed_in_place(node.source):
                found.append(node.source)
    return list(dict.fromkeys(found))


def _updates(evidence: Evidence, change: Change, names: tuple[str, ...]) -> bool:
    """Whether the optimizer that a line steps holds one of these parameters, as far as it is known."""
    stepped = change.what.partition("(")[0].removesuffix(".step")
    known = [one for one in evidence.optimizers if one.name == stepped]
    return not known or any(set(names).intersection(tensor.names) for one in known for tensor in one.tensors)


def _is_step(change: Change) -> bool:
    return change.what.partition("(")[0].endswith(".step")
