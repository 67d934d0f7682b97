"""Prints a graph in rows, in colour for a terminal, plain for a file: an outline of
modules, or single nodes.

What the rows are is decided in `tree_rows`, and in `fold.outline` for the outline,
which has columns of numbers; limits are applied here. Rows of nodes are streamed, so a
graph of a million needs no memory for its text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.summary import (
    foot_lines,
    footer_lines,
    inferred_lines,
    mark_lines,
    usual_dtype,
    without_dtype,
)
from gradviz.draw.tree_rows import FROM, Style, TreeRow, TreeRows
from gradviz.draw.typesetting import ELLIPSIS
from gradviz.fold import outline
from gradviz.fold.flops import Flops, flops
from gradviz.fold.folding import folding_of
from gradviz.fold.outline import OutlineRow
from gradviz.fold.program import with_program
from gradviz.fold.titles import LONGEST
from gradviz.graph import Graph, Node
from gradviz.report import labels
from gradviz.report.results import WIDE, html
from gradviz.report.rich_parts import (
    Console,
    ConsoleOptions,
    RenderableType,
    RenderResult,
    Text,
)
from gradviz.report.table import Amount, Column, FittedTable
from gradviz.stages import Stage
from gradviz.wording import (
    bar,
    bytes_text,
    clip,
    count_text,
    few,
    one_line,
    plural,
    tensor_line,
)

TERMINAL_ROWS = 200
_COLORS: dict[Style, str] = {
    "op": "bold",
    "group": "bold italic",
    "leaf": "bold cyan",
    "output": "bold green",
    "tensor": "",
    "place": "dim",
    "saved": "yellow",
    "flag": "red",
    "note": "dim",
    "id": "blue",
}


def tree(graph: Graph, options: Options | None = None) -> RenderableType:
    """The graph as a rich renderable, at most 200 rows unless `max_rows` says
    otherwise.
    """
    return TerminalTree(graph, options or Options())


def render_text(graph: Graph, options: Options) -> Iterator[str]:
    """The graph as plain text, every row unless `max_rows` says otherwise.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> graph = Graph((Node(0, "AddBackward0"), Node(1, "ExpBackward0")), (Edge(0, 1, 0, 0),))
    >>> print("".join(render_text(graph, Options())), end="")
    #0  add  ← #1
    #1  exp
    <BLANKLINE>
    ←: what it was given
    2 backward functions, 0 leaves, 0 outputs, 1 edge
    """
    for line in _lines(graph, options, options.max_rows or 0):
        yield f"{_plain(line)}\n"


def _lines(
    graph: Graph, options: Options, limit: int, width: int = 0
) -> Iterator[TreeRow | Text]:
    """The same line by line, in `width` cells (0: any)."""
    for part in _parts(graph, options, limit):
        if isinstance(part, FittedTable):
            yield from part.lines(width or WIDE)
        else:
            yield part


def _parts(
    graph: Graph, options: Options, limit: int
) -> Iterator[FittedTable | TreeRow | Text]:
    """At most `limit` rows (0: all), with the title above and what a reader must know
    below.
    """
    if graph.title:
        yield Text(one_line(graph.title), "bold")

    by_module = options.by == "module"
    if options.by == "auto":
        # a loop, or a function that is called often, is worth a row of its own
        by_module = bool(graph.scopes or with_program(graph)[1])
    if by_module:
        table, notes = outline_table(graph, options, limit)
        yield table
        if notes:
            yield Text()
            yield from (Text(note, "dim") for note in notes)
        hidden = False
    else:
        rows = TreeRows(graph, options)
        with Stage("write", "rows") as writing:
            yield from writing.each(islice(rows, limit or None))
        yield from (Text(note, "dim") for note in _left_note(len(rows), limit))
        hidden = options.leaves == "hidden"

    yield Text()
    folding = folding_of(graph)
    counts, *notes = footer_lines(folding, hidden=hidden)
    below = [*mark_lines(marked(folding)), counts, *notes]
    if by_module:
        below = [*mark_lines(marked(folding)), counts, *foot_lines(graph), *notes]
    elif graph.edges:
        below.insert(0, f"{FROM}: what it was given")
    yield from (Text(line, "dim") for line in below)


def _left_note(rows: int, limit: int) -> Iterator[str]:
    if limit and rows > limit:
        yield f"{labels.more(rows - limit)} rows (max_rows=0 shows all)"


def _plain(line: TreeRow | Text) -> str:
    return line.text if isinstance(line, TreeRow) else line.plain


class TerminalTree:
    """A rich renderable. Rows that are wider than the terminal end in an ellipsis."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        self._limit = TERMINAL_ROWS if options.max_rows is None else options.max_rows

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        for line in _lines(self.graph, self.options, self._limit, options.max_width):
            if isinstance(line, TreeRow):
                yield _fitted(line, options.max_width)
            else:
                yield line

    @property
    def renderables(self) -> list[FittedTable | Text]:
        """What is put one below the other."""
        parts = _parts(self.graph, self.options, self._limit)
        return [
            _fitted(part, WIDE) if isinstance(part, TreeRow) else part for part in parts
        ]

    def __iter__(self) -> Iterator[dict[str, str | float]]:
        """Every row of the table of modules, for a program such as pandas."""
        asked = self.options.columns
        counted = flops(self.graph) if "FLOPs" in asked else Flops({}, {})
        rows = _rows(self.graph, self.options, counted)
        for row in rows:
            yield {
                "module": row.path or row.around,
                "class": row.type,
                "op": row.node.op if row.node is not None else row.beside,
                **{
                    one.column.title: (one.number or one.text)(row)
                    for one in _columns(rows, asked)
                    if one.column.kind != "bar"
                },
            }

    def _repr_html_(self) -> str:
        return html(self)

    def __repr__(self) -> str:
        """The same rows as plain text, for `print` and for a notebook."""
        lines = _lines(self.graph, self.options, self._limit)
        return "\n".join(map(_plain, lines))


def _fitted(row: TreeRow, width: int) -> Text:
    """The row in colour on one line of the terminal, with an ellipsis where it was cut.
    A shape is there as a whole or not at all.
    """
    line = Text("  ").join(Text(text, _COLORS[style]) for style, text in row.parts)
    if line.cell_len > width:
        line.truncate(width - len(ELLIPSIS), overflow="crop")
        # half a number reads like another number
        line.set_length(len(_BROKEN.sub("", line.plain)))
        line.append(ELLIPSIS)
    return line


_BROKEN = re.compile(r"(?:\([^()]*|[\d.,]+)$")


# -- the outline: modules indented by nesting, with columns of numbers -----------------


def parameters_text(used: int, registered: int, frozen: int = 0) -> str:
    """`70`, or `70 of 1,070` where the graph has only some of those that the module
    has. `70, frozen` where all are.
    """
    if 0 < frozen == registered:
        return f"{count_text(registered)}, frozen"
    of_all = f" of {count_text(registered)}" if registered > used else ""
    return f"{count_text(used)}{of_all}" if used else ""


def _all_parameters(row: OutlineRow) -> str:
    count = max(row.parameters, row.registered)
    return count_text(count) if count else ""


def _flops(count: float) -> str:
    """`3.63 G`."""
    for unit in ("", " k", " M", " G"):
        if count < 999.5:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:,.3g} T"


class _Measure(NamedTuple):
    """A column: the number that a program gets of a row, and its text, "" for nothing."""

    column: Column
    text: Callable[[OutlineRow], str]
    number: Callable[[OutlineRow], float] | None = None


_COLUMNS = (
    _Measure(
        Column("calls", "number", 1),
        lambda row: count_text(row.calls) if row.calls > 1 else "",
        lambda row: row.calls,
    ),
    _Measure(
        Column("ops", "number", 2),
        lambda row: "" if row.node else count_text(row.ops),
        lambda row: row.ops,
    ),
    _Measure(
        Column("parameters", "number", 6),
        lambda row: parameters_text(row.parameters, row.registered, row.frozen),
        lambda row: max(row.parameters, row.registered),
    ),
    _Measure(
        Column("output", "word", 4),
        lambda row: tensor_line(row.output) if row.output else "",
    ),
    _Measure(
        Column("trainable", "number", 5),
        lambda row: count_text(row.parameters) if _all_parameters(row) else "",
        lambda row: row.parameters,
    ),
    _Measure(
        Column("FLOPs", "number", 3),
        lambda row: _flops(row.flops) if row.flops else "",
        lambda row: row.flops,
    ),
    _Measure(
        Column("saved", "number"),
        lambda row: bytes_text(row.nbytes) if row.nbytes else "",
        lambda row: row.nbytes,
    ),
)
"""The dtype that most rows have is said once, under the table."""
_BAR = 8  # cells
OPS_UP_TO = 100
"""Nodes of a graph whose outline lists the backward functions of each module too."""


def outline_table(
    graph: Graph, options: Options, limit: int = 0
) -> tuple[FittedTable, list[str]]:
    """The outline of modules, at most `limit` rows (0: all), and notes for under it."""
    asked = options.columns
    counted = flops(graph) if "FLOPs" in asked else Flops({}, {})
    rows = _rows(graph, options, counted)
    shown = rows[: limit or None]

    columns = _columns(shown, asked)
    dtype, several = usual_dtype(row.output for row in shown)
    brief = without_dtype(dtype)
    names = options.op_names("variable")
    marks = marked(folding_of(graph)).boxes
    cells: list[list[Text]] = []
    for row in shown:
        title = _title(graph, row, names)
        if row.node is not None:
            words = labels.mark_words(marks.get(row.node.id, ()))
            title.append("".join(f"  [{word}]" for word in words))
        cells.append([title])
        for column, text, number in columns:
            written = brief(text(row))
            if number is not None:
                cells[-1].append(Amount(number(row), written, "dim"))
            else:
                color = "cyan" if column.kind == "bar" else "dim"
                cells[-1].append(Text(written, color))

    notes = []
    if dtype:
        where = "where a row names none" if several else "in every row"
        notes.append(f"output: {dtype} {where}")
    notes += [*_left_note(len(rows), limit), *_module_notes(graph, shown)]
    notes += _column_notes(asked, counted)
    headings = [Column("module", "title"), *(one.column for one in columns)]
    return FittedTable(headings, cells), notes


def _rows(graph: Graph, options: Options, counted: Flops) -> list[OutlineRow]:
    ops = len(graph.nodes) <= OPS_UP_TO and not options.columns
    every = options.depth == "all"
    deepest = options.depth if isinstance(options.depth, int) else math.inf
    rows = outline.modules(graph, every=every, ops=ops, flops=counted.of_node)
    shown = [row for row in rows if row.depth < deepest]
    if "trainable" not in options.columns:
        return shown
    return outline.with_absent(graph, shown)


SUMMARY = ("output", "parameters", "trainable", "FLOPs", "saved")
"""The columns of `gradviz summary`."""


def _column_notes(asked: Collection[str], counted: Flops) -> Iterator[str]:
    """What must be known of the columns that are asked for."""
    if "trainable" in asked:
        yield "trainable: parameters that get a gradient"
    if "FLOPs" in asked:
        most = Counter(counted.unknown).most_common()
        ops = [f"{op} {labels.again(count)}" for op, count in most]
        without = f"; no formula, so not counted: {few(ops, _OPS)}" if ops else ""
        yield f"FLOPs: forward of what requires grad, 2 a multiply-add{without}"


_OPS = 4  # without a formula that are named


def _columns(rows: Sequence[OutlineRow], asked: Sequence[str]) -> list[_Measure]:
    by_title = {one.column.title: one for one in _COLUMNS}
    if asked:
        if "trainable" in asked:
            parameters = by_title["parameters"]._replace(text=_all_parameters)
            by_title["parameters"] = parameters
        return [by_title[title] for title in asked]

    del by_title["trainable"], by_title["FLOPs"]
    if all(row.calls == 1 for row in rows):
        del by_title["calls"]
    columns = [*by_title.values()]
    most = max((row.nbytes for row in rows), default=0)
    if most:

        def text(row: OutlineRow) -> str:
            return bar(row.nbytes / most if row.nbytes else None, _BAR)

        columns.append(_Measure(Column("bar", "bar", 3), text))
    return columns


def _module_notes(graph: Graph, rows: Sequence[OutlineRow]) -> Iterator[str]:
    """What must be known of a table of modules."""
    most = max((row.alike for row in rows), default=1)
    if most > 1:
        count = count_text(most)
        yield f"×{count}: the sum of {count} alike modules, as are rows below it (depth=all shows each)"
    closed = sum(row.closed for row in rows)
    if closed:
        yield f"closed: {plural(closed, 'module')} built like one above (depth=all opens each)"
    yield from inferred_lines(graph)


_LEAVES = 6  # of an op that are named


def _title(graph: Graph, row: OutlineRow, names: labels.OpNames) -> Text:
    """Path and class of a module, or an op with its leaves, indented."""
    if row.node is None:
        return outline_title(row)
    words = _op_title(graph, row.node, row.around, names)
    return Text("  " * row.depth).append(words)


def outline_title(row: OutlineRow) -> Text:
    """Path and class of a module, indented."""
    title = Text("  " * row.depth)
    name = clip(labels.relative(one_line(row.path or row.type), row.around), LONGEST)
    if row.turns:
        name += f" {labels.again(row.turns)}"
    if not name:
        return title.append(row.beside or "outside every module")
    kind = ""
    if row.type and row.path.rpartition(".")[2] not in ("", row.type):
        kind = f" {one_line(row.type)}"
    if row.alike > 1:
        kind += f" {labels.again(row.alike)}"
    return title.append(name, "bold").append(kind, "dim")


def _op_title(graph: Graph, node: Node, around: str, names: labels.OpNames) -> str:
    """The variable, the op, other names of its result, and the leaves it was given."""
    held_by = labels.held_text(node, around)
    titles = labels.op_title(graph, node, around, names=names)
    used = [
        labels.leaf_title(graph.leaf_of[edge.producer], around)
        for edge in graph.inputs(node.id)
        if edge.producer in graph.leaf_of
    ]
    if len(used) > _LEAVES:
        used = [*used[: _LEAVES - 1], labels.more(len(used) - _LEAVES + 1)]
    return "  ".join(filter(None, dict.fromkeys((*titles, held_by, *used))))
