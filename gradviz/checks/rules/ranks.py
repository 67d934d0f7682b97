"""Checks on the graphs of several ranks together: which of them run other functions, or
use other parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, listed, made_at, verb, where as place
from gradviz.graph import Graph
from gradviz.rank import Ranks, named
from gradviz.wording import one_line, plural

if TYPE_CHECKING:
    from gradviz.ranks.rank_diff import RankDiff


# -- ranks-differ ----------------------------------------------------------------------


@check(
    "ranks-differ",
    "warning",
    "some ranks run other functions than the others",
    ranks=True,
)
def ranks_differ(context: BackwardCall) -> Diagnoses:
    """Some ranks run functions that the others do not: a branch that depends on the
    data, or on the rank.

    Under data parallelism all ranks should run the same functions: parameters that only
    some use are updated from fewer ranks, or with `DistributedDataParallel` the others
    wait for gradients that do not come. Where every rank runs the same functions on
    tensors of other sizes, nothing is said: a last batch is often smaller.

    How it is found: The graphs of all ranks are matched op by op, in the order of the
    forward pass, by module and line. The finding names what the fewer ranks run alone,
    and what the others run in its place.

    What to do: Make the condition the same on all ranks: decide it on one, and
    broadcast it. Or run both branches, and choose between their results with
    `torch.where`.

    When to ignore it: Ranks that have other parts of the model, as the stages of a
    pipeline do, are no fault. The check says nothing where the parameters of two ranks
    have no name in common.

    ```python
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    w = torch.ones(3, requires_grad=True)
    if dist.get_rank() == 1:
        loss = w.exp().sum()
    else:
        loss = w.sin().sum()
    loss.backward()
    ```
    """
    diff = context.ranks
    if diff is None or not _is_comparable(diff):
        return

    graph, parts = diff.graph, dict[Ranks, list[int]]()
    for node, ranks in enumerate(diff.having):
        if len(ranks) < len(diff.ranks) and node not in graph.leaf_of:
            parts.setdefault(ranks, []).append(node)

    for ranks, nodes in parts.items():
        others = tuple(rank for rank in diff.ranks if rank not in ranks)
        # the fewest are the odd ones out; of two halves, the one without rank 0
        if others in parts and (len(others), ranks[0]) < (len(ranks), others[0]):
            continue

        theirs = parts.get(others, [])
        first = _first(graph, nodes)
        source, where = made_at(graph, first), f"{named(ranks)}: {place(graph, first)}"
        instead = f"; {named(others)} {_ops(graph, theirs)}" if theirs else ""
        yield Diagnosis(
            f"{named(ranks)} {verb(ranks, 'takes', 'take')} another branch than {named(others)}",
            (),
            f"{named(ranks)} {verb(ranks, 'runs', 'run')} {_ops(graph, nodes)}{instead}",
            "Make the condition the same on all ranks: decide it on one and broadcast it, or compute both branches and choose "
            "with torch.where().",
            where=where,
            nodes=(*nodes, *theirs),
            source=source,
        )


def _is_comparable(diff: RankDiff) -> bool:
    """Whether there are two ranks, of which each has parameters that the others have:
    stages of a pipeline are meant to differ.
    """
    parameters = [set(each.parameters) for each in diff.processes.values()]
    held = [names for names in parameters if names]
    return len(diff.ranks) > 1 and (not held or bool(set.intersection(*held)))


def _first(graph: Graph, nodes: Sequence[int]) -> int:
    """The one that ran first."""
    return min(nodes, key=lambda node: graph.nodes[node].sequence or 0)


def _ops(graph: Graph, nodes: Sequence[int]) -> str:
    ops = listed(dict.fromkeys(graph.ops[node] for node in nodes))
    first = made_at(graph, _first(graph, nodes))
    return f"{plural(len(nodes), 'function')} ({ops}) at {code(first)}"


# -- unused-on-some-ranks --------------------------------------------------------------


@check(
    "unused-on-some-ranks",
    "error",
    "a parameter gets a gradient on some ranks only",
    ranks=True,
    follows=("ranks-differ",),
)
def unused_on_some_ranks(context: BackwardCall) -> Diagnoses:
    """A parameter that some ranks use and others have, but do not use.

    `DistributedDataParallel` averages gradients over the ranks. Where a rank has none
    for a parameter, the others wait for it, or, with `find_unused_parameters=True`,
    take what they have; in some cases the ranks go on from different gradients without
    an error, so their copies of the model drift apart.

    How it is found: The parameters in the graph of each rank are compared with those
    that its models hold.

    What to do: Fix the branch that leaves the parameter out on these ranks. If it must
    stay, add a zero that depends on the
    parameter: `loss = loss + 0.0 * parameter.sum()`.

    When to ignore it: Where nothing averages gradients over these ranks, and parts of
    the model are meant to be of some ranks only.

    ```python
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
    loss = model[0](torch.ones(1, 2)).sum()
    if dist.get_rank() == 0:
        loss = loss + model[1](torch.ones(1, 2)).sum()
    loss.backward()
    ```
    """
    diff = context.ranks
    if diff is None:
        return

    unused: dict[tuple[Ranks, Ranks], list[int]] = {}
    for leaf in diff.graph.leaves:
        using = diff.having[leaf.node]
        lacking = tuple(
            rank
            for rank, process in diff.processes.items()
            if rank not in using and set(leaf.names) & set(process.parameters)
        )
        if leaf.kind == "parameter" and lacking:
            unused.setdefault((using, lacking), []).append(leaf.node)

    for (using, lacking), nodes in unused.items():
        names = tuple(diff.graph.leaf_of[node].names[0] for node in nodes)
        takers = [user for node in nodes for user in users(diff.graph, node)]
        first = _first(diff.graph, takers or nodes)
        yield Diagnosis(
            f"{listed(names)} {verb(names, 'gets', 'get')} a gradient on {named(using)} and none on {named(lacking)}",
            names,
            f"{named(lacking)} {verb(lacking, 'holds', 'hold')} what {verb(lacking, 'its', 'their')} graph does not have: where "
            "gradients are averaged over all ranks, copies of the model drift apart or wait for ever",
            "Use the same modules on every rank. If a branch must stay, add a zero that depends on what it leaves out: "
            f"loss = loss + 0.0 * {one_line(names[0])}.sum().",
            where=f"{named(using)}: {place(diff.graph, first)}",
            nodes=tuple(nodes),
            source=made_at(diff.graph, first),
        )
