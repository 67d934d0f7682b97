"""What a graph holds, in sentences: the lines under a drawing, and the one screen that
`print(graph)` shows.

A reader must be able to tell from the footer what a drawing does not show: everything
that was folded, split, left out or noted. This module counts what the Graph says; it
draws nothing and knows no format.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain
from operator import attrgetter

from gradviz.draw.details import root_lines
from gradviz.draw.marks import Marked
from gradviz.fold.folding import Folding, folding_of
from gradviz.fold.opening import Deeper
from gradviz.graph import Graph, Leaf, Node, Root, TensorInfo, column
from gradviz.graph.amounts import depth, flags, operations
from gradviz.graph.kinds import INDEXED
from gradviz.graph.origins import forward_name
from gradviz.report import labels
from gradviz.wording import count_text, few, one_line, plural, tensor_line, verb


def tensors_of(
    nodes: Sequence[Node], leaves: Iterable[Leaf]
) -> Iterator[TensorInfo | None]:
    """What ops made, and leaves."""
    yield from chain.from_iterable(column(nodes, "outputs"))
    yield from (leaf.tensor for leaf in leaves)


def usual_dtype(tensors: Iterable[TensorInfo | None]) -> tuple[str, bool]:
    """The dtype that most tensors have, which boxes and rows leave out, and whether
    some have another.
    """
    counts = Counter(tensor.dtype for tensor in tensors if tensor is not None)
    # of equally many the last by name, so that every run says the same
    usual = max(counts, key=lambda dtype: (counts[dtype], dtype), default="")
    return one_line(usual), len(counts) > 1


def without_dtype(dtype: str) -> Callable[[str], str]:
    """Takes the dtype out of the lines of tensors.

    >>> without_dtype("float32")("(3,) float32, (2,) int64")
    '(3,), (2,) int64'
    """
    pattern = re.compile(rf"(?<=\)) {re.escape(dtype)}(?!\w)")
    # thousands of boxes read the same
    return lru_cache(65536)(lambda line: pattern.sub("", line) if dtype else line)


def telling(lines: Iterable[str], brief: Callable[[str], str]) -> list[str]:
    """The lines but for that of a tensor which is a single number of the usual dtype.

    >>> telling(["loss", "() float32"], without_dtype("float32"))
    ['loss']
    """
    return [line for line in lines if brief(line) != "()"]


def dtype_text(dtype: str, several: bool) -> str:
    """What a legend says of it."""
    if dtype:
        return f"dtype {dtype}{' where a box names none' if several else ''}"
    return ""


IN_PYTHON = ContextVar("IN_PYTHON", default=False)
"""Whether hints are code, as under a picture in a notebook."""


def counts_line(folding: Folding) -> str:
    """What is drawn: `3 backward functions, 2 leaves, 1 output, 5 edges`."""
    groups, leaves = len(folding.groups), len(folding.leaf_in)
    words = [
        plural(folding.size - leaves - groups + _views(folding), "backward function")
    ]
    if groups:
        words.append(plural(groups, "group"))
    words.append(plural(leaves, "leaf", "leaves"))
    words.append(plural(len(folding.graph.roots), "output"))
    words.append(plural(len(folding.edges), "edge"))
    return ", ".join(words)


def _views(folding: Folding) -> int:
    """How many ops that only change a shape or a layout are drawn with another op."""
    groups = (group for group in column(folding.boxes, "group") if group is not None)
    return sum(group.ops - 1 for group in groups if group.kind == "op")


def footer_lines(
    folding: Folding,
    *,
    split: int = 0,
    copies: int = 0,
    hidden: bool = False,
    data: Container[int] | None = None,
    signs: int = 0,
) -> Iterator[str]:
    """Lines for under a drawing. `split` leaves are drawn as `copies` boxes in all;
    `hidden`: none is drawn.

    `data` are the places of the tensors without gradient that are drawn, None for all; `signs` more
    stand in the titles of ops.
    """
    graph, views = folding.graph, _views(folding)
    yield counts_line(folding)
    yield from _folded_lines(folding)
    if views:
        only = f"which only {verb(views, 'changes', 'change')} a shape or a layout"
        yield f"drawn with their op: {plural(views, 'view')}, {only}; --views show draws them"

    if split:
        yield f"{plural(split, 'leaf', 'leaves')} drawn once per use, as {plural(copies, 'box', 'boxes')}"

    if folding.together:
        yield f"drawn with the first box that uses them: {plural(folding.together, 'parameter tensor')}"

    if hidden and folding.leaf_in:
        yield f"not drawn: {plural(len(folding.leaf_in), 'leaf', 'leaves')}"

    yield from _unseen_lines(graph, data, signs)

    yield from inferred_lines(graph)
    if is_all_freed(folding.boxes):
        yield "freed: backward() has run, the saved tensors are gone"

    yield from (one_line(note) for note in graph.notes if note.strip())


def _folded_lines(folding: Folding) -> Iterator[str]:
    if not folding.groups:
        return
    inside = [node for group in folding.groups for node in group.nodes]
    known = folding.graph.leaf_of if folding.opening is not None else {}
    leaves = sum(node in known for node in inside)
    words = plural(len(inside) - leaves, "backward function" if known else "node")
    if leaves:
        words += f" and {plural(leaves, 'leaf', 'leaves')}"
    yield f"folded: {plural(len(folding.groups), 'group')} for {words}"
    if folding.opening is not None:
        yield _more_line(folding.opening.deeper())


def _unseen_lines(
    graph: Graph, drawn: Container[int] | None, signs: int
) -> Iterator[str]:
    """The data that is not drawn: what is known by its name, and how many entries
    without gradient nobody knows.
    """
    shown = range(len(graph.data)) if drawn is None else drawn
    unseen = [one for i, one in enumerate(graph.data) if one.nodes and i not in shown]
    names = list(dict.fromkeys(map(labels.data_title, unseen)))
    unknown = max(graph.fact(_unknown) - signs, 0)
    words = [few(names, SHOWN)] if names else []
    if unknown:
        more = "more " if names else ""
        noun = plural(unknown, f"{more}input")
        kinds = ("a tensor or a number", "tensors or numbers")[unknown > 1]
        kind = f" ({kinds})" if any(map(_may_take_a_number, graph.nodes)) else ""
        words.append(f"{noun} without gradient{kind}")
    if words:
        yield f"not drawn: {' and '.join(words)}"


def _unknown(graph: Graph) -> int:
    """How often ops took a tensor without gradient of which nothing is known. A number
    that backward keeps is a part of its op's title.
    """
    ops = graph.ops
    known, indices = Counter[int](), Counter[int]()
    for data in graph.data:
        is_number = data.tensor.dtype.startswith(("float", "bfloat", "complex"))
        entries = data.position or (None,) * len(data.nodes)
        for node, entry in zip(data.nodes, entries):
            # autograd has no entry for an index, whatever is indexed
            if entry is not None or is_number or not INDEXED.match(ops[node]):
                known[node] += 1
            else:
                indices[node] += 1

    unknown = 0
    for record in graph.nodes:
        if record.op.startswith("Index"):
            unknown += max(_masks(record) - indices[record.id], 0)
        if record.none_inputs:
            tensors = record.none_inputs - _without_tensor(record)
            unknown += max(tensors - known[record.id], 0)
    return unknown


def _may_take_a_number(node: Node) -> bool:
    """Whether it is a sum of which no line says if `w + 1` or `w + x` stands there."""
    sums = node.op.startswith(("AddBackward", "SubBackward"))
    return sums and bool(node.none_inputs) and node.source is None


def _masks(node: Node) -> int:
    """How many masks and indices of `x[mask]` nobody holds."""
    return sum(
        slot.kind == "activation" and slot.slot.startswith("indices[")
        for slot in node.saved
    )


def _without_tensor(node: Node) -> int:
    """How many of its inputs are no tensors: a number, a bias that is left out."""
    if node.numbers:
        return node.numbers
    number = any(slot.kind == "number" for slot in node.saved)
    number = number or isinstance(node.attributes.get("other"), (int, float, complex))
    return number + (node.attributes.get("bias_sym_sizes_opt") == (0,))


def inferred_lines(graph: Graph) -> Iterator[str]:
    """How far the modules can be relied on, when nobody recorded their calls."""
    if graph.attribution == "inferred":
        yield "Module boxes are inferred. gradviz.record() gives exact ones."


def cut_lines(outputs: int) -> Iterator[str]:
    """What a drawing leaves out of many outputs."""
    if outputs:
        yield f"drawn as one box: {plural(outputs, 'output')}; --depth all draws each"


def _more_line(further: Deeper) -> str:
    """What to type, or to write in a notebook, to see more of a folded graph."""
    path = further.path and one_line(further.path)
    options = {"depth": further.depth, "expand": path}
    given = [(name, value) for name, value in options.items() if value is not None]
    if IN_PYTHON.get():
        words = [f"{name}={value!r}" for name, value in given] or [f"depth={'all'!r}"]
        return f"more: graph.to_svg({', '.join(words)})"
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in given]
    return f"to see more: {', '.join([*words, '--depth all'])}"


def saved_lines(folding: Folding) -> Iterator[str]:
    """What a drawing of saved tensors leaves out."""
    boxes = (i for i, box in enumerate(folding.boxes) if box.folded)
    count = sum(len(node.saved) for box in boxes for node in folding.nodes_in(box))
    if count:
        yield f"not drawn: {plural(count, 'saved tensor')} inside folded boxes"


def mark_lines(findings: Marked) -> Iterator[str]:
    """Findings, numbered as at the boxes."""
    return (one_line(f"{mark.number}. {mark.words}") for mark in findings.all)


def is_all_freed(nodes: Sequence[Node]) -> bool:
    """Whether backward freed the saved tensors of every node that had any: said once,
    not in every box.
    """
    freed = False
    for node in nodes:  # ends at the first node that still holds something
        if "freed" in node.flags:
            freed = True
        elif node.saved:
            return False
    return freed


SHOWN = 6  # outputs, leaves, ops and notes that are listed before "+N more"


def summary(graph: Graph) -> str:
    """Counts, outputs, leaves, ops, depth, flags and notes, at most about 30 short lines.

    >>> from gradviz.graph import Data, Graph, Node
    >>> print(summary(Graph((Node(0, "AddBackward0"),))))
    Graph
      1 backward function, 0 leaves, 0 outputs, 0 edges
      longest path  1 backward function
      ops           1 AddBackward0
    """
    return "\n".join(_lines(graph))


def _lines(graph: Graph) -> Iterator[str]:
    yield f"Graph of {one_line(graph.title)}" if graph.title else "Graph"
    counts, *notes = footer_lines(folding_of(graph))
    yield f"  {counts}"
    yield from _rows("longest path", [plural(depth(graph), "backward function")])
    yield from _rows("outputs", [_root(root) for root in graph.roots])
    yield from _rows("leaves", [_leaf(leaf) for leaf in graph.leaves])
    yield from _rows("ops", _ops(graph, attrgetter("op")))
    yield from _rows("flags", _flags(graph))
    yield from _rows("notes", [note.replace("not drawn: ", "") for note in notes])


def _ops(graph: Graph, name: Callable[[Node], str]) -> list[str]:
    counts = operations(graph, name).items()
    return [f"{count_text(count)} {one_line(op)}" for op, count in counts]


def _flags(graph: Graph) -> list[str]:
    words = labels.FLAG_WORDS
    return [f"{plural(n, 'node')}: {words[flag]}" for flag, n in flags(graph).items()]


_BRIEF = 4  # ops in one line


def foot_lines(graph: Graph) -> Iterator[str]:
    """The lines of `summary` that a table of modules does not have."""
    yield f"longest path: {plural(depth(graph), 'backward function')}"
    if ops := _ops(graph, forward_name):
        yield f"ops: {few(ops, _BRIEF)}"
    yield from _flags(graph)


def _rows(title: str, items: Sequence[str]) -> Iterator[str]:
    """A titled list, one item a line, cut after a few."""
    for i, item in enumerate(items[:SHOWN]):
        yield f"  {title if i == 0 else '':12}  {item}"
    if len(items) > SHOWN:
        yield f"  {'':12}  {labels.more(len(items) - SHOWN)}"


def _root(root: Root) -> str:
    title, tensor, *why = root_lines(root)
    return ", ".join((f"{title} {tensor}", *why))


def _leaf(leaf: Leaf) -> str:
    title = labels.leaf_title(leaf)
    kind = "" if leaf.kind in title else f", {leaf.kind}"
    return f"{title} {tensor_line(leaf.tensor)}{kind}"
