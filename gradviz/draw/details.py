"""What is said of one record: the lines in its box at first sight, and all that is
known of it, for tooltips and panels.

Details are pairs of a word and a text, nothing clipped, made on demand, since a drawing
of a million boxes shows few of them. This module knows no layout and no format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradviz.draw.heat import BoxNorms
from gradviz.draw.options import Options
from gradviz.graph import (
    BackwardStep,
    Base,
    Data,
    Graph,
    Leaf,
    Node,
    Root,
    SavedTensor,
    SourceLine,
)
from gradviz.report import labels
from gradviz.wording import (
    bytes_text,
    clip,
    number,
    one_line,
    place_text,
    tensor_line,
)

Lines = tuple[str, ...]


def node_lines(
    graph: Graph,
    node: Node,
    options: Options,
    *,
    amount: str,
    module: str,
    with_script: bool,
) -> Lines:
    """Title, op where that is another word, and parameters; with `details` what it
    made, the names that has, and where it was made. One line for each attribute, where
    they are asked for.

    `amount` is what it is coloured by, such as `holds 8 B`. `module` is the path of the
    module whose frame is around the box: names leave it out. `with_script`: name the script's
    own line, too, where a library's made the node.
    """
    names = options.op_names("variable" if options.details else "forward")
    title, op = labels.op_title(graph, node, module, names)
    group, lines = node.folded, [title]
    attributes = node.attributes if options.attributes else {}
    attribute_lines = [labels.attribute_line(*item) for item in attributes.items()]
    if group is not None:
        line = labels.group_line if options.details else labels.parameters_line
        lines += [line(group), labels.same_line(group)]
    elif not options.details:
        lines.append(op)

    if not options.details:
        lines += [amount, *attribute_lines]
        return tuple(filter(None, lines))

    lines.append(f"{op} {labels.outputs_line(node.outputs)}".strip())
    if node.names:
        # the output's own box has that name
        shown_below = {root.name for root in graph.roots_of.get(node.id, ())}
        below = labels.names_text(
            labels.relative(name, module)
            for name in node.names
            if name not in shown_below
        )
        lines.append(below if below != title else "")
    places = (node.script_line if with_script else None, node.source)
    lines.append(
        " → ".join(labels.source_text(place) for place in places if place is not None)
    )
    lines.append(amount)
    lines += attribute_lines
    return tuple(filter(None, lines))


def with_norms(
    lines: Lines,
    norms: BoxNorms | None,
    options: Options,
) -> Lines:
    """The lines of a box with its place in backward in front, and the gradient that
    arrives behind, as asked.
    """
    if options.numbers and norms is not None:
        lines = (f"{_places_text(norms)} {lines[0]}", *lines[1:])
    text = _norms_text(norms) if options.color == "grad" else ""
    return (*lines, text) if text else lines


def value_line(step: BackwardStep | None) -> str:
    """A single number and its gradient: `= 1, grad 5`; "" where they are not known, or
    more than one.
    """
    if step is None or len(step.value) > 1 or len(step.arrived) > 1:
        return ""
    parts = [f"= {number(value)}" for value in step.value] + [
        f"grad {number(value)}" for value in step.arrived
    ]
    return ", ".join(parts)


_SIGNS = {"add": "+", "sub": "\u2212", "mul": "\u00d7", "div": "\u00f7"}


def sign_text(
    graph: Graph, node: Node, title: str, steps: Mapping[int, BackwardStep]
) -> str:
    """The title of an op on single numbers as a sign, with the number of the script
    that it was given: `+ 1`; any other title as it is.
    """
    step, sign = steps.get(node.id), _SIGNS.get(title)
    if step is None or sign is None or len(step.value) != 1:
        return title

    inputs = graph.inputs(node.id)
    first = steps.get(inputs[0].producer) if inputs else None
    is_sum = title in ("add", "sub")
    # only a sum tells its number, as the difference; 0 * 3 says nothing of 3
    if len(inputs) == 2 or not is_sum or first is None or inputs[0].position:
        return sign
    if len(first.value) != 1:
        return sign

    difference = step.value[0] - first.value[0]
    return f"{sign} {number(difference if title == 'add' else -difference)}"


def factor_text(step: BackwardStep | None, position: int) -> str:
    """By what the gradient of a single number is multiplied on its way to an input:
    `× 3`.
    """
    sent = step.sent[position] if step is not None and position < len(step.sent) else ()
    # any factor turns 0 into 0, so where 0 arrives it stays unknown
    if step is None or len(sent) != 1 or len(step.arrived) != 1 or not step.arrived[0]:
        return ""
    return f"\u00d7 {number(sent[0] / step.arrived[0])}"


def leaf_lines(
    leaf: Leaf,
    uses: int = 1,
    module: str = "",
) -> Lines:
    """Names and tensor; `uses` and `module` as in `labels.leaf_title`."""
    return (labels.leaf_title(leaf, module, uses), tensor_line(leaf.tensor))


def root_lines(root: Root) -> Lines:
    """Name and tensor of an output, and why it has no graph when it has none."""
    lines = (labels.root_title(root), tensor_line(root.tensor))
    if root.node is not None:
        return lines
    return (*lines, f"no graph: {clip(root.why) or 'reason unknown'}")


def data_lines(data: Data) -> Lines:
    """Names and tensor of data."""
    return (labels.data_title(data), tensor_line(data.tensor))


def base_lines(base: Base) -> Lines:
    """Names and tensor of the base of a view."""
    return (labels.names_text(base.names) or "base of a view", tensor_line(base.tensor))


def saved_lines(
    saved: SavedTensor,
    graph: Graph,
    *,
    state: bool = True,
) -> Lines:
    """Slot, tensor, bytes, those of its storage where they differ, and with `state` the
    state unless it is live.
    """
    lines = [clip(saved.slot).strip() or "unnamed slot"]
    if saved.tensor is not None:
        lines.append(tensor_line(saved.tensor))

    if saved.storage is not None:
        storage = graph.storages[saved.storage].nbytes
    else:
        storage = None

    if saved.nbytes is not None or storage is not None:
        lines.append(labels.slot_bytes_text(saved.nbytes, storage))

    if state and saved.state != "live":
        lines.append(labels.state_text(saved.state))

    return tuple(lines)


def saved_leaf_label(saved: SavedTensor) -> str:
    """On the line from a leaf to the node that saved it, or a view of it:
    `saved weight`.
    """
    words = ["saved", "as", clip(saved.slot)]
    if saved.leaf is None:
        words.append("(a view)")
    if saved.state != "live":
        words.append(labels.state_text(saved.state))
    return " ".join(words)


def _places_text(norms: BoxNorms) -> str:
    """Places in the order of backward: `#3`, `#3–7` when they are all of these, else
    `#3…7`.
    """
    if norms.places == 1:
        return f"#{norms.first}"
    every = norms.last - norms.first + 1 == norms.places
    return f"#{norms.first}{'–' if every else '…'}{norms.last}"


def _norms_text(norms: BoxNorms | None) -> str:
    """The norm of the gradient that arrives at a box, or the range of norms inside it."""
    if norms is not None and not norms.measured:
        return "gradient not measured"
    if norms is None or norms.least is None or norms.most is None:
        return "no gradient arrives"
    if math.isinf(norms.most) or not norms.most:
        return ""  # a flag says it
    least, most = number(norms.least), number(norms.most)
    if least == most:
        return f"gradient norm {most}"
    return f"gradient norms {least} to {most}"


Detail = tuple[str, str]


def details(
    graph: Graph, about: Node | Leaf | Root | Base | SavedTensor | Data
) -> tuple[Detail, ...]:
    """All that is known of the record that a box draws, the most telling first; values
    are single lines.

    >>> from gradviz.graph import Graph, Node
    >>> details(Graph(), Node(3, "AddBackward0", sequence=7))
    (('op', 'AddBackward0'), ('node', '3'), ('sequence number', '7'))
    """
    facts = (
        _node(graph, about) if isinstance(about, Node) else _TOLD[type(about)](about)
    )
    return tuple((word, one_line(text)) for word, text in facts if text)


def _node(graph: Graph, node: Node) -> Iterator[Detail]:
    yield "op", labels.group_title(node.folded) if node.folded else node.op
    if node.group:
        yield "inside", labels.group_line(node.group)

    yield "node", str(node.id)
    if node.function:
        yield "custom function", labels.function_line(node.function)

    for i, output in enumerate(node.outputs):
        yield "output" if len(node.outputs) == 1 else f"output {i}", tensor_line(output)

    yield "names", ", ".join(node.names)
    yield "assigned to", node.assigned
    yield "flags", ", ".join(labels.flag_words(graph, node).values())

    if node.scope is not None:
        scope = graph.scopes[node.scope]
        yield (
            "module",
            f"{scope.path} ({scope.type})"
            + (f", call {scope.call}" if scope.call > 1 else ""),
        )

    if node.script_line is not None:
        yield from _source(node.script_line, "line")
        yield from _source(node.source, "library's line")
    else:
        yield from _source(node.source, "line")

    if node.sequence is not None:
        yield "sequence number", str(node.sequence)

    if node.none_inputs:
        yield "inputs without gradient", str(node.none_inputs)

    for saved in node.saved:
        yield f"saved {saved.slot}", _saved_text(saved)

    for name, value in node.attributes.items():
        yield name, clip(str(value), 200)


def _source(source: SourceLine | None, word: str) -> Iterator[Detail]:
    if source is not None:
        yield (
            word,
            place_text(source.file, source.line)
            + (f" in {source.function}" if source.function else ""),
        )
        yield "code", source.text.strip()


def _leaf(leaf: Leaf) -> Iterator[Detail]:
    yield "leaf", labels.leaf_title(leaf)
    yield "names", ", ".join(leaf.names)
    yield "node", str(leaf.node)
    yield "tensor", tensor_line(leaf.tensor)
    yield "kind", leaf.kind
    yield ".grad", "set" if leaf.has_grad else "None"
    if leaf.hooks:
        yield "hooks", str(leaf.hooks)


def _root(root: Root) -> Iterator[Detail]:
    yield "output", root.name
    yield "tensor", tensor_line(root.tensor)
    if root.node is None:
        yield "no graph", root.why or "reason unknown"
    else:
        yield "made by node", str(root.node)


def _data(data: Data) -> Iterator[Detail]:
    yield "input without gradient", ", ".join(data.names) or "unnamed"
    yield "tensor", tensor_line(data.tensor)
    yield "saved by nodes", ", ".join(map(str, data.nodes))


def _base(base: Base) -> Iterator[Detail]:
    yield "base of a view", ", ".join(base.names) or "unnamed"
    yield "tensor", tensor_line(base.tensor)
    if base.node is not None:
        yield "made by node", str(base.node)


def _saved(saved: SavedTensor) -> Iterator[Detail]:
    yield "saved", saved.slot
    yield "tensor", tensor_line(saved.tensor) if saved.tensor else ""
    yield "kind", labels.kind_text(saved)
    yield "state", labels.state_text(saved.state)
    if saved.nbytes is not None:
        yield "bytes", bytes_text(saved.nbytes)
    if saved.storage is not None:
        yield "storage", str(saved.storage)
    yield "note", saved.note


def _saved_text(saved: SavedTensor) -> str:
    words = [tensor_line(saved.tensor) if saved.tensor else "", labels.kind_text(saved)]
    if saved.state != "live" or not any(words):
        words.append(labels.state_text(saved.state))
    return ", ".join(filter(None, words))


_TOLD: dict[type, Callable[[Any], Iterator[Detail]]] = {
    Leaf: _leaf,
    Root: _root,
    Base: _base,
    SavedTensor: _saved,
    Data: _data,
}
