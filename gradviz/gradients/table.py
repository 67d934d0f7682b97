"""Gradient flow as rows and their table, by module call or leaf; and the chain rule
path by path as one.

Numbers come from `flow` and `paths`; this module only words and aligns them. Imports no
torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from gradviz.errors import FormatError
from gradviz.fold.outline import builds
from gradviz.gradients.expressions import expression, title
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.report import labels
from gradviz.report.results import FLOW_ROWS, PATHS_ROWS, note_lines
from gradviz.report.rich_parts import Group, RenderableType, Text
from gradviz.report.table import Amount, Column, FittedTable
from gradviz.wording import bar, clip, count_text, few, number, one_line, plural, share

if TYPE_CHECKING:
    import torch

    from gradviz.gradients.flow import GradientFlow, GradientSize
    from gradviz.gradients.paths import GradientPath, Paths, PathStep
    from gradviz.graph import Graph

By = Literal["module", "leaf"]


class FlowRow(NamedTuple):
    """One row. `number` is the place in execution order, from 1, of the first function
    that the row stands for.

    The sizes are those of the gradient at what the row names; None where no gradient
    came. `parameters` is, for a module call, the norm of the gradient that this call
    gives to the leaves that it uses itself, else None.
    """

    number: int | None
    name: str
    type: str
    norm: float | None
    max: float | None
    zeros: float | None
    nonfinite: int | None
    parameters: float | None = None


def rows(flow: GradientFlow, by: By, every: bool = True) -> list[FlowRow]:
    """All rows, in the order of the forward pass; unless `every` one is wanted, a module
    that is built like one before is one row with all that it calls.

    Raises FormatError for modules where none were recorded.
    """
    if by == "leaf":
        return _leaves(flow)

    if not flow.graph.scopes:
        raise FormatError(
            "this graph has no modules: none were called, or none were recorded. Use by leaf."
        )
    return _modules(flow, every)


def _row(
    number: int | None,
    name: str,
    type: str,
    size: GradientSize | None,
    parameters: float | None = None,
) -> FlowRow:
    norm, largest, zeros, nonfinite = size or (None, None, None, None)
    return FlowRow(number, name, type, norm, largest, zeros, nonfinite, parameters)


def steps_of(flow: GradientFlow) -> dict[int, int]:
    """At which step, from 1, backward calls each function."""
    return {node: i for i, node in enumerate(flow.order, 1)}


def _leaves(flow: GradientFlow) -> list[FlowRow]:
    """Leaves in the order in which the forward pass used them, those without a gradient
    too.
    """
    graph, step_of = flow.graph, steps_of(flow)
    ordered = dict.fromkeys(
        edge.producer
        for node in forward_order(graph)
        for edge in graph.inputs(node)
        if edge.producer in graph.leaf_of
    )

    return [
        _row(
            step_of.get(node),
            title(graph, node),
            graph.leaf_of[node].kind,
            flow.incoming.get(node),
        )
        for node in ordered
    ]


def _modules(flow: GradientFlow, every: bool) -> list[FlowRow]:
    """Every module call that ran backward functions of its own, in forward order; one
    that is around others comes before them.
    """
    from gradviz.gradients.flow import largest

    graph, step_of = flow.graph, steps_of(flow)
    members: dict[int, list[int]] = {}

    for node in forward_order(graph):
        scope = graph.nodes[node].scope
        if scope is not None and graph.nodes[node].sequence is not None:
            members.setdefault(scope, []).append(node)

    size_of = dict(flow.edges)
    calls, tree = [], ScopeTree(graph)
    if not every:
        members = _by_block(graph, tree, members)
    for scope in sorted(members, key=lambda call: (tree.place[call], tree.depth[call])):
        inside, record = set(members[scope]), graph.scopes[scope]
        call = f" call {record.call}" if record.call > 1 else ""
        first = min(filter(None, map(step_of.get, inside)), default=None)
        sizes = [
            size_of[edge]
            for node in members[scope]
            for edge in graph.inputs(node)
            if edge.producer in graph.leaf_of
        ]
        # gradients that come in from elsewhere
        arriving = [
            flow.incoming[node]
            for node in inside.intersection(flow.incoming)
            if node in graph.roots_of
            or not inside.issuperset(edge.consumer for edge in graph.consumers(node))
        ]
        calls.append(
            _row(
                first,
                (record.path or "(outermost)") + call,
                record.type,
                largest(arriving),
                _together(sizes),
            )
        )

    return calls


def _by_block(
    graph: Graph, tree: ScopeTree, members: Mapping[int, list[int]]
) -> dict[int, list[int]]:
    """The nodes of each call; those of all calls in a module that is built like one
    before are that one's.
    """
    build_of, seen, block_of = builds(graph, tree), set[int](), dict[int, int]()
    for scope in sorted(
        tree.top_down, key=lambda call: (tree.place[call], tree.depth[call])
    ):
        around = graph.scopes[scope].parent
        if around in block_of:
            block_of[scope] = block_of[around]
        elif build_of.get(scope) in seen:
            block_of[scope] = scope
        elif scope in build_of:
            seen.add(build_of[scope])

    joined: dict[int, list[int]] = {}
    for scope, nodes in members.items():
        joined.setdefault(block_of.get(scope, scope), []).extend(nodes)
    return joined


def _together(sizes: Iterable[GradientSize | None]) -> float | None:
    """The norm of several gradients taken as one."""
    norms = [size.norm for size in sizes if size is not None]
    return math.sqrt(sum(norm * norm for norm in norms)) if norms else None


# -- bars ------------------------------------------------------------------------------

_SMALLEST = 5e-324  # of the positive float64 numbers
_DECADES = 3.0  # a scale spans at least this much, so that alike gradients look alike


class Scale(NamedTuple):
    """A logarithmic scale from the smallest to the largest norm."""

    low: float
    high: float

    def part(self, norm: float | None) -> float | None:
        """Where a norm stands, 0 to 1; None where there is none, it is zero, or it is
        not finite.
        """
        if norm is None or not 0 < norm < math.inf:
            return None
        decades = math.log10(self.high) - math.log10(self.low)
        return (math.log10(norm) - math.log10(self.low)) / decades if decades else 1.0


def scale(norms: Sequence[float | None]) -> Scale | None:
    """The scale of these norms, None where none of them is positive and finite."""
    positive = [norm for norm in norms if norm is not None and 0 < norm < math.inf]
    if not positive:
        return None
    high = max(positive)
    # below the smallest number, the quotient is 0 and has no logarithm
    low = max(min(min(positive), high / 10**_DECADES), _SMALLEST)
    return Scale(low, high)


# -- flow as a table -------------------------------------------------------------------

_WORDS: dict[By, tuple[str, str, str]] = {
    "module": (
        "module call",
        "module calls",
        "in forward order, with the gradient at their outputs",
    ),
    "leaf": ("leaf", "leaves", "in the order of their first use, with their gradients"),
}


def flow_table(
    flow: GradientFlow, by: By | None = None, top: int | None = FLOW_ROWS
) -> RenderableType:
    """The first `top` rows (0 or None for all), what bars mean, and the notes.

    None for `by` is by module where module calls are known, else by leaf.
    """
    chosen: By = by or ("module" if flow.graph.scopes else "leaf")
    every = rows(flow, chosen)
    listed = rows(flow, chosen, every=False) if top else every
    shown = listed[: top or None]
    # of all rows, so that --top does not change the bars
    on = scale([row.norm for row in every])
    names = few([one_line(labels.root_title(root)) for root in flow.graph.roots], 3)
    single, several, rest = _WORDS[chosen]
    head = f"gradient of {names}: {plural(len(every), single, several)} {rest}"
    parts: list[RenderableType] = [Text(head, style="bold"), Text()]
    if shown:
        parts.append(_table(shown, chosen, on))

    if len(shown) < len(listed):
        parts.append(Text(labels.more(len(listed) - len(shown)), style="dim"))
    if len(listed) < len(every):
        inside = plural(len(every) - len(listed), "module call")
        words = f"closed: {inside} in modules built like one above (top=0 lists each)"
        parts.append(Text(words, style="dim"))

    parts.append(Text())
    if on is not None:
        words = (
            f"bars: norm on a logarithmic scale, {number(on.low)} to {number(on.high)}"
        )
        parts.append(Text(words, style="dim"))

    if any(row.norm is None for row in every):
        words = "-: no gradient comes here" + (
            ", or none was measured" if flow.unmeasured else ""
        )
        parts.append(Text(words, style="dim"))

    return Group(*parts, *note_lines(flow.notes))


def _table(shown: Sequence[FlowRow], by: By, on: Scale | None) -> FittedTable:
    is_odd = any(row.nonfinite for row in shown)
    columns = [
        Column("step", "number", 1),
        Column(_WORDS[by][0], "name"),
        Column("class" if by == "module" else "kind", drop_order=2),
        Column("norm", "number"),
        Column("max", "number", 4),
        Column("zeros", "number", 5),
        Column("not finite", "number", 0 if is_odd else 3),
        Column("bar", "bar", 7),
        *([Column("to its leaves", "number", 6)] if by == "module" else []),
    ]

    lines = []
    for row in shown:
        step = "-" if row.number is None else str(row.number)
        odd = count_text(row.nonfinite) if row.nonfinite else ""
        cells = [
            Amount(row.number, step, "dim"),
            Text(one_line(row.name)),
            Text(clip(row.type, 40), "dim"),
            Amount(row.norm, number(row.norm), "bold red" if odd else ""),
            Amount(row.max, number(row.max)),
            Amount(row.zeros, share(row.zeros), "yellow" if row.zeros == 1 else ""),
            Amount(row.nonfinite, odd, "bold red"),
            Text(bar(on.part(row.norm) if on else None), "cyan"),
            Amount(row.parameters, number(row.parameters)),
        ]
        lines.append(cells[: len(columns)])

    return FittedTable(columns, lines)


# -- paths -----------------------------------------------------------------------------

_ENDS = 6  # steps shown at either end of a long path


def paths_table(paths: Paths, top: int | None = PATHS_ROWS) -> RenderableType:
    """The first `top` paths (0 or None for all), their sum, and the notes."""
    shown = paths.paths[:top] if top else paths.paths
    root, target = _ends(paths)
    amounts = [
        (_amount(paths, path.contribution), _route(paths.graph, path)) for path in shown
    ]
    total = _amount(paths, paths.total).plain
    label = f"the gradient of {root} with respect to {target}"
    title = "contribution" if _single(paths) else "norm of contribution"
    columns = (Column(title, "number"), Column("path", "text"))
    table = FittedTable(
        columns, amounts, summary=[(Text(total, "bold"), Text(label, "bold"))]
    )
    remarks = [Text(line, style="dim") for line in _path_remarks(paths, len(shown))]
    head = f"{plural(paths.count, 'path')} from {root} to {target}"

    return Group(
        Text(head, style="bold"),
        Text(),
        table,
        Text(),
        *remarks,
        *note_lines(paths.notes),
    )


def _single(paths: Paths) -> bool:
    return paths.total.numel() == 1 and not paths.total.is_complex()


def _ends(paths: Paths) -> tuple[str, str]:
    root = next(root for root in paths.graph.roots if root.node is not None)
    return one_line(root.name), one_line(title(paths.graph, paths.target[0]))


def _amount(paths: Paths, contribution: torch.Tensor) -> Amount:
    from gradviz.gradients.flow import size

    value = contribution.item() if _single(paths) else size(contribution).norm
    return Amount(value, number(value))


def _route(graph: Graph, path: GradientPath) -> Text:
    """`y --×3--> (w + 1) --×1--> w`: what each step does to the gradient."""
    parts = Text(expression(graph, path.nodes[0]))
    skipped = len(path.steps) - 2 * _ENDS
    for i, step in enumerate(path.steps):
        if skipped > 1 and _ENDS <= i < len(path.steps) - _ENDS:
            if i == _ENDS:
                parts.append(f"  … {skipped} more steps …", style="dim")
            continue
        parts.append(f" {_arrow(step)} ", style="cyan")
        parts.append(expression(graph, step.edge.producer))
    return parts


def _arrow(step: PathStep) -> str:
    if step.factor is None:
        return f"--|{number(step.norm)}|-->"
    return f"--×{number(step.factor)}-->"


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
        yield "--×2-->: the local derivative, by which the step multiplies the gradient"

    if any(step.factor is None for step in steps):
        yield "--|2|-->: the norm of the gradient after the step"

    if not _single(paths) and len(paths.paths) > 1:
        yield "contributions add up to the gradient; their norms need not add up to its norm"
