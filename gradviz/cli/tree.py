"""`gradviz tree`: prints the graph as a tree in the terminal."""

from __future__ import annotations

from typing import Any

import click

from gradviz.cli.options import render_options
from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument


@click.command("tree", cls=TargetCommand)
@render_options("max_depth", "max_rows", "leaves", "saved", "attributes")
@target_argument
def command(source: Source, **options: Any) -> None:
    """Print the graph as a tree: outputs first, leaves last.

    What several nodes use is shown once and pointed at from then on. What the script prints goes to standard error.
    """
    with result_stream() as stream:
        captured = source.graph()
        from rich.console import Console

        console = Console(file=stream, highlight=False, soft_wrap=not stream.isatty())
        console.print(captured.result.tree(**options))
    captured.raise_failure()
