"""`gradviz tree`: prints the graph as a tree in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from gradviz.cli.options import render_options
from gradviz.cli.progress import progress
from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument

if TYPE_CHECKING:
    from gradviz.graph import Graph


@click.command("tree", cls=TargetCommand)
@render_options("by", "columns", "names", "depth", "max_depth", "max_rows", "leaves", "saved", "attributes", "color")
@target_argument
def command(source: Source, **options: Any) -> None:
    """Print the graph as a tree of modules, nodes or lines of code.

    Modules stand as they ran, nodes from the output down. With modules, each row says how often it was called, its ops,
    parameters, output and bytes held for backward. --by node shows single nodes: what several of them use is shown once and
    pointed at from then on. --by line shows the lines of your code and what each made. What the script prints goes to
    standard error.
    """
    from gradviz.draw.options import Options
    from gradviz.draw.tree import refuse_backward

    refuse_backward(Options.of(options))
    with result_stream() as stream:
        captured = source.graph()
        _print(captured.result, options, stream)
    captured.raise_failure()


def _print(graph: Graph, options: dict[str, Any], stream: TextIO) -> None:
    """In colour and cut to the screen on a terminal; whole lines and all rows for a pipe or a file."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if console.is_terminal:
        from rich.segment import Segments

        with progress("drawing the tree"):
            rows = Segments(list(console.render(graph.tree(**options))))
        console.print(rows, end="")
        return
    from gradviz.draw.options import Options
    from gradviz.draw.output import pieces

    with progress("drawing the tree"):
        for piece in pieces(graph, "txt", Options.of(options)):
            stream.buffer.write(piece)
