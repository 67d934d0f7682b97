"""The lines of text inside each box of a drawing: the title first, then what is true of it.

This module decides which facts a box shows at first sight; `facts` has the rest. It knows no format and no layout.
"""

from __future__ import annotations

import math

from gradviz.gradients.order import BoxNorms
from gradviz.graph import (
    Base,
    Graph,
    Leaf,
    Node,
    Root,
    SavedTensor,
)
from gradviz.report import labels
from gradviz.wording import number

Lines = tuple[str, ...]


def node_lines(
    graph: Graph, node: Node, *, attributes: bool = False, held: int = 0, around: str = "", own: bool = False
) -> Lines:
    """Op, what its forward made, the names that has, where it was made; with `attributes` one line for each.

    `held` is the bytes that it holds for backward, when they are to be said. `around` is the path of the module whose frame
    is around the box: names leave it out. `own`: name the script's own line, too, where a library's made the node.
    """
    lines = [labels.op_name(node, around)]
    if node.group is not None:
        lines += [labels.group_line(node.group), labels.same_line(node.group)]
    if node.outputs:
        lines.append(labels.outputs_line(node.outputs))
    if node.names:
        shown_below = {root.name for root in graph.roots_of.get(node.id, ())}  # the output's own box has that name
        lines.append(labels.names_text(labels.relative(name, around) for name in node.names if name not in shown_below))
    places = (node.script_line if own else None, node.source)
    lines.append(" → ".join(labels.source_text(place) for place in places if place is not None))
    if held and node.group is None:  # a group says so already
        lines.append(labels.held_text(held))
    if attributes:
        lines.extend(labels.attribute_line(name, value) for name, value in node.attributes.items())
    else:
        lines.append(labels.placed_text(node))
    return tuple(line for line in lines if line)


def with_arrival(lines: Lines, arrival: BoxNorms | None, *, numbers: bool, grad: bool) -> Lines:
    """The lines of a box with its place in backward in front, and the gradient that arrives behind, as asked."""
    if numbers and arrival is not None:
        lines = (f"{_places_text(arrival)} {lines[0]}", *lines[1:])
    text = _norms_text(arrival) if grad else ""
    return (*lines, text) if text else lines


def leaf_lines(leaf: Leaf, uses: int = 1, around: str = "") -> Lines:
    """Names and tensor. `uses` above 1 marks one of several boxes of this leaf: `weight ×12`. `around`: see `node_lines`."""
    title = labels.leaf_title(leaf, around)
    return (f"{title} {labels.again(uses)}" if uses > 1 else title, labels.tensor_line(leaf.tensor))


def root_lines(root: Root) -> Lines:
    """Name and tensor of an output, and why it has no graph when it has none."""
    lines = (labels.root_title(root), labels.tensor_line(root.tensor))
    return lines if root.node is not None else (*lines, f"no graph: {labels.clip(root.why) or 'reason unknown'}")


def base_lines(base: Base) -> Lines:
    """Names and tensor of the base of a view."""
    return (labels.names_text(base.names) or "base of a view", labels.tensor_line(base.tensor))


def saved_lines(saved: SavedTensor, graph: Graph, *, state: bool = True) -> Lines:
    """Slot, tensor, bytes, those of its storage where they differ, and with `state` the state unless it is live."""
    lines = [labels.clip(saved.slot).strip() or "unnamed slot"]
    if saved.tensor is not None:
        lines.append(labels.tensor_line(saved.tensor))
    storage = graph.storages[saved.storage].nbytes if saved.storage is not None else None
    if saved.nbytes is not None or storage is not None:
        lines.append(labels.slot_bytes_text(saved.nbytes, storage))
    if state and saved.state != "live":
        lines.append(labels.state_text(saved.state))
    return tuple(lines)


def saved_leaf_label(saved: SavedTensor) -> str:
    """On the line from a leaf to the node that saved it, or a view of it: `saved weight`."""
    words = ["saved", "as", labels.clip(saved.slot)]
    if saved.leaf is None:
        words.append("(a view)")
    if saved.state != "live":
        words.append(labels.state_text(saved.state))
    return " ".join(words)


def _places_text(arrival: BoxNorms) -> str:
    """Places in the order of backward: `#3`, `#3–7` when they are all of these, else `#3…7`."""
    if arrival.places == 1:
        return f"#{arrival.first}"
    every = arrival.last - arrival.first + 1 == arrival.places
    return f"#{arrival.first}{'–' if every else '…'}{arrival.last}"


def _norms_text(arrival: BoxNorms | None) -> str:
    """The norm of the gradient that arrives at a box, or the range of norms inside it."""
    if arrival is not None and not arrival.measured:
        return "gradient not measured"
    if arrival is None or arrival.least is None or arrival.most is None:
        return "no gradient arrives"
    if math.isinf(arrival.most):
        return ""  # a flag says it
    least, most = number(arrival.least), number(arrival.most)
    return f"gradient norm {most}" if arrival.places == 1 else f"gradient norms {least} to {most}"
