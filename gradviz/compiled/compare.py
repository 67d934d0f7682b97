"""What compiling made of a graph: an eager and a compiled graph of the same code, side by side by module and line.

Backward functions of the one and operations of the other have other names and numbers, so they are not matched one by one: what
they have in common is the place in the code they come from. Knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

from gradviz.graph import Graph, Node, SourceLine
from gradviz.graph.amounts import forward_order, held_bytes, tensor_bytes

Fate = Literal["same", "fused", "split", "recomputed", "dropped", "added"]
"""What became of the functions of a place: as many operations; fewer; more; some results are computed again in backward; none is
left, because backward needs nothing there; there were none before."""


class PlaceRow(NamedTuple):
    """One line of one module, before and after. `held` are bytes of storages that its nodes saved first, weights left out."""

    module: str
    source: SourceLine | None
    functions: int  # before: backward functions
    operations: int  # after: operations that a gradient goes through, or that compute what these need
    recomputed: int  # after, and of these: operations that compute a result of the forward again
    held_before: int
    held_after: int
    fate: Fate
    ops_before: tuple[str, ...] = ()
    ops_after: tuple[str, ...] = ()


class CompiledDiff(NamedTuple):
    """Rows in the order of the forward pass. `regions` is how many compiled functions run the operations of `after`."""

    before: Graph
    after: Graph
    rows: tuple[PlaceRow, ...]
    regions: int
    held_before: int
    held_after: int

    def fates(self) -> dict[Fate, int]:
        """How many places had which fate."""
        return dict(Counter(row.fate for row in self.rows))


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
    held = held_bytes(before), held_bytes(after)
    rows = []
    for place in [*old, *(place for place in new if place not in old)]:
        first, second = old.get(place, []), new.get(place, [])
        source = next((one.source for one in [*first, *second]), None)
        again = sum("recomputed" in one.flags for one in second)
        rows.append(
            PlaceRow(
                place[0],
                source,
                len(first),
                len(second),
                again,
                sum(held[0][one.id] for one in first),
                sum(held[1][one.id] for one in second),
                _fate(len(first), len(second), again),
                tuple([one.op for one in first]),
                tuple([one.op for one in second]),
            )
        )
    entries = sum(_entry(node) for node in after.nodes)
    return CompiledDiff(before, after, tuple(rows), entries, sum(held[0]), sum(held[1]))


def saved_by_recomputing(graph: Graph) -> int:
    """Bytes of the results that are computed again in backward and would have been saved otherwise, as far as known."""
    total = 0
    for node in graph.nodes:
        if "recomputed" in node.flags and "saves" in node.attributes:
            total += sum(tensor_bytes(one) or 0 for one in node.outputs if one is not None)
    return total


def _compiled(node: Node) -> bool:
    return "in_compiled" in node.flags


def _entry(node: Node) -> bool:
    """Whether a node is the function that torch recorded for a compiled one: what is inside are other nodes."""
    return "custom" in node.flags and _compiled(node)


def _places(graph: Graph) -> dict[tuple[str, str], list[Node]]:
    """The functions of each module and line, in the order of the forward pass. Leaves are of no place, nor are entries."""
    found: dict[tuple[str, str], list[Node]] = {}
    heads = {scope.path.partition(".")[0] for scope in graph.scopes}
    head = heads.pop() if len(heads) == 1 else ""  # the variable that holds the model: it may be another one
    for i in forward_order(graph):
        node = graph.nodes[i]
        if i in graph.leaf_of or _entry(node):
            continue
        path = graph.scopes[node.scope].path if node.scope is not None else ""
        module = path.removeprefix(head).lstrip(".") if head and path != head else path
        found.setdefault((module, _line(node.source)), []).append(node)
    return found


def _line(source: SourceLine | None) -> str:
    """What tells a line: its code, so that a line that moved, or is in a copy of the file, is the same."""
    return (source.text.strip() or f"{source.file}:{source.line}") if source is not None else ""


def _fate(before: int, after: int, again: int) -> Fate:
    if not after:
        return "dropped"
    if not before:
        return "added"
    if again:
        return "recomputed"
    return "same" if before == after else "fused" if after < before else "split"
