"""What was saved for backward, as a table with the totals below it.

Numbers come from `gradviz.memory.saved`; this module only words and aligns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress

from gradviz.draw.tree import outline_title
from gradviz.fold.outline import OutlineRow
from gradviz.graph import StorageKind
from gradviz.memory.checkpoint import Advice, Wrap
from gradviz.memory.saved import By, Saved, SavedRow, joined_rows, with_shares
from gradviz.memory.series import series
from gradviz.report import labels
from gradviz.report.results import SAVED_ROWS, note_lines
from gradviz.report.rich_parts import Group, RenderableType, Text
from gradviz.report.table import Amount, Column, FittedTable
from gradviz.wording import (
    bar,
    bytes_text,
    clip,
    count_text,
    one_line,
    plural,
    tensor_line,
)

_NOTHING_RECORDED: dict[By, str] = {
    "module": "outside every module",
    "line": "no line known",
}


def saved_table(result: Saved, top: int | None = SAVED_ROWS) -> RenderableType:
    """The rows, at most `top` of them (0 or None for all), alike modules as one, and the
    totals; where nobody chose the rows, modules as a tree.
    """
    if result.outline and top == SAVED_ROWS:
        tree = _outline(result)
        return Group(tree, Text(), _totals(result), *note_lines(result.notes))
    if result.by == "module":
        result = replace(result, rows=alike_rows(result.rows))
    parts: list[RenderableType] = []
    if result.rows:
        parts += [_rows(result, top), Text()]
    return Group(*parts, _totals(result), *note_lines(result.notes))


# -- modules as a tree -----------------------------------------------------------------

LEAST = 0.05
"""The part of all bytes that a row holds at least."""
_TREE = (
    Column("module", "title"),
    Column("held", "number"),
    Column("share", "number"),
    Column("", "bar"),
    Column("output", "word", 1),
)


def _outline(result: Saved) -> RenderableType:
    """The modules that hold enough, and how much is in others."""
    whole = result.total.held
    rows = [row for row in result.outline if row.nbytes >= LEAST * whole > 0]
    cells = []
    for row in _telling(rows):
        share = row.nbytes / whole
        title = outline_title(row)
        parts = bytes_text(row.nbytes), _percent(share), bar(share)
        output = tensor_line(row.output) if row.output else ""
        cells.append([title, *map(Text, parts), Text(output, "dim")])

    left_out = len(result.outline) - len(rows)
    table = FittedTable(_TREE, cells)
    if not left_out:
        return table
    words = f"{labels.more(left_out)} below {100 * LEAST:.0f} %; by line or op: --by line, in Python by='line'"
    return Group(table, Text(words, "dim"))


def _telling(rows: Iterable[OutlineRow]) -> Iterator[OutlineRow]:
    """The rows without those that hold all that the row around them does; what is in
    such a row stands in the one around it.
    """
    # the rows around, each with the row that stands for it and how far that is moved
    around: list[tuple[OutlineRow, OutlineRow, int]] = []
    for row in rows:
        while around and around[-1][0].depth >= row.depth:
            around.pop()
        if not around:
            yield row
            around.append((row, row, 0))
            continue

        outer, shown, moved = around[-1]
        if row.nbytes == outer.nbytes and row.alike == 1 and not row.turns:
            around.append((row, shown, moved + 1))
            continue
        path = row.around if shown is outer else shown.path
        yield row._replace(depth=row.depth - moved, around=path)
        around.append((row, row, moved))


# -- rows ------------------------------------------------------------------------------


def alike_rows(rows: Sequence[SavedRow]) -> tuple[SavedRow, ...]:
    """Rows of modules, those of alike modules as one."""
    together: list[SavedRow] = []
    for title, some in series(
        rows,
        lambda row: row.name,
        lambda row: (row.type, row.held, row.nbytes, row.inclusive),
    ):
        row, *others = some
        if others:
            row = joined_rows(some)._replace(
                name=title,
                type=f"{row.type} {labels.again(len(some))}",
                inclusive=sum(alike.inclusive or 0 for alike in some),
                freed=sum(alike.freed or 0 for alike in some),
            )
        together.append(row)

    together.sort(key=lambda row: -row.held)
    return with_shares(together)


_COLUMNS = (
    Column("held", "number"),
    Column("inclusive", "number", drop_order=6),
    Column("freed if checkpointed", "number", drop_order=5),
    Column("share", "number", drop_order=2),
    Column("sum", "number", drop_order=1),
    Column("only graph", "number", drop_order=7),
    Column("weights", "number", drop_order=3),
    Column("tensors", "number", drop_order=4),
)


def _cells(row: SavedRow, style: str = "") -> list[Text]:
    """The cells of all columns."""
    weights = row.nbytes - row.held
    return [
        _bytes(row.held, style),
        _bytes(row.inclusive, style),
        _bytes(row.freed, style),
        Amount(row.share, _percent(row.share), style),
        Amount(row.cumulated, _percent(row.cumulated), style),
        _bytes(row.only_graph, style),
        Amount(weights, bytes_text(weights) if weights else "", style),
        Amount(row.storages, count_text(row.storages), style),
    ]


def _rows(result: Saved, top: int | None) -> FittedTable:
    shown, others = result.top(top)
    by_module = result.by == "module"
    left_out = set() if by_module else {"inclusive", "freed if checkpointed"}
    if all(row.nbytes == row.held for row in result.rows):
        left_out.add("weights")
    is_shown = [column.title not in left_out for column in _COLUMNS]

    def line(row: SavedRow, *name: Text, style: str = "") -> list[Text]:
        return [*compress(_cells(row, style), is_shown), *name]

    rows = [line(row, *row_name(row, result.by)) for row in shown]
    whole = Text("in all", "bold")
    summary = [line(result.total.row, whole, Text(), style="bold")]
    if others is not None:
        more = labels.more(len(result.rows) - len(shown))
        summary.insert(0, line(others, Text(more, "dim"), Text()))

    columns = [*compress(_COLUMNS, is_shown)]
    if by_module:
        columns[0] = Column("exclusive", "number")
    # a tensor has a sentence
    columns.append(Column(result.by, "code" if result.by == "tensor" else "name"))
    if result.by in _BESIDE:
        columns.append(Column(_BESIDE[result.by], "code", 6))
    return FittedTable(columns, rows, summary=summary)


def _bytes(nbytes: int | None, style: str = "") -> Amount:
    return Amount(nbytes, "" if nbytes is None else bytes_text(nbytes), style)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


_BESIDE: dict[By, str] = {"line": "code", "module": "class", "tensor": "id"}


def row_name(row: SavedRow, by: By) -> tuple[Text, Text]:
    """What a row stands for, in two cells: op and node, module and class, line and its
    code.
    """
    if row.source is not None:
        return Text(labels.source_text(row.source)), Text(
            clip(row.source.text.strip(), 80), "dim"
        )
    if not row.name:
        return Text(_NOTHING_RECORDED.get(by, "unknown"), "dim"), Text()
    beside = clip(row.type) if row.type and row.type != row.name else ""
    return Text(one_line(row.name)), Text(
        beside if row.node is None else f"node {row.node}", "dim"
    )


# -- totals ----------------------------------------------------------------------------

_KINDS: dict[StorageKind, tuple[str, str]] = {
    "activation": ("activations", ""),
    "output": ("outputs", "also held by your own variables"),
    "input": ("inputs", ""),
    "parameter": ("parameters", ""),
    "buffer": ("buffers", ""),
    "number": ("wrapped numbers", "numbers that autograd made tensors of"),
}


def _totals(result: Saved) -> FittedTable:
    columns = Column(""), Column("", "number"), Column("", "text")
    rows = [
        (Text(label), Text(amount), Text(remark, "dim"))
        for label, amount, remark in _lines(result)
    ]
    return FittedTable(columns, rows, header=False)


def _lines(result: Saved) -> Iterator[tuple[str, str, str]]:
    totals, kinds = result.totals, result.total.row.kinds
    saved = f"{plural(totals.slots, 'saved tensor')} in {plural(totals.storages, 'storage')}"
    yield "held for backward", bytes_text(totals.held_for_backward), saved
    for kind, (label, remark) in _KINDS.items():
        if kinds.get(kind):
            yield f"  {label}", bytes_text(kinds[kind]), remark

    freed = "freed when backward() has run or the graph is deleted"
    yield "held only by the graph", bytes_text(totals.held_only_by_graph), freed
    if totals.modified_slots:
        slots = plural(totals.modified_slots, "slot")
        yield "modified in place", bytes_text(totals.modified_bytes), slots

    if totals.packed_slots:
        slots = plural(totals.packed_slots, "slot")
        for count, words in (
            (totals.packed_unknown, "of unknown size"),
            (totals.recomputed_slots, "computed again"),
        ):
            if count:
                slots += f", {count_text(count)} {words}"
        yield "packed by hooks", bytes_text(totals.packed_bytes), slots

    yield "in the whole graph:", "", ""
    for label in ("parameters", "buffers", "inputs"):
        nbytes = getattr(totals, label)
        if nbytes:
            yield f"  {label}", bytes_text(nbytes), ""

    if totals.gradients:
        nbytes = bytes_text(totals.gradients)
        yield "  gradients to come", nbytes, ".grad still to be allocated"


# Which modules to wrap in a checkpoint, as a table with the outcome below it. Numbers
# come from `gradviz.memory.checkpoint`; this module only words and aligns them.


def advice_table(advice: Advice) -> RenderableType:
    """What to wrap, what it frees and costs, and whether the budget holds then."""
    parts: list[RenderableType] = []
    if advice.steps:
        parts += [_steps(advice.steps), Text()]
    return Group(*parts, *map(Text, _outcome(advice)))


_STEPS = (
    Column("freed", "number"),
    Column("recomputed ops", "number", drop_order=1),
    Column("saved after", "number"),
    Column("recomputation peak", "number", drop_order=2),
    Column("wrap in torch.utils.checkpoint", "name"),
    Column("class", "code", 3),
)


def _steps(every: Sequence[Wrap]) -> FittedTable:
    rows = []
    for title, steps in series(
        every, lambda step: step.path, lambda step: (step.type, step.ops, step.calls)
    ):
        ops = sum(step.ops for step in steps)
        remarks = clip(steps[0].type)
        if len(steps) > 1:
            remarks += f" {labels.again(len(steps))}"
        if steps[0].calls > 1:
            remarks += f", {plural(steps[0].calls, 'call')}"
        cells = (
            _bytes(sum(step.freed for step in steps)),
            Amount(ops, count_text(ops)),
            _bytes(min(step.held for step in steps)),
            _bytes(max(step.again for step in steps)),
            Text(one_line(title or "the whole model")),
            Text(remarks, "dim"),
        )
        rows.append(cells)

    return FittedTable(_STEPS, rows)


def _outcome(advice: Advice) -> Iterator[str]:
    budget, before, peak = map(bytes_text, (advice.budget, advice.before, advice.peak))
    if not advice.steps:
        holds, outcome = "within", "nothing to wrap"
        if not advice.fits:
            holds = "over"
            outcome = "this is the least possible, as no checkpoint lowers it"
        yield f"{before} saved for backward, {holds} the budget of {budget}: {outcome}."
        return

    yield (
        f"saved for backward: {before} now, {bytes_text(advice.held)} with this plan ({peak} peak during recomputation)"
    )
    yield f"recomputed in backward: {count_text(advice.again)} of {plural(advice.ops, 'op')}"
    holds = "holds."
    if not advice.fits:
        holds = f"does not hold. The least possible that was found is {peak}, with this plan."
    yield f"the budget of {budget} {holds}"
    yield (
        "This is an estimate for non-reentrant checkpoints (use_reentrant=False). Parameters, gradients, optimizer "
        "state and temporary memory are not included."
    )
