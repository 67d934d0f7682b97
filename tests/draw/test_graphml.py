"""networkx graphs and GraphML: nothing is lost but what is said to be, and networkx reads back what was written."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings

from gradviz.draw.output import encode, render
from gradviz.graph import BackwardStep, Graph, Group, Node, SavedTensor, Storage
from gradviz.graphml import to_networkx
from gradviz.wording import visible
from tests.builders import GRAPHS, everything, folded, odd_names, views
from tests.strategies import graphs


def read(text: bytes) -> nx.MultiDiGraph:
    return nx.read_graphml(BytesIO(text), node_type=int, force_multigraph=True)


def escaped(attributes: dict[str, object]) -> str:
    """As text, because nan differs from itself."""
    return repr(
        {
            name: visible(value, keep="\n") if isinstance(value, str) else value
            for name, value in sorted(attributes.items())
        }
    )


def agree(graph: Graph) -> None:
    made, again = to_networkx(graph), read(encode(str(render(graph, "graphml"))))
    assert {node: escaped(known) for node, known in made.nodes.items()} == {
        node: repr(dict(sorted(known.items()))) for node, known in again.nodes.items()
    }
    assert dict(made.edges.items()) == dict(again.edges.items())
    kept = {name: value for name, value in again.graph.items() if name not in ("node_default", "edge_default")}
    assert escaped(made.graph) == repr(dict(sorted(kept.items())))


@pytest.mark.parametrize("name", GRAPHS)
def test_graphml_round_trip(name: str) -> None:
    agree(GRAPHS[name])


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_graphml_round_trip_of_anything(graph: Graph) -> None:
    agree(graph)


@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_and_edges_are_those_of_the_graph(name: str) -> None:
    graph = GRAPHS[name]
    made = to_networkx(graph)
    assert list(made.nodes) == [node.id for node in graph.nodes]
    assert len(made.edges) == len(graph.edges)
    for consumer, producer, key, known in made.edges(keys=True, data=True):
        assert graph.edges[key] == (consumer, producer, known["output"], known["position"], known["count"])
    assert nx.is_directed_acyclic_graph(made)
    for known in (made.graph, *made.nodes.values()):
        assert all(type(value) in (str, int, float, bool) and value != "" for value in known.values())


def test_everything_that_a_node_can_say() -> None:
    graph = everything()
    graph = Graph(graph.nodes, graph.edges, graph.leaves, graph.roots, graph.scopes, graph.storages, title="t")
    known = to_networkx(graph).nodes
    assert known[0]["module"] == "fc" and known[0]["module_type"] == "Linear"
    assert (known[0]["file"], known[0]["line"], known[0]["package"]) == ("/src/train.py", 12, "nets")
    assert known[0]["flags"] == "custom; hooks" and known[0]["outputs"] == "out['y'][0]"
    assert "saved_bytes" not in known[0]  # the size of one storage is not known
    assert known[1]["label"] == "w; tied.w" and known[1]["leaf"] == "parameter"


def test_a_storage_that_two_slots_share_counts_once() -> None:
    slots = tuple(
        SavedTensor(slot, None, storage, "activation", "live") for slot, storage in (("a", 0), ("b", 0), ("c", 1))
    )
    storages = (Storage(0, 40, "activation"), Storage(1, 2, "activation"))
    assert to_networkx(Graph((Node(0, "Op", saved=slots),), storages=storages)).nodes[0]["saved_bytes"] == 42


def test_gradients_groups_and_outputs_without_a_graph() -> None:
    graph = Graph((Node(0, "Op"), Node(1, "Op")), backward=(BackwardStep(0, 2.5), BackwardStep(1)))
    assert [known.get("gradient_norm") for known in to_networkx(graph).nodes.values()] == [2.5, None]
    assert to_networkx(folded()).nodes[1]["group"] == "repeat" and to_networkx(folded()).nodes[1]["label"] == "net.cell"
    assert to_networkx(views()).graph["lost"] == "constant: it was made under torch.no_grad()"
    assert to_networkx(Graph((Node(0, "", group=Group("chain", "", ())),))).nodes[0]["group"] == "chain"


def test_names_are_as_they_were_in_python_and_escaped_in_a_file(tmp_path: Path) -> None:
    graph = odd_names()
    assert to_networkx(graph).nodes[9]["op"] == "a\u202eb"
    graph.save(str(tmp_path / "odd.graphml"))
    assert read((tmp_path / "odd.graphml").read_bytes()).nodes[9]["op"] == r"a\u202eb"
