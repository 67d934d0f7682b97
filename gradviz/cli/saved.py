"""`gradviz saved`: what autograd keeps for backward, how large it is and who holds it, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument

if TYPE_CHECKING:
    from gradviz.analysis.memory import Row, Saved

BY = ("line", "module", "op", "node", "dtype")


@click.command("saved", cls=TargetCommand)
@click.option(
    "--by",
    type=click.Choice(BY),
    help="What a row stands for. Without it: the line of code, else the module, else the op, as far as recorded.",
)
@click.option("--top", type=click.IntRange(min=0), metavar="N", help="Rows to show; 0 for all. [default: 10]")
@click.option("--json", "as_json", is_flag=True, help="Print exact bytes as JSON; all rows unless --top is given.")
@target_argument
def command(source: Source, by: Any, top: int | None, as_json: bool) -> None:
    """Show what is saved for backward, in bytes.

    Says which lines, modules or ops hold them, as far as was recorded.
    Nothing is unpacked, recomputed or kept by looking. Under FakeTensorMode the sizes are those of a real run.
    """
    with result_stream() as stream:
        captured = source.graph()
        from gradviz.analysis.memory import saved

        found = saved(captured.result, by=by)
        if as_json:
            stream.write(json.dumps(as_data(found, captured.result.title, top), indent=2) + "\n")
        else:
            from rich.console import Console

            from gradviz.render.saved_table import TOP, plain, saved_table

            table = saved_table(found, TOP if top is None else top)
            if stream.isatty():
                Console(file=stream, highlight=False).print(table)
            else:
                stream.write(plain(table) + "\n")
    captured.raise_failure()


def as_data(found: Saved, title: str, top: int | None = None) -> dict[str, Any]:
    """Everything the command knows, for `--json`, in bytes. What `top` cuts is one row, `more`."""
    shown, others = found.top(top)
    return {
        "title": title,
        "by": found.by,
        "rows": [_row_data(row) for row in shown],
        "more": {"rows": len(found.rows) - len(shown), **_row_data(others)} if others is not None else None,
        "totals": found.totals._asdict(),
        "notes": list(found.notes),
    }


def _row_data(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": row.name,
        "bytes": row.nbytes,
        "held": row.held,
        "only_graph": row.only_graph,
        "kinds": dict(row.kinds),
        "storages": row.storages,
        "nodes": row.nodes,
        "share": row.share,
        "cumulated": row.cumulated,
    }
    if row.node is not None:
        data["node"] = row.node
    if row.type:
        data["type"] = row.type
    if row.source is not None:
        data["source"] = row.source._asdict()
    return data
