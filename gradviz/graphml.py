"""A Graph as a networkx graph and as GraphML, for algorithms and programs that gradviz
does not have.

Every attribute is one str, int, float or bool, which all writers of networkx take; what
is unknown or at its default is left out. The records themselves stay reachable: a node
is its id in `Graph.nodes`, and the key of an edge its index in `Graph.edges`. networkx,
which comes with torch, is imported when it is used. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from gradviz.draw.options import Options
from gradviz.graph import Graph, Node, SourceLine, TensorInfo
from gradviz.wording import shape_text, visible

if TYPE_CHECKING:
    from networkx import MultiDiGraph

Value = str | int | float | bool
"""What an attribute may be."""


def to_networkx(graph: Graph) -> MultiDiGraph:
    """The graph as a `networkx.MultiDiGraph`; docs/networkx.md lists the attributes of
    its nodes and edges.

    A node is the id of a `Node`. An edge runs from consumer to producer, as in
    `Graph.edges`, and its key is its index there; `reverse()` gives the direction in
    which the data flowed. A node takes about 2 kB (a `Node` of a large graph 0.1 kB),
    so fold what is very large.

    Notes
    -----
    Source:
    https://networkx.org/documentation/stable/reference/classes/multidigraph.html

    Examples
    --------
    >>> import networkx
    >>> from gradviz.graph import Graph, Node, Edge
    >>> graph = Graph(nodes=(Node(0, "ExpBackward0"), Node(1, "AccumulateGrad")), edges=(Edge(0, 1, 0, 0),))
    >>> made = to_networkx(graph)
    >>> made.nodes[0]["op"], networkx.descendants(made, 0)
    ('ExpBackward0', {1})
    """
    import networkx

    multigraph: MultiDiGraph = networkx.MultiDiGraph(**_known(_of_graph(graph)))
    norms = {step.node: step.norm for step in graph.backward}
    marks: dict[int, list[str]] = {}
    for mark in graph.marks:
        for marked in mark.nodes:
            marks.setdefault(marked, []).append(mark.id)
    for node in graph.nodes:
        more = (
            ("gradient_norm", norms.get(node.id)),
            ("marks", _joined(marks.get(node.id, ()))),
        )
        multigraph.add_node(
            node.id,
            **_known(_of_node(graph, node)),
            **_known(more),
        )
    for key, edge in enumerate(graph.edges):
        multigraph.add_edge(
            edge.consumer,
            edge.producer,
            key,
            output=edge.output,
            position=edge.position,
            count=edge.count,
        )
    return multigraph


def _known(
    attributes: Iterable[tuple[str, Value | None]],
) -> dict[str, Value]:
    return {
        name: value
        for name, value in attributes
        if value is not None and value != "" and value is not False
    }


def _of_graph(
    graph: Graph,
) -> Iterator[tuple[str, Value | None]]:
    yield "title", graph.title
    yield "torch", graph.torch
    yield "attribution", graph.attribution
    yield "notes", "\n".join(graph.notes)
    yield (
        "outputs_without_graph",
        "\n".join(
            f"{root.name}: {root.why}" if root.why else root.name
            for root in graph.roots
            if root.node is None
        ),
    )


def _of_node(
    graph: Graph,
    node: Node,
) -> Iterator[tuple[str, Value | None]]:
    leaf, group = graph.leaf_of.get(node.id), node.group
    names = _joined(leaf.names if leaf is not None else node.names)
    yield "op", node.op
    yield "label", group.title if group is not None else names or node.op
    yield "names", names
    yield (
        "output_names",
        _joined(root.name for root in graph.roots_of.get(node.id, ())),
    )
    yield from _of_tensors([tensor for tensor in node.outputs if tensor is not None])
    yield "sequence", node.sequence
    yield "none_inputs", node.none_inputs or None
    yield "assigned", node.assigned
    yield "flags", _joined(node.flags)
    yield (
        "attributes",
        _joined(f"{name}={value}" for name, value in node.attributes.items()),
    )
    if node.function is not None:
        yield "custom_function", node.function.name

    if node.scope is not None:
        scope = graph.scopes[node.scope]
        yield from (
            ("module", scope.path),
            ("module_type", scope.type),
            ("module_call", scope.call),
        )

    yield from _of_source("", node.source)
    yield from _of_source("script_", node.script_line)
    if node.saved:
        yield "saved", _joined(slot.slot for slot in node.saved)
        yield "saved_bytes", _saved_bytes(graph, node)

    if leaf is not None:
        yield from (
            ("leaf", leaf.kind),
            ("has_grad", leaf.has_grad),
            ("hooks", leaf.hooks or None),
        )

    if group is not None:
        yield from (
            ("group", group.kind),
            ("group_count", group.count),
            ("group_ops", group.ops),
        )
        yield from (
            ("group_nodes", len(group.nodes)),
            ("group_parameters", group.parameters),
            ("group_bytes", group.nbytes),
        )


def _of_tensors(
    tensors: Sequence[TensorInfo],
) -> Iterator[tuple[str, Value | None]]:
    yield "shape", _joined(shape_text(tensor.shape) for tensor in tensors)
    for name in ("dtype", "device", "layout"):
        yield name, _joined(dict.fromkeys(getattr(tensor, name) for tensor in tensors))


def _of_source(
    prefix: str, source: SourceLine | None
) -> Iterator[tuple[str, Value | None]]:
    if source is not None:
        yield from (
            (prefix + "file", source.file),
            (prefix + "line", source.line),
            (prefix + "code", source.text),
        )
        yield from (
            (prefix + "code_function", source.function),
            (prefix + "package", source.package),
        )


def _saved_bytes(graph: Graph, node: Node) -> int | None:
    """Of the storages behind the node's slots, each once; None when one of them is not
    known.
    """
    storages = {storage for slot in node.saved for storage in slot.storages}
    sizes = [graph.storages[storage].nbytes for storage in storages]
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None)
    return None


def _joined(words: Iterable[str]) -> str:
    return "; ".join(word for word in words if word)


def render_graphml(graph: Graph, options: Options) -> str:
    """XML of nodes, edges and the attributes that `gradviz.to_networkx` gives them,
    which Gephi, yEd and igraph read.
    """
    from networkx.readwrite.graphml import GraphMLWriter

    converted = to_networkx(graph)
    for attributes in (converted.graph, *converted.nodes.values()):
        attributes.update(
            {
                name: escape(value)
                for name, value in attributes.items()
                if isinstance(value, str)
            }
        )
    text = BytesIO()
    GraphMLWriter(converted).dump(text)
    return str(text.getvalue(), "utf-8")


def escape(text: str) -> str:
    """Text as XML can hold it: what cannot be seen is written as its escape. The writer
    escapes `<` and `&`.
    """
    return visible(text, keep="\n")
