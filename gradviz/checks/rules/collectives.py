"""The check on the calls of torch.distributed that several ranks make: collectives in one order, messages as they are received."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, line, verb
from gradviz.graph import CollectiveCall
from gradviz.graph.amounts import known_elements
from gradviz.rank import Ranks, named
from gradviz.wording import plural, tensor_line

if TYPE_CHECKING:
    from gradviz.ranks.reporter import Together


# -- collective-order --------------------------------------------------------------------------------------------------

_SENDS, RECEIVES = {"send", "isend", "send_object_list"}, {"recv", "irecv", "recv_object_list"}
_MESSAGES = _SENDS | RECEIVES
NOT_COLLECTIVE = _MESSAGES | {"backward", "wait", "init_process_group", "destroy_process_group", "batch_isend_irecv"}
_SAME_SHAPE = {"all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor"}
_SAME_PEER = {"broadcast", "reduce", "scatter", "gather"}
_SAME_PEER |= {"broadcast_object_list", "scatter_object_list", "gather_object"}


@check("collective-order", "error", "ranks call other collectives or messages, or call them in another order", ranks=2)
def collective_order(context: CheckContext) -> Diagnoses:
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
    together = context.ranks
    if together is None:
        return
    groups: dict[Ranks, dict[int, list[CollectiveCall]]] = {}
    for rank, calls in together.calls.items():
        for call in calls:
            if call.op not in NOT_COLLECTIVE:
                group = call.group or tuple(sorted(together.calls))
                groups.setdefault(group, {}).setdefault(rank, []).append(call)
    compared = [
        _first_difference(together, {rank: made.get(rank, []) for rank in members if rank in together.calls})
        for members, made in groups.items()
    ]
    differing = list(filter(None, compared))
    yield from differing
    yield from _wrong_messages(together, also_lost=not differing)


def _first_difference(together: Together, calls: dict[int, list[CollectiveCall]]) -> Diagnosis | None:
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


def _kind(call: CollectiveCall) -> tuple[object, ...]:
    """What must be the same on all ranks."""
    tensor = call.tensor
    return (
        call.op,
        call.peer if call.op in _SAME_PEER else None,
        tensor.dtype if tensor is not None else None,
        tensor.shape if tensor is not None and call.op in _SAME_SHAPE else None,
    )


def _differing(
    number: int, calls: dict[int, list[CollectiveCall]], ways: list[list[int]], silent: list[int]
) -> Diagnosis:
    made = {named(ranks): calls[ranks[0]][number - 1] for ranks in ways}
    said = [f"{named(ranks)} {verb(ranks, 'calls', 'call')} {_call(made[named(ranks)])}" for ranks in ways]
    if silent:
        said.append(f"{named(silent)} {verb(silent, 'makes', 'make')} no such call")
    return Diagnosis(
        f"collective {number} is not the same on all ranks: {'; '.join(said)}",
        (),
        "; ".join(f"{who}: {code(call.source)}" for who, call in made.items())
        + f"; the {plural(number - 1, 'call')} before {verb(number - 1, 'is', 'are')} the same" * (number > 1),
        "Call the same collectives in the same order on every rank: take the call out of the condition, or make the condition the "
        "same everywhere.",
        where="; ".join(f"{who}: {line(call.source)}" for who, call in made.items()),
        source=calls[min(ways, key=len)[0]][number - 1].source,
    )


class _RankPair(NamedTuple):
    """What one rank sends to another, and that receives from it, with one group and one tag, in order."""

    sender: int
    receiver: int
    sent: list[CollectiveCall]
    received: list[CollectiveCall]

    @property
    def fitting(self) -> int:
        """Messages before the first one that is not what receives it."""
        both = list(zip(self.sent, self.received))
        return next((i for i, (sent, received) in enumerate(both) if not _fits(sent, received)), len(both))

    @property
    def both(self) -> int:
        """Messages that the one sends and the other receives."""
        return min(len(self.sent), len(self.received))

    @property
    def lone(self) -> tuple[int, int]:
        """The rank that sends, or waits for, a message of which the other rank knows nothing, and that other rank."""
        sends = len(self.sent) > len(self.received)
        return (self.sender, self.receiver) if sends else (self.receiver, self.sender)


def _pairs(together: Together) -> list[_RankPair]:
    pairs: dict[tuple[object, ...], _RankPair] = {}
    from_anyone: set[int] = set()
    for rank, calls in together.calls.items():
        for call in calls:
            if call.op in _MESSAGES and call.peer is None:
                from_anyone.add(rank)
            elif call.op in _MESSAGES and call.peer is not None:
                sends = call.op in _SENDS
                ends = (rank, call.peer) if sends else (call.peer, rank)
                pair = pairs.setdefault((*ends, call.group, call.tag), _RankPair(*ends, [], []))
                (pair.sent if sends else pair.received).append(call)
    known = together.calls.keys()
    return [
        pair
        for _, pair in sorted(pairs.items())
        if pair.receiver not in from_anyone and {pair.sender, pair.receiver} <= known
    ]


def _fits(sent: CollectiveCall, received: CollectiveCall) -> bool:
    """Whether a message is what the other rank receives, as far as is known."""
    if ("object" in sent.op) != ("object" in received.op):
        return False
    ours, theirs = sent.tensor, received.tensor
    if ours is None or theirs is None:
        return True
    counts = {known_elements(tensor) for tensor in (ours, theirs) if tensor.shape is not None}
    return ours.dtype == theirs.dtype and len(counts) < 2


def _wrong_messages(together: Together, *, also_lost: bool) -> Diagnoses:
    """One finding for each two ranks whose messages do not fit, else one for a message that is waited for in vain."""
    pairs = _pairs(together)
    unlike = [pair for pair in pairs if pair.fitting < pair.both]
    yield from (_unlike(pair) for pair in {(pair.sender, pair.receiver): pair for pair in reversed(unlike)}.values())
    failed = any(end.failed or end.state in ("died", "absent", "running") for end in together.ends.values())
    if unlike or failed or not also_lost:
        return  # who waits then, waits because of that
    in_vain = [pair for pair in pairs if len(pair.sent) != len(pair.received) and _never(together, *pair.lone)]
    in_vain.sort(key=lambda pair: not together.ends[pair.lone[1]].whole)  # others wait for those who wait themselves
    yield from (_lost_message(together, pair) for pair in in_vain[:1])


def _unlike(pair: _RankPair) -> Diagnosis:
    before = pair.fitting
    sent, received = pair.sent[before], pair.received[before]
    return Diagnosis(
        f"message {before + 1} from rank {pair.sender} to rank {pair.receiver} is not what that receives: "
        f"{_call(sent)} against {_call(received)}",
        (),
        f"rank {pair.sender}: {code(sent.source)}; rank {pair.receiver}: {code(received.source)}"
        + f"; the {plural(before, 'message')} before {verb(before, 'fits', 'fit')}" * (before > 0),
        "Receive messages in the order in which they are sent, into tensors of the same size and dtype, or give each kind a "
        "tag of its own.",
        where=f"rank {pair.sender}: {line(sent.source)}; rank {pair.receiver}: {line(received.source)}",
        source=received.source,
    )


def _never(together: Together, caller: int, other: int) -> bool:
    """Whether it is known that the other rank never receives or sends a message: its caller waits, or its script has ended."""
    return together.ends[caller].state == "stuck" or together.ends[other].whole


def _lost_message(together: Together, pair: _RankPair) -> Diagnosis:
    (caller, other), before = pair.lone, pair.both
    sends = caller == pair.sender
    lost = (pair.sent if sends else pair.received)[before]
    last = together.last_call(other)
    if together.ends[other].state == "stuck" and last is not None:
        instead, there = f"rank {other} waits in {_call(last)} at {line(last.source)}", last.source
    else:
        instead, there = f"the script of rank {other} has ended", None
    return Diagnosis(
        f"rank {pair.sender} sends rank {pair.receiver} a message that is never received"
        if sends
        else f"rank {pair.receiver} waits for a message that rank {pair.sender} never sends",
        (),
        f"{code(lost.source)}: {_call(lost)}; {instead}"
        + f"; {plural(before, 'message')} before {verb(before, 'was', 'were')} received" * (before > 0),
        f"Call {'recv' if sends else 'send'} on rank {other} for each {'send' if sends else 'recv'} of the other, with the same "
        "group and tag. Where two ranks exchange, let one send first and the other receive, or give both to "
        "batch_isend_irecv().",
        where=f"rank {caller}: {line(lost.source)}" + (f"; rank {other}: {line(there)}" if there is not None else ""),
        source=lost.source,
    )


def _call(call: CollectiveCall) -> str:
    tensor = f" of {tensor_line(call.tensor)}" if call.tensor is not None else ""
    word = ", to rank" if call.op in _SENDS else ", from rank" if call.op in RECEIVES else ", rank"
    peer = f"{word} {call.peer}" if call.peer is not None else ""
    return f"{call.op}{tensor}{peer}" + (f", tag {call.tag}" if call.tag else "")
