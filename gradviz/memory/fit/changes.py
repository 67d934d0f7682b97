"""What would make more fit, each with its bytes: the same allocations replayed, some of them freed earlier or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.graph import Graph
from gradviz.graph.amounts import why_not_shown
from gradviz.graph.origins import ScopeTree
from gradviz.memory.checkpoint import Advice, checkpoint_plan, titles
from gradviz.memory.fit.trace import Forecast, Trace
from gradviz.wording import few

_LEAST = 0.01
"""The share of the peak that a change must save to be worth a line."""
_NAMED = 8
Largest = Callable[[Forecast], "int | None"]
Span = tuple[int, int, "int | None"]
"""A storage, and the events at which it is made and freed."""


class Saving(NamedTuple):
    """One change: what to do and what it costs, the peak with it, the bytes saved and the largest batch, where that is known."""

    what: str
    cost: str
    peak: int
    saves: int
    largest: int | None


def changes(
    sizes: Forecast,
    graph: Graph | None,
    batch: int,
    limit: int,
    largest: Largest | None,
    autocast: Forecast | None = None,
) -> list[Saving]:
    """Those that save something, the cheapest first. `graph` is that of a step of the trace, `autocast` what ran under that."""
    before = sizes.peak(batch)
    found = []
    for what, cost, other, times in _candidates(sizes, graph, batch, limit, largest is not None, autocast):
        peak = other.peak(-(-batch // times))
        if before - peak >= _LEAST * before:
            most = largest(other) if largest is not None else None
            found.append(Saving(what, cost, peak, before - peak, None if most is None else most * times))
    return found


def _candidates(
    sizes: Forecast, graph: Graph | None, batch: int, limit: int, varies: bool, autocast: Forecast | None
) -> Iterator[tuple[str, str, Forecast, int]]:
    yield "optimizer.zero_grad(set_to_none=True) right after optimizer.step()", "nothing", _early_freed(sizes), 1
    if graph is not None and not why_not_shown(graph) and any(node.scope is not None for node in graph.nodes):
        plan = _plan(sizes, graph, batch, limit)
        modules = few(titles(plan), _NAMED)
        yield f"checkpoint {modules}", f"recomputes {plan.again} of {plan.ops} ops", _wrapped(sizes, graph, plan), 1
    if varies and batch > 1:
        normed = any("BatchNorm" in call.type for call in sizes.trace.calls)
        cost = "BatchNorm sees half a batch" if normed else "smaller kernels"
        yield "accumulate gradients over 2 batches of half the size", cost, _accumulated(sizes), 2
    if autocast is not None:
        yield "torch.autocast(dtype=torch.bfloat16) around the forward pass", "less precise", autocast, 1
    state = np.array([kind == "optimizer" for kind in sizes.kinds], dtype=bool)
    without = replace(sizes, dims=np.where(state[:, None], 0, sizes.dims))
    yield "an optimizer without state: SGD without momentum", "trains differently", without, 1


def _spans(sizes: Forecast, kind: str) -> Iterator[Span]:
    """Storages of a kind."""
    freed = {~int(event): i for i, event in enumerate(sizes.trace.events) if event < 0}
    for i, event in enumerate(map(int, sizes.trace.events)):
        if event >= 0 and sizes.kinds[event] == kind:
            yield event, i, freed.get(event)


def _early_freed(sizes: Forecast) -> Forecast:
    """Gradients that outlive a step are freed at its end, and made again where backward made them the first time."""
    trace, insert, drop = sizes.trace, list[tuple[int, int]](), set[int]()
    for end in (at for (_, before), (at, _) in pairwise(trace.phases) if before == "step"):
        following, over = _next_backward(trace, end)
        for storage, born, freed in _spans(sizes, "gradients"):
            if over and born < end and (freed is None or freed > end):
                insert.append((end, ~storage))
                if freed is not None and freed <= following:
                    drop.add(freed)
                else:
                    first = max((at for at, name in trace.phases if name == "backward" and at <= born), default=born)
                    insert.append((min(following + born - first, over), storage))
    return sizes.changed(insert, drop)


def _next_backward(trace: Trace, event: int) -> tuple[int, int]:
    """The events at which the next backward begins and ends; twice 0 where none follows."""
    ends = [*(at for at, _ in trace.phases[1:]), len(trace.events)]
    spans = ((at, end) for (at, name), end in zip(trace.phases, ends) if name == "backward" and at >= event)
    return next(spans, (0, 0))


def _accumulated(sizes: Forecast) -> Forecast:
    """Gradients of the first backward stay; those of later ones are added to them at once."""
    backwards = [at for at, name in sizes.trace.phases if name == "backward"]
    insert, drop = [], set[int]()
    for storage, born, freed in _spans(sizes, "gradients"):
        drop |= {freed} if freed is not None else set()
        if len(backwards) > 1 and born >= backwards[1]:
            insert.append((born + 1, ~storage))
    return sizes.changed(insert, drop)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def _plan(sizes: Forecast, graph: Graph, batch: int, limit: int) -> Advice:
    """The modules to wrap so that the peak is within the limit, or half as much is saved where it is."""
    peak = sizes.moment(batch)
    held = max(peak.kinds["activations"], 1)
    share = 0.5 if peak.total <= limit else 1 - (peak.total - limit) / held
    before = checkpoint_plan(graph, 2**62).before
    return checkpoint_plan(graph, max(int(before * share), 1))


def _wrapped(sizes: Forecast, graph: Graph, plan: Advice) -> Forecast:
    """What is held only inside the modules of a plan is freed at their end, and made again when backward comes to them."""
    trace, tree, wanted = sizes.trace, ScopeTree(graph), {step.path for step in plan.steps}
    inside = set()
    for i, scope in enumerate(graph.scopes):
        if scope.path in wanted:
            root = graph.scopes[[*tree.around(i)][-1]]
            inside.add((scope.path.removeprefix(root.path).lstrip("."), scope.type))
    calls = {
        i for i, call in enumerate(trace.calls) if (call.path, call.type) in inside and call.backward >= call.ended >= 0
    }
    held = [span for span in _spans(sizes, "activations") if trace.storages[span[0]].call >= 0]
    return sizes.changed(*_recomputed(trace, held, calls))


def _recomputed(trace: Trace, held: Sequence[Span], calls: set[int]) -> tuple[list[tuple[int, int]], set[int]]:
    insert, drop = [], set[int]()
    for storage, _, freed in held:
        number = trace.within(trace.storages[storage].call, calls)
        call = trace.calls[number]
        if number < 0 or storage in call.outputs:
            continue
        if freed is None or freed > call.backward:
            insert += [(call.ended, ~storage), (call.backward, storage)]
        elif freed > call.ended:
            insert.append((call.ended, ~storage))
            drop.add(freed)
    return insert, drop
