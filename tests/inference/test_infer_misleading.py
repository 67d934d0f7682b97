"""Modules guessed where who owns a parameter is not who works with it, or where the parameters are not in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import gradviz
from benchmarks.inference import agreement


class Adapter(nn.Linear):
    """A frozen layer with small matrices beside it."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.weight.requires_grad = self.bias.requires_grad = False
        self.down, self.up = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.ones(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias) + x @ self.down.T @ self.up.T * 2


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.out = Adapter(), Adapter(), Adapter()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.q(x) * self.k(x)))  # type: ignore[no-any-return]


class Quantizer(nn.Module):
    """Multiplies by an embedding that it never calls, and has a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nearest = F.one_hot((x @ self.codes.weight.detach().T).argmax(1), 4).float() @ self.codes.weight
        return x + (nearest - x).detach(), F.mse_loss(nearest, x.detach()) * 2


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.quantizer, self.decoder = nn.Linear(4, 4), Quantizer(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        coded, loss = self.quantizer(self.encoder(x))
        return self.decoder(coded).mean() + loss  # type: ignore[no-any-return]


class Listed(nn.Module):
    """A block whose layer is an attribute, and called by a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 1)
        self.net = nn.Sequential(self.conv, nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + x  # type: ignore[no-any-return]


def spectral() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), parametrizations.spectral_norm(nn.Linear(4, 4, bias=False)), nn.Linear(4, 1))


def orthogonal() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 1))


def wrong(model: nn.Module, x: torch.Tensor) -> set[tuple[str, str, str]]:
    """Operation, recorded module and inferred one, where they differ. A parametrization counts as the list that it is in."""
    torch.manual_seed(0)
    with gradviz.record() as recording:
        loss = model(x).sum()
    found = agreement(recording.graph(loss, model=model), gradviz.walk(loss, model=model))
    return {(op, told, guess) for _, op, told, guess in found.wrong if told.removesuffix(".0") != guess}


@pytest.mark.parametrize("make", [spectral, orthogonal])
def test_a_parametrized_layer_turns_the_weight_itself(make: Callable[[], nn.Module]) -> None:
    assert not wrong(make(), torch.randn(3, 4))


def test_an_adapter_ends_with_the_sum_of_its_frozen_product() -> None:
    assert not wrong(nn.Sequential(nn.Linear(4, 4), Adapted(), nn.Linear(4, 1)), torch.randn(2, 3, 4))


def test_an_embedding_only_looks_up_and_a_loss_may_be_in_the_midst() -> None:
    assert not wrong(Quantized(), torch.randn(3, 4))


def test_a_sequence_calls_what_is_an_attribute_beside_it_too() -> None:
    model = nn.Sequential(Listed(), nn.Conv1d(2, 2, 1))
    graph = gradviz.walk(model(torch.ones(1, 2, 4)).sum(), model=model)
    inside = {scope.path: scope.parent for scope in graph.scopes}
    parent = inside["model.0.conv"]
    assert parent is not None and graph.scopes[parent].path == "model.0.net"
    relu = next(node for node in graph.nodes if node.op == "ReluBackward0")
    assert relu.scope is not None and graph.scopes[relu.scope].path == "model.0.net.1"


def test_what_no_code_says_is_said_of_the_module_around() -> None:
    """A forward that was made of text has no code to read."""
    names: dict[str, Any] = {}
    exec("def forward(self, x):\n    return self.b(self.act(self.a(x)).exp())", names)
    kind = type("Made", (nn.Module,), {"forward": names["forward"]})
    model = kind()
    model.a, model.act, model.b = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)
    places = wrong(nn.Sequential(model, nn.Tanh(), nn.Linear(4, 1)), torch.randn(3, 4))
    assert not places


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = F.linear(x, self.weight)
        return logits, logits.softmax(-1).sqrt()


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.expert = Router(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, weights = self.router(x)
        return logits, self.expert(weights)


class RoutedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layers = nn.Linear(4, 4), nn.ModuleList([Routed(), Routed()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, logits = self.first(x), []
        for layer in self.layers:
            one, x = layer(x)
            logits.append(one)
        return x.sum() + torch.cat(logits).logsumexp(-1).mean()


def test_a_result_that_is_kept_for_the_loss_does_not_cut_a_call_short() -> None:
    assert not {found for found in wrong(RoutedTwice(), torch.randn(3, 4)) if "router" in found[1] + found[2]}
