"""What is said of one record: the lines in its box at first sight, and all that is
known of it, for tooltips and panels.

Details are pairs of a word and a text, made on demand, since a drawing
of a million boxes shows few of them. This module knows no layout and no format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradviz.draw.options import Options
from gradviz.fold.folding import Folding
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
    TensorInfo,
)
from gradviz.report import labels
from gradviz.wording import clip, number, place_text, tensor_line

Lines = tuple[str, ...]


def node_lines(graph: Graph, node: Node, options: Options, module: str) -> Lines:
    """Title, op where that is another word, and parameters; with `details` what it
    made, and where.

    `module` is the path of the module whose frame is around the box: names leave it
    out.
    """
    names = options.op_names("variable" if options.details else "forward")
    title, op = labels.op_title(graph, node, module, names=names)
    group, lines = node.folded, [title]
    if group is not None:
        line = labels.group_line if options.details else labels.parameters_line
        same = labels.same_line(group, module)
        lines += [labels.code_line(group), line(group), same]

    if options.details:
        places = (node.script_line, node.source)
        lines.append(f"{op} {labels.outputs_line(node.outputs)}".strip())
        lines.append(" → ".join(labels.source_text(place) for place in places if place))
    elif group is None:
        lines.append(op)
    return tuple(filter(None, lines))


LISTED = 4
"""Elements of a tensor that a box lists."""


def value_lines(step: BackwardStep | None) -> Lines:
    """A number and its gradient, `= 1, grad 5`, those of up to four elements on a line
    each; of more, the spread of the value.

    >>> value_lines(BackwardStep(0, value=(1.0, 2.0), arrived=(3.0, 4.0)))
    ('= [1, 2]', 'grad [3, 4]')
    >>> value_lines(BackwardStep(0, spread=(-1.0, 0.5, 2.0)))
    ('-1 to 2, mean 0.5',)
    """
    if step is None:
        return ()
    lines: list[str] = []
    if _is_short(step.value):
        lines.append(f"= {_elements(step.value)}")
    elif step.spread:
        least, mean, largest = (f"{value:.3g}" for value in step.spread)
        lines.append(f"{least} to {largest}, mean {mean}")
    elif step.freed:
        lines.append("value freed")

    if _is_short(step.arrived):
        lines.append(f"grad {_elements(step.arrived)}")
    if len(step.value) == 1 and lines:
        return (", ".join(lines),)
    return tuple(lines)


def _is_short(elements: tuple[float, ...]) -> bool:
    return 0 < len(elements) <= LISTED


def _elements(elements: tuple[float, ...]) -> str:
    """`1` of a single number, `[1, 2]` of more."""
    text = ", ".join(map(number, elements))
    return text if len(elements) == 1 else f"[{text}]"


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


def leaf_lines(leaf: Leaf, uses: int = 1, module: str = "") -> Lines:
    """Names and tensor; `uses` and `module` as in `labels.leaf_title`."""
    return (labels.leaf_title(leaf, module, uses), tensor_line(leaf.tensor))


def root_lines(root: Root) -> Lines:
    """Name and tensor of an output, and why it has no graph when it has none."""
    lines = (labels.root_title(root), tensor_line(root.tensor))
    if root.node is not None:
        return lines
    return (*lines, f"no graph: {clip(root.why) or 'reason unknown'}")


def data_lines(data: Data, module: str = "") -> Lines:
    """Names and tensor of data, as far as that is known."""
    if data.tensor.shape is None and data.tensor.dtype == "unknown":
        return (labels.data_title(data, module),)
    return (labels.data_title(data, module), tensor_line(data.tensor))


def saved_lines(saved: SavedTensor, graph: Graph) -> Lines:
    """Slot, tensor, bytes, those of its storage where they differ, and the state unless
    it is live.
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

    if saved.state != "live":
        lines.append(labels.state_text(saved.state))

    return tuple(lines)


def saved_leaf_label(saved: SavedTensor) -> str:
    """On the line from a leaf to the node that saved it, or a view of it."""
    view = " (a view)" if saved.leaf is None else ""
    state = f" {labels.state_text(saved.state)}" if saved.state != "live" else ""
    return f"saved as {clip(saved.slot)}{view}{state}"


Detail = tuple[str, str]
LONGEST = 1_000
"""Letters of a detail: a name may have a million."""


def details(
    folding: Folding, about: Node | Leaf | Root | SavedTensor | Data
) -> tuple[Detail, ...]:
    """All that is known of the record that a box draws, the most telling first; values
    are single lines.

    >>> from gradviz.fold.folding import unfolded
    >>> from gradviz.graph import Graph, Node
    >>> details(unfolded(Graph()), Node(3, "AddBackward0", sequence=7))
    (('op', 'AddBackward0'), ('node', '3'), ('sequence number', '7'))
    """
    facts = _node(folding, about) if isinstance(about, Node) else _record(about)
    return tuple((word, clip(text, LONGEST)) for word, text in facts if text)


def _node(folding: Folding, node: Node) -> Iterator[Detail]:
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
    if node.flags:
        inside = folding.nodes_in(folding.box_of[node.id])
        yield "flags", ", ".join(labels.flag_words(node, inside).values())

    if node.scope is not None:
        scope = folding.graph.scopes[node.scope]
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


_FIELDS: dict[type, dict[str, str]] = {
    Leaf: {
        "names": "leaf",
        "node": "node",
        "tensor": "tensor",
        "kind": "kind",
        "has_grad": ".grad",
    },
    Root: {
        "name": "output",
        "tensor": "tensor",
        "node": "made by node",
        "why": "no graph",
        "base": "view of",
    },
    SavedTensor: {
        "slot": "saved",
        "tensor": "tensor",
        "kind": "kind",
        "state": "state",
        "note": "note",
    },
    Data: {
        "names": "input without gradient",
        "text": "code",
        "tensor": "tensor",
        "nodes": "taken by nodes",
    },
}
"""What is told of records, and the word for it."""


def _record(about: Leaf | Root | SavedTensor | Data) -> Iterator[Detail]:
    for name, word in _FIELDS[type(about)].items():
        yield word, _field_text(getattr(about, name))


def _field_text(value: Any) -> str:
    if isinstance(value, TensorInfo):
        return tensor_line(value)
    if isinstance(value, Base):
        return ", ".join(value.names) or "an unnamed tensor"
    if isinstance(value, bool):
        return "set" if value else "None"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "unnamed"
    return "" if value is None else str(value)


def _saved_text(saved: SavedTensor) -> str:
    words = [tensor_line(saved.tensor) if saved.tensor else "", labels.kind_text(saved)]
    if saved.state != "live" or not any(words):
        words.append(labels.state_text(saved.state))
    return ", ".join(filter(None, words))
