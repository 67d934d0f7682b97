"""Prints a graph in rows, in colour for a terminal, plain for a file: a tree of nodes,
or an outline of modules or lines of code.

What the rows are is decided in `tree_rows`, and in `fold.outline` for the outline,
which has columns of numbers; limits are applied here. Rows of a tree are streamed, so a
graph of a million nodes needs no memory for its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gradviz.draw.heat import held_by_box, held_line
from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.summary import (
    footer_lines,
    inferred_lines,
    mark_lines,
    usual_dtype,
    without_dtype,
)
from gradviz.draw.tree_rows import BRANCH, Style, TreeRow, TreeRows
from gradviz.draw.typesetting import ELLIPSIS
from gradviz.errors import FormatError
from gradviz.fold import outline
from gradviz.fold.outline import OutlineRow
from gradviz.graph import Graph, Mark
from gradviz.graph.origins import telling_lines
from gradviz.report import labels
from gradviz.report.results import WIDE
from gradviz.stages import Stage
from gradviz.wording import (
    bar,
    bytes_text,
    clip,
    count_text,
    one_line,
    seconds_text,
    tensor_line,
)

if TYPE_CHECKING:
    from gradviz.report.rich_parts import (
        Console,
        ConsoleOptions,
        RenderableType,
        RenderResult,
        Text,
    )
    from gradviz.report.table import Kind


TERMINAL_ROWS = 200
HELD_WIDTH = 10  # of the longest text, "1023.9 MiB"
_COLORS: dict[Style, str] = {
    "op": "bold",
    "group": "bold italic",
    "leaf": "bold cyan",
    "output": "bold green",
    "tensor": "",
    "name": "magenta",
    "place": "dim",
    "saved": "yellow",
    "flag": "red",
    "note": "dim",
    "id": "blue",
}
_ASCII = str.maketrans(
    {
        "├": "|",
        "└": "`",
        "│": "|",
        "─": "-",
    }
)


def tree(graph: Graph, options: Options | None = None) -> RenderableType:
    """The graph as a rich renderable, at most 200 rows unless `max_rows` says
    otherwise.
    """
    options = options or Options()
    refuse_backward(options)
    return TerminalTree(graph, options)


def render_text(graph: Graph, options: Options) -> Iterator[str]:
    """The graph as plain text, every row unless `max_rows` says otherwise.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> graph = Graph((Node(0, "AddBackward0"), Node(1, "ExpBackward0")), (Edge(0, 1, 0, 0),))
    >>> print("".join(render_text(graph, Options())), end="")
    add
    exp
    <BLANKLINE>
    2 backward functions, 0 leaves, 0 outputs, 1 edge
    """
    refuse_backward(options)
    for line in _lines(graph, options, options.max_rows or 0):
        yield f"{_plain(line, options)}\n"


def _lines(
    graph: Graph, options: Options, limit: int, width: int = 0
) -> Iterator[TreeRow | Text]:
    """At most `limit` rows (0: all), with the title above and what a reader must know
    below; in `width` cells (0: any).
    """
    from gradviz.report.rich_parts import Text

    if graph.title:
        yield Text(one_line(graph.title), "bold")

    if outline_by(graph, options) != "node":
        yield from text_lines(table(graph, options, limit), width)
        below = _below(graph)
    else:
        with Stage("write", "rows") as writing:
            for i, row in enumerate(writing.each(limited_rows(graph, options, limit))):
                if row.first and i:
                    yield Text()
                yield row
        below = notes(graph, options)

    yield Text()
    yield from (Text(line, "dim") for line in below)


def _plain(line: TreeRow | Text, options: Options) -> str:
    if isinstance(line, TreeRow):
        return _held(line, options) + line.text
    return line.plain


def limited_rows(
    graph: Graph,
    options: Options,
    limit: int,
) -> Iterator[TreeRow]:
    """At most `limit` rows (0: all), then how many nodes are missing. A reference to a
    row that was cut says so.
    """
    rows = iter(TreeRows(graph, options))
    if not limit:
        yield from rows
        return

    kept = list(islice(rows, limit))
    shown = {row.node for row in kept if row.node is not None}
    for row in kept:
        yield row if row.see is None or row.see in shown else _not_shown(row)

    # the number left comes from the nodes: a million rows need not be made
    if next(rows, None) is not None:
        hidden = len(graph.leaf_of) if options.leaves == "hidden" else 0
        left = len(graph.nodes) - hidden - len(shown)
        if left:
            what = f"{labels.more(left)} nodes"
        else:
            what = "more references to the nodes above"
        yield TreeRow("", (("note", f"{what} (max_rows=0 shows all)"),))


def refuse_backward(options: Options) -> None:
    """A tree shows no gradients and no numbers. Raises FormatError, which says what
    does.
    """
    if options.color == "grad" or options.numbers:
        from gradviz.draw.output import listed

        raise FormatError(
            "a tree shows no gradients and does not number nodes. `gradviz flow` lists them, "
            f"and `gradviz render` draws them as {listed(pictures=True)}."
        )


def _not_shown(row: TreeRow) -> TreeRow:
    style, text = row.parts[-1]
    return row._replace(parts=(*row.parts[:-1], (style, f"{text} (not shown)")))


def notes(graph: Graph, options: Options) -> Iterator[str]:
    """Lines for under the tree: how to read it, when it has branches, then counts and
    everything left out.
    """
    if any(len(graph.inputs(node)) > 1 for node in range(len(graph.nodes))):
        yield f"A row is an input of the row above it in its column; {BRANCH.strip()} marks further inputs."
    yield from _below(graph, hidden=options.leaves == "hidden")
    if options.color == "memory":
        yield held_line(held_by_box(graph))


def _below(graph: Graph, hidden: bool = False) -> Iterator[str]:
    yield from mark_lines(marked(graph))
    yield from footer_lines(graph, hidden=hidden)


class TerminalTree:
    """A rich renderable. Rows that are wider than the terminal end in an ellipsis, so
    that guides stay in line.
    """

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        self._limit = TERMINAL_ROWS if options.max_rows is None else options.max_rows

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        for line in _lines(self.graph, self.options, self._limit, options.max_width):
            if isinstance(line, TreeRow):
                yield _fitted(_styled(line, self.options), options)
            else:
                yield _encodable(line, options)

    def __repr__(self) -> str:
        """The same rows as plain text, for `print` and for a notebook."""
        lines = _lines(self.graph, self.options, self._limit)
        return "\n".join(_plain(line, self.options) for line in lines)


def _styled(row: TreeRow, options: Options) -> Text:
    from gradviz.report.rich_parts import Text

    line = Text.assemble((_held(row, options) + row.guides, "dim"))
    for i, (style, text) in enumerate(row.parts):
        line.append(("  " if i else "") + text, _COLORS[style])
    return line


def _encodable(line: Text, options: ConsoleOptions) -> Text:
    """The line as the terminal can write it."""
    if options.ascii_only:
        plain = line.plain.translate(_ASCII).encode("ascii", "backslashreplace")
        line.plain = plain.decode()
    return line


def _fitted(line: Text, options: ConsoleOptions) -> Text:
    """The line on one row of the terminal, with an ellipsis where it was cut. A shape
    is there as a whole or not at all.
    """
    line = _encodable(line, options)
    if line.cell_len > options.max_width:
        dots = "..." if options.ascii_only else ELLIPSIS
        line.truncate(options.max_width - len(dots), overflow="crop")
        # half a number reads like another number
        line.set_length(len(_BROKEN.sub("", line.plain)))
        line.append(dots)
    return line


_BROKEN = re.compile(r"(?:\([^()]*|[\d.,]+)$")


def _held(row: TreeRow, options: Options) -> str:
    """The column of bytes in front of a row, when the options ask for it."""
    if options.color != "memory":
        return ""
    return f"{bytes_text(row.held) if row.held else '':>{HELD_WIDTH}}  "


# -- the outline: modules indented by nesting, or lines of code, with columns of numbers


def parameters_text(used: int, registered: int) -> str:
    """`70`, or `70 of 1,070` where the graph has only some of those that the module
    has.
    """
    of_all = f" of {count_text(registered)}" if registered > used else ""
    return f"{count_text(used)}{of_all}" if used else ""


class Heading(NamedTuple):
    """One column: its text for a row, and how it fits a narrow terminal
    (`gradviz.report.table`).
    """

    text: Callable[[OutlineRow], str]
    kind: Kind = "number"
    leaves: int = 0


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else seconds_text(seconds)


COLUMNS: dict[str, Heading] = {
    "calls": Heading(
        lambda row: count_text(row.calls) if row.type else "",
        leaves=1,
    ),
    "ops": Heading(
        lambda row: "" if row.node else count_text(row.ops),
        leaves=2,
    ),
    "parameters": Heading(
        lambda row: parameters_text(row.parameters, row.registered), leaves=6
    ),
    "output": Heading(
        lambda row: tensor_line(row.output) if row.output else "", "word", 4
    ),
    "saved": Heading(lambda row: bytes_text(row.nbytes) if row.nbytes else ""),
    "forward": Heading(lambda row: _seconds(row.forward)),
    "backward": Heading(lambda row: _seconds(row.backward)),
    "made": Heading(
        lambda row: ", ".join(map(one_line, row.made)),
        "code",
        5,
    ),
}
"""By heading."""
_BAR = 8  # cells
_STYLES = {**dict.fromkeys(COLUMNS, "dim"), "made": "", "bar": "cyan"}
"""Numbers are dim, names are not."""
_MODULE: tuple[tuple[str, Kind, int], ...] = (("module", "name", 0),)
_LINE: tuple[tuple[str, Kind, int], ...] = (("line", "name", 0), ("code", "code", 6))
FOR_MODULES = ("ops", "parameters", "output", "saved")
FOR_TIMES = ("forward", "backward", "saved")
FOR_LINES = ("ops", "saved", "made")


OPS_UP_TO = 100
"""Nodes of a graph whose outline lists the backward functions of each module too."""


class Outline(NamedTuple):
    """An outline as text cells: the columns, the rows, and notes for under it.

    `named` says how many letters of the first cell are the path of a module or the
    place of a line; 0 for what is none.
    """

    columns: tuple[tuple[str, Kind, int], ...]  # as `gradviz.report.table.Column`
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...]
    named: tuple[int, ...]


def _module_notes(
    graph: Graph,
    rows: Iterable[OutlineRow],
) -> Iterator[str]:
    """What must be known of a table of modules."""
    most = max((row.alike for row in rows), default=1)
    if most > 1:
        count = count_text(most)
        yield f"×{count}: the sum of {count} alike modules, as are rows below it (depth=all shows each)"
    yield from inferred_lines(graph)


def table(
    graph: Graph,
    options: Options,
    limit: int = 0,
) -> Outline:
    """The outline that the options ask for, at most `limit` rows (0: all)."""
    by_line, lines = outline_by(graph, options) == "line", telling_lines(graph.nodes)
    if by_line:
        outline_rows = outline.lines(graph, lines.of)
    else:
        ops = len(graph.nodes) <= OPS_UP_TO
        every = options.depth == "all"
        outline_rows = outline.modules(graph, every=every, ops=ops)

    deepest = options.depth if isinstance(options.depth, int) else math.inf
    outline_rows = (row for row in outline_rows if row.depth < deepest)
    kept = list(islice(outline_rows, limit or None))
    left = len(list(outline_rows))

    columns = _columns(graph, options, kept, by_line)
    outputs = [row.output for row in kept] if "output" in columns else []
    dtype, several = usual_dtype(outputs)
    brief = without_dtype(dtype)
    badges = marked(graph).nodes
    names = options.op_names("variable")
    rows = []
    for row in kept:
        heading = "  " * row.depth + title(graph, row, names) + _badge(row, badges)
        texts = (brief(column.text(row)) for column in columns.values())
        rows.append((heading, *_code(row, by_line), *texts))

    notes = [*_dtype_note(dtype, several), *_left_note(left)]
    if by_line:
        notes += filter(None, (lines.note, _timeless(graph)))
    else:
        notes += _module_notes(graph, kept)
    headings = [(name, column.kind, column.leaves) for name, column in columns.items()]
    return Outline(
        (*(_LINE if by_line else _MODULE), *headings),
        rows,
        tuple(notes),
        tuple(len(_named(row)) for row in kept),
    )


def _dtype_note(dtype: str, several: bool) -> Iterator[str]:
    if dtype:
        where = "where a row names none" if several else "in every row"
        yield f"output: {dtype} {where}"


def _left_note(rows: int) -> Iterator[str]:
    if rows:
        yield f"{labels.more(rows)} rows (max_rows=0 shows all)"


def _columns(
    graph: Graph,
    options: Options,
    rows: Sequence[OutlineRow],
    by_line: bool,
) -> dict[str, Heading]:
    """The columns by heading: those asked for, else what is usual."""
    headings: Sequence[str] = FOR_TIMES if _is_timed(graph) else FOR_MODULES
    if not by_line and any(row.calls > 1 for row in rows):
        headings = ("calls", *headings)
    if by_line:
        headings = FOR_LINES
    columns = {heading: COLUMNS[heading] for heading in options.columns or headings}
    # columns that were asked for get no bar beside them
    if options.columns or by_line:
        return columns

    most = max((row.nbytes for row in rows), default=0)
    if most:
        columns["bar"] = Heading(
            lambda row: bar(row.nbytes / most if row.nbytes else None, _BAR), "bar", 3
        )
    return columns


def _is_timed(graph: Graph) -> bool:
    return any(scope.forward is not None for scope in graph.scopes)


def _timeless(graph: Graph) -> str:
    """Why a table of lines has no times."""
    if _is_timed(graph):
        return "times are measured for calls of modules, not for lines: --by module shows them"
    return ""


def _badge(
    row: OutlineRow,
    badges: Mapping[int, tuple[Mark, ...]],
) -> str:
    """What marks a backward function, in brackets."""
    marks = badges.get(row.node.id, ()) if row.node is not None else ()
    return "".join(f"  [{word}]" for word in labels.mark_words(marks))


def outline_by(graph: Graph, options: Options) -> str:
    """What the rows of a tree are: "node", "module" or "line". Modules when they were
    recorded, unless asked otherwise.
    """
    if options.by != "auto":
        return options.by
    return "module" if graph.scopes else "node"


_LEAVES = 6  # of an op that are named


def title(
    graph: Graph,
    row: OutlineRow,
    names: labels.OpNames = "variable",
) -> str:
    """Path and class of a module, an op with its leaves, or file and number of a line
    of code.
    """
    if row.node is not None:
        leaves = [
            graph.leaf_of[edge.producer]
            for edge in graph.inputs(row.node.id)
            if edge.producer in graph.leaf_of
        ]
        held_by = labels.names_text(
            labels.relative(name, row.around) for name in row.node.names
        )
        titles = labels.op_title(graph, row.node, row.around, names)
        used = [labels.leaf_title(leaf, row.around) for leaf in leaves]
        if len(used) > _LEAVES:
            used = [*used[: _LEAVES - 1], labels.more(len(used) - _LEAVES + 1)]
        words = dict.fromkeys((*titles, held_by, *used))
        return "  ".join(filter(None, words))

    if row.beside:
        return row.beside
    name = _named(row)
    if not name:
        return "outside every module" if not row.made else "no line recorded"
    if row.type and row.path.rpartition(".")[2] not in ("", row.type):
        name += f" {one_line(row.type)}"
    return f"{name} {labels.again(row.alike)}" if row.alike > 1 else name


def _named(row: OutlineRow) -> str:
    """The path of a module, or the place of a line; "" of what is none."""
    if row.line is not None:
        return labels.source_text(row.line)
    return labels.relative(one_line(row.path or row.type), row.around)


def _code(row: OutlineRow, by_line: bool) -> tuple[str, ...]:
    """What stands beside the number of a line."""
    if by_line:
        return (clip(row.line.text.strip(), 60) if row.line is not None else "",)
    return ()


def text_lines(made: Outline, width: int = 0) -> Iterator[Text]:
    """The table as lines of text, in `width` cells (0: any), and the notes below it."""
    from gradviz.report.rich_parts import Text
    from gradviz.report.table import Column, FittedTable

    columns = [Column(*column) for column in made.columns]
    styles = [_STYLES.get(column.title, "") for column in columns]
    rows = [[*map(Text, row, styles)] for row in made.rows]
    for (first, *_), letters in zip(rows, made.named):
        if letters:
            end = len(first) - len(first.plain.lstrip()) + letters
            first.stylize("bold", 0, end)
            first.stylize("dim", end)
    yield from FittedTable(columns, rows).lines(width or WIDE)
    if made.notes:
        yield Text()
        yield from (Text(note, "dim") for note in made.notes)
