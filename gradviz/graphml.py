"""A Graph as a networkx graph and as GraphML, for algorithms and programs that gradviz
does not have.

A node is its id in `Graph.nodes`, and the key of an edge its index in `Graph.edges`, so
the records stay reachable. networkx, which comes with torch, is imported when it is
used. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from gradviz.draw.options import Options
from gradviz.graph import Graph, Node, SavedTensor, TensorInfo
from gradviz.wording import shape_text, visible

if TYPE_CHECKING:
    from networkx import MultiDiGraph


def to_networkx(graph: Graph) -> MultiDiGraph:
    """What `Graph.to_networkx` returns.

    >>> import networkx
    >>> from gradviz.graph import Graph, Node, Edge
    >>> graph = Graph(nodes=(Node(0, "ExpBackward0"), Node(1, "AccumulateGrad")), edges=(Edge(0, 1, 0, 0),))
    >>> made = to_networkx(graph)
    >>> made.nodes[0]["op"], networkx.descendants(made, 0)
    ('ExpBackward0', {1})
    """
    import networkx

    lost = [f"{root.name}: {root.why}" for root in graph.roots if root.node is None]
    made: MultiDiGraph = networkx.MultiDiGraph(
        **_plain(title=graph.title, torch=graph.torch, notes=graph.notes, lost=lost)
    )
    norms = {step.node: step.norm for step in graph.backward}
    for node in graph.nodes:
        facts = _facts(graph, node)
        made.add_node(node.id, **_plain(**facts, gradient_norm=norms.get(node.id)))

    for key, edge in enumerate(graph.edges):
        facts = edge._asdict()
        made.add_edge(facts.pop("consumer"), facts.pop("producer"), key, **facts)
    return made


def _plain(**facts: Any) -> dict[str, str | int | float]:
    """Facts as attributes that all writers of networkx take: several words as one text,
    and nothing where there is none.
    """
    attributes: dict[str, str | int | float] = {}
    for name, value in facts.items():
        if value is not None and not isinstance(value, (str, int, float)):
            value = "; ".join(word for word in value if word)
        if value is not None and value != "" and value is not False:
            attributes[name] = value
    return attributes


def _facts(graph: Graph, node: Node) -> dict[str, Any]:
    leaf, group = graph.leaf_of.get(node.id), node.group
    names = leaf.names if leaf is not None else node.names
    scope = graph.scopes[node.scope] if node.scope is not None else None
    facts = {
        "op": node.op,
        "label": group.title if group else "; ".join(filter(None, names)) or node.op,
        "names": names,
        "outputs": [root.name for root in graph.roots_of.get(node.id, ())],
        "module": scope and scope.path,
        "module_type": scope and scope.type,
        "flags": node.flags,
        "saved_bytes": _saved_bytes(graph, node.saved),
        "leaf": leaf and leaf.kind,
        "group": group and group.kind,
        "group_ops": group and group.ops,
    }
    facts |= _of_tensors([tensor for tensor in node.outputs if tensor is not None])
    return facts if node.source is None else facts | node.source._asdict()


def _of_tensors(tensors: Sequence[TensorInfo]) -> dict[str, Any]:
    return {
        "shape": [shape_text(tensor.shape) for tensor in tensors],
        "dtype": dict.fromkeys(tensor.dtype for tensor in tensors),
        "device": dict.fromkeys(tensor.device for tensor in tensors),
    }


def _saved_bytes(graph: Graph, saved: Iterable[SavedTensor]) -> int | None:
    """Of the storages behind the slots, each once; None when one of them is not known."""
    storages = {storage for slot in saved for storage in slot.storages}
    sizes = [graph.storages[storage].nbytes for storage in storages]
    return sum(filter(None, sizes)) if sizes and None not in sizes else None


def render_graphml(graph: Graph, options: Options) -> str:
    """XML of the networkx graph, which Gephi, yEd and igraph read. What cannot be seen,
    and XML cannot hold, is written as its escape.
    """
    import networkx

    made = to_networkx(graph)
    for attributes in (made.graph, *made.nodes.values()):
        for name, value in attributes.items():
            if isinstance(value, str):
                attributes[name] = visible(value, keep="\n")
    text = BytesIO()
    networkx.write_graphml_xml(made, text)  # with lxml or without
    return f"{str(text.getvalue(), 'utf-8').rstrip()}\n<!-- gradviz -->\n"
