"""What was saved for backward, as a table with the totals below it.

Numbers come from `gradviz.memory.saved`; this module only words and aligns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gradviz.graph import StorageKind
from gradviz.memory.checkpoint import Advice, Wrap
from gradviz.memory.saved import By, Saved, SavedRow
from gradviz.report import labels
from gradviz.report.results import SAVED_ROWS, note_lines
from gradviz.report.rich_parts import Group, RenderableType, Text
from gradviz.report.table import Column, FittedTable
from gradviz.wording import bytes_text, clip, count_text, one_line, plural

_NOTHING_RECORDED: dict[By, str] = {
    "module": "outside every module",
    "line": "no line known",
    "op-line": "no line known",
}


def saved_table(result: Saved, top: int | None = SAVED_ROWS) -> RenderableType:
    """The rows, at most `top` of them (0 or None for all), and the totals."""
    parts: list[RenderableType] = []
    if result.rows:
        parts += [_rows(result, top), Text()]
    return Group(*parts, _totals(result), *note_lines(result.notes))


# -- rows ------------------------------------------------------------------------------------------------------------


_COLUMNS = (
    Column("held", "number"),
    Column("share", "number", leaves=2),
    Column("sum", "number", leaves=1),
    Column("only graph", "number", leaves=6),
    Column("weights", "number", leaves=3),
    Column("tensors", "number", leaves=4),
)


def _rows(result: Saved, top: int | None) -> FittedTable:
    shown, others = result.top(top)
    left_out = () if any(row.nbytes > row.held for row in result.rows) else ("weights",)
    beside = _BESIDE.get(result.by)
    rows = [(*_cells(row, left_out), *row_name(row, result.by)) for row in shown]
    if others is not None:
        more = labels.more(len(result.rows) - len(shown))
        rows.append((*_cells(others, left_out), Text(more, "dim"), Text()))
    rows.append((*_cells(result.total.row, left_out, "bold"), Text("in all", "bold"), Text()))
    columns = [column for column in _COLUMNS if column.title not in left_out]
    name = Column(result.by, "code" if result.by == "tensor" else "name")  # a tensor has a sentence
    return FittedTable((*columns, name, *([Column(beside, "code", 5)] if beside else [])), rows)


def _cells(row: SavedRow, left_out: Sequence[str], style: str = "") -> list[Text]:
    weights = bytes_text(row.nbytes - row.held) if row.nbytes > row.held else ""
    cells = (
        bytes_text(row.held),
        _percent(row.share),
        _percent(row.cumulated),
        bytes_text(row.only_graph),
        weights,
        count_text(row.storages),
    )
    return [Text(cell, style) for cell, column in zip(cells, _COLUMNS) if column.title not in left_out]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


_BESIDE: dict[By, str] = {"line": "code", "op-line": "code", "module": "class", "node": "id", "tensor": "id"}


def row_name(row: SavedRow, by: By) -> tuple[Text, Text]:
    """What a row stands for, in two cells: op and node, module and class, line and its code."""
    if row.source is not None:
        return Text(labels.source_text(row.source)), Text(clip(row.source.text.strip(), 80), "dim")
    if not row.name:
        return Text(_NOTHING_RECORDED.get(by, "unknown"), "dim"), Text()
    beside = clip(row.type) if row.type and row.type != row.name else ""
    return Text(one_line(row.name)), Text(beside if row.node is None else f"node {row.node}", "dim")


# -- totals ----------------------------------------------------------------------------------------------------------

_KINDS: dict[StorageKind, tuple[str, str]] = {
    "activation": ("activations", ""),
    "output": ("outputs", "a variable of yours holds them, too"),
    "input": ("inputs", ""),
    "parameter": ("parameters", ""),
    "buffer": ("buffers", ""),
    "number": ("wrapped numbers", "numbers that autograd made tensors of"),
}


_TOTALS = (Column(""), Column("", "number"), Column("", "text"))


def _totals(result: Saved) -> FittedTable:
    rows = [
        (Text(what), Text("" if nbytes is None else bytes_text(nbytes)), Text(remark, "dim"))
        for what, nbytes, remark in _lines(result)
    ]
    return FittedTable(_TOTALS, rows, header=False)


def _lines(result: Saved) -> Iterator[tuple[str, int | None, str]]:
    totals, kinds = result.totals, result.total.row.kinds
    saved = f"{plural(totals.slots, 'saved tensor')} in {plural(totals.storages, 'storage')}"
    yield "held for backward", totals.held_for_backward, saved
    for kind, (what, remark) in _KINDS.items():
        if kinds.get(kind):
            yield f"  {what}", kinds[kind], remark
    yield "held only by the graph", totals.held_only_by_graph, "freed when backward() has run or the graph is deleted"
    if totals.modified_slots:
        yield "modified in place", totals.modified_bytes, plural(totals.modified_slots, "slot")
    if totals.packed_slots:
        unknown = f", {count_text(totals.packed_unknown)} of unknown size" if totals.packed_unknown else ""
        again = f", {count_text(totals.recomputed_slots)} computed again" if totals.recomputed_slots else ""
        yield "packed by hooks", totals.packed_bytes, plural(totals.packed_slots, "slot") + unknown + again
    yield "in the whole graph:", None, ""
    for what, nbytes in (("parameters", totals.parameters), ("buffers", totals.buffers), ("inputs", totals.inputs)):
        if nbytes:
            yield f"  {what}", nbytes, ""
    yield "  gradients to come", totals.gradients, "of leaves whose .grad is None" if totals.gradients else ""


# Which modules to wrap in a checkpoint, as a table with the outcome below it. Numbers come from
# `gradviz.memory.checkpoint`; this module only words and aligns them.

_NUMBER = re.compile(r"\d+")


class Series(NamedTuple):
    """Steps in a row whose paths differ in one number, such as `blocks.0` to `blocks.7`."""

    title: str
    steps: tuple[Wrap, ...]


def advice_table(advice: Advice) -> RenderableType:
    """What to wrap, what it frees and costs, and whether the budget holds then."""
    parts: list[RenderableType] = []
    if advice.steps:
        parts += [_steps(advice), Text()]
    return Group(*parts, *(Text(line) for line in _outcome(advice)))


_STEPS = (
    Column("freed", "number"),
    Column("recomputed", "number", leaves=1),
    Column("saved after", "number"),
    Column("recomputation peak", "number", leaves=2),
    Column("wrap in torch.utils.checkpoint", "text"),
)


def _steps(advice: Advice) -> FittedTable:
    rows = []
    for series in joined(advice.steps):
        last = series.steps[-1]
        freed, ops = sum(step.freed for step in series.steps), sum(step.ops for step in series.steps)
        again = max(step.again for step in series.steps)
        cells = (bytes_text(freed), plural(ops, "op"), bytes_text(last.held), bytes_text(again))
        rows.append((*map(Text, cells), _name(series)))
    return FittedTable(_STEPS, rows)


def _name(series: Series) -> Text:
    remarks = [clip(series.steps[0].type)]
    if len(series.steps) > 1:
        remarks.append(plural(len(series.steps), "module"))
    if series.steps[0].calls > 1:
        remarks.append(plural(series.steps[0].calls, "call"))
    return Text.assemble(one_line(series.title or "the whole model"), (f"  {', '.join(remarks)}", "dim"))


def joined(steps: tuple[Wrap, ...]) -> Iterator[Series]:
    """Steps as series: neighbours of one class and size whose paths differ in one number that counts up or down."""
    runs: list[list[Wrap]] = []
    for step in steps:
        if not runs or not _counts([*runs[-1], step]):
            runs.append([])
        runs[-1].append(step)
    for run in runs:
        first, last = sorted((run[0], run[-1]), key=_numbers)
        yield Series(first.path if first is last else f"{first.path} to {last.path}", tuple(run))


def _counts(steps: list[Wrap]) -> bool:
    """Whether one number of the paths counts up or down by one, all else being equal."""
    alike = {(_NUMBER.sub("#", step.path), step.type, step.ops, step.freed, step.calls) for step in steps}
    varying = [column for column in zip(*map(_numbers, steps)) if len(set(column)) > 1]
    if len(alike) > 1 or len(varying) != 1:
        return False
    return {after - before for before, after in pairwise(varying[0])} in ({1}, {-1})


def _numbers(step: Wrap) -> list[int]:
    return [int(number) for number in _NUMBER.findall(step.path)]


def _outcome(advice: Advice) -> Iterator[str]:
    budget, before, peak = map(bytes_text, (advice.budget, advice.before, advice.peak))
    if not advice.steps:
        holds = "within" if advice.fits else "over"
        nothing = "nothing to wrap" if advice.fits else "this is the least possible, as no checkpoint lowers it"
        yield f"{before} saved for backward, {holds} the budget of {budget}: {nothing}."
        return
    yield (
        f"saved for backward: {before} now, {bytes_text(advice.held)} with this plan ({peak} peak during recomputation)"
    )
    yield f"recomputed in backward: {count_text(advice.again)} of {plural(advice.ops, 'op')}"
    holds = "holds." if advice.fits else f"does not hold. The least possible that was found is {peak}, with this plan."
    yield f"the budget of {budget} {holds}"
    yield (
        "This is an estimate for non-reentrant checkpoints (use_reentrant=False). Parameters, gradients, optimizer "
        "state and temporary memory are not included."
    )
