"""Facts about a graph that is read: what was cut off from it, its named tensors, and
where parameters are kept that no module lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from gradviz.checks.collect.lines import Models, described, home
from gradviz.checks.collect.models import Reading
from gradviz.checks.context import (
    Home,
    NamedTensor,
    Parameter,
)
from gradviz.checks.record import RetainedHistory
from gradviz.cuts.behind import lines_before
from gradviz.cuts.lines import CutWatch, SeenCut
from gradviz.cuts.parts import takers_of
from gradviz.graph import Graph
from gradviz.run.outputs import LiveOutputs
from gradviz.source.cut import Cut
from gradviz.source.provenance import Provenance
from gradviz.source.search import (
    CodeLocation,
    addition_to,
    additions,
)
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked


def entered(
    watch: CutWatch,
    walked: Walked,
) -> Iterator[tuple[int, tuple[Cut, ...]]]:
    """The nodes of the graph that take in what was cut off."""
    entered: dict[int, list[SeenCut]] = {}
    for where, places in watch.entering(takers_of(walked.graph)).items():
        for node in places:
            entered.setdefault(node, []).append(where)

    for i, leaf in walked.variables.items():
        if given := watch.given_to(leaf):
            entered[i] = given

    for node, events in entered.items():
        yield node, all_described(watch, walked, events)


def cut_roots(
    watch: CutWatch, walked: Walked, live: LiveOutputs
) -> Iterator[tuple[str, Provenance]]:
    """The outputs that were cut off themselves, as lines before the call have cut
    in this step.
    """
    leaves, names = (
        walked.variables,
        live.names or tuple(root.name for root in walked.graph.roots),
    )
    lost = [
        name
        for name, root in zip(names, walked.graph.roots)
        if root.node is None or root.node in leaves
    ]

    if lost:
        cuts = all_described(
            watch,
            walked,
            watch.on(lines_before(live.frame)),
        )
    else:
        cuts = ()

    off = watch.off if not torch.is_grad_enabled() else None
    if off is not None:
        cuts = (Cut("no_grad", off, "set_grad_enabled", via=(off,)),)

    for name in lost if cuts else ():
        yield name, Provenance(cuts)


def all_described(
    watch: CutWatch,
    walked: Walked,
    cuts: Iterable[SeenCut],
) -> tuple[Cut, ...]:
    return tuple(described(watch.cut(cut, walked.names.leaf)) for cut in cuts)


def homes_of(
    graph: Graph, listed: Sequence[Parameter], models: Models
) -> dict[int, Home]:
    known = {parameter.node for parameter in listed}
    lost = [
        leaf
        for leaf in graph.leaves
        if leaf.kind == "parameter" and leaf.node not in known
    ]
    return {
        leaf.node: place
        for leaf in lost
        if (place := home(leaf.names, models)) is not None
    }


def named_tensors(reading: Reading) -> Iterator[NamedTensor]:
    """The named tensors that are not parameters of a model."""
    walked, parameters = (
        reading.walked,
        {id(tensor) for _, tensor in reading.parameters},
    )
    for tensor, names in walked.names.named():
        if id(tensor) in parameters:
            continue

        try:
            function = grad_fn_of(tensor)
            leaf, retains = tensor.is_leaf, tensor.retains_grad
        except RuntimeError:  # a view that torch refuses to follow
            continue

        yield NamedTensor(
            names=names,
            node=walked.position_of.get(function)
            if function is not None
            else reading.leaf_of.get(id(tensor)),
            storage=walked.storage_id(tensor),
            leaf=leaf,
            requires_grad=tensor.requires_grad,
            retains_grad=retains,
            aliases=walked.names.aliases(tensor),
        )


def with_line(history: RetainedHistory, location: CodeLocation) -> RetainedHistory:
    """The same with the line that adds to a variable: `meter.update(loss)` adds to
    `meter.total`.
    """
    added, name = additions(location.body), history.name
    if not name:
        return history
    owner = name.rpartition(".")[0]
    line = added.get(name) or added.get(owner)
    return history._replace(added=line or addition_to(location.body.file, name))
