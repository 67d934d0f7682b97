"""Layers that ran some elements of a list, each another number of them."""

from __future__ import annotations

import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.scene import scene
from gradviz.fold.fold import fold
from gradviz.graph import Graph


class Mixture(nn.Module):
    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        self.gate, self.norm = nn.Linear(8, 4), nn.LayerNorm(8) if norm else nn.Identity()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        weight = self.gate(h).softmax(-1)
        out = torch.zeros_like(x)
        for k in chosen.unique().tolist():
            where = chosen == k
            out[where] = self.experts[k](h[where]) * weight[where, k, None]
        return x + out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mixture = nn.Linear(8, 8), Mixture()

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return self.mixture(x + self.attention(x).tanh(), chosen)


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, *chosen: list[int]) -> torch.Tensor:
        for layer, numbers in zip(self.layers, chosen):
            x = layer(x, torch.tensor(numbers))
        return x.sum()


def folded(*layers: nn.Module) -> Graph:
    chosen = [0, 0, 1], [2, 2, 2], [1, 2, 3], [3, 3, 0], [1, 1, 1], [0, 2, 0]
    model = Stack(*layers)
    with gradviz.record() as recording:
        loss = model(torch.rand(3, 8), *chosen)
        return fold(recording.graph(loss))


def titles(graph: Graph) -> list[str]:
    return [node.folded.title for node in graph.nodes if node.folded and node.folded.kind == "alike"]


def test_layers_that_differ_in_the_experts_that_ran_are_alike_and_the_title_says_how_many() -> None:
    graph = folded(*(Mixture() for _ in range(6)))
    assert titles(graph) == ["model.layers.1–5 Mixture, 1 to 3 experts"]
    loops = [link.label for link in scene(graph, Options()).links if link.source == link.target]
    assert loops == ["x"]


def test_a_layer_around_the_experts_is_alike_too() -> None:
    assert titles(folded(*(Layer() for _ in range(6)))) == ["model.layers.1–5 Layer, 1 to 3 experts"]


def test_layers_that_differ_beside_the_experts_are_not_joined() -> None:
    graph = folded(*(Mixture(norm=i != 2) for i in range(6)))
    assert titles(graph) == ["model.layers.4–5 Mixture, 1 to 2 experts"]


def test_a_number_of_layers_in_a_sequential_is_no_choice_of_experts() -> None:
    def block(size: int) -> nn.Module:
        return nn.Sequential(*(nn.Linear(4, 4) for _ in range(size)))

    model = nn.Sequential(block(2), block(3), block(4))
    with gradviz.record() as recording:
        loss = model(torch.rand(2, 4)).sum()
        graph = fold(recording.graph(loss))
    assert not [title for title in titles(graph) if title.startswith("0")]
