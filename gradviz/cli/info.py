"""`gradviz info`: what a graph holds, and the versions in use, on one screen or as JSON."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import Form, form_option, write_result
from gradviz.cli.progress import progress
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.draw.summary import summary
from gradviz.errors import GradvizError
from gradviz.graph.amounts import overview

if TYPE_CHECKING:
    from gradviz.graph import Graph, Root
    from gradviz.report.rich_parts import Text


@click.command("info", cls=TargetCommand)
@form_option("Print everything as JSON.")
@target_argument
def command(source: Source, form: Form) -> None:
    """Summarise a graph on one screen.

    Its outputs, leaves, operations and saved tensors, and the versions in use. Nothing
    is measured. The script's own output goes to standard error.
    """
    with result_stream() as stream:
        captured = source.graph()
        graph = captured.result
        with progress("counting"):
            write_result(
                stream, form, lambda: as_data(graph), lambda: one_screen(graph)
            )
    captured.raise_failure()


def as_data(graph: Graph) -> dict[str, Any]:
    """What `--json` prints. Nothing is cut."""
    data = overview(graph)._asdict()
    data["saved_tensors"] = data.pop("saved")
    data["leaf_counts"], data["leaf_elements"] = data["leaves"], data.pop("elements")
    data["leaves"] = data.pop("largest_leaves")
    return {
        "title": graph.title,
        "recorded_with_torch": graph.torch,
        **data,
        "roots": [_root_data(graph, root) for root in graph.roots],
        "no_gradient": graph.absent,
        "notes": graph.notes,
        "environment": environment(),
    }


def _root_data(graph: Graph, root: Root) -> dict[str, Any]:
    op = graph.nodes[root.node].op if root.node is not None else None
    return {
        "name": root.name,
        "tensor": root.tensor,
        "op": op,
        "why_no_graph": root.why,
    }


def one_screen(graph: Graph) -> Text:
    """The same in words."""
    from gradviz.report.rich_parts import Text

    used = (f"  {name:12}  {version}" for name, version in environment().items())
    return Text("\n".join([summary(graph), "", "Environment", *used]))


def environment() -> dict[str, str]:
    """Versions of what takes part. Imports no torch."""
    from gradviz import __version__

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return {
        "gradviz": __version__,
        "python": platform.python_version(),
        "torch": torch,
        "graphviz": _graphviz(),
    }


def _graphviz() -> str:
    """The Graphviz that paints, or why none does."""
    from gradviz.layout import graphviz

    try:
        return f"{graphviz.version()} ({graphviz.which()})"
    except GradvizError as error:
        return f"not used: {str(error).splitlines()[0]}"
