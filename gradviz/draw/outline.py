"""Prints the outline of a graph: modules indented by nesting, or lines of code, with columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from gradviz.checks.finding import marked
from gradviz.draw.metrics import cells, shorten
from gradviz.draw.options import Options
from gradviz.fold import outline
from gradviz.fold.calls import titled
from gradviz.fold.outline import OutlineRow
from gradviz.graph import Graph, Mark
from gradviz.graph.origins import Lines, op_line, telling_lines
from gradviz.report import labels
from gradviz.wording import bytes_text, clip, count_text, one_line, tensor_line


class Column(NamedTuple):
    """One column: its heading, its text for a row, and whether it holds numbers, which are aligned to the right."""

    heading: str
    text: Callable[[OutlineRow], str]
    number: bool = True


COLUMNS: dict[str, Column] = {
    "calls": Column("calls", lambda row: count_text(row.calls) if row.type else ""),
    "ops": Column("ops", lambda row: "" if row.node else count_text(row.ops)),
    "parameters": Column("parameters", lambda row: count_text(row.parameters) if row.parameters else ""),
    "output": Column("output", lambda row: tensor_line(row.output) if row.output else "", False),
    "saved": Column("saved", lambda row: bytes_text(row.nbytes) if row.nbytes else ""),
    "made": Column("made", lambda row: ", ".join(map(one_line, row.made)), False),
}
FOR_MODULES = ("calls", "ops", "parameters", "output", "saved")
FOR_LINES = ("ops", "saved", "made")


GAP = 2  # cells between two columns
NAME_KEEPS = 26  # cells, gap included
OPS_UP_TO = 100
"""Nodes of a graph whose outline lists the backward functions of each module too."""


class Table(NamedTuple):
    """An outline as text cells: the heading, the rows, which columns hold numbers, and notes for under it.

    `opened` says of each row whether it stands for what is below it, a module or a line, and not for a single op.
    """

    heading: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: tuple[bool, ...]
    notes: tuple[str, ...]
    opened: tuple[bool, ...]


def table(graph: Graph, options: Options, limit: int = 0) -> Table:
    """The outline that the options ask for, at most `limit` rows (0: all)."""
    by_line = outline_by(graph, options) == "line"
    ops = len(graph.nodes) <= OPS_UP_TO
    lines = telling_lines(graph.nodes) if by_line else Lines(op_line)
    outline_rows: Iterator[OutlineRow] = (
        outline.lines(graph, lines.of) if by_line else outline.modules(graph, every=options.depth == "all", ops=ops)
    )
    if options.max_depth:
        outline_rows = (row for row in outline_rows if row.depth < (options.max_depth or 0))
    columns = [COLUMNS[name] for name in options.columns or (FOR_LINES if by_line else FOR_MODULES)]
    kept = list(islice(outline_rows, limit or None))
    left = sum(1 for _ in outline_rows)
    badges = marked(graph).nodes
    rows = [
        (("  " * row.depth) + title(graph, row) + _badge(row, badges), *(column.text(row) for column in columns))
        for row in kept
    ]
    notes = [f"{labels.more(left)} rows (max_rows=0 shows all)"] if left else []
    if lines.note:
        notes.append(lines.note)
    if any(row.alike > 1 for row in kept):
        notes.append("alike: modules of one structure, of which the first is shown open (depth=all shows each)")
    if graph.attribution == "inferred" and not by_line:
        notes.append("modules inferred from their parameters; record the forward pass to know them")
    heading = ("line" if by_line else "module", *(column.heading for column in columns))
    return Table(
        heading,
        rows,
        (False, *(column.number for column in columns)),
        tuple(notes),
        tuple(row.node is None for row in kept),
    )


def _badge(row: OutlineRow, badges: Mapping[int, tuple[Mark, ...]]) -> str:
    """What marks a backward function, in brackets."""
    words = labels.mark_words(badges.get(row.node.id, ())) if row.node is not None else ()
    return "".join(f"  [{word}]" for word in words)


def outline_by(graph: Graph, options: Options) -> str:
    """What the rows of a tree are: "node", "module" or "line". Modules when they were recorded, unless asked otherwise."""
    if options.by != "auto":
        return options.by
    return "module" if graph.scopes else "node"


def title(graph: Graph, row: OutlineRow) -> str:
    """Path and class of a module, a backward function with its leaves, or file, line and text of a line of code."""
    if row.node is not None:
        leaves = [graph.leaf_of[edge.producer] for edge in graph.inputs(row.node.id) if edge.producer in graph.leaf_of]
        names = labels.names_text(labels.relative(name, row.around) for name in row.node.names)
        words = [labels.op_name(row.node, row.around), names, *(labels.leaf_title(leaf, row.around) for leaf in leaves)]
        return "  ".join(word for word in words if word)
    if row.line is not None:
        return f"{labels.source_text(row.line)}  {clip(row.line.text.strip(), 60)}".rstrip()
    if not row.type:
        return "outside every module" if not row.made else "no line recorded"
    name = labels.relative(one_line(titled(row.path, row.type)), row.around)
    return f"{name}, {labels.alike(row.alike)}" if row.alike > 1 else name


def text_lines(made: Table, width: int = 0) -> Iterator[str]:
    """The table as aligned plain text. In `width` cells (0: any) the first column gives way: its names are shortened."""
    if width and sum(_widths(made)) - GAP > width:
        made = _with_one_dtype(made)
    widths = _widths(made)
    if width:
        widths[0] = min(widths[0], max(width + GAP - sum(widths[1:]), NAME_KEEPS))
    for row in (made.heading, *made.rows):
        row = (_shortened(row[0], widths[0] - GAP), *row[1:])
        yield "".join(
            _cell(text, wide - GAP, number) + " " * GAP for text, wide, number in zip(row, widths, made.numbers)
        ).rstrip()
    if made.notes:
        yield ""
        yield from made.notes


def _widths(made: Table) -> list[int]:
    """Cells that each column takes, with the gap behind it."""
    return [max(map(cells, column)) + GAP for column in zip(made.heading, *made.rows)]


def _shortened(name: str, room: int) -> str:
    inside = name.lstrip()
    indent = len(name) - len(inside)
    return " " * indent + shorten(inside, max(room - indent, 8))


def _with_one_dtype(made: Table) -> Table:
    """The same table with a dtype that all outputs share said once below it."""
    if "output" not in made.heading:
        return made
    at = made.heading.index("output")
    dtypes = {row[at].rpartition(" ")[2] for row in made.rows if row[at]}
    if len(dtypes) != 1:
        return made
    (dtype,) = dtypes
    rows = [(*row[:at], row[at].removesuffix(f" {dtype}"), *row[at + 1 :]) for row in made.rows]
    return made._replace(rows=rows, notes=(f"output: {dtype} in every row", *made.notes))


def _cell(text: str, wide: int, number: bool) -> str:
    room = " " * (wide - cells(text))
    return room + text if number else text + room
