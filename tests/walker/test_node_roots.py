"""A node of the graph, `y.grad_fn`, and a GradientEdge are roots like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

import gradviz
from gradviz.errors import NoGraphError
from gradviz.graph import Graph
from tests.cli.scripts import script
from tests.run.running import run_target
from tests.walker.graphs import needs_raw


def content(graph: Graph) -> tuple[object, ...]:
    return graph.nodes, graph.edges, graph.leaves, [(root.node, root.output, root.tensor) for root in graph.roots]


def test_a_node_is_what_it_made() -> None:
    w = torch.ones(3, requires_grad=True)
    y = (w * 2).exp()
    known = gradviz.walk(y)
    found = gradviz.walk(y.grad_fn)
    assert content(found) == content(known)
    assert found.roots[0].name == "y"


def test_one_of_several_results_of_a_node() -> None:
    parts = torch.ones(3, 2, requires_grad=True).unbind()
    second = parts[1]
    found = gradviz.walk(get_gradient_edge(second))
    assert (found.roots[0].output, found.roots[0].tensor.shape, found.roots[0].name) == (1, (2,), "second")


def test_nodes_beside_tensors_and_inside_containers() -> None:
    w = torch.ones(3, requires_grad=True)
    y, z = w.exp(), w.sin()
    found = gradviz.walk({"y": y.grad_fn, "z": [z]})
    assert [found.nodes[root.node or 0].op for root in found.roots] == ["ExpBackward0", "SinBackward0"]


def test_a_node_of_foreach_which_is_no_instance_of_torchs_own_class() -> None:
    (y,) = torch._foreach_mul([torch.ones(3, requires_grad=True)], 2)
    assert not isinstance(y.grad_fn, torch.autograd.graph.Node)
    assert gradviz.walk(y.grad_fn).roots[0].tensor.shape == (3,)


def test_the_edge_of_a_leaf_is_the_leaf() -> None:
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(NoGraphError, match="is a leaf"):
        gradviz.walk(get_gradient_edge(w))
    assert gradviz.walk([get_gradient_edge(w), w.exp()]).roots[0].tensor.shape == (3,)


@needs_raw
def test_gradients_and_checks_begin_at_a_node_too() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    assert [leaf.norm for leaf in gradviz.flow(y.grad_fn).leaves] == [leaf.norm for leaf in gradviz.flow(y).leaves]
    assert len(gradviz.check(y.grad_fn, values=True)) == len(gradviz.check(y, values=True))
    assert w.grad is None


@pytest.mark.skipif(
    "GradientEdge" not in str(torch.autograd.backward.__annotations__["tensors"]),
    reason="this torch runs no backward from a GradientEdge",
)
@pytest.mark.parametrize("target", ["script.py:y.grad_fn", "script.py"])
def test_in_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    script(
        tmp_path,
        """
        import torch
        from torch.autograd.graph import get_gradient_edge
        w = torch.ones(3, requires_grad=True)
        y = (w * 2).exp()
        torch.autograd.backward(get_gradient_edge(y), torch.ones(3))
        """,
    )
    graph = run_target(target).result
    assert [node.op for node in graph.nodes] == ["ExpBackward0", "MulBackward0", "AccumulateGrad"]
    assert graph.roots[0].name == ("y.grad_fn" if ":" in target else "y")
    assert graph.attribution == "recorded"
