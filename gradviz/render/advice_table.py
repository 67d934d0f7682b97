"""Which modules to wrap in a checkpoint, as a table with the outcome below it.

Numbers come from `gradviz.analysis.checkpoint`; this module only words and aligns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.analysis.checkpoint import Advice, Wrap
from gradviz.render import labels

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
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("frees", "computes again", "held after", "brings back"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("wrap in torch.utils.checkpoint", overflow="fold")
    for series in joined(advice.steps):
        last = series.steps[-1]
        freed, ops = sum(step.freed for step in series.steps), sum(step.ops for step in series.steps)
        again = max(step.again for step in series.steps)
        cells = (
            labels.bytes_text(freed),
            labels.plural(ops, "op"),
            labels.bytes_text(last.held),
            labels.bytes_text(again),
        )
        table.add_row(*map(Text, cells), _name(series))
    return table


def _name(series: Series) -> Text:
    remarks = [labels.clip(series.steps[0].type)]
    if len(series.steps) > 1:
        remarks.append(labels.plural(len(series.steps), "module"))
    if series.steps[0].calls > 1:
        remarks.append(labels.plural(series.steps[0].calls, "call"))
    return Text.assemble(labels.one_line(series.title or "the whole model"), (f"  {', '.join(remarks)}", "dim"))


def joined(steps: tuple[Wrap, ...]) -> Iterator[Series]:
    """Steps as series: neighbours of one class and size whose paths differ in one number that counts up or down."""
    waiting: list[Wrap] = []
    for step in steps:
        if waiting and _varying([*waiting, step]) is None:
            yield _series(waiting)
            waiting = []
        waiting.append(step)
    if waiting:
        yield _series(waiting)


def _series(steps: list[Wrap]) -> Series:
    if len(steps) == 1:
        return Series(steps[0].path, (steps[0],))
    place = _varying(steps)
    assert place is not None
    first, last = sorted((steps[0], steps[-1]), key=lambda step: int(_NUMBER.findall(step.path)[place]))
    return Series(f"{first.path} to {last.path}", tuple(steps))


def _varying(steps: list[Wrap]) -> int | None:
    """Which number of the paths counts up or down by one, all else being equal; None where that is not so."""
    alike = {(_NUMBER.sub("#", step.path), step.type, step.ops, step.freed, step.calls) for step in steps}
    columns = list(zip(*(map(int, _NUMBER.findall(step.path)) for step in steps)))
    varying = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    if len(alike) > 1 or len(varying) != 1:
        return None
    differences = {after - before for before, after in zip(columns[varying[0]], columns[varying[0]][1:])}
    return varying[0] if differences in ({1}, {-1}) else None


def _outcome(advice: Advice) -> Iterator[str]:
    budget = labels.bytes_text(advice.budget)
    if not advice.steps:
        if advice.fits:
            yield f"{labels.bytes_text(advice.before)} held for backward fits the budget of {budget}: nothing to wrap."
        else:
            yield (
                f"{labels.bytes_text(advice.before)} held for backward does not fit the budget of {budget}, and wrapping "
                "a module frees nothing."
            )
        return
    yield (
        f"held for backward: {labels.bytes_text(advice.before)} now, {labels.bytes_text(advice.held)} then, "
        f"at most {labels.bytes_text(advice.peak)} while a wrapped module is computed again"
    )
    again = f"{labels.count_text(advice.again)} of {labels.plural(advice.ops, 'op')}"
    yield f"computed again in backward: {again}"
    if advice.fits:
        yield f"the budget of {budget} holds."
    else:
        yield f"the budget of {budget} does not hold. No plan was found that needs less than this one."
    yield (
        "This is an estimate for non-reentrant checkpoints (use_reentrant=False). Parameters, gradients, the optimizer's "
        "state and temporary memory come on top."
    )
