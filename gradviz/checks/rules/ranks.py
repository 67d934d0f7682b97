"""Checks on the graphs of several ranks together: which of them run other functions, or
use other parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, line, listed, made_at, verb, where as place
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
    diff = _comparable(context)
    if diff is None:
        return

    graph = diff.graph
    parts: dict[Ranks, list[int]] = {}
    for node, ranks in enumerate(diff.having):
        if len(ranks) < len(diff.ranks) and node not in graph.leaf_of:
            parts.setdefault(ranks, []).append(node)

    for ranks in sorted(
        parts,
        # the fewest are the odd ones out; of two halves, the one without rank 0
        key=lambda ranks: (len(ranks), -ranks[0]),
    ):
        others = tuple(rank for rank in diff.ranks if rank not in ranks)
        if ranks not in parts:  # told with the others
            continue
        mine, theirs = parts[ranks], parts.pop(others, [])
        source, scopes = (
            made_at(graph, _first(graph, mine)),
            (graph.nodes[node].scope for node in mine),
        )
        modules = dict.fromkeys(
            graph.scopes[scope].path for scope in scopes if scope is not None
        )
        where, instead = (
            f"{named(ranks)}: {place(graph, _first(graph, mine))}",
            "nothing",
        )
        if theirs:
            first = _first(graph, theirs)
            where += f"; {named(others)}: {place(graph, first)}"
            instead = f"{_ops(graph, theirs)} ({line(made_at(graph, first))})"
        yield Diagnosis(
            f"{named(ranks)} {verb(ranks, 'takes', 'take')} another branch than {named(others)}",
            tuple(filter(None, modules)),
            f"{named(ranks)} {verb(ranks, 'runs', 'run')} {_ops(graph, mine)} at {code(source)}; "
            f"{named(others)} {verb(others, 'runs', 'run')} {instead} there",
            "Make the condition the same on all ranks: decide it on one and broadcast it, or compute both branches and choose "
            "with torch.where().",
            where=where,
            nodes=(*mine, *theirs),
            source=source,
        )


def _comparable(context: BackwardCall) -> RankDiff | None:
    """The graphs of ranks that compute the same model, None when there are not two of
    them.
    """
    diff = context.ranks
    if diff is None or len(diff.ranks) < 2:
        return None
    held = [
        set(process.parameters)
        for process in diff.processes.values()
        if process.parameters
    ]
    # stages of a pipeline share no parameter, and are meant to differ
    return None if len(held) > 1 and not set.intersection(*held) else diff


def _first(graph: Graph, nodes: Sequence[int]) -> int:
    """The one that ran first."""
    numbered = [node for node in nodes if graph.nodes[node].sequence is not None]
    return min(numbered or nodes, key=lambda node: graph.nodes[node].sequence or 0)


def _ops(graph: Graph, nodes: Sequence[int]) -> str:
    return f"{plural(len(nodes), 'function')} ({listed(dict.fromkeys(graph.nodes[node].op for node in nodes))})"


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

    for (using, lacking), nodes in _unused(diff).items():
        names = [diff.graph.leaf_of[node].names[0] for node in nodes]
        wrapped, where = diff.processes[lacking[0]].wrapped, named(using)
        drift = f"; {wrapped} averages over all ranks, so copies of the model drift apart or wait for ever"
        users = [edge.consumer for node in nodes for edge in diff.graph.consumers(node)]
        first = _first(diff.graph, users) if users else None
        if first is not None:
            where += f": {place(diff.graph, first)}"

        yield Diagnosis(
            f"{listed(names)} {verb(names, 'gets', 'get')} a gradient on {named(using)} and none on {named(lacking)}",
            tuple(names),
            f"{named(lacking)} {verb(lacking, 'holds', 'hold')} {plural(len(names), 'parameter')} that "
            f"{verb(lacking, 'its', 'their')} graph does not have{drift if wrapped else ''}",
            "Use the same modules on every rank. If a branch must stay, add a zero that depends on what it leaves out: "
            f"loss = loss + 0.0 * {one_line(names[0])}.sum().",
            where=where,
            nodes=tuple(nodes),
            source=made_at(diff.graph, first),
        )


def _unused(
    diff: RankDiff,
) -> dict[tuple[Ranks, Ranks], list[int]]:
    """The parameters that some ranks use and others hold only, by these and those."""
    unused: dict[tuple[Ranks, Ranks], list[int]] = {}
    for leaf in diff.graph.leaves:
        using = diff.having[leaf.node]
        lacking = tuple(
            rank
            for rank, process in diff.processes.items()
            if rank not in using
            and rank in diff.ranks
            and set(leaf.names) & set(process.parameters)
        )
        if leaf.kind == "parameter" and lacking:
            unused.setdefault(
                (using, lacking),
                [],
            ).append(leaf.node)

    return unused
