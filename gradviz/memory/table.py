"""What was saved for backward, as a table with the totals below it.

Numbers come from `gradviz.memory.saved`; this module only words and aligns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.graph import StorageKind
from gradviz.memory.checkpoint import Advice, Wrap
from gradviz.memory.saved import By, Saved, SavedRow
from gradviz.report import labels
from gradviz.report.results import SAVED_ROWS, borderless, note_lines
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


def _rows(result: Saved, top: int | None) -> Table:
    shown, others = result.top(top)
    weights = any(row.nbytes > row.held for row in result.rows)
    table = borderless(["held", "share", "sum", "only graph", *(["weights"] if weights else []), "tensors"])
    table.add_column(result.by, overflow="ellipsis", no_wrap=True)
    for row in shown:
        table.add_row(*_cells(row, weights), row_name(row, result.by))
    if others is not None:
        table.add_row(*_cells(others, weights), Text(labels.more(len(result.rows) - len(shown)), style="dim"))
    table.add_section()
    table.add_row(*_cells(result.total.row, weights), Text("in all"), style="bold")
    return table


def _cells(row: SavedRow, weights: bool) -> list[Text]:
    cells = [bytes_text(row.held), _percent(row.share), _percent(row.cumulated), bytes_text(row.only_graph)]
    if weights:
        cells.append(bytes_text(row.nbytes - row.held) if row.nbytes > row.held else "")
    return [Text(cell) for cell in (*cells, count_text(row.storages))]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def row_name(row: SavedRow, by: By) -> Text:
    """What a row stands for: op, module and class, line and its code."""
    if row.source is not None:
        code = clip(row.source.text.strip(), 80)
        return Text.assemble(labels.source_text(row.source), (f"  {code}" if code else "", "dim"))
    if not row.name:
        return Text(_NOTHING_RECORDED.get(by, "unknown"), style="dim")
    name = clip(row.name, 80)
    if row.node is not None:
        return Text.assemble(name, (f"  node {row.node}", "dim"))
    return Text.assemble(name, (f"  {clip(row.type)}" if row.type and row.type != row.name else "", "dim"))


# -- totals ----------------------------------------------------------------------------------------------------------

_KINDS: dict[StorageKind, tuple[str, str]] = {
    "activation": ("activations", ""),
    "output": ("outputs", "a variable of yours holds them, too"),
    "input": ("inputs", ""),
    "parameter": ("parameters", ""),
    "buffer": ("buffers", ""),
    "number": ("wrapped numbers", "numbers that autograd made tensors of"),
}


def _totals(result: Saved) -> Table:
    table = borderless(header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for what, nbytes, remark in _lines(result):
        table.add_row(Text(what), Text("" if nbytes is None else bytes_text(nbytes)), Text(remark, style="dim"))
    return table


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


def _steps(advice: Advice) -> Table:
    table = borderless(["frees", "computes again", "held after", "brings back"])
    table.add_column("wrap in torch.utils.checkpoint", overflow="fold")
    for series in joined(advice.steps):
        last = series.steps[-1]
        freed, ops = sum(step.freed for step in series.steps), sum(step.ops for step in series.steps)
        again = max(step.again for step in series.steps)
        cells = (bytes_text(freed), plural(ops, "op"), bytes_text(last.held), bytes_text(again))
        table.add_row(*map(Text, cells), _name(series))
    return table


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
    budget = bytes_text(advice.budget)
    if not advice.steps:
        if advice.fits:
            yield f"{bytes_text(advice.before)} held for backward fits the budget of {budget}: nothing to wrap."
        else:
            yield (
                f"{bytes_text(advice.before)} held for backward does not fit the budget of {budget}, and wrapping "
                "a module frees nothing."
            )
        return
    yield (
        f"held for backward: {bytes_text(advice.before)} now, {bytes_text(advice.held)} then, "
        f"at most {bytes_text(advice.peak)} while a wrapped module is computed again"
    )
    again = f"{count_text(advice.again)} of {plural(advice.ops, 'op')}"
    yield f"computed again in backward: {again}"
    if advice.fits:
        yield f"the budget of {budget} holds."
    else:
        yield f"the budget of {budget} does not hold. No plan was found that needs less than this one."
    yield (
        "This is an estimate for non-reentrant checkpoints (use_reentrant=False). Parameters, gradients, the optimizer's "
        "state and temporary memory come on top."
    )
