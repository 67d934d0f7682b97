"""What was allocated and freed in a run, and the same at another batch: two runs of one script, storage by storage.

Of a storage that both runs made, every dimension is a straight line in the batch, so a batch x batch matrix is known, too.
Replaying the allocations gives the peak of any batch, and what is live then. Knows nothing of torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.graph import SourceLine

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KINDS = ("parameters", "buffers", "gradients", "optimizer", "activations", "data", "temporary")
PHASES = ("setup", "forward", "backward", "step")
BLOCK = 512
"""Bytes to which the allocator of a GPU rounds up."""


class Allocation(NamedTuple):
    """One storage as it was made. `phase` and `call` are numbers of the trace's; `call` is -1 outside every module."""

    nbytes: int
    itemsize: int
    shape: Sequence[int] | None
    device: str
    phase: int
    place: int
    call: int
    op: str
    kind: str


class Call(NamedTuple):
    """One call of a module: when it began and ended, and when backward first came to it, counted in events; -1 for never."""

    path: str
    type: str
    parent: int
    began: int
    ended: int
    backward: int
    outputs: Sequence[int]


@dataclass(frozen=True)
class Trace:
    """One run. An event is the number of a storage that is made, or its complement when it is freed."""

    storages: Sequence[Allocation]
    events: Ints
    phases: Sequence[tuple[int, str]]
    places: Sequence[SourceLine | None]
    calls: Sequence[Call]
    steps: int

    @cached_property
    def device(self) -> str:
        """The device that is looked at: the first that is no CPU, else the CPU."""
        return next((storage.device for storage in self.storages if not storage.device.startswith("cpu")), "cpu")

    def place_of(self, storage: int) -> SourceLine | None:
        """The line that made a storage."""
        return self.places[self.storages[storage].place]

    def within(self, call: int, chosen: set[int]) -> int:
        """The call of `chosen` that a call is in or is, -1 where there is none."""
        while call >= 0 and call not in chosen:
            call = self.calls[call].parent
        return call


def read(notes: dict[str, Any]) -> Trace:
    """The trace in what a child noted."""
    phases = [(at, name) for at, name in notes["phases"]]
    if len(phases) > 1 and phases[1][1] == "backward":  # no module was called before
        phases[0] = (0, "forward")
    return Trace(
        [Allocation(*facts) for facts in notes["storages"]],
        np.array(notes["events"], dtype=np.int64),
        phases,
        [SourceLine(**place) if place else None for place in notes["places"]],
        [Call(**call) for call in notes["calls"]],
        notes["steps"],
    )


@dataclass(frozen=True)
class Moment:
    """The most that is held at once: bytes by kind, and the storages that are live, the one that was made last among them."""

    total: int
    kinds: dict[str, int]
    last: int
    live: Sequence[int]
    phase: str


@dataclass(frozen=True)
class Forecast:
    """Bytes of each storage of a trace by batch, a product of straight lines. `uneven` counts those made in loops over samples."""

    trace: Trace
    kinds: Sequence[str]
    at: int
    dims: Floats
    slopes: Floats
    block: int
    uneven: int = 0

    def nbytes(self, batch: int) -> Ints:
        """Bytes of the storages at this batch, 0 for other devices."""
        exact = np.maximum(self.dims + self.slopes * (batch - self.at), 0).prod(axis=1)
        rounded: Ints = (np.ceil(np.round(exact, 3) / self.block) * self.block).astype(np.int64)
        return rounded

    def peak(self, batch: int) -> int:
        """The most bytes at once."""
        return int(self._held(batch).max(initial=0))

    def moment(self, batch: int, phase: str = "") -> Moment:
        """What is live when most is, in the whole run or in one phase."""
        held = self._held(batch)
        at = int((np.where(self._in_phase(phase), held, -1) if phase else held).argmax())
        live: dict[int, None] = {}
        for event in map(int, self.trace.events[: at + 1]):
            if event >= 0:
                live[event] = None
            else:
                del live[~event]
        sizes, kinds = self.nbytes(batch), dict.fromkeys(KINDS, 0)
        for storage in live:
            kinds[self.kinds[storage]] += int(sizes[storage])
        last = next((event for event in map(int, self.trace.events[at::-1]) if event >= 0), 0)
        name = next(name for begin, name in reversed(self.trace.phases) if begin <= at)
        return Moment(sum(kinds.values()), kinds, last, list(live), name)

    def changed(self, insert: Iterable[tuple[int, int]], drop: Collection[int] = ()) -> Forecast:
        """The same with events inserted before others, given as pairs of number and event, and with events dropped."""
        kept = [(at, 1, event) for at, event in enumerate(map(int, self.trace.events)) if at not in drop]
        moved = sorted([*kept, *((at, 0, event) for at, event in insert)])
        phases = [(bisect_left(moved, (at,)), name) for at, name in self.trace.phases]
        events = np.array([event for _, _, event in moved], dtype=np.int64)
        return replace(self, trace=replace(self.trace, events=events, phases=phases))

    def _held(self, batch: int) -> Ints:
        events, sizes = self.trace.events, self.nbytes(batch)
        changes = sizes[np.maximum(events, ~events)]
        return np.cumsum(np.where(events >= 0, changes, -changes))

    def _in_phase(self, phase: str) -> NDArray[np.bool_]:
        inside = np.zeros(len(self.trace.events), dtype=bool)
        ends = [*(at for at, _ in self.trace.phases[1:]), len(inside)]
        for (begin, name), end in zip(self.trace.phases, ends):
            inside[begin:end] = name == phase
        return inside


def kinds_of(trace: Trace, varies: Sequence[bool]) -> list[str]:
    """The kind of each storage. An activation is still there when backward begins; data was there before the first forward."""
    backwards = [at for at, name in trace.phases if name == "backward"]
    first = next((at for at, name in trace.phases if name != "setup"), 0)
    born, freed = {}, dict[int, int]()
    for i, event in enumerate(map(int, trace.events)):
        if event >= 0:
            born[event] = i
        else:
            freed[~event] = i

    def kind(number: int, storage: Allocation) -> str:
        if storage.kind:
            return storage.kind
        held = any(born[number] <= at < freed.get(number, at + 1) for at in backwards)
        if not held or trace.phases[storage.phase][1] in ("backward", "step"):
            return "temporary"
        return "data" if born[number] < first and not varies[number] else "activations"

    return [kind(number, storage) for number, storage in enumerate(trace.storages)]


def one_run(trace: Trace, block: int) -> Forecast:
    """Forecast that no batch changes."""
    dims = np.array([[_counted(trace, storage)] for storage in trace.storages], dtype=float).reshape(-1, 1)
    return Forecast(trace, kinds_of(trace, [False] * len(dims)), 0, dims, np.zeros_like(dims), block)


def two_runs(small: Trace, large: Trace, batches: tuple[int, int], block: int) -> Forecast:
    """Forecast as lines through two runs. Storages are matched by line, module and op, in the order in which they were made.

    Where one run made more of them than the other, as code does that loops over samples, their number is a line, too.
    """
    known = defaultdict[object, list[Allocation]](list)
    counts = Counter(_key(large, storage) for storage in large.storages)
    for storage in small.storages:
        known[_key(small, storage)].append(storage)
    width = 2 + max((len(storage.shape or ()) for storage in large.storages), default=0)
    dims, slopes = np.ones((len(large.storages), width)), np.zeros((len(large.storages), width))
    seen, uneven = Counter[object](), 0
    for i, storage in enumerate(large.storages):
        key = _key(large, storage)
        others, count = known[key], counts[key]
        other = others[seen[key] * len(others) // count] if others else storage
        seen[key] += 1
        here, there = _lengths(storage, other)
        dims[i, : len(here)] = here
        slopes[i, : len(here)] = np.subtract(here, there)
        slopes[i, -1] = 1 - len(others) / count
        uneven += len(others) != count
        dims[i, 0] *= _counted(large, storage) > 0
    slopes[:, 0] = np.where(dims[:, 0] > 0, slopes[:, 0], 0)
    slopes /= batches[1] - batches[0]
    kinds = kinds_of(large, [bool(row.any()) for row in slopes])
    return Forecast(large, kinds, batches[1], dims, slopes, block, uneven)


def _key(trace: Trace, storage: Allocation) -> object:
    place = trace.places[storage.place]
    path = trace.calls[storage.call].path if storage.call >= 0 else ""
    return storage.phase, place and (place.file, place.line), path, storage.op, storage.kind


def _lengths(one: Allocation, other: Allocation) -> tuple[Sequence[int], Sequence[int]]:
    """What to multiply for the bytes of two storages that belong together: their shapes where these can be compared."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape) or one.itemsize != other.itemsize:
        return [one.nbytes], [other.nbytes]
    return [one.itemsize, *one.shape], [other.itemsize, *other.shape]


def _counted(trace: Trace, storage: Allocation) -> int:
    return storage.nbytes if storage.device == trace.device else 0
