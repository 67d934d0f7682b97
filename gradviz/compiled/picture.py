"""An eager and a compiled graph in one picture: a box for each line of each module, whose colour says what became of it.

They have no functions in common. Larger ones fold as every picture does; a folded box sums up the lines in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gradviz.compiled.compare import CompiledDiff, Fate, PlaceRow, fate_text, sums
from gradviz.draw.options import Options
from gradviz.draw.output import folded
from gradviz.draw.picture import compose
from gradviz.draw.scene import Box, Legend, Scene, scene
from gradviz.draw.svg import write
from gradviz.graph import Edge, Graph, Node, Root, Scope
from gradviz.report import labels
from gradviz.wording import bytes_text, clip, plural, verb

_FATES: dict[Fate, Legend] = {
    "recomputed": Legend("changed", "recomputed: results are computed again in backward"),
    "fused": Legend("leaf", "fused: some functions have no operation of their own"),
    "dropped": Legend("removed", "dropped: no gradient goes there any more"),
    "added": Legend("added", "only in the compiled graph"),
    "split": Legend("group", "more operations than functions"),
    "same": Legend("op", "as many as before"),
}
"""From the one that changes most to the one that changes least."""

_ROW = "row"
_BACKWARD = re.compile(r"Backward\d*$")


def render_places(difference: CompiledDiff, options: Options) -> Iterator[str]:
    """The picture as an SVG file, in pieces."""

    def drawing(graph: Graph, options: Options) -> Scene:
        return _with_fates(scene(graph, options), graph, difference)

    graph = folded(places(difference), options, drawing)
    return write(compose(graph, drawing(graph, options), options), options.theme)


def places(difference: CompiledDiff) -> Graph:
    """One graph whose nodes are the rows, by number, in the modules that they lie in. Leaves are left out.

    What leads from a later line back to an earlier one, as in a loop, is left out, too.
    """
    scopes: dict[tuple[str, int], int] = {}
    records: list[Scope] = []
    types = {
        _below(scope.path): scope.type for graph in (difference.before, difference.after) for scope in graph.scopes
    }

    def scope(path: str, call: int = 1) -> int | None:
        if path and (path, call) not in scopes:
            around = scope(path.rpartition(".")[0])
            scopes[path, call] = len(records)
            records.append(Scope(path, types.get(path, ""), call, around))
        return scopes.get((path, call))

    nodes = [
        Node(i, _title(row), (), i, scope(row.module, row.call), row.source, {_ROW: i})
        for i, row in enumerate(difference.rows)
    ]
    position: Counter[int] = Counter()
    edges = []
    for consumer, producer in sorted(difference.edges):
        if consumer > producer:
            edges.append(Edge(consumer, producer, 0, position[consumer]))
            position[consumer] += 1
    roots = [
        Root(difference.output, 0, root.name, root.tensor)
        for root in difference.after.roots[:1]
        if difference.output is not None
    ]
    title = f"{difference.before.title or 'graph'}, before and after compiling"
    return Graph(tuple(nodes), tuple(edges), roots=tuple(roots), scopes=tuple(records), title=title)


def _below(path: str) -> str:
    """The path of a module without the variable that holds the model."""
    return path.partition(".")[2]


def _title(row: PlaceRow) -> str:
    """What runs there, eager where there was something: "Addmm, T"."""
    every = [_BACKWARD.sub("", op) for op in row.ops_before] or list(row.ops_after)
    return ", ".join(f"{op} ×{every.count(op)}" if every.count(op) > 1 else op for op in dict.fromkeys(every))


def _with_fates(drawn: Scene, graph: Graph, difference: CompiledDiff) -> Scene:
    boxes: list[Box] = []
    fates: set[Fate] = set()
    several = 0
    for box in drawn.boxes:
        rows = _rows(graph, box, difference)
        if rows:
            fate = _fate(rows)
            fates.add(fate)
            several += len(rows) > 1
            box = box._replace(kind=_FATES[fate].kind, lines=(box.lines[0], *_lines(rows), *_source(rows)))
        boxes.append(box)
    legend = [entry for fate, entry in _FATES.items() if fate in fates]
    legend += [entry for entry in drawn.legend if entry.kind == "output"]
    footer = [*sums(difference), "parameters and inputs are not drawn"]
    if several:
        footer.append(
            f"{plural(several, 'box', 'boxes')} for several lines: {verb(several, 'it sums', 'each sums')} up what is in it"
        )
    return drawn._replace(boxes=tuple(boxes), legend=tuple(legend), footer=tuple(footer))


def _rows(graph: Graph, box: Box, difference: CompiledDiff) -> list[PlaceRow]:
    """The rows that a box stands for; none for an output."""
    if box.node is None or box.kind == "output":
        return []
    node = graph.nodes[box.node]
    if node.group is not None:
        return [difference.rows[i] for i in node.group.nodes if i < len(difference.rows)]
    return [difference.rows[int(node.attributes[_ROW])]]


def _fate(rows: Sequence[PlaceRow]) -> Fate:
    """The fate of a box: of those of its rows the one that changes most."""
    return min((row.fate for row in rows), key=list(_FATES).index)


def _lines(rows: Sequence[PlaceRow]) -> Iterator[str]:
    functions, operations = sum(row.functions for row in rows), sum(row.operations for row in rows)
    yield f"{plural(functions, 'function')} → {plural(operations, 'operation')}"
    again, fused = sum(row.recomputed for row in rows), sum(row.fused for row in rows)
    fate = _fate(rows)
    if fate not in ("same", "split"):
        yield fate_text(fate, again, fused)
    held = sum(row.held_before for row in rows), sum(row.held_after for row in rows)
    if any(held):
        yield f"holds {bytes_text(held[0])} → {bytes_text(held[1])}"


def _source(rows: Sequence[PlaceRow]) -> Iterator[str]:
    if len(rows) == 1 and rows[0].source is not None:
        yield labels.source_text(rows[0].source)
        yield clip(rows[0].source.text.strip(), 48)
