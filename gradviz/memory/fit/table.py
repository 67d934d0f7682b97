"""The prediction in words: whether it fits, bytes by phase and kind, the lines that hold most at the peak, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from gradviz.memory.fit.prediction import Prediction
from gradviz.memory.fit.trace import KINDS
from gradviz.report import labels
from gradviz.report.results import note_lines
from gradviz.report.table import Amount, Column, FittedTable
from gradviz.wording import bytes_text, clip, count_text, one_line, share

_LINES = 5
_STEP = {"setup": "setup", "forward": "forward", "backward": "backward", "step": "optimizer step"}
_CHANGES = (
    Column("saves", "number"),
    Column("peak", "number", leaves=2),
    Column("largest batch", "number", leaves=3),
    Column("to make more fit", "text"),
    Column("costs", "text", leaves=1),
)
_HELD = (
    Column("at the peak", "number"),
    Column("share", "number", leaves=2),
    Column("line", "name"),
    Column("module", "name", leaves=1),
    Column("code", "code"),
)


def fit_table(result: Prediction) -> RenderableType:
    """All of it, one part below the other."""
    parts: list[RenderableType] = [Text(line, style) for line, style in _outcome(result)]
    parts += [Text(), _phases(result), Text(), *_at_the_peak(result)]
    if result.changes:
        parts += [Text(), _changes(result)]
    return Group(*parts, Text(), *note_lines(result.notes))


def _outcome(result: Prediction) -> Iterator[tuple[str, str]]:
    peak = bytes_text(result.peak.total)
    batch = f" at batch {count_text(result.batch)}" if result.batch else ""
    fits = "fits in" if result.fits else "does not fit in"
    style = "bold green" if result.fits else "bold red"
    yield f"peak {peak}{batch}: {fits} {bytes_text(result.memory)} ({bytes_text(result.limit)} after the margin)", style
    if result.largest is not None:
        yield f"largest batch that fits: {count_text(result.largest) if result.largest else 'none'}", "bold"
    else:
        yield f"no largest batch: {one_line(result.why)}", ""


def _phases(result: Prediction) -> FittedTable:
    phases = result.phases
    kinds = [kind for kind in KINDS if any(moment.kinds[kind] for moment in phases.values())]
    rows = [
        [
            Text("optimizer state" if kind == "optimizer" else kind),
            *(_bytes(moment.kinds[kind]) for moment in phases.values()),
        ]
        for kind in kinds
    ]
    rows.append([Text("peak", "bold"), *(_bytes(moment.total, "bold") for moment in phases.values())])
    columns = [Column("held"), *(Column(name, "number", leaves=name == "setup") for name in phases)]
    return FittedTable(columns, rows)


def _bytes(nbytes: int, style: str = "") -> Text:
    return Amount(nbytes, bytes_text(nbytes) if nbytes else "-", style)


def _at_the_peak(result: Prediction) -> list[RenderableType]:
    trace, moment, sizes = result.sizes.trace, result.peak, result.sizes.nbytes(result.batch)
    source, storage = trace.place_of(moment.last), trace.storages[moment.last]
    inside = f" of {module_text(result, storage.call)}" if storage.call >= 0 else ""
    at = f" at {labels.source_text(source)}: {clip(source.text, 60)}" if source is not None else ""
    held = Counter[tuple[int, str]]()
    for live in moment.live:
        if result.sizes.kinds[live] in ("activations", "data", "temporary"):
            held[trace.storages[live].place, module_text(result, trace.storages[live].call, alike=True)] += int(
                sizes[live]
            )
    rows = [_held(result, place, module, nbytes) for (place, module), nbytes in held.most_common(_LINES) if nbytes]
    first = Text(f"the peak is in {_STEP[moment.phase]}{inside}{at}", overflow="fold")
    return [first, FittedTable(_HELD, rows)] if rows else [first]


def _held(result: Prediction, place: int, module: str, nbytes: int) -> list[Text]:
    source = result.sizes.trace.places[place]
    line, code = (labels.source_text(source), clip(source.text, 80)) if source is not None else ("no line known", "")
    cells = bytes_text(nbytes), share(nbytes / result.peak.total), line, module, code
    return [Text(cell) for cell in cells]


def module_text(result: Prediction, call: int, *, alike: bool = False) -> str:
    """The path and class of a call's module, "" outside every module; with `alike` a star in place of each index."""
    if call < 0:
        return ""
    path, type = result.sizes.trace.calls[call].path, result.sizes.trace.calls[call].type
    shown = ".".join("*" if alike and part.isdigit() else part for part in path.split("."))
    return one_line(f"{shown} ({type})" if shown else type)


def _changes(result: Prediction) -> FittedTable:
    rows = []
    for change in result.changes:
        largest = "-" if change.largest is None else count_text(change.largest)
        cells = bytes_text(change.saves), bytes_text(change.peak), largest, one_line(change.what), change.cost
        rows.append([Text(cell) for cell in cells])
    return FittedTable(_CHANGES, rows)
