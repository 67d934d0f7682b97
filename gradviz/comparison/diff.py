"""What changed between two graphs: nodes and edges added, removed and changed; as data,
and in words. Knows nothing of torch.

A difference is read from the merging of the two. Equal graphs have no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gradviz.comparison.merging import Merging
from gradviz.graph import Edge, Graph, Node, Root
from gradviz.graph.amounts import forward_order
from gradviz.graph.given import graph_of
from gradviz.report import labels
from gradviz.report.results import displayed
from gradviz.wording import clip, count_text, one_line, plural

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType


class FieldChange(NamedTuple):
    """One thing that differs between a node and the node it was matched with, in words:
    "shape", old and new.
    """

    what: str
    before: str
    after: str


class NodeChange(NamedTuple):
    """A node of `before` and the node of `after` that it was matched with, by id."""

    before: int
    after: int
    changes: tuple[FieldChange, ...]


class Joined(NamedTuple):
    """One graph of all nodes of two: the second graph, and behind it what only the
    first one has.

    `number` is the id in it of every node of the first graph; `gone` the edges of that
    alone.
    """

    graph: Graph
    number: Mapping[int, int] | Sequence[int]
    gone: Sequence[Edge]


@displayed("gradviz.comparison.diff:table")
@dataclass(frozen=True, repr=False)
class GraphDiff:
    """The difference of two graphs. Ids of `removed` and `removed_edges` are those of
    `before`, of `added` and `added_edges` those of `after`. `matched` maps ids of
    `before` to ids of `after`. All are in the order of the forward pass. `outputs` says
    what differs in the names of outputs and where they come from; `joined` is both as
    one graph. Iterating gives a row for each node that differs, for pandas.
    """

    before: Graph
    after: Graph
    matched: Mapping[int, int]
    added: tuple[int, ...]
    removed: tuple[int, ...]
    changed: tuple[NodeChange, ...]
    added_edges: tuple[Edge, ...]
    removed_edges: tuple[Edge, ...]
    outputs: tuple[FieldChange, ...]
    joined: Joined

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        edges = self.added_edges or self.removed_edges
        return not (self.added or self.removed or self.changed or edges or self.outputs)

    def __iter__(self) -> Iterator[dict[str, str]]:
        for what, graph, nodes in (
            ("removed", self.before, self.removed),
            ("added", self.after, self.added),
        ):
            for node in nodes:
                row = {"change": what, **labels.node_row(graph, node)}
                yield {**row, **FieldChange("", "", "")._asdict()}
        for _, node, changes in self.changed:
            row = {"change": "changed", **labels.node_row(self.after, node)}
            yield from ({**row, **change._asdict()} for change in changes)

    def __repr__(self) -> str:
        return f"<GraphDiff: {_sums(self)}>"


def diff(before: object, after: object) -> GraphDiff:
    """What changed from one graph to another; either may be given as its tensors.

    Returns
    -------
    GraphDiff
        node ids that were `removed` from `before` and `added` in `after`, and what
        changed of those in both; `empty` where nothing did.

    Examples
    --------
    >>> from gradviz.graph import Edge, Graph, Node, Root
    >>> before = Graph((Node(0, "SumBackward0"), Node(1, "ExpBackward0")), (Edge(0, 1, 0, 0),))
    >>> after = Graph((Node(0, "SumBackward0"), Node(1, "SinBackward0")), (Edge(0, 1, 0, 0),))
    >>> difference = diff(before, after)
    >>> [before.nodes[i].op for i in difference.removed], [after.nodes[i].op for i in difference.added], difference.empty
    (['ExpBackward0'], ['SinBackward0'], False)
    >>> diff(before, before).empty
    True
    """
    before, after = graph_of(before), graph_of(after)
    # modules count where both graphs know some
    merging = Merging(scopes=bool(before.scopes and after.scopes))
    merging.merge(after)
    number = merging.merge(before)
    matched = {
        node: number[node]
        for node in forward_order(before)
        if number[node] < len(after.nodes)
    }
    met = set(matched.values())
    images = [
        edge._replace(consumer=number[edge.consumer], producer=number[edge.producer])
        for edge in before.edges
    ]
    kept, there = {edge[:4] for edge in images}, {edge[:4] for edge in after.edges}
    gone = [edge for edge in images if edge[:4] not in there]
    title = f"{before.title or 'graph'} to {after.title or 'graph'}"

    return GraphDiff(
        before,
        after,
        matched,
        tuple(node for node in forward_order(after) if node not in met),
        tuple(node for node in forward_order(before) if node not in matched),
        tuple(_changed(before, after, matched)),
        tuple(edge for edge in after.edges if edge[:4] not in kept),
        tuple(
            edge for edge, image in zip(before.edges, images) if image[:4] not in there
        ),
        tuple(_outputs(before, after, matched)),
        Joined(merging.graph((*after.edges, *gone), title=title), number, gone),
    )


# -- changes ---------------------------------------------------------------------------


def facts(node: Node) -> dict[str, str]:
    """What a node computed and keeps, in words: `{"shape": "(4, 8)", "state": "-"}`."""
    said: dict[str, object] = {}
    for i, output in enumerate(node.outputs):
        where = f" of output {i}" if i else ""
        if output is not None:
            said |= {field + where: fact for field, fact in output._asdict().items()}

    said["outputs"] = len(node.outputs)
    said["saved bytes"] = sum(slot.nbytes or 0 for slot in node.saved)
    said["saved tensors"] = len(node.saved)
    said["state"] = ", ".join(node.flags) or "-"
    said |= node.attributes
    said.pop("other", None)  # what code multiplies by, such as the size of a batch
    return {what: str(fact) for what, fact in said.items()}


def _changed(
    before: Graph, after: Graph, matched: Mapping[int, int]
) -> Iterator[NodeChange]:
    for node, image in matched.items():
        old, new = facts(before.nodes[node]), facts(after.nodes[image])
        changes = [
            FieldChange(what, old.get(what, "None"), new.get(what, "None"))
            for what in {**old, **new}
            if old.get(what) != new.get(what)
        ]
        if changes:
            yield NodeChange(node, image, tuple(changes))


def _outputs(
    before: Graph, after: Graph, matched: Mapping[int, int]
) -> Iterator[FieldChange]:
    """Outputs by name: gone, new, or made by another function."""
    old = {root.name: root for root in before.roots}
    new = {root.name: root for root in after.roots}
    if len(before.roots) == len(after.roots) == 1:  # one output, whatever it is called
        old, new = {"output": before.roots[0]}, {"output": after.roots[0]}

    for name in {**old, **new}:
        was, now = old.get(name), new.get(name)
        image = was and (matched.get(was.node), was.output)  # type: ignore[arg-type]
        if image != (now and (now.node, now.output)):
            yield FieldChange(name, _maker(before, was), _maker(after, now))


def _maker(graph: Graph, root: Root | None) -> str:
    if root is None:
        return "-"
    maker = "nothing" if root.node is None else graph.nodes[root.node].op
    return f"made by {maker}"


# -- in words: `+` added, `-` removed, `~` changed -------------------------------------

TOP = 100


_COLORS = {"-": "red", "+": "green", "~": "yellow"}


def table(difference: GraphDiff, top: int | None = TOP) -> RenderableType:
    """The sums, then what differs, at most `top` rows of each kind (0 or None for all)."""
    from gradviz.report.rich_parts import Group, Text
    from gradviz.report.table import Column, FittedTable

    columns = Column("", "word"), Column("", "text")
    parts: list[RenderableType] = [
        Text(line, overflow="fold") for line in _head(difference)
    ]
    for title, rows in _sections(difference).items():
        if not rows:
            continue
        shown = rows[: top or None]
        cells = [(Text(mark, _COLORS[mark]), Text(words)) for mark, words in shown]
        parts += [Text(), Text(title, "bold")]
        parts.append(FittedTable(columns, cells, header=False, indent=2))
        if len(shown) < len(rows):
            parts.append(Text(f"  {labels.more(len(rows) - len(shown))}"))
    return Group(*parts)


def _head(difference: GraphDiff) -> Iterator[str]:
    before, after = difference.before, difference.after
    yield f"before: {one_line(before.title or 'graph')}"
    yield f"after:  {one_line(after.title or 'graph')}"
    yield ""
    yield _sums(difference)


def _sections(difference: GraphDiff) -> dict[str, list[tuple[str, str]]]:
    """Marks and words by title."""
    before, after, matched = difference.before, difference.after, difference.matched
    inner = set(matched.values())
    return {
        "removed": [("-", _node(before, node)) for node in difference.removed],
        "added": [("+", _node(after, node)) for node in difference.added],
        "changed": [
            ("~", f"{_node(after, node.after)}: {_words(node.changes)}")
            for node in difference.changed
        ],
        "edges between nodes of both": [
            *(
                ("-", _edge(before, edge))
                for edge in difference.removed_edges
                if {edge.consumer, edge.producer} <= matched.keys()
            ),
            *(
                ("+", _edge(after, edge))
                for edge in difference.added_edges
                if {edge.consumer, edge.producer} <= inner
            ),
        ],
        "outputs": [("~", _words((change,))) for change in difference.outputs],
    }


def _sums(difference: GraphDiff) -> str:
    """`-64 +11 ops, -40 edges, 2 changed, 9 the same, 12 modules gone`."""
    before, after = difference.before, difference.after
    if difference.empty:
        nodes = plural(len(difference.matched), "node")
        return f"no difference: {nodes} and {plural(len(after.edges), 'edge')}"

    removed = [node in before.leaf_of for node in difference.removed]
    added = [node in after.leaf_of for node in difference.added]
    changed = len(difference.changed)
    old, new = _modules(before), _modules(after)

    words = (
        _change(removed.count(False), added.count(False), "op"),
        _change(removed.count(True), added.count(True), "leaf", "leaves"),
        _change(len(difference.removed_edges), len(difference.added_edges), "edge"),
        f"{count_text(changed)} changed" if changed else "",
        f"{count_text(len(difference.matched) - changed)} the same",
        f"{plural(len(old - new), 'module')} gone" if old - new else "",
        plural(len(new - old), "new module") if new - old else "",
    )
    return ", ".join(filter(None, words))


def _change(removed: int, added: int, *noun: str) -> str:
    """`-64 +11 ops`; "" where there is none."""
    counts = [f"-{count_text(removed)}"] * bool(removed)
    counts += [f"+{count_text(added)}"] * bool(added)
    word = plural(removed + added, *noun).partition(" ")[2]
    return " ".join([*counts, word]) if counts else ""


def _modules(graph: Graph) -> set[str]:
    return {scope.path for scope in graph.scopes if scope.type}


def _node(graph: Graph, node: int) -> str:
    record, leaf = graph.nodes[node], graph.leaf_of.get(node)
    scope = graph.scopes[record.scope] if record.scope is not None else None
    parts = [
        *_title(graph, node),
        labels.held_text(record) if leaf is None else "",
        labels.outputs_line(record.outputs),
        f"in {scope.path or scope.type}" if scope is not None else "",
        labels.source_text(record.source) if record.source is not None else "",
    ]
    return one_line("  ".join(dict.fromkeys(filter(None, parts))))


def _title(graph: Graph, node: int) -> tuple[str, ...]:
    leaf = graph.leaf_of.get(node)
    if leaf is not None:
        return (labels.leaf_title(leaf),)
    return labels.op_title(graph, graph.nodes[node], names="variable")


def _edge(graph: Graph, edge: Edge) -> str:
    producer, consumer = (
        _title(graph, node)[0] for node in (edge.producer, edge.consumer)
    )
    return one_line(f"{producer} -> {consumer}, input {edge.position}")


def _words(changes: Iterable[FieldChange]) -> str:
    return one_line(
        "; ".join(
            f"{field} {clip(before, 40)} -> {clip(after, 40)}"
            for field, before, after in changes
        )
    )
