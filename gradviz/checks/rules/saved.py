"""Checks on saved tensors that make backward fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradviz.checks.call import BackwardCall, NamedTensor
from gradviz.checks.edit import Edit, before, instead, out_of_place
from gradviz.checks.ops import RESHAPES, kind, makers, spread
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.history import freed_fix, joints_behind
from gradviz.checks.rules.old_tensors import old_tensors
from gradviz.checks.words import (
    Names,
    all_names,
    code,
    line,
    listed,
    made_at,
    places,
    title_and_code,
    verb,
    where as place,
)
from gradviz.graph import Graph, Leaf, SavedTensor, SourceLine
from gradviz.source.code_line import (
    changed_in_place,
    in_place_part,
)
from gradviz.source.search import Change
from gradviz.wording import one_line, tensor_line


class _Slot(NamedTuple):
    """One slot whose tensor was modified, and the node that saved it."""

    node: int
    slot: SavedTensor


class _Stale(NamedTuple):
    """A modified tensor: the slots that hold it, its names, whether it is a parameter,
    and the lines that may have changed it.
    """

    slots: list[_Slot]
    names: Names
    parameter: bool
    changed: tuple[SourceLine, ...]

    @property
    def whose(self) -> str:
        if self.names:
            return one_line(self.names[0])
        return f"a tensor {tensor_line(self.slots[0].slot.tensor)}"


@check(
    "stale-saved",
    "error",
    "a tensor that was saved for backward has been modified in place: backward() will fail",
    reads_saved=True,
)
def stale_saved(context: BackwardCall) -> Diagnoses:
    """A saved tensor was modified in place, so `backward()` will raise "modified by an
    inplace operation".

    Autograd saves tensors, not copies, and each tensor counts its in-place changes.
    `backward()` compares the count with the one at saving and refuses. All such tensors
    are reported at once: who saved them where, whose they are, and the lines that may
    have changed them.

    How it is found: The version of each saved tensor is compared with that of the
    tensor now, as `backward()` does. Lines that changed it come from the nodes that
    were recorded later, and from the text of the code around the call.

    What to do: Write `x = x + 1` in place of `x += 1`, or `x.add_(1)`. Call every
    `backward()` before the `optimizer.step()` that changes the weights it needs, or
    compute the loss again after it.

    When to ignore it: Never: `backward()` will raise. Only a graph through which
    `backward()` is not called again may stay so.

    ```python
    import torch

    x = torch.randn(3, requires_grad=True)
    activation = torch.exp(x)
    activation.add_(1)
    loss = activation.sum()
    loss.backward()
    ```
    """
    slots: dict[object, list[_Slot]] = {}
    graph = context.graph

    for node in [
        graph.nodes[i] for i, flags in enumerate(graph.flags) if "modified" in flags
    ]:
        for slot in node.saved:
            if slot.state == "modified":
                key = slot.storage if slot.storage is not None else (node.id, slot.slot)
                slots.setdefault(key, []).append(_Slot(node.id, slot))

    causes: dict[object, list[_Stale]] = {}
    for i, members in enumerate(slots.values()):
        tensor = _stale(context, members)
        causes.setdefault(
            (tensor.parameter, tensor.changed) if tensor.changed else i, []
        ).append(tensor)

    for stale in causes.values():
        yield _finding(context.graph, stale)._replace(
            **_of_an_earlier_step(context, stale[0].slots[0].node)
        )


def _of_an_earlier_step(context: BackwardCall, saver: int) -> dict[str, Any]:
    """What to do where the same line ran in this step and in an earlier one, from which
    a state has brought its graph along.
    """
    graph = context.graph
    lines = {
        made_at(graph, node.id)
        for node in graph.nodes
        if (node.sequence or 0) >= context.since
    }
    joints = joints_behind(context, [saver]) if made_at(graph, saver) in lines else ()
    if not joints or (graph.nodes[saver].sequence or 0) >= context.since:
        return {}

    old, made = old_tensors(context, joints), made_at(graph, joints[0].producer)
    summary = f"{listed(old.names) or 'a state'} leads back into an earlier step, whose weights have changed since"
    told = {
        "summary": summary,
        "names": old.names,
        "where": "",
        "source": made,
        "part": "",
        "follows": ("freed-graph",),
    }

    return told | freed_fix(context, joints, old, made)


def _stale(context: BackwardCall, members: list[_Slot]) -> _Stale:
    node, slot = members[0]
    leaves = [
        leaf
        for leaf in context.graph.leaves
        if leaf.node == slot.leaf or _shares(leaf, slot)
    ]
    names = all_names(
        [
            *leaves,
            *(tensor for tensor in context.named_tensors if _shares(tensor, slot)),
        ]
    )
    parameter = any(leaf.kind == "parameter" and leaf.names for leaf in leaves)
    changed = _changes(context, names, node, parameter) or _recorded_changes(
        context.graph, node
    )

    return _Stale(
        members,
        names,
        parameter or slot.leaf is not None,
        tuple(changed),
    )


def _shares(tensor: Leaf | NamedTensor, slot: SavedTensor) -> bool:
    """Whether a tensor lies in the storage that a slot holds."""
    return tensor.storage == slot.storage is not None


def _finding(graph: Graph, stale: Sequence[_Stale]) -> Diagnosis:
    """What one line of code, or several, did to these tensors."""
    names, first = dict.fromkeys(tensor.whose for tensor in stale), stale[0]
    saver, (fix, edit) = first.slots[0].node, _remedy(graph, first)
    changed, source = (
        first.changed,
        first.changed[0] if first.changed else made_at(graph, saver),
    )

    return Diagnosis(
        f"{listed(names)} {verb(names, 'was', 'were')} modified in place after {verb(names, 'it was', 'they were')} saved "
        "for backward",
        all_names(stale),
        _why(graph, stale),
        fix,
        tuple(slot.node for tensor in stale for slot in tensor.slots),
        where=places(
            place(graph, saver), f"changed in {line(changed[0])}" if changed else ""
        ),
        source=source,
        part=in_place_part(source) if changed else "",
        edit=edit,
    )


def _why(graph: Graph, stale: Sequence[_Stale]) -> str:
    """Who saved what, and which lines may have changed it; what one line saved several
    times is told once.
    """
    savers = {
        f"{title_and_code(graph, saver.node)} saved {'it' if len(stale) == 1 else tensor.whose} as {one_line(saver.slot.slot)!r}"
        for tensor in stale
        for saver in tensor.slots
    }
    parts = sorted(savers)[:3]
    if len(savers) > 3:
        parts.append(f"{len(savers) - 3:,} more nodes saved it")

    versions = stale[0].slots[0].slot.note
    if len(stale) == 1 and versions:
        parts.append(f"it was {versions}")

    changed = stale[0].changed
    if changed:
        is_in = verb(changed, "the change is", "the changes that the code shows are")
        parts.append(f"{is_in} in {listed(code(change) for change in changed)}")
    else:
        parts.append("the code around the call does not show where it was changed")

    return "; ".join(parts)


def _remedy(
    graph: Graph,
    stale: _Stale,
) -> tuple[str, Edit | None]:
    """What to do, and the same as data where the text of the line shows how."""
    change = stale.changed[0] if stale.changed else None
    if stale.parameter:
        saver, there = made_at(graph, stale.slots[0].node), "it"
        if saver is not None and change is not None:
            end = next(
                (made_at(graph, root.node) for root in graph.roots[:1]),
                None,
            )
            there = f"{line(change)}, from {line(saver)}{f' to {line(end)}' if end not in (None, saver) else ''}"
        fix = "Call every backward() before the parameter is updated (by step() or in place), or compute the loss again after "
        return f"{fix}{there}.", None

    new = out_of_place(change)
    if new is not None and change is not None:
        fix = f"In {line(change)}, make a new tensor: {new[1]} instead of {new[0]}."
        return fix, instead(
            change, change.text.replace(*new) if new[0] in change.text else ""
        )

    it = next(
        iter([*stale.names[:1], *changed_in_place(change)]),
        "x",
    )
    if change is not None and change.text.startswith(f"{it}["):
        copy = f"{it} = {it}.clone()"
        return f"Change a copy: {copy} before {line(change)}.", before(change, copy)

    fix = f"Make a new tensor instead of changing this one: {it} = {it} + ... rather than {it}.add_(...) or +=; or change a copy, "
    return f"{fix}{it} = {it}.clone() before it.", None


def _changes(
    context: BackwardCall, names: Names, saver: int, parameter: bool
) -> list[SourceLine]:
    """Lines that change one of these tensors: the later node that made its present
    value, then what the code shows.
    """
    lines: list[SourceLine] = []
    saved = context.graph.nodes[saver]

    for tensor in context.named_tensors:
        if (
            tensor.node is not None
            and not tensor.leaf
            and set(tensor.names) & set(names)
        ):
            made = context.graph.nodes[tensor.node]
            if made.source not in (None, saved.source) and (made.sequence or 0) > (
                saved.sequence or 0
            ):
                lines.append(made.source)

    for change in context.changes:
        concerned = change.name in names or (
            parameter and _updates(context, change, names)
        )
        if concerned and change.source != saved.source and change.source not in lines:
            lines.append(change.source)

    return lines


def _recorded_changes(graph: Graph, saver: int) -> list[SourceLine]:
    """Lines of operations that were recorded later, and took the place of what the
    saver made or used, as their text says.
    """
    lines = dict[SourceLine, None]()
    taken = spread(
        makers(graph, saver),
        lambda node: makers(graph, node) if kind(graph, node) in RESHAPES else (),
    )

    for maker in sorted({saver, *taken}):
        for edge in graph.consumers(maker):
            node = graph.nodes[edge.consumer]
            later = (node.sequence or 0) > (graph.nodes[saver].sequence or 0)
            if (
                later
                and edge.position == 0
                and node.source is not None
                and changed_in_place(node.source)
            ):
                lines[node.source] = None

    return list(lines)


def _updates(context: BackwardCall, change: Change, names: Names) -> bool:
    """Whether a line steps an optimizer that holds one of these parameters, as far as
    it is known.
    """
    owner, _, method = change.what.partition("(")[0].rpartition(".")
    holding = [
        one.name
        for one in context.optimizers
        if not {*names}.isdisjoint(all_names(one.tensors))
    ]
    unknown = not any(holding) and all(
        optimizer.name != owner for optimizer in context.optimizers
    )
    return method == "step" and (owner in holding or unknown)
