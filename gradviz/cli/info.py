"""`gradviz info`: what runs, what is wrong, what is held and where the gradient goes,
on one screen or as JSON.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import json_option
from gradviz.cli.progress import progress
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.errors import GradvizError
from gradviz.features import hook
from gradviz.fold.fold import fold
from gradviz.fold.outline import lines
from gradviz.graph.amounts import overview
from gradviz.report import labels
from gradviz.report.results import write_json, write_table
from gradviz.wording import bytes_text, clip, count_text, one_line, plural, tensor_line

if TYPE_CHECKING:
    from gradviz.checks.finding import Finding, Findings
    from gradviz.graph import Graph, Node, Root
    from gradviz.graph.amounts import Overview
    from gradviz.report.rich_parts import RenderableType
    from gradviz.run.outputs import LiveOutputs

_ROWS, _LINES = 12, 3
Row = tuple[str, str]
"""A name, which may be "", and words."""


@click.command("info", cls=TargetCommand)
@json_option("Print everything as JSON.")
@target_argument
def command(source: Source, as_json: bool) -> None:
    """Summarise what runs on one screen.

    Modules, findings that need no run, memory, where the gradient goes, and the
    versions in use. Nothing is measured. The script's own output goes to standard
    error.
    """
    found: list[Findings] = []

    def read(live: LiveOutputs) -> Graph:
        from gradviz.run.reading import read_graph

        check = hook("gradviz.checks.check:check_live")
        if check is not None:
            found.append(check(live))
        return read_graph(live)

    with result_stream() as stream:
        captured = source.graph(read=read)
        graph = captured.result
        with progress("counting"):
            counts = overview(graph)
        findings = found[0] if found else None
        if as_json:
            write_json(stream, as_data(graph, counts, findings))
        else:
            write_table(stream, table(graph, counts, findings))
    captured.raise_failure()


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
    """The Graphviz that draws, or what draws instead."""
    from gradviz.layout import graphviz

    try:
        return f"{graphviz.version()} ({graphviz.which()})"
    except GradvizError as error:
        reason = str(error).splitlines()[0]
        return f"not used, gradviz places the boxes itself: {reason}"


def as_data(
    graph: Graph, counts: Overview, findings: Findings | None
) -> dict[str, Any]:
    """Everything the command knows, for `--json`. Nothing is cut."""
    as_json = [finding.as_data() for finding in findings or ()]
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
            {
                "names": leaf.names,
                "kind": leaf.kind,
                "tensor": leaf.tensor,
                "has_grad": leaf.has_grad,
            }
            for leaf in counts.largest_leaves
        ],
        "leaf_counts": counts.leaves,
        "leaf_elements": counts.elements,
        "findings": as_json if findings is not None else None,
        "no_gradient": graph.absent,
        "notes": graph.notes,
        "environment": environment(),
    }


def table(
    graph: Graph,
    counts: Overview,
    findings: Findings | None,
) -> RenderableType:
    """The same in words; long lists are cut and say so."""
    from gradviz.report.rich_parts import Group, Text
    from gradviz.report.table import Column, FittedTable

    columns = Column("", "name"), Column("", "text")
    parts: list[RenderableType] = [*map(Text, _head(graph, counts))]
    for title, rows in _sections(graph, counts, findings).items():
        if not rows:
            continue
        cells = [(Text(name), Text(words)) for name, words in rows[:_ROWS]]
        parts += [
            Text(),
            Text(title),
            FittedTable(columns, cells, header=False, indent=2),
        ]
        if len(rows) > _ROWS:
            parts.append(Text(f"  {labels.more(len(rows) - _ROWS)}"))
    return Group(*parts)


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
    yield _compiled_text(graph)


def _sections(
    graph: Graph, counts: Overview, findings: Findings | None
) -> dict[str, list[Row]]:
    """The rows below the head, by title."""
    return {
        "Outputs": [_root_row(graph, root) for root in counts.roots],
        "What runs": _parts(graph),
        "Findings": _finding_rows(findings) if findings is not None else [],
        "Memory held for backward": [*_memory_rows(graph, counts)],
        "Gradient": [*_gradient_rows(graph, counts)],
        "Notes": [("", one_line(note)) for note in graph.notes],
        "Environment": list(environment().items()),
    }


def _finding_rows(findings: Findings) -> list[Row]:
    """The findings, and how far they go: what takes a run to see is left to `check`."""
    rows = [(finding.severity, _finding_words(finding)) for finding in findings]
    scope = f"{plural(len(findings.checked), 'check')} of this one graph; gradviz check also watches the run"
    return [*rows, ("" if rows else "none", scope)]


def _finding_words(finding: Finding) -> str:
    place = f", {finding.where}" if finding.where else ""
    return one_line(f"{finding.summary}{place}  [{finding.id}]")


def _memory_rows(graph: Graph, counts: Overview) -> Iterator[Row]:
    if not counts.saved:
        return

    yield (
        "in all",
        f"{bytes_text(counts.saved_bytes)} in {plural(counts.saved, 'saved tensor')}",
    )
    held = sorted(
        (row for row in lines(graph) if row.nbytes and row.line is not None),
        key=lambda row: -row.nbytes,
    )
    for row in held[:_LINES]:
        assert row.line is not None
        yield (
            labels.source_text(row.line),
            f"{bytes_text(row.nbytes)}  {clip(row.line.text)}",
        )


def _gradient_rows(graph: Graph, counts: Overview) -> Iterator[Row]:
    """Which leaves backward reaches, and which tensors it does not, with the reason."""
    kinds = (
        f"{plural(n, kind)} of {plural(counts.elements[kind], 'element')}"
        for kind, n in counts.leaves.items()
    )
    yield "reaches", ", ".join(kinds) or "no leaf"

    for absent in graph.absent[:_LINES]:
        if absent.source is not None:
            place = f", {labels.source_text(absent.source)}"
        else:
            place = ""
        yield (
            "none",
            f"{labels.names_text(absent.names)}: {one_line(absent.reason)}{place}",
        )

    if len(graph.absent) > _LINES:
        yield (
            "none",
            f"{plural(len(graph.absent) - _LINES, 'more tensor')}; gradviz why says why",
        )

    for flag, count in counts.flags.items():
        yield labels.FLAG_WORDS[flag], plural(count, "node")


def _compiled(graph: Graph) -> list[Node]:
    """The nodes that run what `torch.compile` compiled."""
    return [node for node in graph.nodes if "compiled" in node.flags]


def _compiled_text(graph: Graph) -> str:
    """Whether backward is compiled at all."""
    compiled = _compiled(graph)
    if not compiled:
        return "backward is not compiled: autograd runs the functions one by one"

    text = plural(len(compiled), "compiled function")
    operations = sum(node.attributes.get("operations", 0) for node in compiled)
    if operations:
        text += f", {plural(operations, 'operation')} in backward"
    if any(node.attributes.get("backward_compiled") is False for node in compiled):
        text += "; backward is compiled when it first runs"
    return text


def _compiled_data(node: Node) -> dict[str, Any]:
    attributes = ("operations", "ops", "backward_compiled")
    return {
        "node": node.id,
        "source": node.source,
        **{name: node.attributes.get(name) for name in attributes},
    }


def _root_row(graph: Graph, root: Root) -> Row:
    if root.node is not None:
        origin = graph.nodes[root.node].op
    else:
        origin = f"no graph: {root.why}"
    return labels.root_title(root), one_line(f"{tensor_line(root.tensor)}  {origin}")


def _parts(graph: Graph) -> list[Row]:
    """The boxes of the picture of depth 1 in the order they ran, or of depth 2 where
    that is one model with its loss.
    """
    top = fold(graph, depth=1)
    if [group.kind for group in top.groups] == ["module"]:
        top = fold(graph, depth=2)
    ops = [node for node in reversed(top.nodes) if node.id not in top.leaf_of]
    return [_part_row(top, node) for node in ops] if top.groups else []


def _part_row(graph: Graph, node: Node) -> Row:
    name, op = labels.op_title(graph, node)
    inside = labels.group_line(node.folded) if node.folded is not None else ""
    return name, "  ".join(
        filter(None, (op, labels.outputs_line(node.outputs), inside))
    )


def _root_data(graph: Graph, root: Root) -> dict[str, Any]:
    return {
        "name": root.name,
        "tensor": root.tensor,
        "op": graph.nodes[root.node].op if root.node is not None else None,
        "why_no_graph": root.why,
    }
