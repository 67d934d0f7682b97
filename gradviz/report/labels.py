"""The words for parts of a graph that every output shares: names, titles, kinds,
states, flags.

Everything here returns one line of plain text. Each format escapes that text itself.
This module knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from gradviz.graph import (
    Data,
    Function,
    Graph,
    Group,
    Leaf,
    Mark,
    Node,
    NodeFlag,
    Root,
    SavedState,
    SavedTensor,
    SourceLine,
    TensorInfo,
)
from gradviz.graph.origins import around, op_text
from gradviz.wording import (
    bytes_text,
    clip,
    count_text,
    one_line,
    place_text,
    plural,
    tensor_line,
)

FLAG_WORDS: dict[NodeFlag, str] = {
    "custom": "custom function",
    "hooks": "hooks",
    "freed": "freed",
    "modified": "modified in place",
    "packed": "packed by a hook",
    "checkpoint": "checkpoint: hides what it recomputes",
    "compiled": "compiled",
    "hidden": "state that Python cannot read",
    "cut": "cut off: no gradient passes",
    "outside": "computed outside of this module",
}
# what backward stumbles over; the others only tell what a node is
ALARMS: tuple[NodeFlag, ...] = ("freed", "modified")
# what only a tooltip says: nothing follows from it for the reader of a picture
REMARKS: tuple[NodeFlag, ...] = ("hidden", "cut", "outside")
RECOMPUTED = "checkpoint: computed again"


# -- numbers ---------------------------------------------------------------------------


def slot_bytes_text(nbytes: int | None, storage: int | None) -> str:
    """Bytes of a saved tensor, and of its storage where that is another number:
    `16 B of a 3.9 KiB storage`.
    """
    if nbytes is None or storage is None:
        return bytes_text(storage if nbytes is None else nbytes)
    if nbytes == storage:
        return bytes_text(nbytes)
    return f"{bytes_text(nbytes)} {'of' if nbytes < storage else 'in'} a {bytes_text(storage)} storage"


def again(count: int) -> str:
    """The same parameters used `count` times: `×12`."""
    return f"×{count_text(count)}"


def alike(count: int) -> str:
    """`count` instances of one structure: `12 alike`."""
    return f"{count_text(count)} alike"


def more(count: int) -> str:
    """`count` things that were cut: `+40 more`."""
    return f"+{count_text(count)} more"


# -- tensors ---------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def outputs_line(outputs: tuple[TensorInfo | None, ...]) -> str:
    """The tensors that a node's op made: up to three of them, equal ones as
    `12 × (3,) float32`.
    """
    lines = [tensor_line(output) for output in outputs]
    if len(lines) > 1 and len(set(lines)) == 1:
        return f"{count_text(len(lines))} × {lines[0]}"
    return ", ".join((*lines[:3], more(len(lines) - 3)) if len(lines) > 3 else lines)


def kind_text(saved: SavedTensor) -> str:
    """What a saved tensor is: `activation`, `view of parameter`, "" where that is not
    known.
    """
    return ("view of " if saved.view else "") + saved.kind if saved.kind else ""


def state_text(state: SavedState) -> str:
    """State of a saved slot in words: `freed`, `modified in place`, `packed by a hook`."""
    return {"modified": "modified in place", "packed": "packed by a hook"}.get(
        state, state
    )


# -- names -----------------------------------------------------------------------------


def names_text(names: Iterable[str]) -> str:
    """Every name of one tensor: `w`, or `a = b` when it is tied under two."""
    return " = ".join(clip(name, 80) for name in names if name.strip())


def held_text(node: Node, module: str = "") -> str:
    """The names of what an op made, where its title does not have one for each result."""
    if node.assigned and len(node.outputs) > 1:
        return ""
    return names_text(relative(name, module) for name in node.names)


_NAME_GOES_ON = re.compile(r"[\w.\]]\Z")


def relative(text: str, module: str) -> str:
    """Names inside a module as one says them there: `fc.weight` for `net.fc.weight`
    inside `net`.
    """
    before, *pieces = text.split(f"{module}.") if module else [text]
    kept = [before]
    for piece in pieces:
        # `subnet.fc` does not lie in `net`
        kept.append(f"{module}.{piece}" if _NAME_GOES_ON.search(before) else piece)
        before = f".{piece}"
    return "".join(kept)


OpNames = Literal["variable", "forward", "backward"]


class OpTitle(NamedTuple):
    """What a node is called, and its op of the forward pass where that is another word."""

    name: str
    op: str = ""


def op_title(graph: Graph, node: Node, module: str = "", *, names: OpNames) -> OpTitle:
    """The variable that holds what an op made, else the module that returns it, else
    the op; of a folded node the group's title.

    `module` is the path of the module that it is shown in; names leave that out, here
    and below. `names`: "variable" is the above; "forward", as pictures ask for, is the
    op alone; "backward" is its function as PyTorch writes it.
    """
    if node.folded is not None:
        return OpTitle(group_title(node.folded, module))
    op = (
        one_line(node.op if names == "backward" else op_text(node)).strip() or "unnamed"
    )
    if names == "variable":
        name = _variable(graph, node, module) or _module(graph, node, module)
    else:
        name = ""
    return OpTitle(name, op) if name else OpTitle(op)


def _variable(graph: Graph, node: Node, module: str) -> str:
    """The variable that the line assigns, else those that hold the tensor. An output
    has a box of its own with its name.
    """
    outputs = {root.name for root in graph.roots_of.get(node.id, ())}
    assigned = node.assigned and node.assigned not in outputs
    names: Sequence[str] = [node.assigned] if assigned else node.names
    return names_text(relative(name, module) for name in names if name not in outputs)


def _module(graph: Graph, node: Node, module: str) -> str:
    """The attribute of the module that returns what the node made: `fc1`, `blocks.0`."""
    scope = graph.scopes[node.scope] if node.scope is not None else None
    if scope is None or not scope.type or scope.path == module:
        return ""
    users = (graph.nodes[edge.consumer].scope for edge in graph.consumers(node.id))
    # not the last op of the module, so the module's name is not its name
    if node.id not in graph.roots_of and all(
        node.scope in [*around(graph.scopes, user)] for user in users
    ):
        return ""
    attribute = re.search(r"[^.]+(\.\d+)*$", scope.path)
    return one_line(attribute.group()) if attribute is not None else ""


def group_title(group: Group, module: str = "") -> str:
    """A folded group: `Linear ×12` (same parameters again), `Block, 12 alike`,
    `MulBackward0, 40 in a row`.
    """
    title = one_line(relative(group.title, module)).strip() or group.kind
    if group.count == 1 or not title:
        return title
    if group.kind == "alike":
        return f"{title}, {alike(group.count)}"
    if group.kind == "chain":
        return f"{title}, {count_text(group.count)} in a row"
    return f"{title} {again(group.count)}"


def group_line(group: Group) -> str:
    """What is inside a folded group: `12 ops, 1,024 parameters, 4.0 KiB`; each
    parameter counts in one box only.
    """
    if group.ops:
        words = [plural(group.ops, "op")]
    else:
        words = [plural(len(group.nodes), "leaf", "leaves")]
    if group.parameters:
        words.append(plural(group.parameters, "parameter"))
    if group.nbytes:
        words.append(bytes_text(group.nbytes))
    return ", ".join(words)


def parameters_line(group: Group) -> str:
    """How many parameters are inside a folded group: `1,024 parameters`; "frozen" where
    those of its modules require no gradient; "" when there are none.
    """
    if group.frozen:
        return "frozen"
    if group.parameters and group.owns:
        return plural(group.parameters + group.outside, "parameter")
    return ""


CODE = 36
"""Letters of code in a box."""


def code_line(group: Group) -> str:
    """The code of a statement, as far as a box holds it."""
    return clip(group.code, CODE) if group.kind == "statement" and group.code else ""


def same_line(group: Group, module: str = "") -> str:
    """Where parameters of a folded group are drawn when not in it:
    `same parameters as call 1`, `shares parameters with turn 1`.
    """
    if group.same_as is not None:
        return f"same parameters as call {count_text(group.same_as)}"
    if group.shares:
        title = clip(relative(one_line(group.shares), module), CODE)
        return f"shares parameters with {title}"
    return ""


def leaf_title(leaf: Leaf, module: str = "", uses: int = 1) -> str:
    """The leaf's names, or what kind of tensor it is when it has none. Of one that is
    drawn for each box that uses it, how many `uses` that has: `weight ×12`.
    """
    names = names_text(relative(name, module) for name in leaf.names)
    title = names or f"unnamed {leaf.kind}"
    return f"{title} {again(uses)}" if uses > 1 else title


def data_title(data: Data, module: str = "") -> str:
    """The names of data, or `input`."""
    return names_text(relative(name, module) for name in data.names) or "input"


def root_title(root: Root) -> str:
    """The output's name, or `output`."""
    return clip(root.name, 80).strip() or "output"


def function_line(function: Function) -> str:
    """A custom function: its name, and where its backward is when that is known."""
    where = f" at {source_text(function.definition)}" if function.definition else ""
    return f"{one_line(function.name)}{where}"


@lru_cache(maxsize=4096)
def source_text(source: SourceLine) -> str:
    """`train.py:12`: the file without its folders, and the line;
    `transformers: modeling_bert.py:127` for a library's.
    """
    package = f"{one_line(source.package)}: " if source.package else ""
    return package + place_text(
        one_line(source.file.replace(chr(92), "/").rsplit("/", 1)[-1]), source.line
    )


def node_row(graph: Graph, node: int) -> dict[str, str]:
    """Names, op, module and line of a node, as flat columns of a table."""
    record, leaf = graph.nodes[node], graph.leaf_of.get(node)
    return {
        "name": ", ".join(leaf.names if leaf is not None else record.names),
        "op": record.op,
        "module": "" if record.scope is None else graph.scopes[record.scope].path,
        "line": "" if record.source is None else source_text(record.source),
    }


def flag_words(node: Node, inside: Iterable[Node] = ()) -> dict[NodeFlag, str]:
    """Flags of a node in words: `freed`, `compiled: 80 operations`. What only
    checkpoints packed, in the nodes `inside` a closed box, is said to be theirs.
    """
    words = {flag: FLAG_WORDS[flag] for flag in node.flags}
    if "packed" in words and _is_checkpointed(inside or [node]):
        words["packed"] = RECOMPUTED
    if "compiled" in words and "operations" in node.attributes:
        # torch's own compiler made it, and no Function of the user's
        del words["custom"]
        words["compiled"] = (
            f"compiled: {plural(node.attributes['operations'], 'operation')}"
        )
    return words


def mark_words(marks: Iterable[Mark]) -> tuple[str, ...]:
    """Findings at a box or an edge: `1. stale-saved`, as they are numbered under the
    picture.
    """
    return tuple(f"{mark.number}. {mark.id}" for mark in marks)


def _is_checkpointed(nodes: Iterable[Node]) -> bool:
    """Whether checkpoints packed all that hooks packed in these nodes."""
    slots = (slot for node in nodes for slot in node.saved)
    packing = {slot.packing for slot in slots if slot.state == "packed"}
    return packing == {"recompute"}
