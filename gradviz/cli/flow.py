"""`gradviz flow`: how large the gradient is along every edge, as a table or as JSON."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, measured, run_custom_option, target_argument
from gradviz.report.results import write_json, write_table

if TYPE_CHECKING:
    from gradviz.gradients.flow import GradientFlow

BY = ("module", "leaf", "node", "edge")


@click.command("flow", cls=TargetCommand)
@click.option("--by", type=click.Choice(BY), help="What a row stands for. [default: module where recorded, else leaf]")
@click.option("--top", type=click.IntRange(min=0), metavar="N", help="Rows to show; 0 for all. [default: 50]")
@run_custom_option
@click.option("--json", "as_json", is_flag=True, help="Print every edge, leaf and function as JSON.")
@target_argument
def command(source: Source, by: Any, top: int | None, run_custom: bool, as_json: bool) -> None:
    """Show how large the gradient is along the graph.

    Norm, largest value, share of zeros, and entries that are not finite. No .grad is written, nothing is freed and no hook
    on a gradient runs.
    """
    with result_stream() as stream:
        captured = source.read(partial(measured, run_custom=run_custom))
        flow = captured.result
        if as_json:
            write_json(stream, as_data(flow))
        else:
            from gradviz.gradients.table import FLOW_TOP, flow_table

            write_table(stream, flow_table(flow, by, FLOW_TOP if top is None else top), flow.graph.title)
    captured.raise_failure()


def as_data(flow: GradientFlow) -> dict[str, Any]:
    """Everything that was measured, for `--json`."""
    from gradviz.gradients.table import rows, title

    graph = flow.graph
    step = {node: i for i, node in enumerate(flow.order, 1)}
    return {
        "title": graph.title,
        "outputs": [root.name for root in graph.roots],
        "order": [{"node": node, "op": graph.nodes[node].op, "name": title(graph, node)} for node in flow.order],
        "edges": [
            {"step": step.get(edge.consumer), **edge._asdict(), **(size._asdict() if size else {})}
            for edge, size in flow.edges
        ],
        "leaves": flow.leaves,
        "modules": rows(flow, "module") if graph.scopes else [],
        "notes": flow.notes,
    }
