"""Checks on saved tensors that make backward fail."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gradviz.checks.call import BackwardCall, NamedTensor
from gradviz.checks.ops import RESHAPES, kind, makers, spread
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.history import freed_fix, joints_behind
from gradviz.checks.telling.old_tensors import old_tensors
from gradviz.checks.words import (
    Names,
    all_names,
    code,
    line,
    listed,
    made_at,
    title_and_code,
    where,
)
from gradviz.graph import Graph, Leaf, SavedTensor, SourceLine
from gradviz.source.code_line import in_place, is_read_later, out_of_place
from gradviz.source.search import Change, changed_in_forward, changes
from gradviz.wording import one_line, tensor_line

_Slots = list[tuple[int, SavedTensor]]
"""Slots whose tensor was modified, and the nodes that saved it."""


class _Stale(NamedTuple):
    """A modified tensor: the slots that hold it, its names, whether it is a parameter,
    and the lines that may have changed it.
    """

    slots: _Slots
    names: Names
    parameter: bool
    changed: tuple[SourceLine, ...]
    module: str = ""  # with inplace=True, that did it

    @property
    def whose(self) -> str:
        tensor = f"a tensor {tensor_line(self.slots[0][1].tensor)}"
        return one_line(self.names[0]) if self.names else tensor


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
    graph = context.graph
    tensors: dict[object, _Slots] = {}
    for i, flags in enumerate(graph.flags):
        for slot in graph.nodes[i].saved if "modified" in flags else ():
            if slot.state == "modified":
                # views and several savers of one storage are one tensor to the reader
                key = slot.storage if slot.storage is not None else (i, slot.slot)
                tensors.setdefault(key, []).append((i, slot))

    # what one line has changed is told once, by its line and fix
    for slots in tensors.values():
        diagnosis = _told(graph, _stale(context, slots))
        yield diagnosis._replace(**_of_an_earlier_step(context, slots[0][0]))


def _told(graph: Graph, stale: _Stale) -> Diagnosis:
    """What lines of code did to a tensor."""
    saver, slot = stale.slots[0]
    source, piece = made_at(graph, saver), in_place(next(iter(stale.changed), None))
    changes = "the code around the call does not show where it was changed"
    if stale.changed:
        source = stale.changed[0]
        changes = f"the change is in {listed(map(code, stale.changed))}"
    if stale.module:
        changes = f"{stale.module} has inplace=True: {changes}"

    return Diagnosis(
        f"{stale.whose} was modified in place after it was saved for backward",
        stale.names,
        f"{_savers(graph, stale)}{f'; it was {slot.note}' if slot.note else ''}; {changes}",
        _remedy(stale),
        tuple(node for node, _ in stale.slots),
        source=source,
        part=piece.code if piece is not None else "",
    )


def _of_an_earlier_step(context: BackwardCall, saver: int) -> dict[str, Any]:
    """What to do where the same line ran in this step and in an earlier one, from which
    a state has brought its graph along.
    """
    graph, since = context.graph, context.since
    if (graph.nodes[saver].sequence or 0) >= since:
        return {}
    new = [node.id for node in graph.nodes if (node.sequence or 0) >= since]
    again = made_at(graph, saver) in {made_at(graph, node) for node in new}
    joints = joints_behind(context, [saver]) if again else []
    if not joints:
        return {}

    old, origin = old_tensors(context, joints), made_at(graph, joints[0].producer)
    who = listed(old.names) or "a state"
    diagnosis = {
        "summary": f"{who} leads back into an earlier step, whose weights have changed since",
        "names": old.names,
        "source": origin,
        "part": "",
        "follows": ("freed-graph",),
    }
    return diagnosis | freed_fix(context, joints, old, origin)


def _stale(context: BackwardCall, slots: _Slots) -> _Stale:
    saver, slot = slots[0]

    def shares(tensor: Leaf | NamedTensor) -> bool:
        return tensor.storage == slot.storage is not None

    leaves = [
        leaf for leaf in context.graph.leaves if leaf.node == slot.leaf or shares(leaf)
    ]
    names = all_names([*leaves, *filter(shares, context.named_tensors)])
    parameter = any(leaf.kind == "parameter" and leaf.names for leaf in leaves)
    changers = [node for node, _ in slots for node in _changers(context, node)]
    graph = context.graph
    lines = [_change_in(graph, node) or made_at(graph, node) for node in changers]
    changed, module = [source for source in lines if source is not None], ""
    # what the last one is given, others have saved
    for node in sorted(changers, key=lambda node: graph.nodes[node].sequence or 0):
        source = made_at(graph, node)
        if node in context.in_place and source is not None:
            module = where(graph, node).partition(",")[0]
            changed = [source]
    changed = changed or _changes(context, names, saver, parameter)
    parameter = parameter or slot.leaf is not None
    return _Stale(slots, names, parameter, tuple(dict.fromkeys(changed)), module)


def _savers(graph: Graph, stale: _Stale) -> str:
    """Who saved what."""
    savers = [
        f"{title_and_code(graph, node)} saved it as {one_line(slot.slot)!r}"
        for node, slot in stale.slots
    ]
    return listed(dict.fromkeys(savers), 2)


def _remedy(stale: _Stale) -> str:
    change = next(iter(stale.changed), None)
    if stale.parameter:
        fix = "Call every backward() before the parameter is updated (by step() or in place), or compute the loss again after "
        return f"{fix}{line(change) or 'it'}."

    if stale.module:
        return f"Make {stale.module} without inplace=True, so that it returns a new tensor."
    piece = in_place(change)
    new = out_of_place(piece) if piece is not None else ""
    if piece and change and new and not is_read_later(piece, change):
        return f"In {line(change)}, make a new tensor: {new} instead of {piece.code}."

    it = piece.name if piece is not None else ""
    if not re.fullmatch(r"[\w.]+", it):
        it = next(iter(stale.names), "")
    before = line(change) or "it is changed"
    if not it:
        return f"Call .clone() of it before {before}, and change the copy."
    return f"Change a copy: {it} = {it}.clone() before {before}."


def _changes(
    context: BackwardCall, names: Names, saver: int, parameter: bool
) -> list[SourceLine]:
    """Lines of the code around the call that change one of these tensors, as their text
    says.
    """
    source = context.graph.nodes[saver].source
    return [
        change.source
        for change in changes(context.body)
        if change.source != source
        and (change.name in names or (parameter and _updates(context, change, names)))
    ]


def _changers(context: BackwardCall, saver: int) -> list[int]:
    """Operations that were recorded later, and took the place of what the saver made or
    used, as their text, their module or their forward() says.
    """
    graph = context.graph
    since = graph.nodes[saver].sequence or 0
    taken = spread(
        makers(graph, saver),
        lambda node: makers(graph, node) if kind(graph, node) in RESHAPES else (),
    )

    changers = []
    for maker in sorted({saver, *taken}):
        for edge in graph.consumers(maker):
            user = edge.consumer
            # what is changed in place is the first input
            later = (graph.nodes[user].sequence or 0) > since and edge.position == 0
            if later and (user in context.in_place or _change_in(graph, user)):
                changers.append(user)
    return changers


def _change_in(graph: Graph, node: int) -> SourceLine | None:
    """The line that changes what an operation was given, as its text shows: its own, or
    one in the forward() of a custom Function.
    """
    source, function = graph.nodes[node].source, graph.nodes[node].function
    if function is not None and function.definition is not None:
        return changed_in_forward(function.definition)
    return source if in_place(source) is not None else None


def _updates(context: BackwardCall, change: Change, names: Names) -> bool:
    """Whether a line steps an optimizer that holds one of these parameters, as far as
    it is known.
    """
    holds = {
        optimizer.name: not {*names}.isdisjoint(all_names(optimizer.tensors))
        for optimizer in context.optimizers
    }
    # one that no variable showed may hold it
    return change.steps and holds.get(change.name, not any(holds.values()))
