"""The commands that measure gradients: `gradviz flow` along every edge, `gradviz paths`
the chain rule path by path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.completion import module_paths
from gradviz.cli.options import (
    json_option,
    row_limit,
    run_custom_option,
    top_option,
    write_result,
)
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.cli.why import named_tensor
from gradviz.errors import NoPathError
from gradviz.features import load
from gradviz.report.results import FLOW_ROWS, PATHS_ROWS

if TYPE_CHECKING:
    import torch

    from gradviz.gradients.flow import GradientFlow
    from gradviz.gradients.paths import GradientPath, Paths
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs


def graph_with_backward(
    source: Source, run_custom: bool = False, values: bool = False
) -> RunResult[Graph]:
    """The graph with its gradients and the order of backward, and what must be known of
    them; a saved graph is as it is.
    """

    from gradviz.gradients.flow import measure
    from gradviz.gradients.live import opened

    def read(live: LiveOutputs) -> Graph:
        flow = measure(opened(live), run_custom=run_custom, values=values)
        notes = (*live.notes, *(note for note in flow.notes if note not in live.notes))
        return replace(flow.graph, notes=notes)

    return source.graph(read)


BY = ("module", "leaf")


@click.command("flow", cls=TargetCommand)
@click.option(
    "--by",
    type=click.Choice(BY),
    help="What a row stands for. [default: module where recorded, else leaf]",
)
@top_option(FLOW_ROWS)
@run_custom_option
@json_option("Print every edge, leaf and function as JSON.")
@target_argument
def flow_command(
    source: Source, by: Any, top: int | None, run_custom: bool, as_json: bool
) -> None:
    """Show how large the gradient is along the graph.

    Prints norm, largest value, share of zeros and non-finite entries. Writes no .grad,
    frees nothing and runs no hook on a gradient.
    """
    from gradviz.gradients.flow import measure
    from gradviz.gradients.live import opened

    with result_stream() as stream:
        captured = source.read(
            lambda live: measure(opened(live), run_custom=run_custom)
        )
        flow = captured.result
        rows, table = (
            row_limit(top, FLOW_ROWS),
            load("gradviz.gradients.table:flow_table"),
        )
        write_result(
            stream,
            as_json,
            lambda: flow_data(flow),
            lambda: table(flow, by, rows),
            flow.graph.title,
        )

    # only now: a script that failed later still gets its table
    captured.raise_failure()


def flow_data(flow: GradientFlow) -> dict[str, Any]:
    """Everything that was measured, for `--json`."""
    from gradviz.gradients.expressions import title
    from gradviz.gradients.table import rows, steps_of

    graph, step = flow.graph, steps_of(flow)
    return {
        "title": graph.title,
        "outputs": [root.name for root in graph.roots],
        "order": [
            {"node": node, "op": graph.nodes[node].op, "name": title(graph, node)}
            for node in flow.order
        ],
        "edges": [
            {
                "step": step.get(edge.consumer),
                **edge._asdict(),
                **(size._asdict() if size else {}),
            }
            for edge, size in flow.edges
        ],
        "leaves": flow.leaves,
        "modules": rows(flow, "module") if graph.scopes else [],
        "notes": flow.notes,
    }


# -- paths -----------------------------------------------------------------------------


_ELEMENTS = 1000  # of a tensor that JSON lists


@click.command("paths", cls=TargetCommand)
@click.option(
    "--to",
    "name",
    required=True,
    metavar="NAME",
    shell_complete=module_paths,
    help="Where the paths end: a variable or parameter.",
)
@top_option(PATHS_ROWS, "Paths to show")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=1000,
    show_default=True,
    help="Follow all paths up to this number, else only the largest.",
)
@run_custom_option
@json_option("Print every path that was followed as JSON.")
@target_argument
def paths_command(
    source: Source,
    name: str,
    top: int | None,
    limit: int,
    run_custom: bool,
    as_json: bool,
) -> None:
    """Show the chain rule path by path.

    Every path from the output back to NAME contributes a product of derivatives; their
    sum is the gradient. All paths are counted. Writes no .grad and frees nothing.
    """
    with result_stream() as stream:
        captured = source.read(
            lambda live: _find(live, name, limit, source.target.short, run_custom)
        )
        paths = captured.result
        rows, table = (
            row_limit(top, PATHS_ROWS),
            load("gradviz.gradients.table:paths_table"),
        )
        write_result(
            stream,
            as_json,
            lambda: paths_data(paths, top),
            lambda: table(paths, rows),
            paths.graph.title,
        )

    captured.raise_failure()


def _find(
    live: LiveOutputs, name: str, limit: int, place: str, run_custom: bool
) -> Paths:
    from gradviz.gradients.live import opened
    from gradviz.gradients.paths import find_paths

    # before the name is looked for: an old torch cannot answer whatever it is
    graph = opened(live)
    target = named_tensor(name, live, place)
    try:
        paths = find_paths(graph, target, limit=limit, run_custom=run_custom)
    except NoPathError as error:
        hint = f"`gradviz why {place} {name}` says which line cuts it off"
        raise NoPathError(f"{error}. {hint}.") from None
    return paths.with_target(name)


def paths_data(paths: Paths, top: int | None = None) -> dict[str, Any]:
    """Everything the command knows, for `--json`. Large tensors are given by their norm
    only.
    """
    from gradviz.gradients.expressions import title

    graph = paths.graph
    shown = paths.paths[:top] if top else paths.paths
    return {
        "title": graph.title,
        "output": next(root.name for root in graph.roots if root.node is not None),
        "target": title(graph, paths.target[0]),
        "count": paths.count,
        "complete": paths.complete,
        "total": _tensor_data(paths.total),
        "paths": [_path_data(graph, path) for path in shown],
        "notes": paths.notes,
    }


def _path_data(graph: Graph, path: GradientPath) -> dict[str, Any]:
    from gradviz.gradients.expressions import title

    steps = [
        {
            "position": step.edge.position,
            "output": step.edge.output,
            "norm": step.norm,
            "factor": step.factor,
        }
        for step in path.steps
    ]
    return {
        "nodes": path.nodes,
        "names": [title(graph, node) for node in path.nodes],
        "ops": [graph.nodes[node].op for node in path.nodes],
        "steps": steps,
        "contribution": _tensor_data(path.contribution),
    }


def _tensor_data(tensor: torch.Tensor) -> dict[str, Any]:
    from gradviz.gradients.flow import size

    listed = (
        tensor.numel() <= _ELEMENTS and not tensor.is_complex() and not tensor.is_nested
    )
    return {
        "shape": list(tensor.shape),
        "norm": size(tensor).norm,
        "values": tensor.to_dense().tolist() if listed else None,
    }
