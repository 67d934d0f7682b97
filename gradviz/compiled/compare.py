"""What compiling made of a graph: an eager and a compiled graph of the same code, by module and line; as data, and in words.

Backward functions of the one and operations of the other have other names and numbers, so they are not matched one by one: what
they have in common is the place in the code they come from. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from gradviz.graph import Graph, Node, SourceLine
from gradviz.graph.amounts import forward_order, held_bytes, tensor_bytes
from gradviz.report import labels
from gradviz.wording import bytes_text, clip, count_text, one_line, place_text, plural

_Place = tuple[str, str]  # module and line
Fate = Literal["same", "fused", "split", "recomputed", "dropped", "added"]
"""What became of the functions of a place: as many operations; some have none of their own, as what they did is part of another
one, or was nothing but to hand the gradient on; more; some results are computed again in backward; none is left, because no
gradient goes there any more; there were none before."""


class PlaceRow(NamedTuple):
    """One line of one module, before and after. `held` are bytes of storages that its nodes saved first, weights left out."""

    module: str
    source: SourceLine | None
    functions: int  # before: backward functions
    operations: int  # after: operations that a gradient goes through, or that compute what these need
    recomputed: int  # after, and of these: operations that compute a result of the forward again
    fused: int  # before, and of these: functions without an operation of their own, through which a gradient still goes
    held_before: int
    held_after: int
    fate: Fate
    ops_before: tuple[str, ...] = ()
    ops_after: tuple[str, ...] = ()
    call: int = 1  # of the module, the first one that is there


class CompiledDiff(NamedTuple):
    """Rows in the order of the forward pass. `regions` is how many compiled functions run the operations of `after`.

    `edges` lead from one row to another, by number: the first takes what the second makes in the forward pass. `output` is the
    row that makes the output, where it is in one.
    """

    before: Graph
    after: Graph
    rows: tuple[PlaceRow, ...]
    regions: int
    held_before: int
    held_after: int
    edges: tuple[tuple[int, int], ...] = ()
    output: int | None = None


def compiled_diff(before: Graph, after: Graph) -> CompiledDiff | None:
    """The two graphs by place; None unless operations of a compiled function are in `after` and none in `before`.

    >>> from gradviz.graph import Node, Scope
    >>> eager = Graph((Node(0, "ReluBackward0", sequence=1),))
    >>> compiled = Graph((Node(0, "aten.threshold_backward", sequence=1, flags=("in_compiled",)),))
    >>> [row.fate for row in compiled_diff(eager, compiled).rows]
    ['same']
    """
    before, after = before.original or before, after.original or after
    if any(map(_compiled, before.nodes)) or not any(map(_compiled, after.nodes)):
        return None
    old, new = _places(before), _places(after)
    held_before, held_after = held_bytes(before), held_bytes(after)
    passed = _passed(before, after)
    rows: dict[_Place, PlaceRow] = {}
    for place in (*old, *new):
        first, second = old.get(place, []), new.get(place, [])
        again = sum("recomputed" in node.flags for node in second)
        fused = _fused(first, second, passed)
        rows[place] = PlaceRow(
            place[0],
            (first or second)[0].source,
            len(first),
            len(second),
            again,
            fused,
            sum(held_before[node.id] for node in first),
            sum(held_after[node.id] for node in second),
            _fate(len(first), len(second), again, fused),
            tuple([node.op for node in first]),
            tuple([node.op for node in second]),
            _call(before if first else after, first or second),
        )
    return CompiledDiff(
        before,
        after,
        tuple(rows.values()),
        sum(map(_entry, after.nodes)),
        sum(held_before),
        sum(held_after),
        _edges(before, after, old, new),
        _output_row(before, old),
    )


def _output_row(graph: Graph, places: Mapping[_Place, Sequence[Node]]) -> int | None:
    roots = {root.node for root in graph.roots}
    return next((i for i, nodes in enumerate(places.values()) if any(node.id in roots for node in nodes)), None)


def _compiled(node: Node) -> bool:
    return "in_compiled" in node.flags


def _entry(node: Node) -> bool:
    """Whether a node is the function that torch recorded for a compiled one: what is inside are other nodes."""
    return "custom" in node.flags and _compiled(node)


def _places(graph: Graph) -> dict[_Place, list[Node]]:
    """The functions of each module and line, in the order of the forward pass. Leaves are of no place, nor are entries."""
    nodes_at: dict[_Place, list[Node]] = {}
    heads = {scope.path.partition(".")[0] for scope in graph.scopes}
    head = heads.pop() if len(heads) == 1 else ""  # the variable that holds the model: it may be another one
    for i in forward_order(graph):
        node = graph.nodes[i]
        if i in graph.leaf_of or _entry(node):
            continue
        path = graph.scopes[node.scope].path if node.scope is not None else ""
        module = path.removeprefix(head).lstrip(".") if head and path != head else path
        nodes_at.setdefault((module, _line(node.source)), []).append(node)
    return nodes_at


def _line(source: SourceLine | None) -> str:
    """What tells a line: its code, so that a line that moved, or is in a copy of the file, is the same."""
    return (source.text.strip() or place_text(source.file, source.line)) if source is not None else ""


def _call(graph: Graph, nodes: Sequence[Node]) -> int:
    return min((graph.scopes[node.scope].call for node in nodes if node.scope is not None), default=1)


def _fate(before: int, after: int, again: int, fused: int) -> Fate:
    if not before:
        return "added"
    if not after:
        return "fused" if fused else "dropped"
    if again:
        return "recomputed"
    return "fused" if fused else "split" if after > before else "same"


def _fused(functions: list[Node], operations: list[Node], passed: set[int]) -> int:
    """How many functions of a place have no operation of their own, although a gradient goes through them.

    The operations that compute the gradient of one call of the forward pass bear its number, and each such call is a function
    of the graph that is not compiled.
    """
    inside = [operation for operation in operations if _compiled(operation)]
    if operations and not inside:
        return 0
    calls = {
        (operation.sequence, operation.attributes["forward_call"])
        for operation in inside
        if "forward_call" in operation.attributes
    }
    alone = len(calls) + len(operations) - len(inside)
    return max(0, sum(function.id in passed for function in functions) - alone)


def _passed(before: Graph, after: Graph) -> set[int]:
    """The nodes of `before` that lead to a leaf which a gradient still reaches in `after`."""
    reached = {name for leaf in after.leaves if after.consumers(leaf.node) for name in _names(leaf.names)}
    leading = {leaf.node for leaf in before.leaves if not leaf.names or reached.intersection(_names(leaf.names))}
    for node in reversed(before.order):
        if any(edge.producer in leading for edge in before.inputs(node)):
            leading.add(node)
    return leading


def _names(names: Sequence[str]) -> Iterator[str]:
    """Names of a leaf without the variable that holds the model: it may be another one."""
    return (name.partition(".")[2] or name for name in names)


def _edges(
    before: Graph, after: Graph, old: Mapping[_Place, list[Node]], new: Mapping[_Place, list[Node]]
) -> tuple[tuple[int, int], ...]:
    """What leads from row to row before; after, only from and to rows that were not there before."""
    number = {place: i for i, place in enumerate(dict.fromkeys((*old, *new)))}
    ends: dict[tuple[int, int], None] = {}
    for graph, nodes_at, first in ((before, old, 0), (after, new, len(old))):
        row_of = {node.id: number[place] for place, nodes in nodes_at.items() for node in nodes}
        for edge in graph.edges:
            rows = row_of.get(edge.consumer, -1), row_of.get(edge.producer, -1)
            if min(rows) >= 0 and rows[0] != rows[1] and max(rows) >= first:
                ends[rows] = None
    return tuple(ends)


# -- in words ----------------------------------------------------------------------------------------------------------

_WORDS = {"same": "", "split": "split up"}  # of the fates that are not said as they are called
_HEAD = ("before", "after", "held before", "held after", "", "module and line")


def text(diff: CompiledDiff, top: int | None) -> str:
    """The rows, at most `top` of them (0 or None for all), and what they come to."""
    return "\n".join(_lines(diff, top))


def _lines(diff: CompiledDiff, top: int | None) -> Iterator[str]:
    yield f"before: {one_line(diff.before.title or 'graph')}"
    yield f"after:  {one_line(diff.after.title or 'graph')}, compiled"
    yield ""
    shown = diff.rows[: top or None]
    table = [_HEAD, *map(_cells, shown)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        numbers = [cell.rjust(width) for cell, width in zip(row[:4], widths)]
        yield "  ".join([*numbers, row[4].ljust(widths[4]), row[5]]).rstrip()
    if len(shown) < len(diff.rows):
        yield labels.more(len(diff.rows) - len(shown))
    yield ""
    yield from sums(diff)


def fate_text(fate: Fate, recomputed: int, fused: int) -> str:
    """What became of a place: "1 recomputed, 2 fused"."""
    counted = [(recomputed, "recomputed"), (fused, "fused")]
    return ", ".join(f"{count_text(n)} {what}" for n, what in counted if n) or _WORDS.get(fate, fate)


def _cells(row: PlaceRow) -> tuple[str, ...]:
    place = [one_line(row.module)] if row.module else []
    if row.source is not None:
        place.append(f"{labels.source_text(row.source)}  {clip(row.source.text.strip(), 60)}".rstrip())
    word = fate_text(row.fate, row.recomputed, row.fused)
    bytes_of = [bytes_text(nbytes) if nbytes else "" for nbytes in (row.held_before, row.held_after)]
    counts = [count_text(count) if count else "-" for count in (row.functions, row.operations)]
    return (*counts, *bytes_of, word, "  ".join(place) or "no line known")


def sums(diff: CompiledDiff) -> Iterator[str]:
    """What the rows come to."""
    functions, operations = sum(row.functions for row in diff.rows), sum(row.operations for row in diff.rows)
    again, fused = sum(row.recomputed for row in diff.rows), sum(row.fused for row in diff.rows)
    yield (
        f"{plural(functions, 'backward function')} before; after, {plural(operations, 'operation')}, most of them in "
        f"{plural(diff.regions, 'compiled function')}"
    )
    if again:
        kept = [node for node in diff.after.nodes if "recomputed" in node.flags and "saves" in node.attributes]
        instead = sum(tensor_bytes(tensor) or 0 for node in kept for tensor in node.outputs if tensor is not None)
        yield (
            f"{plural(again, 'operation')} computed again in backward, instead of saving up to {bytes_text(instead)} "
            "of results"
        )
    yield f"held for backward: {bytes_text(diff.held_before)} before, {bytes_text(diff.held_after)} after"
    yield from (f"note: {one_line(note)}" for note in diff.after.notes)
    if fused:
        own = "its own" if fused == 1 else "their own"
        yield f"{plural(fused, 'function')} fused: a gradient goes through, and no operation of {own} is left"
    yield "which operations share a kernel is not in the graph"
