"""Gradient flow as a table, one row per module call, leaf, function or edge; and the chain rule path by path as one.

Numbers come from `gradviz.gradients`; this module only words and aligns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.gradients.flow_rows import By, FlowRow, best_by, rows, scale, title
from gradviz.report import labels
from gradviz.report.results import borderless, note_lines
from gradviz.wording import bar, clip, count_text, few, number, one_line, plural, share

if TYPE_CHECKING:
    from gradviz.gradients.flow import GradientFlow
    from gradviz.gradients.paths import GradientPath, Paths, PathStep
    from gradviz.graph import Graph

FLOW_TOP = 50
PATHS_TOP = 10
_WORDS: dict[By, tuple[str, str, str]] = {
    "module": ("module call", "module calls", "in forward order, with the gradient at their outputs"),
    "leaf": ("leaf", "leaves", "in the order of their first use, with their gradients"),
    "node": ("function", "functions", "in backward's order, with the gradient that comes in"),
    "edge": ("edge", "edges", "in backward's order, with the gradient along them"),
}


def flow_table(flow: GradientFlow, by: By | None = None, top: int | None = FLOW_TOP) -> RenderableType:
    """The first `top` rows (0 or None for all), what bars mean, and the notes."""
    chosen = by or best_by(flow.graph)
    every = rows(flow, chosen)
    shown = every[:top] if top else every
    parts: list[RenderableType] = [Text(_flow_head(flow, chosen, len(every)), style="bold"), Text()]
    if shown:
        parts.append(_table(shown, chosen, [row.norm for row in every]))
    if len(shown) < len(every):
        parts.append(Text(labels.more(len(every) - len(shown)), style="dim"))
    parts += [Text(), *_flow_remarks(every, flow)]
    return Group(*parts)


def _flow_head(flow: GradientFlow, by: By, count: int) -> str:
    names = few([one_line(labels.root_title(root)) for root in flow.graph.roots], 3)
    single, several, rest = _WORDS[by]
    return f"gradient of {names}: {plural(count, single, several)} {rest}"


def _table(shown: Sequence[FlowRow], by: By, norms: Sequence[float | None]) -> Table:
    table = borderless(["step"])
    kinds = any(row.type for row in shown)
    table.add_column(_WORDS[by][0], overflow="fold", min_width=12)
    if kinds:
        table.add_column({"module": "class", "node": "op"}.get(by, ""), no_wrap=True, overflow="ellipsis")
    for what in ("norm", "max", "zeros", "not finite"):
        table.add_column(what, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if by == "module":
        table.add_column("to its leaves", justify="right", no_wrap=True)
    on = scale(norms)
    for row in shown:
        cells = [Text(number(row.number) if row.number is None else str(row.number), style="dim")]
        cells.append(Text(clip(row.name, 60)))
        if kinds:
            cells.append(Text(clip(row.type, 40), style="dim"))
        cells += [*_sizes(row), Text(bar(on.part(row.norm) if on else None), style="cyan")]
        if by == "module":
            cells.append(Text(number(row.parameters)))
        table.add_row(*cells)
    return table


def _sizes(row: FlowRow) -> list[Text]:
    odd = "" if row.nonfinite in (0, None) else count_text(row.nonfinite or 0)
    return [
        Text(number(row.norm), style="bold red" if odd else ""),
        Text(number(row.max)),
        Text(share(row.zeros), style="yellow" if row.zeros == 1 else ""),
        Text(odd, style="bold red"),
    ]


def _flow_remarks(every: Sequence[FlowRow], flow: GradientFlow) -> list[Text]:
    remarks = []
    on = scale([row.norm for row in every])
    if on is not None:
        words = f"bars: norm on a logarithmic scale, {number(on.low)} to {number(on.high)}"
        remarks.append(Text(words, style="dim"))
    if any(row.norm is None for row in every):
        remarks.append(
            Text("-: no gradient comes here" + (", or none was measured" if flow.unmeasured else ""), style="dim")
        )
    return remarks + note_lines(flow.notes)


# -- paths ---------------------------------------------------------------------------------------------------------------

_ENDS = 6  # steps shown at either end of a long path


def paths_table(paths: Paths, top: int | None = PATHS_TOP) -> RenderableType:
    """The first `top` paths (0 or None for all), their sum, and the notes."""
    shown = paths.paths[:top] if top else paths.paths
    root, target = _ends(paths)
    table = borderless(["contribution" if _single(paths) else "norm of contribution"])
    table.add_column("path")
    for path in shown:
        table.add_row(Text(_amount(paths, path)), _route(paths.graph, path))
    table.add_section()
    total = paths.total.item() if _single(paths) else _norm(paths.total)
    what = f"the gradient of {root} with respect to {target}"
    table.add_row(Text(number(total), style="bold"), Text(what, style="bold"))
    remarks = [Text(line, style="dim") for line in _path_remarks(paths, len(shown))]
    head = f"{plural(paths.count, 'path')} from {root} to {target}"
    return Group(Text(head, style="bold"), Text(), table, Text(), *remarks, *note_lines(paths.notes))


def _single(paths: Paths) -> bool:
    return paths.total.numel() == 1 and not paths.total.is_complex()


def _ends(paths: Paths) -> tuple[str, str]:
    root = next(root for root in paths.graph.roots if root.node is not None)
    return one_line(root.name), one_line(title(paths.graph, paths.target[0]))


def _amount(paths: Paths, path: GradientPath) -> str:
    if _single(paths):
        return number(path.contribution.item())
    return number(path.steps[-1].norm if path.steps else _norm(path.contribution))


def _norm(tensor: object) -> float:
    from gradviz.gradients.size import size

    return size(tensor).norm  # type: ignore[arg-type]


def _route(graph: Graph, path: GradientPath) -> Text:
    """`y -> a -> w` with what each step does to the gradient."""
    parts = Text(clip(title(graph, path.nodes[0])))
    skipped = len(path.steps) - 2 * _ENDS
    for i, step in enumerate(path.steps):
        if skipped > 1 and _ENDS <= i < len(path.steps) - _ENDS:
            if i == _ENDS:
                parts.append(f"  … {skipped} more steps …", style="dim")
            continue
        parts.append(f" {_arrow(step)} ", style="cyan")
        parts.append(clip(title(graph, step.edge.producer)))
    return parts


def _arrow(step: PathStep) -> str:
    return f"-|{number(step.norm)}|->" if step.factor is None else f"-({number(step.factor)})->"


def _path_remarks(paths: Paths, shown: int) -> Iterator[str]:
    if len(paths.paths) > shown:
        yield f"{labels.more(len(paths.paths) - shown)} that were followed"
    if not paths.complete:
        yield (
            f"{count_text(len(paths.paths))} of {count_text(paths.count)} paths were followed, those with the "
            "largest gradients at each function; others exist, and some of them may contribute more"
        )
    elif len(paths.paths) < paths.count:
        yield f"on {plural(paths.count - len(paths.paths), 'path')} some function gives no gradient"
    steps = [step for path in paths.paths[:shown] for step in path.steps]
    if any(step.factor is not None for step in steps):
        yield "-(2)->: the local derivative, by which the step multiplies the gradient"
    if any(step.factor is None for step in steps):
        yield "-|2|->: the norm of the gradient after the step"
    if not _single(paths) and len(paths.paths) > 1:
        yield "contributions add up to the gradient; their norms need not add up to its norm"
