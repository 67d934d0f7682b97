"""The chain rule path by path as text: what every path contributes, and by what each step multiplies the gradient.

Numbers come from `gradviz.gradients`; this module only words and aligns them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.gradients.rows import title
from gradviz.report import labels
from gradviz.wording import clip, count_text, number, one_line, plural

if TYPE_CHECKING:
    from gradviz.gradients.paths import GradientPath, Paths, PathStep
    from gradviz.graph import Graph

TOP = 10
_ENDS = 6  # steps shown at either end of a long path


def paths_table(found: Paths, top: int | None = TOP) -> RenderableType:
    """The first `top` paths (0 or None for all), their sum, and the notes."""
    shown = found.paths[:top] if top else found.paths
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("contribution" if _single(found) else "norm of contribution", justify="right", no_wrap=True)
    table.add_column("path")
    for path in shown:
        table.add_row(Text(_amount(found, path)), _route(found.graph, path))
    table.add_section()
    what = "the gradient of {} with respect to {}".format(*_ends(found))
    table.add_row(Text(_total(found), style="bold"), Text(what, style="bold"))
    remarks = [Text(line, style="dim") for line in _remarks(found, len(shown))]
    notes = [Text(f"note: {one_line(note)}", style="yellow") for note in found.notes]
    return Group(Text(_head(found), style="bold"), Text(), table, Text(), *remarks, *notes)


def _single(found: Paths) -> bool:
    return found.total.numel() == 1 and not found.total.is_complex()


def _ends(found: Paths) -> tuple[str, str]:
    root = next(root for root in found.graph.roots if root.node is not None)
    return one_line(root.name), one_line(title(found.graph, found.target[0]))


def _head(found: Paths) -> str:
    root, target = _ends(found)
    return f"{plural(found.count, 'path')} from {root} to {target}"


def _total(found: Paths) -> str:
    return number(found.total.item() if _single(found) else _norm(found.total))


def _amount(found: Paths, path: GradientPath) -> str:
    if _single(found):
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


def _remarks(found: Paths, shown: int) -> Iterator[str]:
    if len(found.paths) > shown:
        yield f"{labels.more(len(found.paths) - shown)} that were followed"
    if not found.complete:
        yield (
            f"{count_text(len(found.paths))} of {count_text(found.count)} paths were followed, those with the "
            "largest gradients at each function; others exist, and some of them may contribute more"
        )
    elif len(found.paths) < found.count:
        yield f"on {plural(found.count - len(found.paths), 'path')} some function gives no gradient"
    steps = [step for path in found.paths[:shown] for step in path.steps]
    if any(step.factor is not None for step in steps):
        yield "-(2)->: the local derivative, by which the step multiplies the gradient"
    if any(step.factor is None for step in steps):
        yield "-|2|->: the norm of the gradient after the step"
    if not _single(found) and len(found.paths) > 1:
        yield "contributions add up to the gradient; their norms need not add up to its norm"
