"""Checks on what ends a launch of several ranks: one that is gone, and a backward that DistributedDataParallel cannot bear."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.collectives import NOT_COLLECTIVE
from gradviz.checks.words import line, made_at, title, where as place
from gradviz.graph import CollectiveCall
from gradviz.rank import named
from gradviz.wording import clip, one_line, plural

if TYPE_CHECKING:
    from gradviz.ranks.rendezvous import RankEnd
    from gradviz.ranks.reporter import Together


# -- missing-rank ------------------------------------------------------------------------------------------------------


@check("missing-rank", "error", "a rank raised, died or never began, and others wait for it", ranks=2)
def missing_rank(context: CheckContext) -> Diagnoses:
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
    together = context.ranks
    gone = _gone(together) if together is not None else {}
    if together is None or not gone:
        return
    first = _first_gone(together, gone)
    waiting = _others(together, gone, first)
    end, last = gone[first], together.last_call(first)
    what, fix = _told(together, first)
    source = end.source or (last and last.source)
    after = ""
    if last is not None and last.ended:
        after = f"; its last call of torch.distributed was {last.op} at {line(last.source)}"
    yield Diagnosis(
        f"rank {first} {what}" + (f", and {plural(len(waiting), 'other')} waited for it" if waiting else ""),
        (),
        "; ".join([*waiting, f"rank {first} left no result{after}"]),
        fix.format(rank=first, place=f" after {line(source)}" if source is not None else ""),
        where=f"rank {first}" + (f": {line(source)}" if source is not None else ""),
        source=source,
    )


def _gone(together: Together) -> dict[int, RankEnd]:
    """The ranks that raised, died or never began. A fault that all ranks have makes none of them missing."""
    gone = {rank: end for rank, end in together.ends.items() if end.failed or end.state in ("died", "absent")}
    same = {end.failed for end in gone.values()}
    return {} if len(gone) == len(together.ends) > 1 and len(same) == 1 and same != {""} else gone


def _first_gone(together: Together, gone: Mapping[int, RankEnd]) -> int:
    """The rank that the others waited for: late, or first to go. Of those that were told to end, one that was in no call."""

    def place(rank: int) -> tuple[object, ...]:
        end = gone[rank]
        waited = end.signal == signal.SIGTERM and _inside(together, rank) is not None
        return end.state != "absent", not end.late, waited, bool(_LOST.search(end.failed)), end.order, rank

    return min(gone, key=place)


def _inside(together: Together, rank: int) -> CollectiveCall | None:
    """The call of torch.distributed in which a rank is, or was when it ended."""
    last = together.last_call(rank)
    return last if last is not None and not last.ended else None


def _others(together: Together, gone: Mapping[int, RankEnd], first: int) -> list[str]:
    """What the other ranks did meanwhile."""
    said = [
        f"rank {rank} {'waits' if together.ends[rank].state == 'stuck' else 'was'} in {call.op} at {line(call.source)}"
        for rank in together.ends
        if rank != first and (call := _inside(together, rank)) is not None
    ]
    followed = [rank for rank in gone if rank != first and gone[rank].failed]
    if followed:
        said.append(f"{named(followed)} then failed: {clip(gone[followed[0]].failed, 100)}")
    return said


_Told = tuple[str, str]
"""How a rank ended, and what to do: `{rank}`, and ` after line 18` as `{place}`."""
_BY_SIGNAL: dict[int, _Told] = {
    0: (
        "died without a word",
        "See why the process of rank {rank} ended: a process that is killed without a word mostly ran out of memory.",
    ),
    signal.SIGKILL: (
        "was killed (SIGKILL)",
        "Look at the memory of the machine: a process that gets SIGKILL has mostly run out of it.",
    ),
    signal.SIGTERM: (
        "was told to end (SIGTERM)",
        "Find out what ended the launch, such as a scheduler's limit of time.",
    ),
}
_HUNG = (
    "did not make its next call before the launch was ended",
    "See what rank {rank} does{place}: while it hangs, `py-spy dump --pid PROCESS` shows where it is.",
)


def _told(together: Together, rank: int) -> _Told:
    end, call = together.ends[rank], _inside(together, rank)
    inside = f" in {call.op}" if call is not None else ""
    if end.failed:
        return f"raised {clip(end.failed, 120)}{inside}", "Fix what ends rank {rank}."
    if end.state == "absent":
        return "never began", _BY_SIGNAL[0][1]
    alone = _never_called(together, rank, call)
    if call is not None and alone:
        fix = f"Call {call.op} on every rank or on none: all ranks must make the same calls in the same order."
        return f"ended in {call.op}, which {named(alone)} did not call", fix
    waited_for = end.signal == signal.SIGTERM and any(_inside(together, other) for other in together.ends)
    if call is None and (waited_for or (end.late and not end.signal)):
        return _HUNG
    name = signal.Signals(end.signal).name if end.signal in set(signal.Signals) else f"signal {end.signal}"
    by_another = f"was ended by {name}", "Read what rank {rank} printed last: code below Python ended it."
    what, fix = _BY_SIGNAL.get(end.signal, by_another)
    return what + inside, fix


def _never_called(together: Together, rank: int, call: CollectiveCall | None) -> list[int]:
    """The ranks that made fewer calls of this kind and can make no more."""
    if call is None or call.op in NOT_COLLECTIVE or call.group:
        return []
    count = {of: sum(made.op == call.op for made in calls) for of, calls in together.calls.items()}
    ends = together.ends
    return [of for of in ends if ends[of].failed and _LOST.search(ends[of].failed) and count.get(of, 0) < count[rank]]


_LOST = re.compile(r"Connection (reset|closed)|Read error|remote worker|connection was|NCCL|Broken pipe")
"""How a rank says that it failed because it lost another one."""


# -- ready-twice -------------------------------------------------------------------------------------------------------


@check("ready-twice", "error", "a reentrant checkpoint makes DistributedDataParallel count a gradient twice", ranks=1)
def ready_twice(context: CheckContext) -> Diagnoses:
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
    raised = context.record.raised
    said = raised is not None and "ready only once" in raised.text
    graph = context.graph
    wrapped = graph.process.wrapped if graph.process is not None else ""
    inside = [node.id for node in graph.nodes if "checkpoint" in node.flags]
    if not (said or (inside and "find_unused_parameters" in wrapped)):
        return
    source = made_at(graph, inside[0]) if inside else raised.source if raised is not None else None
    why = []
    if inside:
        why.append(f"{title(graph, inside[0])} is a reentrant checkpoint, whose backward makes its parameters ready")
    if "find_unused" in wrapped:
        why.append(f"the model is a {wrapped}, which has marked them as unused already")
    if raised is not None and said:
        why.append(f"backward raised {raised.kind}: {one_line(raised.text.splitlines()[0])[:120]}")
    yield Diagnosis(
        "backward marks parameters inside a reentrant checkpoint as ready twice",
        (),
        "; ".join(why),
        "Give use_reentrant=False to torch.utils.checkpoint. If that cannot be changed, leave find_unused_parameters=True out, or "
        "give static_graph=True to DistributedDataParallel.",
        where=place(graph, inside[0]) if inside else line(source),
        nodes=tuple(inside),
        source=source,
    )
