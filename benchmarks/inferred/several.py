"""Models called several times, of several parts, or with adapters."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.inferred.case import Case, summed


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(16, 3),
    )


class Functional(nn.Module):
    """Layers as attributes, everything else as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout(F.max_pool2d(x, 2))
        x = self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(x, dim=1)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
        self.mu, self.logvar = nn.Linear(8, 2), nn.Linear(8, 2)
        self.decoder = nn.Sequential(
            nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 16), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(x)
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.decoder(z), mu, logvar


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()
        )
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return F.softmax(self.policy(x), dim=-1), self.value(x).squeeze(-1)


class GraphConv(nn.Module):
    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inside, out))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return adjacency @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gc1, self.gc2, self.gc3 = GraphConv(4, 8), GraphConv(8, 8), GraphConv(8, 3)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.gc1(x, adjacency)), 0.5)
        x = F.relu(self.gc2(x, adjacency))
        return F.log_softmax(self.gc3(x, adjacency), dim=1)


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A, self.lora_B = (
            nn.Linear(base.in_features, rank, False),
            nn.Linear(rank, base.out_features, False),
        )
        self.lora_dropout = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(self.lora_dropout(x))) * 0.5  # type: ignore[no-any-return]


def lora() -> nn.Module:
    return nn.Sequential(
        *(
            part
            for _ in range(3)
            for part in (LoRA(nn.Linear(8, 8)), nn.LayerNorm(8), nn.GELU())
        )
    )


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = (
            nn.LayerNorm(width),
            nn.Linear(width, 32),
            nn.Linear(32, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))  # type: ignore[no-any-return]


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.user_bias, self.item_bias = nn.Embedding(9, 1), nn.Embedding(9, 1)
        self.tower = nn.Sequential(
            nn.Linear(8, 8), Residual(8), Residual(8), nn.Linear(8, 1)
        )

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, i = self.users(user), self.items(item)
        dot = (
            (u * i).sum(-1)
            + self.user_bias(user).squeeze(-1)
            + self.item_bias(item).squeeze(-1)
        )
        return torch.sigmoid(dot + self.tower(torch.cat([u, i], -1)).squeeze(-1))


def siamese() -> tuple[nn.Module, Callable[[], Tensor]]:
    net = nn.Sequential(Residual(8), nn.ReLU(), nn.Linear(8, 4))
    return (
        net,
        lambda: (
            (net(torch.randn(3, 8)) - net(torch.randn(3, 8)))
            .pow(2)
            .sum(1)
            .clamp(min=0)
            .mean()
        ),
    )


def variational() -> tuple[nn.Module, Callable[[], Tensor]]:
    model, x = VAE(), torch.rand(3, 16)

    def run() -> Tensor:
        made, mu, logvar = model(x)
        divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return F.binary_cross_entropy(made, x, reduction="sum") + divergence

    return model, run


def actor_critic() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = ActorCritic()

    def run() -> Tensor:
        losses = []
        for _ in range(4):
            probabilities, value = model(torch.randn(4))
            chance = torch.distributions.Categorical(probabilities)
            losses.append(
                -chance.log_prob(torch.tensor(1)) * 0.5
                + F.smooth_l1_loss(value, torch.tensor(1.0))
            )
        return torch.stack(losses).sum()

    return model, run


def graph_network() -> tuple[nn.Module, Callable[[], Tensor]]:
    model, x, adjacency = GCN(), torch.randn(5, 4), torch.rand(5, 5)
    return model, lambda: F.nll_loss(model(x, adjacency), torch.tensor([0, 1, 2, 0, 1]))


def recommender() -> tuple[nn.Module, Callable[[], Tensor]]:
    model, user, item = Recommender(), torch.tensor([1, 2]), torch.tensor([3, 4])
    return model, lambda: F.mse_loss(model(user, item), torch.ones(2))


CASES: dict[str, Case] = {
    "perceptron": summed(perceptron, 2, 4),
    "functional layers": summed(Functional, 2, 1, 12, 12),
    "VAE": variational,
    "actor and critic": actor_critic,
    "siamese": siamese,
    "graph network": graph_network,
    "LoRA": summed(lora, 2, 8),
    "recommender": recommender,
}
