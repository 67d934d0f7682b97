"""Checks on several ranks together: which one differs, in its graph or in its calls of torch.distributed, and which is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import (
    code,
    line,
    listed,
    title,
    verb,
    where as place,
)
from gradviz.graph import Call, Graph
from gradviz.graph.amounts import known_elements
from gradviz.graph.origins import own_line
from gradviz.rank import named
from gradviz.wording import (
    clip,
    one_line,
    plural,
    tensor_line,
)

if TYPE_CHECKING:
    from gradviz.ranks.meeting import RankEnd
    from gradviz.ranks.rank_diff import RankDiff
    from gradviz.ranks.reporter import Together

Ranks = tuple[int, ...]


# -- ranks-differ ------------------------------------------------------------------------------------------------------


@check("ranks-differ", "warning", "some ranks run other functions than the others", ranks=2)
def ranks_differ(context: CheckContext) -> Iterator[Diagnosis]:
    """Some ranks run functions that the others do not: a branch that depends on the data, or on the rank.

    Under data parallelism all ranks should run the same functions: parameters that only some use are updated from fewer
    ranks, or with `DistributedDataParallel` the others wait for gradients that do not come. Where every rank runs the same
    functions on tensors of other sizes, nothing is said: a last batch is often smaller.

    How it is found: The graphs of all ranks are matched op by op, in the order of the forward pass, by module and line. The
    finding names what the fewer ranks run alone, and what the others run in its place.

    What to do: Make the condition the same on all ranks: decide it on one, and broadcast it. Or run both branches, and choose
    between their results with `torch.where`.

    When to ignore it: Ranks that have other parts of the model, as the stages of a pipeline do, are no fault. The check says
    nothing where the parameters of two ranks have no name in common.

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
    told: set[Ranks] = set()
    for ranks in sorted(parts, key=lambda ranks: (len(ranks), -ranks[0])):
        others = tuple(rank for rank in diff.ranks if rank not in ranks)
        if ranks in told:
            continue
        told |= {ranks, others}
        mine, theirs = parts[ranks], parts.get(others, [])
        first = _first(graph, mine)
        here = f"{named(ranks)}: {place(graph, first)}"
        there = f"{named(others)}: {place(graph, _first(graph, theirs))}" if theirs else ""
        source = own_line(graph.nodes[first])
        instead = (
            f"{_ops(graph, theirs)} ({line(own_line(graph.nodes[_first(graph, theirs)]))})" if theirs else "nothing"
        )
        yield Diagnosis(
            f"{named(ranks)} {verb(ranks, 'takes', 'take')} another branch than {named(others)}",
            tuple(dict.fromkeys(_module(graph, node) for node in mine if _module(graph, node))),
            "; ".join(filter(None, (here, there))),
            f"{named(ranks)} {verb(ranks, 'runs', 'run')} {_ops(graph, mine)} at {code(source)}; "
            f"{named(others)} {verb(others, 'runs', 'run')} {instead} there",
            "Make the condition the same on all ranks: decide it on one and broadcast it, or compute both branches and choose "
            "with torch.where().",
            nodes=(*mine, *theirs),
            source=source,
        )


def _comparable(context: CheckContext) -> RankDiff | None:
    """The graphs of ranks that compute the same model, None when there are not two of them."""
    diff = context.ranks.diff if context.ranks is not None else None
    if diff is None or len(diff.ranks) < 2 or diff.stages:
        return None
    known = [set(process.parameters) for process in diff.processes.values() if process.parameters]
    return None if len(known) > 1 and not set.intersection(*known) else diff


def _first(graph: Graph, nodes: Sequence[int]) -> int:
    """The one that ran first."""
    numbers = {node: graph.nodes[node].sequence for node in nodes}
    return min(nodes, key=lambda node: 2**64 if (number := numbers[node]) is None else number)


def _module(graph: Graph, node: int) -> str:
    scope = graph.nodes[node].scope
    return graph.scopes[scope].path if scope is not None else ""


def _ops(graph: Graph, nodes: Sequence[int]) -> str:
    return f"{plural(len(nodes), 'function')} ({listed(dict.fromkeys(graph.nodes[node].op for node in nodes))})"


# -- unused-on-some-ranks ----------------------------------------------------------------------------------------------


@check(
    "unused-on-some-ranks",
    "error",
    "a parameter gets a gradient on some ranks only",
    ranks=2,
    follows=("ranks-differ",),
)
def unused_on_some_ranks(context: CheckContext) -> Iterator[Diagnosis]:
    """A parameter that some ranks use and others have, but do not use.

    `DistributedDataParallel` averages gradients over the ranks. Where a rank has none for a parameter, the others wait for
    it, or, with `find_unused_parameters=True`, take what they have; in some cases the ranks go on from different gradients
    without an error, so their copies of the model drift apart.

    How it is found: The parameters in the graph of each rank are compared with those that its models hold.

    What to do: Mend the branch that leaves the parameter out on these ranks. If it must stay, add a zero that depends on the
    parameter: `loss = loss + 0.0 * parameter.sum()`.

    When to ignore it: Where nothing averages gradients over these ranks, and parts of the model are meant to be of some ranks
    only.

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
    diff = context.ranks.diff if context.ranks is not None else None
    if diff is None or diff.stages:
        return
    unused: dict[tuple[Ranks, Ranks], list[int]] = {}
    for leaf in diff.graph.leaves:
        using = diff.having[leaf.node]
        lacking = tuple(
            rank
            for rank, process in diff.processes.items()
            if rank not in using and rank in diff.ranks and set(leaf.names) & set(process.parameters)
        )
        if leaf.kind == "parameter" and lacking:
            unused.setdefault((using, lacking), []).append(leaf.node)
    for (using, lacking), nodes in unused.items():
        names = [diff.graph.leaf_of[node].names[0] for node in nodes]
        wrapped = next((diff.processes[rank].wrapped for rank in lacking), "")
        users = [edge.consumer for node in nodes for edge in diff.graph.consumers(node)]
        source = own_line(diff.graph.nodes[_first(diff.graph, users)]) if users else None
        yield Diagnosis(
            f"{listed(names)} {verb(names, 'gets', 'get')} a gradient on {named(using)} and none on {named(lacking)}",
            tuple(names),
            f"{named(using)}: {place(diff.graph, _first(diff.graph, users))}" if users else named(using),
            f"{named(lacking)} {verb(lacking, 'holds', 'hold')} {plural(len(names), 'parameter')} that "
            f"{verb(lacking, 'its', 'their')} graph does not have"
            + (
                f"; {wrapped} averages over all ranks, so copies of the model drift apart or wait for ever"
                if wrapped
                else ""
            ),
            "Use the same modules on every rank. If a branch must stay, add a zero that depends on what it leaves out: "
            f"loss = loss + 0.0 * {one_line(names[0])}.sum().",
            nodes=tuple(nodes),
            source=source,
        )


# -- collective-order --------------------------------------------------------------------------------------------------

_SENDS, _RECEIVES = {"send", "isend", "send_object_list"}, {"recv", "irecv", "recv_object_list"}
_NOT_COLLECTIVE = (
    {"backward", "wait", "init_process_group", "destroy_process_group", "batch_isend_irecv"} | _SENDS | _RECEIVES
)
_SAME_SHAPE = {"all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor"}
_SAME_PEER = {
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "broadcast_object_list",
    "scatter_object_list",
    "gather_object",
}


@check("collective-order", "error", "ranks call other collectives or messages, or call them in another order", ranks=2)
def collective_order(context: CheckContext) -> Iterator[Diagnosis]:
    """Ranks of one group call different collectives of `torch.distributed`, or the same ones in another order, or a message
    between two ranks is not received as it was sent.

    Every rank of a group must make the same calls in the same order. Where one does not, the ranks wait for each other until
    the time limit, or one takes the data of another call. The same holds for what one rank sends and another receives.

    How it is found: Each rank notes its calls, with the line that made them. The finding is the first call that is not the
    same: another function, root, dtype or shape, or no call at all. Messages (`send`, `recv`, `isend`, `irecv`,
    `batch_isend_irecv`) are compared for each sender, receiver, group and tag, in their order: the first one that is of
    another dtype or size than what receives it, or that nobody receives or sends. The last is said only where a rank waits for
    it, or where the other's script has ended. A rank that receives from anyone is not compared.

    What to do: Make the calls unconditional, or make the condition the same on all ranks. Receive messages in the order in
    which they are sent.

    When to ignore it: Never, if the calls belong to one group.

    ```python
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = torch.ones(3)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, 0)
    loss = (torch.ones(3, requires_grad=True) * x).sum()
    loss.backward()
    ```
    """
    if context.ranks is None:
        return
    together = context.ranks
    groups: dict[Ranks, dict[int, list[Call]]] = {}
    for rank, calls in together.calls.items():
        for call in calls:
            if call.op not in _NOT_COLLECTIVE:
                group = call.group or tuple(sorted(together.calls))
                groups.setdefault(group, {}).setdefault(rank, []).append(call)
    compared = [
        _first_difference(together, {rank: made.get(rank, []) for rank in members if rank in together.calls})
        for members, made in groups.items()
    ]
    differing = [finding for finding in compared if finding is not None]
    yield from differing
    yield from _wrong_messages(together, also_lost=not differing)


def _first_difference(together: Together, calls: dict[int, list[Call]]) -> Diagnosis | None:
    for number in range(max(map(len, calls.values()), default=0)):
        ways: dict[tuple[object, ...] | None, list[int]] = {}
        for rank, own in calls.items():
            ways.setdefault(_kind(own[number]) if number < len(own) else None, []).append(rank)
        if len(ways) > 1:
            silent = ways.pop(None, [])
            if any(together.ends[rank].state != "ended" or together.ends[rank].failed for rank in silent):
                return None  # it did not come so far: that is the finding on it
            return _differing(number + 1, calls, list(ways.values()), silent)
    return None


def _kind(call: Call) -> tuple[object, ...]:
    """What must be the same on all ranks."""
    tensor = call.tensor
    return (
        call.op,
        call.peer if call.op in _SAME_PEER else None,
        tensor.dtype if tensor is not None else None,
        tensor.shape if tensor is not None and call.op in _SAME_SHAPE else None,
    )


def _differing(number: int, calls: dict[int, list[Call]], ways: list[list[int]], silent: list[int]) -> Diagnosis:
    said = [f"{named(ranks)} {verb(ranks, 'calls', 'call')} {_call(calls[ranks[0]][number - 1])}" for ranks in ways]
    where = [f"{named(ranks)}: {line(calls[ranks[0]][number - 1].source)}" for ranks in ways]
    if silent:
        said.append(f"{named(silent)} {verb(silent, 'makes', 'make')} no such call")
    source = calls[min(ways, key=len)[0]][number - 1].source
    return Diagnosis(
        f"collective {number} is not the same on all ranks: {'; '.join(said)}",
        (),
        "; ".join(where),
        "; ".join(f"{named(ranks)}: {code(calls[ranks[0]][number - 1].source)}" for ranks in ways)
        + f"; the {plural(number - 1, 'call')} before {verb(number - 1, 'is', 'are')} the same" * (number > 1),
        "Call the same collectives in the same order on every rank: take the call out of the condition, or make the condition the "
        "same everywhere.",
        source=source,
    )


class _Pair(NamedTuple):
    """What one rank sends to another, and that receives from it, with one group and one tag, in order."""

    sender: int
    receiver: int
    sent: list[Call]
    received: list[Call]

    @property
    def fitting(self) -> int:
        """Messages before the first one that is not what receives it."""
        both = list(zip(self.sent, self.received))
        return next((i for i, (sent, received) in enumerate(both) if not _fits(sent, received)), len(both))

    @property
    def lost(self) -> Call | None:
        """The first message that nobody receives, or that is received and was never sent."""
        count = min(len(self.sent), len(self.received))
        return next(iter((*self.sent[count:], *self.received[count:])), None)


def _pairs(together: Together) -> list[_Pair]:
    pairs: dict[tuple[object, ...], _Pair] = {}
    from_anyone: set[int] = set()
    for rank, calls in together.calls.items():
        for call in calls:
            if call.op not in _SENDS | _RECEIVES:
                continue
            if call.peer is None:
                from_anyone.add(rank)
                continue
            sends = call.op in _SENDS
            ends = (rank, call.peer) if sends else (call.peer, rank)
            pair = pairs.setdefault((*ends, call.group, call.tag), _Pair(*ends, [], []))
            (pair.sent if sends else pair.received).append(call)
    known = together.calls.keys()
    return [
        pair
        for _, pair in sorted(pairs.items())
        if pair.receiver not in from_anyone and {pair.sender, pair.receiver} <= known
    ]


def _fits(sent: Call, received: Call) -> bool:
    """Whether a message is what the other rank receives, as far as is known."""
    if ("object" in sent.op) != ("object" in received.op):
        return False
    ours, theirs = sent.tensor, received.tensor
    if ours is None or theirs is None:
        return True
    counts = {known_elements(tensor) for tensor in (ours, theirs) if tensor.shape is not None}
    return ours.dtype == theirs.dtype and len(counts) < 2


def _wrong_messages(together: Together, *, also_lost: bool) -> Iterator[Diagnosis]:
    """One finding for each two ranks whose messages do not fit, else one for a message that is waited for in vain."""
    pairs = _pairs(together)
    unlike = [pair for pair in pairs if pair.fitting < min(len(pair.sent), len(pair.received))]
    yield from (_unlike(pair) for pair in {(pair.sender, pair.receiver): pair for pair in reversed(unlike)}.values())
    failed = any(end.failed or end.state in ("died", "absent", "running") for end in together.ends.values())
    if unlike or failed or not also_lost:
        return  # who waits then, waits because of that
    in_vain = [pair for pair in pairs if (lost := pair.lost) is not None and _never(together, pair, lost)]
    in_vain.sort(key=lambda pair: not together.ends[_other(pair)].whole)  # others wait for those who wait themselves
    yield from (_lost_message(together, pair) for pair in in_vain[:1])


def _unlike(pair: _Pair) -> Diagnosis:
    before = pair.fitting
    sent, received = pair.sent[before], pair.received[before]
    return Diagnosis(
        f"message {before + 1} from rank {pair.sender} to rank {pair.receiver} is not what that receives: "
        f"{_call(sent)} against {_call(received)}",
        (),
        f"rank {pair.sender}: {line(sent.source)}; rank {pair.receiver}: {line(received.source)}",
        f"rank {pair.sender}: {code(sent.source)}; rank {pair.receiver}: {code(received.source)}"
        + f"; the {plural(before, 'message')} before {verb(before, 'fits', 'fit')}" * (before > 0),
        "Receive messages in the order in which they are sent, into tensors of the same size and dtype, or give each kind a "
        "tag of its own.",
        source=received.source,
    )


def _other(pair: _Pair) -> int:
    """The rank that should have received the lost message, or sent it."""
    return pair.receiver if len(pair.sent) > len(pair.received) else pair.sender


def _never(together: Together, pair: _Pair, lost: Call) -> bool:
    """Whether it is known that nobody receives or sends this: its rank waits, or the other's script has ended."""
    caller = pair.sender if lost.op in _SENDS else pair.receiver
    return together.ends[caller].state == "stuck" or together.ends[_other(pair)].whole


def _lost_message(together: Together, pair: _Pair) -> Diagnosis:
    lost, other = pair.lost, _other(pair)
    assert lost is not None
    last = _last(together, other)
    if together.ends[other].state == "stuck" and last is not None:
        instead, there = f"rank {other} waits in {_call(last)} at {line(last.source)}", last.source
    else:
        instead, there = f"the script of rank {other} has ended", None
    sends = lost.op in _SENDS
    before = min(len(pair.sent), len(pair.received))
    return Diagnosis(
        f"rank {pair.sender} sends rank {pair.receiver} a message that is never received"
        if sends
        else f"rank {pair.receiver} waits for a message that rank {pair.sender} never sends",
        (),
        f"rank {pair.sender if sends else pair.receiver}: {line(lost.source)}"
        + (f"; rank {other}: {line(there)}" if there is not None else ""),
        f"{code(lost.source)}: {_call(lost)}; {instead}"
        + f"; {plural(before, 'message')} before {verb(before, 'was', 'were')} received" * (before > 0),
        f"Call {'recv' if sends else 'send'} on rank {other} for each {'send' if sends else 'recv'} of the other, with the same "
        "group and tag. Where two ranks exchange, let one send first and the other receive, or give both to "
        "batch_isend_irecv().",
        source=lost.source,
    )


def _call(call: Call) -> str:
    tensor = f" of {tensor_line(call.tensor)}" if call.tensor is not None else ""
    word = ", to rank" if call.op in _SENDS else ", from rank" if call.op in _RECEIVES else ", rank"
    peer = f"{word} {call.peer}" if call.peer is not None else ""
    return f"{call.op}{tensor}{peer}" + (f", tag {call.tag}" if call.tag else "")


# -- missing-rank ------------------------------------------------------------------------------------------------------


@check("missing-rank", "error", "a rank raised, died or never began, and others wait for it", ranks=2)
def missing_rank(context: CheckContext) -> Iterator[Diagnosis]:
    """One rank's script raised, its process died, or it never began; the others wait for it in a collective.

    What a launcher prints then is mostly about the ranks that waited. The finding is about the one that went first.

    How it is found: From the files that each rank leaves: that it began, each call of `torch.distributed` as it begins and
    ends, and how its script ended. A rank that was killed leaves the last call that it was in.

    What to do: Look at the rank that the finding names. Killed without a word is mostly a lack of memory.

    When to ignore it: Never: the launch has failed.

    ```python
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("no data for this rank")
    x = torch.ones(3, requires_grad=True)
    dist.barrier()
    loss = x.sum()
    loss.backward()
    ```
    """
    if context.ranks is None:
        return
    together = context.ranks
    gone = {rank: end for rank, end in together.ends.items() if end.failed or end.state in ("died", "absent")}
    same = {end.failed for end in gone.values()}
    if not gone or (len(gone) == len(together.ends) > 1 and len(same) == 1 and same != {""}):
        return  # a fault that all ranks have makes none of them missing
    first = min(gone, key=lambda rank: (gone[rank].state != "absent", _lost(gone[rank]), gone[rank].order, rank))
    end, last = gone[first], _last(together, first)
    what = (
        f"raised {clip(end.failed, 120)}"
        if end.failed
        else "never began"
        if end.state == "absent"
        else "died without a word"
    )
    inside = f" in {last.op}" if last is not None and not last.ended else ""
    source = end.source or (last.source if last is not None else None)
    waiting = [
        f"rank {rank} {'waits' if together.ends[rank].state == 'stuck' else 'was'} in {call.op} at {line(call.source)}"
        for rank in together.ends
        if rank != first and (call := _last(together, rank)) is not None and not call.ended
    ]
    after = (
        f"; its last call of torch.distributed was {last.op} at {line(last.source)}"
        if last is not None and last.ended
        else ""
    )
    followed = [rank for rank in gone if rank != first and gone[rank].failed]
    if followed:
        waiting.append(f"{named(followed)} then failed: {clip(gone[followed[0]].failed, 100)}")
    yield Diagnosis(
        f"rank {first} {what}{inside}" + (f", and {plural(len(waiting), 'other')} waited for it" if waiting else ""),
        (),
        f"rank {first}: {line(source)}" if source is not None else f"rank {first}",
        "; ".join([*waiting, f"rank {first} left no result{after}"]),
        f"Mend what ends rank {first}."
        if end.failed
        else f"See why the process of rank {first} ended: a process that is "
        "killed without a word mostly ran out of memory.",
        source=source,
    )


_CONNECTION = re.compile(r"Connection (reset|closed)|Read error|remote worker|connection was|NCCL|Broken pipe")


def _lost(end: RankEnd) -> bool:
    """Whether a rank failed because it lost another one."""
    return _CONNECTION.search(end.failed) is not None


def _last(together: Together, rank: int) -> Call | None:
    calls = together.calls.get(rank, ())
    return next((call for call in reversed(calls) if not call.ended), calls[-1] if calls else None)


# -- ready-twice -------------------------------------------------------------------------------------------------------


@check("ready-twice", "error", "a reentrant checkpoint makes DistributedDataParallel count a gradient twice", ranks=1)
def ready_twice(context: CheckContext) -> Iterator[Diagnosis]:
    """`DistributedDataParallel` around a model with a reentrant checkpoint: "marked as ready twice".

    A reentrant checkpoint runs a backward pass of its own, in which the gradients of its parameters become ready. With
    `find_unused_parameters=True` these parameters, which the outer graph does not have, were marked as unused before; where
    two checkpoints hold the same module, they become ready in each. In both cases backward raises.

    How it is found: The graph has nodes of a reentrant checkpoint, and the model is wrapped with
    `find_unused_parameters=True`; or backward has raised that message.

    What to do: Give `use_reentrant=False` to `torch.utils.checkpoint`. Where that cannot be changed, leave
    `find_unused_parameters` out, or give `static_graph=True`.

    When to ignore it: Never: backward raises.

    ```python
    import torch
    import torch.distributed as dist
    from torch.utils.checkpoint import checkpoint


    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.second(checkpoint(self.first, x, use_reentrant=True))


    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=True)
    loss = model(torch.ones(2, 4, requires_grad=True)).sum()
    loss.backward()
    ```
    """
    raised = context.raised
    said = raised is not None and "ready only once" in raised.text
    graph = context.graph
    wrapped = graph.process.wrapped if graph.process is not None else ""
    inside = [node.id for node in graph.nodes if "checkpoint" in node.flags]
    if not (said or (inside and "find_unused_parameters" in wrapped)):
        return
    source = own_line(graph.nodes[inside[0]]) if inside else raised.source if raised is not None else None
    why = (
        [f"{title(graph, inside[0])} is a reentrant checkpoint, whose backward makes its parameters ready"]
        if inside
        else []
    )
    why += [f"the model is a {wrapped}, which has marked them as unused already"] if "find_unused" in wrapped else []
    why += [f"backward raised {raised.kind}: {one_line(raised.text.splitlines()[0])[:120]}"] if said and raised else []
    yield Diagnosis(
        "backward marks parameters inside a reentrant checkpoint as ready twice",
        (),
        ", ".join(filter(None, (place(graph, inside[0]) if inside else line(source),))),
        "; ".join(why),
        "Give use_reentrant=False to torch.utils.checkpoint. If that cannot be changed, leave find_unused_parameters=True out, or "
        "give static_graph=True to DistributedDataParallel.",
        nodes=tuple(inside),
        source=source,
    )
