"""A draw that a model goes on with is told where its gradient is zero, and left alone where it is the action of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

FAULTS = {
    "a bottleneck with noise, in a class": Fault(
        "draw-without-gradient",
        "return self.head(torch.normal(h, self.width(h).exp())), h",
        "mean + std * torch.randn_like(std)",
        "torch.normal(h, self.width(h).exp())",
        "h + self.width(h).exp() * torch.randn_like(h)",
        """
        import torch
        class Noisy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.width, self.head = (torch.nn.Linear(a, b) for a, b in ((3, 4), (4, 4), (4, 1)))
            def forward(self, x):
                h = self.body(x)
                return self.head(torch.normal(h, self.width(h).exp())), h
        net = Noisy()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(3):
            y, h = net(torch.randn(8, 3))
            loss = (y - 1).square().mean() + 0.1 * h.square().mean() + 0.1 * net.width(h).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
}
TRAINING = """
import torch
torch.manual_seed(0)
{made}
opt = torch.optim.Adam(torch.nn.ModuleList(v for v in list(vars().values()) if isinstance(v, torch.nn.Module)).parameters())
for _ in range(4):
    x = torch.randn(16, 6)
    {steps}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def training(made: str, *steps: str) -> str:
    return TRAINING.format(made=made, steps="\n    ".join(steps))


VAE = "enc, dec = torch.nn.Linear(6, 4), torch.nn.Linear(2, 6)"
CODES = "enc, codes, dec = torch.nn.Linear(6, 4), torch.nn.Embedding(8, 4), torch.nn.Linear(4, 6)"
NEAR = "torch.cdist(z, codes.weight).argmin(1)"
FAULTS |= {
    "a latent that sample() drew": Fault(
        "draw-without-gradient", "z = q.sample()", "rsample() in place of sample()", "q.sample()", "q.rsample()",
        training(
            VAE,
            "mean, width = enc(x).chunk(2, 1)",
            "q = torch.distributions.Normal(mean, (0.5 * width).exp())",
            "z = q.sample()",
            "far = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0))",
            "loss = (dec(z) - x).square().mean() + far.mean()",
        ),
    ),
    "a bottleneck of several samples, which is joined to a condition": Fault(
        "draw-without-gradient", "z = torch.distributions", "rsample()", ".sample((3,))", ".rsample((3,))",
        training(
            "enc, dec = torch.nn.Linear(6, 2), torch.nn.Linear(8, 6)",
            "mean = enc(x)",
            "z = torch.distributions.Laplace(mean, torch.ones_like(mean)).sample((3,)).mean(0)",
            "loss = (dec(torch.cat([z, x], 1)) - x).square().mean() + 0.1 * mean.square().mean()",
        ),
    ),
    "codes without a straight-through estimator": Fault(
        "draw-without-gradient", "dec(q)", "codes = z + (codes - z).detach()", "dec(q)", "dec(z + (q - z).detach())",
        training(
            CODES,
            "z = enc(x)",
            f"q = codes({NEAR})",
            "loss = (dec(q) - x).square().mean() + (z - q.detach()).square().mean() + (q - z.detach()).square().mean()",
        ),
    ),
    "a table of codes that is indexed": Fault(
        "draw-without-gradient", "torch.relu(part(q", "codes = z + (codes - z).detach()",
        "part(q.flatten(1))", "part((z + (q - z).detach()).flatten(1))",
        training(
            "enc, part = torch.nn.Linear(6, 4), torch.nn.Linear(4, 6)\ncodes = part.codes = torch.nn.Parameter(torch.randn(8, 4))",
            "z = enc(x)",
            "q = codes[(z[:, None] - codes).square().sum(2).argmin(1)]",
            "near = (z - q.detach()).square().mean() + (q - z.detach()).square().mean()",
            "loss = (torch.relu(part(q.flatten(1))) - x).square().mean() + near",
        ),
    ),
}  # fmt: skip
SEEDS = """
        import torch
        torch.manual_seed(1)
        x = torch.randn(32, 6)
        net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(8):
            {first}
            part = {part}
            opt.zero_grad()
            loss = (net(x[part]) - 1).square().mean()
            loss.backward()
            opt.step()
            {last}
"""
PART = "torch.randint(32, (8,))"
FAULTS |= {
    "a seed in each step": Fault(
        "seeded-again", "torch.manual_seed(7)", "Set the seed once, before the loop", "    torch.manual_seed(7)\n", "",
        SEEDS.format(first="torch.manual_seed(7)", part=PART, last="pass"),
    ),
    "a function that sets the seed": Fault(
        "seeded-again", "    torch.manual_seed(7)", "Set the seed once, before the loop", "    fresh()\n", "    pass\n",
        SEEDS.format(first="fresh()", part=PART, last="pass").replace(
            "import torch\n", "import torch\n        def fresh():\n            torch.manual_seed(7)\n"
        ),
    ),
}  # fmt: skip
RIGHT = {
    "a seed of its own for each step": SEEDS.format(first="torch.manual_seed(step)", part=PART, last="pass"),
    "a seed, and nothing is drawn": SEEDS.format(
        first="torch.manual_seed(7)", part="slice(8 * step % 32, None)", last="pass"
    ),
    "one seed for each evaluation, apart from the rest": SEEDS.format(
        first="pass",
        part=PART,
        last="with torch.random.fork_rng(), torch.no_grad(): torch.manual_seed(1); net(x + torch.randn_like(x))",
    ),
    "one seed for each of several models": """
        import torch
        for rate in (0.1, 0.01, 0.001, 0.0001):
            torch.manual_seed(0)
            net = torch.nn.Linear(6, 1)
            opt = torch.optim.SGD(net.parameters(), lr=rate)
            for step in range(4):
                opt.zero_grad()
                net(torch.randn(8, 6)).square().mean().backward()
                opt.step()
    """,
    "an actor whose critic takes in its draws": training(
        "actor, critic = torch.nn.Linear(6, 2), torch.nn.Linear(8, 1)",
        "chances = torch.distributions.Normal(actor(x), 0.5)",
        "action = chances.sample()",
        "earned, value = -action.square().sum(1), critic(torch.cat([x, action], 1)).squeeze(1)",
        "gain = (earned - value).detach()",
        "loss = (value - earned).square().mean() - (chances.log_prob(action).sum(1) * gain).mean() - chances.entropy().mean()",
    ),
    "words that a model says itself, and clusters that no layer takes": training(
        "words, body, centers = torch.nn.Embedding(9, 6), torch.nn.Linear(6, 6), torch.nn.Embedding(3, 6)",
        "scores = body(x) @ words.weight.T",
        "again = body(words(scores.argmax(1))) @ words.weight.T",
        "nearest = torch.cdist(body(x), centers.weight).argmin(1)",
        "apart = (body(x) - centers(nearest)).square().mean()",
        "loss = sum(torch.nn.functional.cross_entropy(one, torch.arange(16) % 9) for one in (scores, again)) + apart",
    ),
    "a policy that weighs the log probability of its draws": """
        import torch
        policy, value = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        opt = torch.optim.Adam([*policy.parameters(), *value.parameters()])
        for _ in range(3):
            x = torch.randn(8, 3)
            mean = policy(x)
            action = torch.normal(mean, torch.ones_like(mean))
            gain = -action.detach().square().sum(1) - value(x).squeeze(1)
            chance = -(action.detach() - mean).square().sum(1)
            loss = -(chance * gain.detach()).mean() + gain.square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
