"""A Graph as a networkx graph and as GraphML, for algorithms and programs that gradviz
does not have.

Every attribute is one str, int, float or bool, which all writers of networkx take; what
is unknown or at its default is left out. The records themselves stay reachable: a node
is its id in `Graph.nodes`, and the key of an edge its index in `Graph.edges`. networkx,
which comes with torch, is imported when it is used. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gradviz.draw.options import Options
from gradviz.graph import Graph, Group, Leaf, Node, TensorInfo
from gradviz.graph.given import graph_of
from gradviz.wording import shape_text, visible

if TYPE_CHECKING:
    from networkx import MultiDiGraph

Value = str | int | float | bool
"""What an attribute may be."""


def to_networkx(graph: object) -> MultiDiGraph:
    """The graph, or that of tensors, as a `networkx.MultiDiGraph`; docs/networkx.md lists
    the attributes of its nodes and edges.

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

    graph = graph_of(graph)
    multigraph: MultiDiGraph = networkx.MultiDiGraph(**_plain(_of_graph(graph)))
    norms = {step.node: step.norm for step in graph.backward}
    marks: dict[int, list[str]] = {}
    for mark in graph.marks:
        for marked in mark.nodes:
            marks.setdefault(marked, []).append(mark.id)

    for node in graph.nodes:
        measured = {"gradient_norm": norms.get(node.id), "marks": marks.get(node.id)}
        multigraph.add_node(node.id, **_plain({**_of_node(graph, node), **measured}))

    for key, edge in enumerate(graph.edges):
        facts = edge._asdict()
        multigraph.add_edge(facts.pop("consumer"), facts.pop("producer"), key, **facts)
    return multigraph


def _plain(facts: Mapping[str, Any]) -> dict[str, Value]:
    """Facts as attributes: several words as one text, and nothing where there is none."""
    attributes: dict[str, Value] = {}
    for name, value in facts.items():
        if value is not None and not isinstance(value, (str, int, float)):
            value = "; ".join(word for word in value if word)
        if value is not None and value != "" and value is not False:
            attributes[name] = value
    return attributes


def _of_graph(graph: Graph) -> dict[str, Any]:
    lost = [root for root in graph.roots if root.node is None]
    words = [f"{root.name}: {root.why}" if root.why else root.name for root in lost]
    return {
        "title": graph.title,
        "torch": graph.torch,
        "attribution": graph.attribution,
        "notes": "\n".join(graph.notes),
        "outputs_without_graph": "\n".join(words),
    }


_SCOPE = ("module", "module_type", "module_call")
_SOURCE = ("file", "line", "code_function", "code", "package")
"""What the first fields of a `Scope` and of a `SourceLine` are called."""


def _of_node(graph: Graph, node: Node) -> dict[str, Any]:
    leaf, group = graph.leaf_of.get(node.id), node.group
    names = leaf.names if leaf is not None else node.names
    tensors = [tensor for tensor in node.outputs if tensor is not None]
    facts: dict[str, Any] = {
        "op": node.op,
        "label": "; ".join(filter(None, names)) or node.op,
        "names": names,
        "output_names": [root.name for root in graph.roots_of.get(node.id, ())],
        "sequence": node.sequence,
        "none_inputs": node.none_inputs or None,
        "assigned": node.assigned,
        "flags": node.flags,
        "attributes": [f"{name}={value}" for name, value in node.attributes.items()],
        "saved": [slot.slot for slot in node.saved],
        "saved_bytes": _saved_bytes(graph, node),
    }
    facts |= _of_tensors(tensors)
    if node.function is not None:
        facts["custom_function"] = node.function.name
    if node.scope is not None:
        facts |= zip(_SCOPE, graph.scopes[node.scope])
    facts |= zip(_SOURCE, node.source or ())
    facts |= zip((f"script_{name}" for name in _SOURCE), node.script_line or ())
    return facts | _of_leaf(leaf) | _of_group(group)


def _of_tensors(tensors: Sequence[TensorInfo]) -> dict[str, Any]:
    return {
        "shape": [shape_text(tensor.shape) for tensor in tensors],
        "dtype": dict.fromkeys(tensor.dtype for tensor in tensors),
        "device": dict.fromkeys(tensor.device for tensor in tensors),
        "layout": dict.fromkeys(tensor.layout for tensor in tensors),
    }


def _of_leaf(leaf: Leaf | None) -> dict[str, Any]:
    if leaf is None:
        return {}
    return {"leaf": leaf.kind, "has_grad": leaf.has_grad, "hooks": leaf.hooks or None}


def _of_group(group: Group | None) -> dict[str, Any]:
    if group is None:
        return {}
    return {
        "label": group.title,
        "group": group.kind,
        "group_count": group.count,
        "group_ops": group.ops,
        "group_nodes": len(group.nodes),
        "group_parameters": group.parameters,
        "group_bytes": group.nbytes,
    }


def _saved_bytes(graph: Graph, node: Node) -> int | None:
    """Of the storages behind the node's slots, each once; None when one of them is not
    known.
    """
    storages = {storage for slot in node.saved for storage in slot.storages}
    sizes = [graph.storages[storage].nbytes for storage in storages]
    return sum(filter(None, sizes)) if sizes and None not in sizes else None


def render_graphml(graph: Graph, options: Options) -> str:
    """XML of nodes, edges and the attributes that `gradviz.to_networkx` gives them,
    which Gephi, yEd and igraph read.
    """
    from networkx.readwrite.graphml import GraphMLWriter

    converted = to_networkx(graph)
    for attributes in (converted.graph, *converted.nodes.values()):
        for name, value in attributes.items():
            if isinstance(value, str):
                attributes[name] = escape(value)
    text = BytesIO()
    GraphMLWriter(converted).dump(text)
    return f"{str(text.getvalue(), 'utf-8').rstrip()}\n<!-- gradviz -->\n"


def escape(text: str) -> str:
    """Text as XML can hold it: what cannot be seen is written as its escape. The writer
    escapes `<` and `&`.
    """
    return visible(text, keep="\n")
