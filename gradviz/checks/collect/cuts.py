"""What was cut off from a graph that is read: which nodes take it in, and which outputs
were cut off themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

import torch

from gradviz.cuts.lines import CutWatch, SeenCut, lines_before
from gradviz.graph import SourceLine
from gradviz.source.cut import COMPARISONS, Cut
from gradviz.source.statements import called, expressions_at, subject
from gradviz.walker.walk import Walked
from gradviz.wording import clip


def cuts_entering(
    watch: CutWatch,
    walked: Walked,
) -> dict[int, tuple[Cut, ...]]:
    """The nodes of the graph that take in what was cut off, with the cuts."""
    entered: dict[int, list[SeenCut]] = {}
    for seen, nodes in watch.entering(walked.graph).items():
        for node in nodes:
            entered.setdefault(node, []).append(seen)
    for node, leaf in walked.variables.items():
        if written := watch.given_to(leaf):
            entered[node] = written

    return {node: described(walked, cuts) for node, cuts in entered.items()}


def cuts_before(
    watch: CutWatch, walked: Walked, frame: FrameType | None
) -> tuple[Cut, ...]:
    """What lines before the call have cut off: its outputs, if they have no graph."""
    # with gradients off, the line that switched them off explains it all
    off = watch.off if not torch.is_grad_enabled() else None
    if off is not None:
        return (Cut("no_grad", off, "set_grad_enabled", via=(off,)),)
    return described(walked, watch.on(lines_before(frame)))


def described(walked: Walked, cuts: Iterable[SeenCut]) -> tuple[Cut, ...]:
    """Cuts with the expressions that lose their graph, as the code spells them."""
    return tuple(_described(seen.cut(walked.names.leaf)) for seen in cuts)


def _described(cut: Cut) -> Cut:
    piece, lost = next(_cutting(cut.source, cut.operation), ("", ""))
    if cut.leaf:
        lost = cut.leaf[0]
    return cut._replace(of=clip(lost, 40), part=piece or lost, alive=True)


# the line says float(x), and what runs is x.__float__()
_BUILT_IN = {"__float__": "float", "__int__": "int"}


def _cutting(
    source: SourceLine,
    operation: str,
) -> Iterator[tuple[str, str]]:
    """The code in a line that does what cuts, and what it is called on."""
    function = _BUILT_IN.get(operation, operation)
    for node in expressions_at(source.file, source.line):
        lost: Sequence[ast.expr] = ()
        # `a > b` runs gt(), a name that the line does not have
        if isinstance(node, ast.Compare) and operation in COMPARISONS:
            lost = [node.left]
        elif isinstance(node, ast.Attribute) and node.attr == operation == "data":
            lost = [node.value]
        elif isinstance(node, ast.Call) and called(node) == function:
            lost = node.args[:1] if operation == "copy_" else subject(node)
        for expression in lost:
            yield ast.unparse(node), ast.unparse(expression)
