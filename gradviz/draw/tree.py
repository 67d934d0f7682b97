"""Prints the rows of a graph as a tree: in colour for a terminal, plain for a file.

What the rows are is decided in `tree_rows`; limits are applied here. Rows are streamed, so a graph of a million nodes
needs no memory for its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.finding import marked
from gradviz.draw.options import Options
from gradviz.draw.outline import outline_by, table, text_lines
from gradviz.draw.registry import listed
from gradviz.draw.summary import bar_lines, footer_lines, held_line, mark_lines, rank_bars
from gradviz.draw.tree_rows import BRANCH, Row, Style, TreeRows
from gradviz.errors import FormatError
from gradviz.graph.origins import with_forward_names
from gradviz.memory.heat import heat
from gradviz.report import labels
from gradviz.stages import Stage
from gradviz.wording import bytes_text, one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from gradviz.graph import Graph

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
_ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-"})


def tree(graph: Graph, options: Options | None = None) -> RenderableType:
    """The graph as a rich renderable, at most 200 rows unless `max_rows` says otherwise."""
    options = options or Options()
    refuse_backward(options)
    return TerminalTree(_named(graph, options), options)


def render_text(graph: Graph, options: Options) -> Iterator[str]:
    """The graph as plain text, every row unless `max_rows` or `max_depth` says otherwise.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> graph = Graph((Node(0, "AddBackward0"), Node(1, "ExpBackward0")), (Edge(0, 1, 0, 0),))
    >>> print("".join(render_text(graph, Options())), end="")
    AddBackward0
    ExpBackward0
    <BLANKLINE>
    2 backward functions, 0 leaves, 0 outputs, 1 edge
    """
    refuse_backward(options)
    for line in _lines(_named(graph, options), options, options.max_rows or 0):
        yield "".join((*(text for text, _ in line.pieces), "\n"))


def _named(graph: Graph, options: Options) -> Graph:
    return with_forward_names(graph) if options.names == "forward" else graph


class _Line(NamedTuple):
    """One line: texts, each with its style. One that is `cut` ends in an ellipsis where the terminal does; others are wrapped."""

    pieces: tuple[tuple[str, str], ...]
    cut: bool = False


def _lines(graph: Graph, options: Options, limit: int, width: int = 0) -> Iterator[_Line]:
    """At most `limit` rows (0: all), with the title above and what a reader must know below; in `width` cells (0: any)."""
    if graph.title:
        yield _Line(((one_line(graph.title), "bold"),))
    if outline_by(graph, options) != "node":
        outline = table(graph, options, limit)
        styles = ["bold", *("cyan" if opened else "" for opened in outline.opened)]
        for text, style in zip_longest(text_lines(outline, width), styles, fillvalue="dim"):
            yield _Line(((text, style),), style != "dim")
        below = _below(graph)
    else:
        with Stage("write", "rows") as writing:
            for i, row in enumerate(writing.each(limited_rows(graph, options, limit))):
                if row.first and i:
                    yield _Line(())
                parts = ((("  " if k else "") + text, _COLORS[style]) for k, (style, text) in enumerate(row.parts))
                yield _Line(((_held(row, options) + row.guides, "dim"), *parts), True)
        below = notes(graph, options)
    yield _Line(())
    yield from (_Line(((line, "dim"),)) for line in below)


def limited_rows(graph: Graph, options: Options, limit: int) -> Iterator[Row]:
    """At most `limit` rows (0: all), then how many nodes are missing. A reference to a row that was cut says so."""
    rows = iter(TreeRows(graph, options))
    if not limit and not options.max_depth:
        yield from rows
        return
    kept = list(islice(rows, limit or None))
    shown = {row.node for row in kept if row.node is not None}
    for row in kept:
        yield row if row.see is None or row.see in shown else _not_shown(row)
    if next(rows, None) is not None:
        hidden = len(graph.leaf_of) if options.leaves == "hidden" else 0
        left = len(graph.nodes) - hidden - len(shown) - sum(row.cut for row in kept)
        what = f"{labels.more(left)} nodes" if left else "more references to the nodes above"
        yield Row("", (("note", f"{what} (max_rows=0 shows all)"),))


def refuse_backward(options: Options) -> None:
    """A tree shows no gradients and no numbers. Raises FormatError, which says what does."""
    if options.color == "grad" or options.numbers:
        raise FormatError(
            "a tree shows no gradients and does not number nodes. `gradviz flow --by node` lists both, "
            f"and `gradviz render` draws them as {listed(pictures=True)}."
        )


def _not_shown(row: Row) -> Row:
    style, text = row.parts[-1]
    return row._replace(parts=(*row.parts[:-1], (style, f"{text} (not shown)")))


def notes(graph: Graph, options: Options) -> Iterator[str]:
    """Lines for under the tree: how to read it, when it has branches, then counts and everything left out."""
    if any(len(graph.inputs(node)) > 1 for node in range(len(graph.nodes))):
        yield f"A row is an input of the row above it in its column; {BRANCH.strip()} marks further inputs."
    yield from _below(graph, hidden=len(graph.leaf_of) if options.leaves == "hidden" else 0)
    if options.color == "memory":
        yield held_line(heat(graph).nbytes)


def _below(graph: Graph, hidden: int = 0) -> Iterator[str]:
    yield from mark_lines(marked(graph))
    yield from footer_lines(graph, hidden=hidden)
    yield from bar_lines(rank_bars(graph))


class TerminalTree:
    """A rich renderable. Rows that are wider than the terminal end in an ellipsis, so that guides stay in line."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        limit = TERMINAL_ROWS if self.options.max_rows is None else self.options.max_rows
        for line in _lines(self.graph, self.options, limit, options.max_width):
            text = _text(line.pieces, options)
            yield _fitted(text, options) if line.cut else text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """In a notebook: the same rows as plain text."""
        return {"text/plain": "".join(render_text(self.graph, self.options))}


def _text(pieces: tuple[tuple[str, str], ...], options: ConsoleOptions) -> Text:
    from rich.text import Text

    if options.ascii_only:
        pieces = tuple((text.translate(_ASCII).encode("ascii", "backslashreplace").decode(), s) for text, s in pieces)
    return Text.assemble(*pieces)


def _fitted(line: Text, options: ConsoleOptions) -> Text:
    """The line on one row of the terminal, with an ellipsis where it was cut."""
    if options.ascii_only and line.cell_len > options.max_width:
        line.truncate(options.max_width - 3, overflow="crop")
        line.append("...")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _held(row: Row, options: Options) -> str:
    """The column of bytes in front of a row, when the options ask for it."""
    if options.color != "memory":
        return ""
    return f"{bytes_text(row.held) if row.held else '':>{HELD_WIDTH}}  "
