"""`gradviz saved`: what autograd keeps for backward, how large it is and who holds it,
as a table or as JSON.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from gradviz.cli.launch import reports
from gradviz.cli.options import (
    ByteSize,
    json_option,
    row_limit,
    top_option,
    write_result,
)
from gradviz.cli.progress import progress
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, input_option, target_argument
from gradviz.features import load
from gradviz.memory.checkpoint import Advice, checkpoint_plan
from gradviz.memory.saved import Saved, SavedRow, saved
from gradviz.report.results import SAVED_ROWS

OVER = 1
"""Exit code when no plan keeps the budget."""
BY = ("line", "module", "op", "tensor")


@click.command("saved", cls=TargetCommand)
@click.option(
    "--by",
    type=click.Choice(BY),
    help="What a row stands for. [default: the line of code, else the module, else the op, as far as recorded] Lines are the "
    "script's own if most would be a library's.",
)
@top_option(SAVED_ROWS)
@click.option(
    "--budget",
    type=ByteSize(),
    metavar="SIZE",
    help="Print the modules to wrap in a checkpoint so that at most this is saved, such as 40GiB. Exit code 1 if no plan fits.",
)
@json_option("Print exact bytes as JSON; all rows unless --top is given.")
@input_option
@target_argument
def command(
    source: Source, by: Any, top: int | None, budget: int | None, as_json: bool
) -> None:
    """Show the tensors saved for backward, in bytes.

    Lists them by line, module or op, as far as recorded. Nothing is unpacked,
    recomputed or kept. Under FakeTensorMode the sizes are those of a real run.
    """
    if budget is not None and (by is not None or top is not None):
        raise click.UsageError(
            "--budget prints modules to wrap, not rows of saved tensors: leave out --by and --top."
        )

    with result_stream() as stream:
        captured = source.graph()
        graph = captured.result
        rows = row_limit(top, SAVED_ROWS)
        if budget is None:
            with progress("adding up bytes"):
                tensors = saved(graph, by=by)
            data = partial(as_data, tensors, graph.title, top)
            table = partial(load("gradviz.memory.table:saved_table"), tensors, rows)
        else:
            with progress("choosing checkpoints"):
                advice = checkpoint_plan(graph, budget)
            data = partial(advice_data, advice, graph.title)
            table = partial(load("gradviz.memory.table:advice_table"), advice)
        write_result(stream, as_json, data, table, graph.title)

    captured.raise_failure()
    if budget is not None and not advice.fits and reports():
        click.get_current_context().exit(OVER)


def advice_data(advice: Advice, title: str) -> dict[str, Any]:
    """The advice for `--json`, in bytes and numbers of ops."""
    return {
        "title": title,
        "budget": advice.budget,
        "fits": advice.fits,
        "held_before": advice.before,
        "held_after": advice.held,
        "peak_after": advice.peak,
        "ops": advice.ops,
        "ops_again": advice.again,
        "wrap": advice.steps,
        "note": "an estimate for torch.utils.checkpoint with use_reentrant=False",
    }


def as_data(tensors: Saved, title: str, top: int | None = None) -> dict[str, Any]:
    """Everything the command knows, for `--json`, in bytes. What `top` cuts is one row,
    `more`.
    """
    shown, others = tensors.top(top)
    more = None
    if others is not None:
        more = {"rows": len(tensors.rows) - len(shown), **_row_data(others)}

    return {
        "title": title,
        "by": tensors.by,
        "rows": [_row_data(row) for row in shown],
        "more": more,
        "totals": tensors.totals,
        "notes": tensors.notes,
    }


def _row_data(row: SavedRow) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": row.name,
        "bytes": row.nbytes,
        "held": row.held,
        "only_graph": row.only_graph,
        "kinds": row.kinds,
        "storages": row.storages,
        "nodes": row.nodes,
        "share": row.share,
        "cumulated": row.cumulated,
    }
    if row.node is not None:
        data["node"] = row.node

    if row.type:
        data["type"] = row.type

    if row.inclusive is not None:
        data |= {"inclusive": row.inclusive, "freed_if_checkpointed": row.freed}

    if row.source is not None:
        data["source"] = row.source

    return data
