"""What would make more fit, each with its bytes: the same allocations replayed, some of them freed earlier or smaller."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.memory.fit.trace import Forecast, Trace
from gradviz.wording import plural

_LEAST = 0.01
"""The share of the peak that a change must save to be worth a line."""
Largest = Callable[[Forecast], "int | None"]


class Saving(NamedTuple):
    """One change: what to do and what it costs, the peak with it, the bytes saved and the largest batch, where that is known."""

    what: str
    cost: str
    peak: int
    saves: int
    largest: int | None


def changes(sizes: Forecast, batch: int, largest: Largest | None, autocast: Forecast | None) -> list[Saving]:
    """Those that save something, the cheapest first."""
    before = sizes.peak(batch)
    found = []
    for what, cost, other, times in _candidates(sizes, batch, autocast, largest is not None):
        peak = other.peak(-(-batch // times))
        if before - peak >= _LEAST * before:
            most = largest(other) if largest is not None else None
            found.append(Saving(what, cost, peak, before - peak, None if most is None else most * times))
    return found


def _candidates(
    sizes: Forecast, batch: int, autocast: Forecast | None, varies: bool
) -> Iterator[tuple[str, str, Forecast, int]]:
    yield "optimizer.zero_grad(set_to_none=True) right after optimizer.step()", "nothing", _early_freed(sizes), 1
    plans = [(other.peak(batch), what, other) for what, other in _checkpoints(sizes)]
    if plans:
        _, what, other = min(plans, key=lambda plan: plan[:2])
        yield what, "computes them again in backward", other, 1
    if varies and batch > 1:
        yield "accumulate gradients over 2 batches of half the size", "BatchNorm sees half", _accumulated(sizes), 2
    if autocast is not None:
        yield "torch.autocast(dtype=torch.bfloat16) around the forward pass", "less precise", autocast, 1
    state = np.array([kind == "optimizer" for kind in sizes.kinds], dtype=bool)
    if state.any():
        yield (
            "Adafactor in place of this optimizer",
            "trains differently",
            _with_state(sizes, state, _factored(sizes)),
            1,
        )
        yield "SGD without momentum in place of this optimizer", "trains differently", _with_state(sizes, state, 0), 1


# -- gradients ---------------------------------------------------------------------------------------------------------


Span = tuple[int, int, "int | None"]


def _spans(sizes: Forecast, kind: str) -> Iterator[Span]:
    """Storages of a kind, each with the events at which it is made and freed."""
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


def _checkpoints(sizes: Forecast) -> Iterator[tuple[str, Forecast]]:
    """For each series of modules: what is held only inside them is freed at their end, and made again when backward comes."""
    trace = sizes.trace
    held = [span for span in _spans(sizes, "activations") if trace.storages[span[0]].call >= 0]
    series = defaultdict[tuple[str, str], set[int]](set)
    for number, call in enumerate(trace.calls):
        if call.path and call.backward >= call.ended >= 0:
            series[re.sub(r"\d+", "*", call.path), call.type].add(number)
    for (path, type), calls in series.items():
        insert, drop = _recomputed(trace, held, calls)
        if insert:
            modules = plural(len({trace.calls[number].path for number in calls}), type)
            yield f"checkpoint {path} ({modules})", sizes.changed(insert, drop)


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


# -- the optimizer -----------------------------------------------------------------------------------------------------


def _with_state(sizes: Forecast, state: NDArray[np.bool_], nbytes: int) -> Forecast:
    """The first tensor of the state has all its bytes."""
    dims = sizes.dims.copy()
    dims[state, 0] = 0
    dims[int(state.argmax())] = [nbytes, *[1] * (dims.shape[1] - 1)]
    return replace(sizes, dims=dims)


def _factored(sizes: Forecast) -> int:
    """A row and a column in float32 for each matrix, as Adafactor keeps them, and a whole vector for each vector."""
    shapes = [sizes.trace.storages[i].shape or () for i, kind in enumerate(sizes.kinds) if kind == "parameters"]
    return sum(
        4 * sum(prod(shape) // side for side in shape[-2:]) if len(shape) > 1 else 4 * prod(shape) for shape in shapes
    )
