"""What was cut off from a graph that is read: which nodes take it in, and which outputs
were cut off themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import torch

from gradviz.checks.words import COMPARISONS
from gradviz.cuts.behind import lines_before
from gradviz.cuts.lines import CutWatch, SeenCut
from gradviz.cuts.parts import takers_of
from gradviz.graph import SourceLine
from gradviz.run.outputs import LiveOutputs
from gradviz.source.cut import Cut
from gradviz.source.provenance import Provenance
from gradviz.source.statements import called, expressions_at, subject, text_of
from gradviz.walker.walk import Walked


def cuts_entering(
    watch: CutWatch,
    walked: Walked,
) -> dict[int, tuple[Cut, ...]]:
    """The nodes of the graph that take in what was cut off, with the cuts."""
    entered: dict[int, list[SeenCut]] = {}
    for seen, nodes in watch.entering(takers_of(walked.graph)).items():
        for node in nodes:
            entered.setdefault(node, []).append(seen)
    for node, leaf in walked.variables.items():
        if written := watch.given_to(leaf):
            entered[node] = written

    return {node: described(watch, walked, cuts) for node, cuts in entered.items()}


def cut_roots(
    watch: CutWatch, walked: Walked, live: LiveOutputs
) -> dict[str, Provenance]:
    """The outputs that were cut off themselves, as lines before the call have cut
    in this step.
    """
    roots = walked.graph.roots
    names = live.names or tuple(root.name for root in roots)
    lost = [
        name
        for name, root in zip(names, roots)
        if root.node is None or root.node in walked.variables
    ]
    if not lost:
        return {}

    cuts = described(
        watch,
        walked,
        watch.on(lines_before(live.frame)),
    )
    # with gradients off, the line that switched them off explains it all
    off = watch.off if not torch.is_grad_enabled() else None
    if off is not None:
        cuts = (Cut("no_grad", off, "set_grad_enabled", via=(off,)),)
    return dict.fromkeys(lost, Provenance(cuts)) if cuts else {}


def described(
    watch: CutWatch, walked: Walked, cuts: Iterable[SeenCut]
) -> tuple[Cut, ...]:
    """Cuts with the expressions that lose their graph, as the code spells them."""
    return tuple(_described(watch.cut(seen, walked.names.leaf)) for seen in cuts)


def _described(cut: Cut) -> Cut:
    lost = (text_of(expression, 40) for expression in _lost(cut.source, cut.operation))
    by_name = cut.leaf and cut.kind != "deepcopy"
    return cut._replace(
        of=cut.leaf[0] if by_name else next(lost, ""),
        alive=True,
    )


# the line says float(x), and what runs is x.__float__()
_BUILT_IN = {"__float__": "float", "__int__": "int"}


def _lost(source: SourceLine, operation: str) -> Iterator[ast.expr]:
    """The expressions of a line that an operation was called on."""
    function = _BUILT_IN.get(operation, operation)
    for node in expressions_at(source.file, source.line):
        # `a > b` runs gt(), a name that the line does not have
        if isinstance(node, ast.Compare) and operation in COMPARISONS:
            yield node.left
        elif operation == "written":
            yield from _written(node)
        elif isinstance(node, ast.Attribute) and node.attr == operation == "data":
            yield node.value
        elif isinstance(node, ast.Call) and called(node) == function:
            yield from subject(node)


def _written(node: ast.expr) -> Iterator[ast.expr]:
    """What is written into a tensor: the first that a line reads."""
    if isinstance(node, ast.Call) and called(node) == "copy_" and node.args:
        yield node.args[0]
        return
    # the target of an assignment is not what is written into it
    loads = isinstance(
        getattr(node, "ctx", ast.Load()),
        ast.Load,
    )
    if loads and not isinstance(node, ast.Attribute):
        yield node
