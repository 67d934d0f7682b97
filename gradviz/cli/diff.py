"""`gradviz diff`: what differs between two graphs: of two targets, or of two backward calls of one script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.progress import progress
from gradviz.cli.streams import destination, result_stream
from gradviz.cli.target import ARGUMENTS, Source, TargetCommand
from gradviz.comparison.diff import GraphDiff
from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.run.target import Captured
from gradviz.run.target_name import parse_target

if TYPE_CHECKING:
    from gradviz.compiled.compare import CompiledDiff

DIFFERENT = 1


class _TwoScripts(TargetCommand):
    """A command whose line may end in `-- ARGUMENTS -- ARGUMENTS OF THE SECOND`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE SECOND]"]


_DRAWN = {
    ".svg": "gradviz.draw.difference:render",
    ".html": "gradviz.page.html:render_difference",
}  # what renders a difference, by suffix


@click.command("diff", cls=_TwoScripts)
@click.option(
    "--at", type=click.IntRange(min=1), multiple=True, metavar="K", help="Backward call of each target; give it twice."
)
@click.option("--top", type=click.IntRange(min=0), metavar="N", help="Rows of each kind; 0 for all. [default: 100]")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help=f"Draw the difference, too, as {' or '.join(_DRAWN)}, a page that opens: added green, removed red, changed orange.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it all as JSON.")
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
    """Show what differs between two graphs.

    BEFORE and AFTER are targets: scripts, or graphs saved as JSON. Without AFTER, BEFORE is looked at twice: at two backward calls
    of one run (--at 1 --at 2), or in two runs with two sets of arguments (-- A -- B). Where only AFTER is compiled, the two are
    compared by module and line. Exit code 0 when nothing differs, else 1.
    """
    if len(at) > 2:
        raise click.UsageError("--at is given once or twice: for both, or one for each.")
    given = tuple(ctx.meta.get(ARGUMENTS, ()))
    if after is None and len(at) < 2 and "--" not in given:
        raise click.UsageError("one TARGET needs --at twice, or two sets of arguments: -- A -- B.")
    if output is not None and not output.lower().endswith(tuple(_DRAWN)):
        raise FormatError(
            f"a difference is drawn as SVG or as a page, so {output!r} must end in {' or '.join(_DRAWN)}."
        )
    output = destination(output) if output is not None else None
    with result_stream() as stream:
        one_run = after is None and len(at) == 2 and "--" not in given
        captured = _of_one_run(before, at, given) if one_run else _both((before, after or before), at, given)
        from gradviz.comparison.diff import diff

        with progress("comparing the graphs"):
            found = diff(captured[0].result, captured[1].result)
        if output is not None:
            _draw(found, output)
        from gradviz.compiled.compare import compiled_diff

        places = compiled_diff(found.before, found.after)
        if as_json:
            stream.write(json.dumps({**as_data(found), **places_as_data(places)}, indent=2) + "\n")
        elif places is not None:
            from gradviz.compiled import text as compiled_text

            stream.write(compiled_text.text(places, 100 if top is None else top) + "\n")
        else:
            from gradviz.comparison.text import TOP, text

            stream.write(text(found, TOP if top is None else top) + "\n")
    for one in captured:
        one.raise_failure()
    if not found.empty:
        ctx.exit(DIFFERENT)


def _both(targets: tuple[str, str], at: Sequence[int], given: tuple[str, ...]) -> list[Captured[Graph]]:
    """Both graphs. With one set of arguments, or one `--at`, it is for every target that is a script."""
    sets = [given, given]
    if "--" in given:
        split = given.index("--")
        sets = [given[:split], given[split + 1 :]]
    calls = [at[0], at[-1]] if at else [None, None]
    found = []
    for text, arguments, call in zip(targets, sets, calls):
        target = parse_target(text)
        saved = target.kind == "graph"
        source = Source(
            target, () if saved and "--" not in given else arguments, None if saved and len(at) < 2 else call, False
        )
        found.append(source.graph())
    return found


def _of_one_run(text: str, at: Sequence[int], given: tuple[str, ...]) -> list[Captured[Graph]]:
    """Both graphs of one run: a script may not bear a second one, such as one that opens a process group or reads its input."""
    captured = Source(parse_target(text), given, tuple(at), False).graph()
    graph_of = dict(zip(sorted(set(at)), (captured.result, *captured.later)))
    return [replace(captured, result=graph_of[call]) for call in at]


def _draw(found: GraphDiff, path: str) -> None:
    from gradviz.draw.options import Options
    from gradviz.draw.output import encode, write

    drawn = import_module(next(module for suffix, module in _DRAWN.items() if path.lower().endswith(suffix)))
    with progress("drawing the difference"):
        write(path, (encode(piece) for piece in drawn.render(found, Options())))


def as_data(found: GraphDiff) -> dict[str, Any]:
    """Everything that differs, for `--json`. Ids are those of the graph that the key names."""
    return {
        "before": found.before.title,
        "after": found.after.title,
        "empty": found.empty,
        "removed": [_node(found.before, node) for node in found.removed],
        "added": [_node(found.after, node) for node in found.added],
        "changed": [
            {
                "before": one.before,
                "after": one.after,
                "op": found.after.nodes[one.after].op,
                "changes": [change._asdict() for change in one.changes],
            }
            for one in found.changed
        ],
        "removed_edges": [edge._asdict() for edge in found.removed_edges],
        "added_edges": [edge._asdict() for edge in found.added_edges],
        "outputs": [change._asdict() for change in found.outputs],
        "same": len(found.matched) - len(found.changed),
    }


def places_as_data(found: CompiledDiff | None) -> dict[str, Any]:
    """The lines of code that an eager and a compiled graph have in common, for `--json`; nothing for other graphs."""
    if found is None:
        return {}
    rows = [{**row._asdict(), "source": row.source._asdict() if row.source is not None else None} for row in found.rows]
    return {"places": rows, "held_before": found.held_before, "held_after": found.held_after}


def _node(graph: Graph, node: int) -> dict[str, Any]:
    record = graph.nodes[node]
    return {
        "id": node,
        "op": record.op,
        "names": list(record.names),
        "source": record.source._asdict() if record.source is not None else None,
    }
