"""`gradviz diff`: what differs between two targets, or between two backward calls of
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from gradviz.cli.launch import reports
from gradviz.cli.options import json_option, row_limit, top_option
from gradviz.cli.progress import progress
from gradviz.cli.source import Source
from gradviz.cli.streams import (
    destination,
    file_options,
    forced,
    refuse_to_open,
    result_stream,
)
from gradviz.cli.target import ARGUMENTS, TargetCommand
from gradviz.comparison.diff import TOP, GraphDiff, diff, table
from gradviz.features import is_there, load
from gradviz.graph import Graph
from gradviz.report.results import write_json, write_table
from gradviz.run.ending import RunResult
from gradviz.run.target import parse_target

DIFFERENT = 1


@click.command("diff", cls=TargetCommand)
@click.option(
    "--at",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="K",
    help="Backward call of each target; give it twice.",
)
@top_option(TOP, "Rows of each kind")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    hidden=not is_there("gradviz.page"),
    help="Also write the difference as an interactive page, .html: added green, removed red, changed orange.",
)
@file_options
@json_option("Print it all as JSON.")
@click.argument("before")
@click.argument("after", required=False)
@click.pass_context
def command(
    ctx: click.Context,
    before: str,
    after: str | None,
    at: Sequence[int],
    top: int | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Show the differences between two graphs.

    BEFORE and AFTER are targets: scripts, or graphs saved as JSON. Without AFTER,
    BEFORE is read twice: at two backward calls of one run (--at 1 --at 2), or in two
    runs with two sets of arguments (-- A -- B). Exit code 0 if nothing differs, else 1.
    """
    refuse_to_open(output)
    if len(at) > 2:
        raise click.UsageError(
            "give --at once for both targets, or twice, once for each."
        )
    words = tuple(ctx.meta.get(ARGUMENTS, ()))
    one_run = after is None and "--" not in words
    if one_run and len(at) < 2:
        raise click.UsageError(
            "one TARGET needs --at twice, or two sets of arguments: -- A -- B."
        )
    if output is not None:
        targets = map(parse_target, filter(None, (before, after)))
        inputs = [file for target in targets for file in target.files]
        output = destination(output, inputs, format="html")

    with result_stream() as stream:
        if one_run:
            captured = _of_one_run(before, at, words)
        else:
            captured = _both((before, after or before), at, words)
        with progress("comparing the graphs"):
            difference = diff(captured[0].result, captured[1].result)
        if output is not None:
            _draw(difference, output)
        if as_json:
            write_json(stream, as_data(difference))
        else:
            write_table(stream, table(difference, row_limit(top, TOP)))
    for run in captured:
        run.raise_failure()
    if reports() and not difference.empty:
        ctx.exit(DIFFERENT)


def _both(
    targets: tuple[str, str], numbers: Sequence[int], words: tuple[str, ...]
) -> list[RunResult[Graph]]:
    """Both graphs. With one set of arguments, or one `--at`, it is for every target
    that is a script.
    """
    sets = [words, words]
    if "--" in words:
        split = words.index("--")
        sets = [words[:split], words[split + 1 :]]

    calls = [numbers[0], numbers[-1]] if numbers else [None, None]
    both = []
    for target, arguments, call in zip(map(parse_target, targets), sets, calls):
        if target.kind == "graph":
            arguments = arguments if "--" in words else ()
            call = call if len(numbers) == 2 else None
        both.append(Source(target, arguments, call, False).graph())
    return both


def _of_one_run(
    text: str, numbers: Sequence[int], words: tuple[str, ...]
) -> list[RunResult[Graph]]:
    """Both graphs of one run: a script may not bear a second one, such as one that
    opens a process group or reads its input.
    """
    captured = Source(parse_target(text), words, tuple(numbers), False).graph()
    graphs = captured.result, *captured.later
    graph_of = dict(zip(sorted(set(numbers)), graphs))
    return [replace(captured, result=graph_of[call]) for call in numbers]


def _draw(difference: GraphDiff, path: str) -> None:
    from gradviz.draw.options import Options
    from gradviz.draw.output import encode, write

    with progress("drawing the difference"):
        pieces = load("gradviz.page.html:render_difference")(difference, Options())
        write(path, map(encode, pieces), force=forced())


def as_data(difference: GraphDiff) -> dict[str, Any]:
    """Everything that differs, for `--json`. Ids are those of the graph that the key
    names.
    """
    before, after = difference.before, difference.after
    return {
        "before": before.title,
        "after": after.title,
        "empty": difference.empty,
        "removed": [_node(before, node) for node in difference.removed],
        "added": [_node(after, node) for node in difference.added],
        "changed": [
            {
                "before": node.before,
                "after": node.after,
                "op": after.nodes[node.after].op,
                "changes": node.changes,
            }
            for node in difference.changed
        ],
        "removed_edges": difference.removed_edges,
        "added_edges": difference.added_edges,
        "outputs": difference.outputs,
        "same": len(difference.matched) - len(difference.changed),
    }


def _node(graph: Graph, node: int) -> dict[str, Any]:
    record = graph.nodes[node]
    return {"id": node, "op": record.op, "names": record.names, "source": record.source}
