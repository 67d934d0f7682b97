"""`gradviz merge`: what the ranks of one program share, and what only some have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from gradviz.cli.help import GroupedCommand
from gradviz.cli.options import json_option, render_options
from gradviz.cli.progress import progress
from gradviz.cli.streams import (
    destination,
    file_options,
    forced,
    refuse_to_open,
    result_stream,
)
from gradviz.draw.output import format_of, save
from gradviz.rank import Ranks
from gradviz.ranks.merging import merge_files
from gradviz.ranks.rank_diff import RankDiff, table
from gradviz.report.results import write_json, write_table

DIFFERENT = 1


@click.command("merge", cls=GroupedCommand)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Also draw all ranks as one graph; the suffix chooses the format.",
)
@file_options
@json_option("Print it all as JSON.")
@render_options("direction", "depth", "focus")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def command(
    files: tuple[str, ...], output: str | None, as_json: bool, **options: Any
) -> None:
    """Compare the graphs of several ranks.

    Shows the nodes that all ranks share and those that only some have. FILES are graphs
    that the ranks saved: torchrun ... -m gradviz render train.py -o net.json writes
    net.rank0.json, net.rank1.json, ... For a picture with other options write -o
    all.json, and render that. Exit code 0 if all ranks are alike, else 1.
    """
    refuse_to_open(output)
    if output is not None:
        format_of(output)
        output = destination(output, files)

    with result_stream() as stream:
        with progress("merging the ranks"):
            merged = merge_files(files)
        if output is not None:
            with progress("drawing the graph"):
                save(merged.graph, output, force=forced(), **options)
        if as_json:
            write_json(stream, _as_data(merged))
        else:
            write_table(stream, table(merged))

    if not merged.empty:
        click.get_current_context().exit(DIFFERENT)


def _as_data(merged: RankDiff) -> dict[str, Any]:
    """Everything that is known, for `--json`. Ids are those of the merged graph, which
    `-o all.json` writes.
    """
    nodes = merged.graph.nodes
    return {
        "title": merged.graph.title,
        "ranks": merged.ranks,
        "missing": merged.missing,
        "groups": merged.groups,
        "shared": len(merged.shared),
        "only": [
            {
                "node": node,
                "op": nodes[node].op,
                "names": nodes[node].names,
                "ranks": ranks,
            }
            for node, ranks in enumerate(merged.having)
            if len(ranks) < len(merged.ranks)
        ],
        "differing": [
            {
                "node": differing.node,
                "op": nodes[differing.node].op,
                "ways": _ways(differing.ways),
            }
            for differing in merged.varying
        ],
        "edges": [
            {**edge._asdict(), "ranks": ranks} for edge, ranks in merged.some_edges
        ],
        "bytes_by_rank": merged.bytes_by_rank,
    }


def _ways(ways: Iterable[tuple[Ranks, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [{"ranks": ranks, "facts": words} for ranks, words in ways]
