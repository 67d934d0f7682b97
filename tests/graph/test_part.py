"""A module of a graph as a Graph of its own, compared with what the whole graph says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.graph import Graph
from gradviz.graph.amounts import held_bytes
from gradviz.graph.origins import ScopeTree
from gradviz.graph.records import Node, Scope


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        side = self.left(x).tanh()
        return side, self.right(side) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            for block in self.blocks:
                side, x = block(x)
        result: torch.Tensor = x.sum() + side.mean()
        return result


@pytest.fixture(scope="module")
def whole() -> Graph:
    torch.manual_seed(0)
    net = Net()
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4))
    return recording.graph(loss, model=net)


@pytest.mark.parametrize("path", ["blocks.0", "blocks.1", "blocks.1.left"])
def test_it_has_the_nodes_of_its_calls_and_what_they_use(whole: Graph, path: str) -> None:
    found = whole[path]
    tree, held = ScopeTree(whole), held_bytes(whole)
    inside = [node for i, scope in enumerate(whole.scopes) if scope.path == path for node in tree.members[i]]
    ops = sorted(found.nodes[node.id].op for node in found.nodes if node.id not in found.leaf_of)
    assert ops == sorted(whole.nodes[node].op for node in inside)
    assert {name for leaf in found.leaves for name in leaf.names} == {
        name for leaf in whole.leaves for name in leaf.names if name.startswith(f"{path}.")
    }
    assert sum(held_bytes(found)) == sum(held[node] for node in inside)
    assert {scope.path for scope in found.scopes} == {
        scope.path for scope in whole.scopes if f"{scope.path}.".startswith(f"{path}.")
    }
    assert found.title == f"loss: {path}"


def test_its_outputs_are_what_the_rest_takes_of_it(whole: Graph) -> None:
    assert len(whole["blocks.0"].roots) == 2  # the results of both calls; no one takes `side`
    assert [root.name for root in whole["blocks.1"].roots].count("side") == 1
    assert all(root.tensor.shape == (2, 4) for root in whole["blocks.1"].roots)
    assert "2 tensors from outside of blocks.1 not shown" in whole["blocks.1"].notes[-1]


def test_ids_hold_in_files_pictures_and_parts_of_parts(whole: Graph, tmp_path: Path) -> None:
    found = whole["blocks.1"]
    found.save(str(tmp_path / "part.json"))
    assert gradviz.load(str(tmp_path / "part.json")) == found
    assert found["blocks.1.left"].nodes == whole["blocks.1.left"].nodes
    assert whole.fold(depth=1)["blocks.1"] == found
    for format in ("svg", "dot", "md", "txt", "html", "graphml"):
        found.save(str(tmp_path / f"part.{format}"))
    assert found.to_svg(theme="dark") != found.to_svg() == (tmp_path / "part.svg").read_text(encoding="utf-8")
    assert gradviz.saved(found).total <= gradviz.saved(whole).total


def test_another_path_names_near_ones(whole: Graph) -> None:
    with pytest.raises(KeyError) as raised:
        whole["blocks.2"]
    assert (
        str(raised.value) == "no module 'blocks.2' in this graph. Did you mean blocks.1 or blocks.0 or blocks.1.left?"
    )
    with pytest.raises(TypeError, match="path of a module"):
        list(whole)  # type: ignore[call-overload]


def test_a_module_list_is_never_called_itself() -> None:
    nodes = (Node(0, "MulBackward0", sequence=1, scope=0),)
    graph = Graph(nodes, scopes=(Scope("net.blocks.0", "Block", 1, None),))
    with pytest.raises(KeyError) as raised:
        graph["net.blocks"]
    assert str(raised.value) == "'net.blocks' is never called itself, only modules in it. They are: net.blocks.0."
    with pytest.raises(KeyError, match=r"no module 'net\.block'"):
        graph["net.block"]
