"""Checks on what ends a launch of several ranks: one that is gone, and a backward that DistributedDataParallel cannot bear."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import line, title, where as place
from gradviz.graph.origins import own_line
from gradviz.rank import named
from gradviz.wording import clip, one_line, plural

if TYPE_CHECKING:
    pass


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
    if together is None:
        return
    gone = {rank: end for rank, end in together.ends.items() if end.failed or end.state in ("died", "absent")}
    same = {end.failed for end in gone.values()}
    if not gone or (len(gone) == len(together.ends) > 1 and len(same) == 1 and same != {""}):
        return  # a fault that all ranks have makes none of them missing
    first = min(
        gone,
        key=lambda rank: (gone[rank].state != "absent", bool(_LOST.search(gone[rank].failed)), gone[rank].order, rank),
    )
    end, last = gone[first], together.last_call(first)
    what = "never began" if end.state == "absent" else "died without a word"
    if end.failed:
        what = f"raised {clip(end.failed, 120)}"
    inside = f" in {last.op}" if last is not None and not last.ended else ""
    source = end.source or (last and last.source)
    waiting = [
        f"rank {rank} {'waits' if together.ends[rank].state == 'stuck' else 'was'} in {call.op} at {line(call.source)}"
        for rank in together.ends
        if rank != first and (call := together.last_call(rank)) is not None and not call.ended
    ]
    after = ""
    if last is not None and last.ended:
        after = f"; its last call of torch.distributed was {last.op} at {line(last.source)}"
    followed = [rank for rank in gone if rank != first and gone[rank].failed]
    if followed:
        waiting.append(f"{named(followed)} then failed: {clip(gone[followed[0]].failed, 100)}")
    yield Diagnosis(
        f"rank {first} {what}{inside}" + (f", and {plural(len(waiting), 'other')} waited for it" if waiting else ""),
        (),
        "; ".join([*waiting, f"rank {first} left no result{after}"]),
        f"Fix what ends rank {first}."
        if end.failed
        else f"See why the process of rank {first} ended: a process that is "
        "killed without a word mostly ran out of memory.",
        where=f"rank {first}" + (f": {line(source)}" if source is not None else ""),
        source=source,
    )


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
    raised = context.raised
    said = raised is not None and "ready only once" in raised.text
    graph = context.graph
    wrapped = graph.process.wrapped if graph.process is not None else ""
    inside = [node.id for node in graph.nodes if "checkpoint" in node.flags]
    if not (said or (inside and "find_unused_parameters" in wrapped)):
        return
    source = own_line(graph.nodes[inside[0]]) if inside else raised.source if raised is not None else None
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
