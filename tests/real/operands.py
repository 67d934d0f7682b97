"""Boxes of a default picture that cannot be true: an op of two operands with one arrow, and several ops under the title of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gradviz.draw.options import Options
from gradviz.fold.order import is_view
from gradviz.fold.titles import title
from gradviz.graph import Graph, Node
from gradviz.graph.origins import op_text
from tests.drawn import scene, shown

OF_TWO = {
    "add",
    "sub",
    "mul",
    "div",
    "matmul",
    "where",
    "maximum",
    "minimum",
    "mm",
    "bmm",
    "mv",
    "addmm",
    "gather",
    "index_add",
}

REASONS: dict[str, dict[str, str]] = {
    "dlrm_sparse": {"matmul, line 31": "T and its transpose come from one box"},
    "maml_fomaml_backward": {"add, line 28": "a sum that began with a number"},
    "moe_router": {"add, line 87": "a sum that began with a number"},
    "seq2seq_attention": {"add, line 69": "a sum that began with a number"},
    "simclr": {"matmul, line 46": "features and their transpose"},
    "style_transfer": {f"add, line {line}": "a sum that began with a number" for line in (102, 104)},
    "vqvae_ema": {"add, line 46": "the ReLU in the block changes x in place, so both come from the block"},
}
"""Of each program the ops that do take one tensor, or two from one box."""


def one_operand(graph: Graph) -> Iterator[str]:
    """The ops of two operands that have fewer than two arrows: `matmul, line 31`."""
    drawn = scene(shown(graph, Options()), Options())
    arrows = Counter(link.target for link in drawn.links)
    for box in drawn.boxes:
        name, about = box.lines[0], box.about
        if name in OF_TWO and arrows[box.id] < 2 and isinstance(about, Node):
            yield f"{name}, line {about.source.line}" if about.source is not None else name


def named_by_one(graph: Graph) -> Iterator[str]:
    """Titles of closed groups that are the name of one of several different ops in it, and not of what the program called."""
    opening = shown(graph, Options()).opening
    if opening is None:
        return
    for group in opening.closed():
        if group.op is not None or group.scope is not None:
            continue
        ops = [opening.groups.graph.nodes[node] for node in group.nodes]
        work = {op_text(node) for node in ops if not is_view(node.op)}
        if len(work) > 1 and title(group) in work:
            yield f"{title(group)!r} holds {', '.join(sorted(work))}"


def unexplained(name: str, graph: Graph) -> list[str]:
    """Of a program what has no reason, and reasons for what is not there."""
    found, known = set(one_operand(graph)), set(REASONS.get(name, {}))
    gone = [f"{box} has two arrows: take it out of REASONS" for box in known - found]
    return [*sorted(found - known), *gone, *named_by_one(graph)]
