"""`gradviz merge`: what the graphs of several ranks have in common, from the files that each of them wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import render_options
from gradviz.cli.progress import progress
from gradviz.cli.streams import destination, result_stream
from gradviz.draw.registry import format_of
from gradviz.report.plain import write_table

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
            found = merge_files(files)
        if output is not None:
            from gradviz.draw.output import save

            with progress("drawing the graph"):
                save(found.graph, output, **options)
        if as_json:
            stream.write(json.dumps(as_data(found), indent=2) + "\n")
        else:
            from gradviz.ranks.checking import findings_of
            from gradviz.ranks.table import table

            write_table(stream, table(found))
            wrong = findings_of(found)
            if len(wrong):
                from gradviz.checks.text import FindingsTable

                stream.write("\n")
                write_table(stream, FindingsTable(wrong))
    if not found.empty:
        click.get_current_context().exit(DIFFERENT)


def as_data(found: RankDiff) -> dict[str, Any]:
    """Everything that is known, for `--json`. Ids are those of the merged graph, which `-o all.json` writes."""
    nodes = found.graph.nodes
    return {
        "title": found.graph.title,
        "ranks": list(found.ranks),
        "missing": list(found.missing),
        "groups": [list(group) for group in found.groups],
        "shared": len(found.shared),
        "only": [
            {"node": node, "op": nodes[node].op, "names": list(nodes[node].names), "ranks": list(ranks)}
            for node, ranks in enumerate(found.having)
            if len(ranks) < len(found.ranks)
        ],
        "differing": [
            {
                "node": one.node,
                "op": nodes[one.node].op,
                "ways": [{"ranks": list(ranks), "facts": list(words)} for ranks, words in one.ways],
            }
            for one in found.varying
        ],
        "edges": [{**edge._asdict(), "ranks": list(ranks)} for edge, ranks in found.some_edges],
        "bytes_by_rank": {str(rank): nbytes for rank, nbytes in found.bytes_by_rank.items()},
        "memory_by_rank": {str(rank): one.memory._asdict() for rank, one in found.processes.items()},
    }
