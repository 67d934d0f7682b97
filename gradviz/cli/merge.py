"""`gradviz merge`: what the graphs of several ranks have in common, from the files that each of them wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import render_options
from gradviz.cli.progress import progress
from gradviz.cli.streams import destination, result_stream
from gradviz.draw.output import format_of
from gradviz.report.results import write_json, write_table

if TYPE_CHECKING:
    from gradviz.ranks.rank_diff import RankDiff

DIFFERENT = 1


@click.command("merge")
@click.option("-o", "--output", metavar="FILE", help="Draw all ranks as one graph, too; the suffix picks the format.")
@click.option("--json", "as_json", is_flag=True, help="Print it all as JSON.")
@render_options()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def command(files: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Compare the graphs of several ranks, and their bytes.

    Shows what all share and what some have alone. FILES are graphs that the ranks saved, of one machine or of several:
    torchrun ... -m gradviz render train.py --ranks each -o out.json writes out.rank0.json, out.rank1.json, ... Options about
    drawing are for -o. Exit code 0 when all ranks are alike, else 1.
    """
    if output is not None:
        format_of(output)
        output = destination(output)
    from gradviz.ranks.files import merge_files

    with result_stream() as stream:
        with progress("merging the ranks"):
            merged = merge_files(files)
        if output is not None:
            from gradviz.draw.output import save

            with progress("drawing the graph"):
                save(merged.graph, output, **options)
        if as_json:
            write_json(stream, as_data(merged))
        else:
            from gradviz.ranks.checking import findings_of
            from gradviz.ranks.rank_diff import table

            write_table(stream, table(merged))
            wrong = findings_of(merged)
            if len(wrong):
                from gradviz.checks.output import FindingsTable

                stream.write("\n")
                write_table(stream, FindingsTable(wrong))
    if not merged.empty:
        click.get_current_context().exit(DIFFERENT)


def as_data(merged: RankDiff) -> dict[str, Any]:
    """Everything that is known, for `--json`. Ids are those of the merged graph, which `-o all.json` writes."""
    nodes = merged.graph.nodes
    return {
        "title": merged.graph.title,
        "ranks": merged.ranks,
        "missing": merged.missing,
        "groups": merged.groups,
        "shared": len(merged.shared),
        "only": [
            {"node": node, "op": nodes[node].op, "names": nodes[node].names, "ranks": ranks}
            for node, ranks in enumerate(merged.having)
            if len(ranks) < len(merged.ranks)
        ],
        "differing": [
            {
                "node": differing.node,
                "op": nodes[differing.node].op,
                "ways": [{"ranks": ranks, "facts": words} for ranks, words in differing.ways],
            }
            for differing in merged.varying
        ],
        "edges": [{**edge._asdict(), "ranks": ranks} for edge, ranks in merged.some_edges],
        "bytes_by_rank": merged.bytes_by_rank,
        "memory_by_rank": {rank: process.memory for rank, process in merged.processes.items()},
    }
