"""The peak of a script's training step, and the largest batch that fits, from what children noted.

Decides which runs are needed and says what they cannot see. The numbers come from `trace`, the words from `table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradviz.errors import TargetError
from gradviz.graph.files import loads
from gradviz.memory.fit.changes import Saving, changes
from gradviz.memory.fit.runs import ChildFailed, Folder, Specification, copied_folder
from gradviz.memory.fit.trace import BLOCK, PHASES, Forecast, Moment, Trace, one_run, read, two_runs
from gradviz.report.results import displayed

BATCHES = (8, 16)
MARGIN, WIDE_MARGIN = 0.1, 0.2
_WORKSPACES = ("convolution", "rnn", "lstm")
_MOST = 2**24
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "MemoryError", "SIGKILL")


@dataclass(frozen=True)
@displayed("gradviz.memory.fit.table.fit_table")
class Prediction:
    """Bytes of a training step at `batch`, which is the script's own `now` where that is known.

    `limit` is the memory without the margin. `largest` is None where no batch can be varied or any fits; `why` says so.
    """

    sizes: Forecast
    batch: int
    now: int | None
    memory: int
    limit: int
    largest: int | None
    why: str
    changes: Sequence[Saving]
    notes: Sequence[str]

    @property
    def peak(self) -> Moment:
        """What is live when most is."""
        return self.sizes.moment(self.batch)

    @property
    def phases(self) -> dict[str, Moment]:
        """The same for each part of the step."""
        names = {name for _, name in self.sizes.trace.phases}
        return {name: self.sizes.moment(self.batch, name) for name in PHASES if name in names}

    @property
    def fits(self) -> bool:
        """Whether the peak is within the limit."""
        return self.peak.total <= self.limit


def predict(wanted: Specification, memory: int, *, margin: float | None = None, once: bool = False) -> Prediction:
    """Run the script in children and predict. `margin` is the share of the memory to leave for what is not seen.

    Raises ChildFailed when it fails there, TargetError when it has no batch of the name that is wanted.
    """
    with copied_folder() as folder:
        pair, told, wanted = _told(folder, wanted, once)
        sizes = _sizes(told, pair, wanted)
        autocast = None if once or told[-1]["notes"]["autocast"] else _with_autocast(folder, wanted, pair)
        changed = folder.changed()
    why = _why_no_batch(sizes, pair, wanted, once)
    now = told[-1]["now"]
    batch = now if now is not None and pair else pair[1] if pair else 0
    allocating = _allocating(sizes.trace, wanted)
    if margin is None:
        margin = WIDE_MARGIN if allocating else MARGIN
    limit = int(memory * (1 - margin))
    largest = None if why else largest_batch(sizes, limit)
    if not why and largest is None:
        why = f"the peak at batch {_MOST:,} is below the limit"
    graph = loads(told[-1]["notes"]["graph"]) if told[-1]["notes"]["graph"] else None
    found = changes(sizes, graph, batch, limit, None if why else lambda other: largest_batch(other, limit), autocast)
    notes = [
        *_notes(sizes, wanted, pair, now, allocating),
        *(f"the script changed {path}, which was linked" for path in changed),
    ]
    return Prediction(sizes, batch, now, memory, limit, largest, why, found, notes)


def largest_batch(sizes: Forecast, limit: int) -> int | None:
    """The largest batch whose peak is within the limit; 0 where none is, None where any is."""
    low, high = 0, 1
    while sizes.peak(high) <= limit:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sizes.peak(middle) <= limit else (low, middle)
    return low


def _told(
    folder: Folder, wanted: Specification, once: bool
) -> tuple[tuple[int, int] | None, list[dict[str, Any]], Specification]:
    """What children noted at two batches, or one at the script's own; with fake tensors where real ones take too much."""
    pair = None if once else BATCHES
    runs = [wanted] if pair is None else [replace(wanted, batch=batch) for batch in pair]
    try:
        told = folder.run(runs)
    except ChildFailed as error:
        if wanted.fake or not any(words in str(error) for words in _NO_MEMORY):
            raise
        wanted = replace(wanted, fake=True)
        told = folder.run([replace(run, fake=True) for run in runs])
    if not all(one["met"] for one in told) and not wanted.name.startswith("-"):
        if wanted.name:
            raise TargetError(
                f"{wanted.target.short} assigns no {wanted.name!r}. Name an option, such as --batch=--batch-size."
            )
        return None, told[-1:], wanted
    return pair, told, wanted


def _sizes(told: Sequence[dict[str, Any]], pair: tuple[int, int] | None, wanted: Specification) -> Forecast:
    traces = [read(one["notes"]) for one in told]
    _refuse_no_step(wanted, traces[-1])
    block = BLOCK if wanted.gpu else 1
    return one_run(traces[-1], block) if pair is None else two_runs(traces[0], traces[1], pair, block)


def _with_autocast(folder: Folder, wanted: Specification, pair: tuple[int, int] | None) -> Forecast | None:
    """The same runs under autocast; None where the script does not run so."""
    try:
        runs = [replace(wanted, autocast=True, batch=batch) for batch in pair or (None,)]
        return _sizes(folder.run(runs), pair, wanted)
    except ChildFailed:
        return None


def _allocating(trace: Trace, wanted: Specification) -> bool:
    """Whether kernels ran that allocate workspaces on a CPU, which no tensor shows."""
    return not wanted.gpu and any(word in storage.op for storage in trace.storages for word in _WORKSPACES)


def _refuse_no_step(wanted: Specification, trace: Trace) -> None:
    if all(name in ("setup", "forward") for _, name in trace.phases):
        raise TargetError(
            f"{wanted.target.short} ended without backward() and without an optimizer step: nothing is trained."
        )


def _why_no_batch(sizes: Forecast, pair: tuple[int, int] | None, wanted: Specification, once: bool) -> str:
    if once:
        return "--once allows one run, and a batch needs two"
    if pair is None:
        return "the script makes no DataLoader with a batch_size: give --batch NAME, a name that it assigns or an option of its own"
    if not sizes.slopes.any():
        return f"the bytes do not depend on {wanted.name or 'batch_size of the first DataLoader'}"
    return ""


def _notes(
    sizes: Forecast, wanted: Specification, pair: tuple[int, int] | None, now: int | None, allocating: bool
) -> Iterator[str]:
    tensors = "fake tensors" if wanted.fake else "real tensors"
    if pair is None:
        yield f"measured in one run with {tensors}"
    else:
        yield f"measured at batch {pair[0]} and {pair[1]} with {tensors}; every size is a straight line in the batch"
        if now is None:
            yield f"the script's own batch is not known: bytes are those of batch {pair[1]}"
    if sizes.uneven:
        yield f"{sizes.uneven:,} tensors are made in a loop over samples: their number is a straight line, too"
    if sizes.trace.steps < 2:
        yield "the script ended before its second optimizer step"
    if allocating:
        yield (
            "convolutions and LSTMs allocate workspaces on a CPU, 9 to 18 % of the peak where it was measured: the margin is "
            f"{100 * WIDE_MARGIN:.0f} % unless given"
        )
    yield "not seen: workspaces of kernels (cuDNN, cuBLAS), fragmentation, the CUDA context, what torch.compile saves"
