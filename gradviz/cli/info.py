"""`gradviz info`: what a graph is made of and what it was read with, on one screen or as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import json_option
from gradviz.cli.progress import progress
from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument
from gradviz.errors import GradvizError
from gradviz.fold.fold import fold
from gradviz.graph.amounts import overview
from gradviz.report import labels
from gradviz.report.results import write_json, write_table
from gradviz.wording import bytes_text, count_text, one_line, plural, tensor_line

if TYPE_CHECKING:
    from gradviz.graph import Graph, Node, Root
    from gradviz.graph.amounts import Overview
    from gradviz.report.rich_parts import RenderableType

_ROWS = 12
Row = tuple[str, str]


@click.command("info", cls=TargetCommand)
@json_option("Print it all as JSON.")
@target_argument
def command(source: Source, as_json: bool) -> None:
    """Summarise the graph on one screen.

    Operations, depth, outputs, leaves, flags of nodes, and the versions in use. The script's own output goes to standard error.
    """
    with result_stream() as stream:
        captured = source.graph()
        graph = captured.result
        with progress("counting"):
            counts = overview(graph)
        if as_json:
            write_json(stream, as_data(graph, counts))
        else:
            write_table(stream, table(graph, counts))
    captured.raise_failure()


def environment() -> dict[str, str]:
    """Versions of what takes part. Imports no torch."""
    from gradviz import __version__

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return {"gradviz": __version__, "python": platform.python_version(), "torch": torch, "graphviz": _graphviz()}


def _graphviz() -> str:
    """The Graphviz that draws, or what draws instead."""
    from gradviz.layout import graphviz

    try:
        return f"{graphviz.version()} ({graphviz.which()})"
    except GradvizError as error:
        reason = str(error).splitlines()[0]
        return f"not used, gradviz places the boxes itself: {reason}"


def as_data(graph: Graph, counts: Overview) -> dict[str, Any]:
    """Everything the command knows, for `--json`. Nothing is cut."""
    return {
        "title": graph.title,
        "recorded_with_torch": graph.torch,
        "nodes": counts.nodes,
        "edges": counts.edges,
        "depth": counts.depth,
        "operations": counts.operations,
        "flags": counts.flags,
        "saved_tensors": counts.saved,
        "saved_bytes": counts.saved_bytes,
        "compiled": [_compiled_data(node) for node in _compiled(graph)],
        "roots": [_root_data(graph, root) for root in counts.roots],
        "leaves": [
            {"names": leaf.names, "kind": leaf.kind, "tensor": leaf.tensor, "has_grad": leaf.has_grad}
            for leaf in counts.largest_leaves
        ],
        "leaf_counts": counts.leaves,
        "leaf_elements": counts.elements,
        "notes": graph.notes,
        "environment": environment(),
    }


def table(graph: Graph, counts: Overview) -> RenderableType:
    """The same in words; long lists are cut and say so."""
    from gradviz.report.rich_parts import Group, Text

    return Group(*map(Text, _head(graph, counts)), *_sections(graph, counts))


def _head(graph: Graph, counts: Overview) -> Iterator[str]:
    yield one_line(graph.title or "graph")
    yield ", ".join(
        (
            plural(counts.nodes - len(graph.leaves), "backward function"),
            plural(len(graph.leaves), "leaf", "leaves"),
            plural(counts.edges, "edge"),
            f"longest path {count_text(counts.depth)}",
        )
    )
    if counts.saved:
        yield f"{plural(counts.saved, 'saved tensor')} in {bytes_text(counts.saved_bytes)}"
    yield _compiled_text(graph)


def _sections(graph: Graph, counts: Overview) -> Iterator[RenderableType]:
    leaves = ", ".join(
        f"{plural(count, kind)} of {plural(counts.elements[kind], 'element')}" for kind, count in counts.leaves.items()
    )
    largest = [(labels.leaf_title(leaf), f"{tensor_line(leaf.tensor)}  {leaf.kind}") for leaf in counts.largest_leaves]
    yield from _section("Parts", _parts(graph))
    yield from _section("Outputs", [_root_row(graph, root) for root in counts.roots])
    yield from _section(f"Leaves: {leaves or 'none'}", largest)
    yield from _section("Operations", _counts(counts.operations))
    yield from _section("Special", _counts({labels.FLAG_WORDS[flag]: n for flag, n in counts.flags.items()}))
    yield from _section("Notes", [("-", one_line(note)) for note in graph.notes])
    yield from _section("Environment", list(environment().items()))


def _compiled(graph: Graph) -> list[Node]:
    """The nodes that run what `torch.compile` compiled."""
    return [node for node in graph.nodes if "custom" in node.flags and {"compiled", "in_compiled"} & {*node.flags}]


def _compiled_text(graph: Graph) -> str:
    """Whether backward is compiled at all."""
    compiled = _compiled(graph)
    if not compiled:
        return "backward is not compiled: autograd runs the functions one by one"
    closed = [node for node in compiled if "in_compiled" not in node.flags]
    if closed:
        every = plural(len(compiled), "compiled function")
        return f"{every}; what the backward of {count_text(len(closed))} does cannot be read with this torch"
    inside = sum(node.attributes.get("operations", 0) for node in compiled)
    waiting = sum(node.attributes.get("backward_compiled") is False for node in compiled)
    text = f"{plural(len(compiled), 'compiled function')}, {plural(inside, 'operation')} in backward"
    return f"{text}; backward is compiled when it first runs" if waiting else text


def _compiled_data(node: Node) -> dict[str, Any]:
    return {
        "node": node.id,
        "source": node.source,
        "opened": "in_compiled" in node.flags,
        "operations": node.attributes.get("operations"),
        "backward_compiled": node.attributes.get("backward_compiled"),
    }


def _section(title: str, rows: list[Row]) -> Iterator[RenderableType]:
    from gradviz.report.rich_parts import Text
    from gradviz.report.table import Column, FittedTable

    if rows:
        cells = [(Text(name), Text(text)) for name, text in rows[:_ROWS]]
        more = [Text(f"  {labels.more(len(rows) - _ROWS)}")] if len(rows) > _ROWS else []
        section: list[RenderableType] = [Text(), Text(title)]
        yield from (
            *section,
            FittedTable((Column("", "name"), Column("", "text")), cells, header=False, indent=2),
            *more,
        )


def _root_row(graph: Graph, root: Root) -> Row:
    made = graph.nodes[root.node].op if root.node is not None else f"no graph: {root.why}"
    return labels.root_title(root), one_line(f"{tensor_line(root.tensor)}  {made}")


def _parts(graph: Graph) -> list[Row]:
    """The boxes of the picture of depth 1 in the order they ran, or of depth 2 where that is one model with its loss."""
    top = fold(graph, depth=1)
    top = fold(graph, depth=2) if [group.kind for group in top.groups] == ["module"] else top
    ops = [node for node in reversed(top.nodes) if node.id not in top.leaf_of]
    return [_part_row(top, node) for node in ops] if top.groups else []


def _part_row(graph: Graph, node: Node) -> Row:
    name, op = labels.op_title(graph, node)
    inside = labels.group_line(node.folded) if node.folded is not None else ""
    return name, "  ".join(filter(None, (op, labels.outputs_line(node.outputs), inside)))


def _counts(counts: Mapping[str, int]) -> list[Row]:
    return [(one_line(name), count_text(count)) for name, count in counts.items()]


def _root_data(graph: Graph, root: Root) -> dict[str, Any]:
    return {
        "name": root.name,
        "tensor": root.tensor,
        "op": graph.nodes[root.node].op if root.node is not None else None,
        "why_no_graph": root.why,
    }
