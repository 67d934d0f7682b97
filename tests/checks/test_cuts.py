"""Every cut has its line: scripts whose graph is lost somewhere, each healed by the advice."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

FAULTS = {
    "a weight that a network makes, registered again": Fault(
        "unused-parameter",
        "self.main.weight = nn.Parameter(w)",
        "use the tensor itself",
        "        self.main.weight = nn.Parameter(w)\n        return self.main(x)",
        "        return torch.func.functional_call(self.main, {'weight': w}, (x,))",
        """
        import torch
        from torch import nn
        class Hyper(nn.Module):
            def __init__(self):
                super().__init__()
                self.gen, self.main = nn.Linear(3, 8), nn.Linear(4, 2)
            def forward(self, z, x):
                w = self.gen(z).view(2, 4)
                self.main.weight = nn.Parameter(w)
                return self.main(x)
        model = Hyper()
        opt = torch.optim.Adam([*model.gen.parameters(), model.main.bias])
        for step in range(4):
            loss = model(torch.randn(3), torch.randn(8, 4)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a codebook that only a straight path uses": Fault(
        "unused-parameter",
        "dec(z + (q - z).detach())",
        "keep .detach()",
        "    loss = (dec(z + (q - z).detach()) - x).pow(2).mean()",
        "    loss = (dec(z + (q - z).detach()) - x).pow(2).mean() + (q - z.detach()).pow(2).mean()",
        """
        import torch
        from torch import nn
        enc, dec, book = nn.Linear(6, 4), nn.Linear(4, 6), nn.Embedding(8, 4)
        opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *book.parameters()])
        for i in range(3):
            x = torch.rand(5, 6)
            z = enc(x)
            q = book(torch.cdist(z, book.weight).argmin(1))
            loss = (dec(z + (q - z).detach()) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "rows that go through a list": Fault(
        "unused-parameter",
        "rows = a(torch.randn(16, 6)).tolist()",
        "compute the loss from the tensors themselves",
        "    rows = a(torch.randn(16, 6)).tolist()\n    h = torch.as_tensor(rows)",
        "    h = a(torch.randn(16, 6))",
        """
        import torch
        a, b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)
        opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        for _ in range(4):
            rows = a(torch.randn(16, 6)).tolist()
            h = torch.as_tensor(rows)
            loss = (b(h) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "weights that are written into a network": Fault(
        "unused-parameter",
        "main.weight.data = generated",
        "torch.func.functional_call(module, {'weight': t}, x)",
        "    main.weight.data = generated[:6].view(2, 3)\n    out = main(x)",
        "    out = torch.func.functional_call(main, {'weight': generated[:6].view(2, 3)}, (x,))",
        """
        import torch
        torch.manual_seed(0)
        main, hyper = torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(4, 6)
        opt = torch.optim.Adam([*hyper.parameters(), *main.parameters()])
        for i in range(3):
            x, generated = torch.randn(5, 3), hyper(torch.randn(4))
            main.weight.data = generated[:6].view(2, 3)
            out = main(x)
            loss = (out - x[:, :2]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "weights that are copied into a network": Fault(
        "unused-parameter",
        "self.main.weight.copy_(w)",
        "torch.func.functional_call(module, {'weight': t}, x)",
        "        with torch.no_grad():\n            self.main.weight.copy_(w)\n        return self.main(x)",
        "        return torch.func.functional_call(self.main, {'weight': w}, (x,))",
        """
        import torch
        class Hyper(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.make, self.main = torch.nn.Linear(4, 6), torch.nn.Linear(3, 2)
            def forward(self, task, x):
                w = self.make(task).view(2, 3)
                with torch.no_grad():
                    self.main.weight.copy_(w)
                return self.main(x)
        torch.manual_seed(0)
        net = Hyper()
        opt = torch.optim.Adam(net.parameters())
        for i in range(3):
            x = torch.randn(5, 3)
            loss = (net(torch.randn(4), x) - x[:, :2]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "experts without the weights of the router": Fault(
        "unused-parameter",
        "weight, chosen = self.router(x)",
        "scores.softmax(-1) as weights",
        "expert(x[rows]))",
        "expert(x[rows]) * weight[rows])",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Mixture(nn.Module):
            def __init__(self):
                super().__init__()
                self.router = nn.Linear(4, 3)
                self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            def forward(self, x):
                weight, chosen = self.router(x).softmax(-1).max(-1, keepdim=True)
                out = x
                for i, expert in enumerate(self.experts):
                    rows = (chosen[:, 0] == i).nonzero()[:, 0]
                    out = out.index_add(0, rows, expert(x[rows]))
                return out
        net = Mixture()
        opt = torch.optim.Adam(net.parameters())
        for i in range(3):
            loss = (net(torch.randn(32, 4)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a hard gate in a helper": Fault(
        "unused-parameter",
        "return (score > level).float()",
        "torch.sigmoid((x - threshold) * 20)",
        "return (score > level).float()",
        "return torch.sigmoid(score - level)",
        """
        import torch
        def harden(score, level=0.0):
            return (score > level).float()
        class Gated(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.key = torch.nn.Linear(3, 3)
                self.value = torch.nn.Linear(3, 3)
            def forward(self, x):
                return self.value(x) * harden(self.key(x))
        net = Gated()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            loss = (net(torch.randn(5, 3)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a term added as a number": Fault(
        "constant-term",
        "loss += 0.01 * penalty(net).item()",
        "compute the loss from the tensors themselves, and call .item() only on what is printed",
        "penalty(net).item()",
        "penalty(net)",
        """
        import torch
        def penalty(net):
            return sum(p.square().sum() for p in net.parameters())
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            loss = net(torch.randn(4, 3)).square().mean()
            loss += 0.01 * penalty(net).item()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a penalty on a gradient that is a constant": Fault(
        "constant-term",
        "slope, = torch.autograd.grad(score, x)",
        "pass create_graph=True to torch.autograd.grad",
        "torch.autograd.grad(score, x)",
        "torch.autograd.grad(score, x, create_graph=True)",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            x = torch.randn(4, 3, requires_grad=True)
            score = net(x).sum()
            slope, = torch.autograd.grad(score, x)
            gp = (slope.norm(dim=1) - 1).square().mean()
            loss = net(torch.randn(4, 3)).square().mean() + 10 * gp
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a draw that cannot be differentiated": Fault(
        "unused-parameter",
        "z = torch.distributions.Normal(mean, 1.0).sample()",
        "use rsample()",
        ".sample()",
        ".rsample()",
        """
        import torch
        class VAE(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.enc, self.dec = torch.nn.Linear(4, 2), torch.nn.Linear(2, 4)
            def forward(self, x):
                mean = self.enc(x)
                z = torch.distributions.Normal(mean, 1.0).sample()
                return self.dec(z)
        vae = VAE()
        opt = torch.optim.Adam(vae.parameters())
        for i in range(3):
            x = torch.randn(8, 4)
            loss = (vae(x) - x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a loss through NumPy": Fault(
        "no-graph",
        "error = y - np.asarray(net(x).detach())",
        "remove .detach()",
        "    error = y - np.asarray(net(x).detach())\n    loss = torch.from_numpy(error ** 2).mean()",
        "    error = torch.from_numpy(y) - net(x)\n    loss = (error ** 2).mean()",
        """
        import numpy as np, torch
        net = torch.nn.Linear(3, 1)
        for i in range(3):
            x, y = torch.randn(4, 3), np.ones((4, 1), dtype=np.float32)
            error = y - np.asarray(net(x).detach())
            loss = torch.from_numpy(error ** 2).mean()
            loss.backward()
        """,
    ),
    "a loss that was told to require grad": Fault(
        "no-graph",
        "hits = (net(x).argmax(1) == y).float()",
        "cross_entropy on them for a loss",
        "    hits = (net(x).argmax(1) == y).float()\n    loss = (1 - hits.mean()).requires_grad_()",
        "    loss = torch.nn.functional.cross_entropy(net(x), y)",
        """
        import torch
        net = torch.nn.Linear(3, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            x, y = torch.randn(6, 3), torch.randint(0, 4, (6,))
            hits = (net(x).argmax(1) == y).float()
            loss = (1 - hits.mean()).requires_grad_()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a weight that a network makes, wrapped again": Fault(
        "unused-parameter",
        "weight = torch.nn.Parameter(self.maker(code).view(2, 3))",
        "use the tensor itself",
        "torch.nn.Parameter(self.maker(code).view(2, 3))",
        "self.maker(code).view(2, 3)",
        """
        import torch
        class Hyper(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.maker, self.bias = torch.nn.Linear(2, 6), torch.nn.Parameter(torch.zeros(2))
            def forward(self, code, x):
                weight = torch.nn.Parameter(self.maker(code).view(2, 3))
                return torch.nn.functional.linear(x, weight, self.bias)
        hyper = Hyper()
        opt = torch.optim.Adam(hyper.parameters())
        for i in range(3):
            loss = hyper(torch.randn(2), torch.randn(4, 3)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a parameter that is copied in forward()": Fault(
        "unused-parameter",
        "weight = torch.tensor(self.weight, requires_grad=True)",
        "use the tensor itself",
        "torch.tensor(self.weight, requires_grad=True)",
        "self.weight",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.fc = torch.nn.Parameter(torch.ones(3)), torch.nn.Linear(3, 1)
            def forward(self, x):
                weight = torch.tensor(self.weight, requires_grad=True)
                return self.fc(x * weight)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            loss = net(torch.randn(4, 3)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "an update by hand that loses the leaf": Fault(
        "no-graph",
        "w = w - 0.1 * w.grad",
        "change w in place, so that it stays a leaf: w -= ...",
        "w = w - 0.1 * w.grad",
        "w -= 0.1 * w.grad; w.grad = None",
        """
        import torch
        w = torch.randn(3, requires_grad=True)
        for i in range(3):
            loss = (torch.randn(5, 3) @ w).square().mean()
            loss.backward()
            with torch.no_grad():
                w = w - 0.1 * w.grad
        """,
    ),
    "a penalty of numbers, made a tensor again": Fault(
        "constant-term",
        "size = torch.tensor(sum(p.norm().item() for p in net.parameters()))",
        "compute the loss from the tensors themselves",
        "torch.tensor(sum(p.norm().item() for p in net.parameters()))",
        "sum(p.norm() for p in net.parameters())",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            size = torch.tensor(sum(p.norm().item() for p in net.parameters()))
            loss = net(torch.randn(4, 3)).square().mean() + 0.01 * size
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a penalty behind what another network made without recording": Fault(
        "constant-term",
        "slope, = torch.autograd.grad(critic(x).sum(), x)",
        "pass create_graph=True to torch.autograd.grad",
        "critic(x).sum(), x)",
        "critic(x).sum(), x, create_graph=True)",
        """
        import torch
        maker, critic = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)), torch.nn.Linear(3, 1)
        critic = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        mine, other = torch.optim.SGD(critic.parameters(), lr=0.01), torch.optim.SGD(maker.parameters(), lr=0.01)
        for step in range(4):
            with torch.no_grad():
                fake = maker(torch.randn(5, 2))
            x = (0.5 * fake + 0.5 * torch.randn(5, 3)).requires_grad_()
            slope, = torch.autograd.grad(critic(x).sum(), x)
            loss = critic(fake).mean() - critic(torch.randn(5, 3)).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
            mine.zero_grad()
            loss.backward()
            mine.step()
            other.zero_grad()
            (-critic(maker(torch.randn(5, 2))).mean()).backward()
            other.step()
        """,
    ),
    "fast weights of an inner step that are new leaves": Fault(
        "idle-optimizer",
        "fast = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(fast, grads)]",
        "remove .detach()",
        ".detach().requires_grad_()",
        "",
        """
        import torch
        def net(x, w):
            return torch.tanh(x @ w[0]) @ w[1]
        def adapt(w, x, y):
            fast = w
            for i in range(2):
                grads = torch.autograd.grad((net(x, fast) - y).square().mean(), fast, create_graph=True)
                fast = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(fast, grads)]
            return fast
        torch.manual_seed(0)
        start = [torch.randn(1, 4).requires_grad_(), torch.randn(4, 1).requires_grad_()]
        opt = torch.optim.Adam(start, lr=0.01)
        for i in range(5):
            opt.zero_grad()
            x = torch.rand(8, 1)
            fast = adapt(start, x, x.sin())
            loss = (net(x + 1, fast) - (x + 1).sin()).square().mean()
            loss.backward()
            opt.step()
        """,
    ),
    "recording that is switched off for good": Fault(
        "no-graph",
        "torch.set_grad_enabled(False)",
        "torch.set_grad_enabled(True)",
        "loss = ",
        "torch.set_grad_enabled(True); loss = ",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        torch.set_grad_enabled(False)
        net(torch.ones(1, 3))
        for i in range(3):
            loss = net(torch.randn(4, 3)).square().mean()
            loss.backward()
        """,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", every_other(FAULTS.values()), ids=list(FAULTS))
def test_the_cut_is_found_at_its_line_and_the_advice_heals_it(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # paths are told from the current folder on
    shows_and_heals(fault, tmp_path)


RIGHT = {
    "scores of a matrix that steps with weight decay": """
        import torch
        torch.manual_seed(0)
        net, moves = torch.nn.Linear(3, 5), torch.nn.Parameter(torch.randn(5, 5))
        opt = torch.optim.SGD([*net.parameters(), moves], lr=0.01, weight_decay=1e-4)
        for _ in range(4):
            opt.zero_grad()
            features = net(torch.randn(4, 3))
            score = torch.zeros(1)
            for i, row in enumerate(features):
                score = score + moves[i + 1, i] + row[i]
            loss = features.logsumexp(1).sum() - score
            loss.backward()
            opt.step()
    """,
    "a loop variable that keeps a weight of the phase before": """
        import torch
        def cost(net):
            out = net(torch.randn(8, 3))
            weights = 1 / (1 + out.detach().abs().mean(1))
            return (torch.nn.functional.cross_entropy(out, torch.randint(0, 2, (8,)), reduction="none") * weights).mean()
        def probe(net):
            for param in net.parameters():
                param.requires_grad = False
            net[2] = torch.nn.Linear(4, 2)
            opt = torch.optim.SGD(net[2].parameters(), lr=0.1)
            for step in range(3):
                loss = cost(net)
                opt.zero_grad()
                loss.backward()
                opt.step()
        def main():
            net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(3):
                loss = cost(net)
                opt.zero_grad()
                loss.backward()
                opt.step()
            probe(net)
        main()
        """,
    "a printed number that equals a default of the loss": """
        import torch
        net, offset = torch.nn.Linear(3, 4), torch.nn.Parameter(torch.zeros(4))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            print((offset * 2).sum().item())
            loss = torch.nn.functional.cross_entropy(net(torch.randn(6, 3)), torch.randint(0, 4, (6,)), label_smoothing=0.0)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "metrics beside the loss": """
        import torch
        net = torch.nn.Linear(3, 4)
        total, hits = 0.0, 0
        for i in range(3):
            out, y = net(torch.randn(6, 3)), torch.randint(0, 4, (6,))
            loss = torch.nn.functional.cross_entropy(out, y)
            total += loss.item()
            hits += (out.argmax(1) == y).sum().item()
            loss.backward()
            out.detach().numpy().round(2), loss.data, float(loss.detach())
        """,
    "targets, advantages and ratios": """
        import torch
        actor, critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
        opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
        for i in range(3):
            x = torch.randn(5, 3)
            policy = torch.distributions.Categorical(logits=actor(x))
            action = policy.sample()
            with torch.no_grad():
                target = torch.randn(5) + 0.9 * critic(x).squeeze(1)
            value = critic(x).squeeze(1)
            advantage = (target - value).detach()
            loss = (target - value).square().mean() - (policy.log_prob(action) * advantage).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "a score function with a sampled bound": """
        import torch
        from torch.distributions import Normal
        net, prior = torch.nn.Linear(4, 6), Normal(torch.ones(3), torch.ones(3))
        opt = torch.optim.Adam(net.parameters())
        for i in range(3):
            mean, scale = net(torch.randn(8, 4)).split(3, dim=1)
            q = Normal(mean, torch.nn.functional.softplus(scale))
            z = q.sample()
            log_q = q.log_prob(z).sum(1)
            bound = prior.log_prob(z).sum(1) - log_q
            loss = -(bound.detach() * log_q + bound).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "a quantizer with a straight path": """
        import torch
        encoder, codes, decoder = torch.nn.Linear(3, 2), torch.nn.Embedding(4, 2), torch.nn.Linear(2, 3)
        opt = torch.optim.Adam([*encoder.parameters(), *codes.parameters(), *decoder.parameters()])
        for i in range(3):
            x = torch.randn(5, 3)
            z = encoder(x)
            q = codes(torch.cdist(z, codes.weight).argmin(1))
            commit = (q.detach() - z).square().mean() + (q - z.detach()).square().mean()
            loss = (decoder(z + (q - z).detach()) - x).square().mean() + commit
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "a critic that learns from detached images": """
        import torch
        generator, critic = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
        opt_g, opt_c = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
        for i in range(5):
            fake = generator(torch.randn(4, 2)).detach()
            loss = critic(fake).mean() - critic(torch.randn(4, 3)).mean()
            opt_c.zero_grad()
            loss.backward()
            opt_c.step()
        """,
    "a spike with a gradient of its own": """
        import torch
        class Spike(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                out = torch.zeros_like(x)
                out[x > 0] = 1.0
                return out
            @staticmethod
            def backward(ctx, gradient):
                return gradient / (1 + ctx.saved_tensors[0].abs()) ** 2
        layer = torch.nn.Linear(3, 2)
        opt = torch.optim.SGD(layer.parameters(), lr=0.1)
        for i in range(3):
            spikes = Spike.apply(layer(torch.randn(4, 3)))
            loss = spikes.mean() + 0.1 * spikes.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "a temperature that a loss of its own trains": """
        import torch
        actor, log_alpha = torch.nn.Linear(3, 2), torch.zeros((), requires_grad=True)
        opt = torch.optim.Adam([*actor.parameters(), log_alpha])
        for i in range(4):
            policy = torch.distributions.Normal(*actor(torch.randn(5, 3)).split(1, 1)[:1], torch.ones(()))
            entropy = -policy.log_prob(policy.rsample()).mean()
            loss = policy.mean.square().mean() - log_alpha.exp().item() * entropy
            opt.zero_grad()
            loss.backward()
            (log_alpha * (entropy.detach() - 0.5)).backward()
            opt.step()
        """,
    "a margin that turns train": """
        import torch
        net, margin = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.tensor(0.5))
        opt = torch.optim.SGD([*net.parameters(), margin], lr=0.1)
        for i in range(9):
            out = net(torch.randn(5, 3)).squeeze(1)
            loss = (out - margin).square().mean() if i % 4 == 3 else torch.relu(float(margin) - out).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "a mask from numbers": """
        import torch
        net = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            out = net(torch.randn(4, 3))
            keep = out.detach().abs() < out.abs().mean().item() * 2
            weight = torch.tensor(out.shape[0] / max(int(keep.sum()), 1))
            loss = (out[keep].square() * weight).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
}


@pytest.mark.parametrize("script", RIGHT.values(), ids=list(RIGHT))
def test_cuts_that_belong_there_are_left_alone(script: str, tmp_path: Path) -> None:
    assert not alarms(script, tmp_path)


def test_a_switch_of_recording_is_told_as_what_it_is(tmp_path: Path) -> None:
    with torch.enable_grad():  # the script runs in this process, and switches it off
        found = alarms(textwrap.dedent(FAULTS["recording that is switched off for good"].script), tmp_path)
    assert "switches gradients off, and nothing switches them on again" in found[0]["why"]
    assert "computes torch.set_grad_enabled" not in found[0]["why"]


LAYERS = """
import numpy as np, torch
from torch import nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    def forward(self, x):
        return self.fc(x) * {cut}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(3):
    loss = net(torch.randn(3, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "cut",
    [
        "self.scale.data",
        "self.scale.detach()",
        "torch.detach(self.scale)",
        "self.scale.mean().item()",
        "torch.tensor(self.scale.tolist())",
        "x.new_tensor(self.scale)",
        "torch.full_like(x, self.scale.mean().item())",
        "float(self.scale.mean())",
        "torch.from_numpy(self.scale.detach().numpy())",
        "(self.scale > 0)",
        "torch.gt(self.scale, 0)",
        "torch.topk(self.scale, 4).indices",
        "self.scale.sort()[1]",
        "torch.argsort(self.scale)",
    ],
)
def test_what_is_true_of_a_line_is_true_of_every_call_of_it(cut: str, tmp_path: Path) -> None:
    (found,) = alarms(LAYERS.format(cut=cut), tmp_path)
    assert found["names"] == [f"net.layers.{i}.scale" for i in range(4)], found
    assert found["code"].strip() == f"return self.fc(x) * {cut}"


HEAD = """
import torch
from torch.nn import functional as F
net, x, y = torch.nn.Linear(4, 3), torch.randn(8, 4), torch.randint(0, 3, (8,))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
STEP = """
    loss = F.cross_entropy(p, y) + d
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TERMS = {
    "inline": ("", "    with torch.no_grad():\n        d = p.abs().mean()"),
    "inline, two lines": ("", "    with torch.no_grad():\n        a = p.abs()\n        d = a.mean()"),
    "a helper": ("def extra(p):\n    with torch.no_grad():\n        return p.abs().mean()", "    d = extra(p)"),
    "a call": ("def extra(p):\n    return p.abs().mean()", "    with torch.no_grad():\n        d = extra(p)"),
    "a decorator": ("@torch.no_grad()\ndef extra(p):\n    a = p.abs()\n    return a.mean()", "    d = extra(p)"),
    "a method": (
        "class Extra:\n    @torch.no_grad()\n    def term(self, p):\n        return p.abs().mean()\nextra = Extra()",
        "    d = extra.term(p)",
    ),
    "a switch": ("", "    torch.set_grad_enabled(False)\n    d = p.abs().mean()\n    torch.set_grad_enabled(True)"),
    "inference": ("", "    with torch.inference_mode():\n        d = p.abs().mean()\n    d = d.clone()"),
    "argmax": ("", "    d = torch.argmax(p, 1).float().mean()"),
    "detach": ("", "    d = torch.detach(p).mean()"),
    "max": ("", "    d = torch.max(p, 1)[1].float().mean()"),
    "max unpacked": ("", "    _, best = p.max(1)\n    d = best.float().mean()"),
    "topk": ("", "    d = torch.topk(p, 2).indices.float().mean()"),
    "comparison": ("", "    d = (p > 0).float().mean()"),
    "comparison by name": ("", "    d = torch.gt(p, 0).float().mean()"),
    "a cast": ("", "    d = p.to(torch.int64).float().mean()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(TERMS))
def test_a_term_without_a_graph_is_found_however_it_is_cut(name: str, tmp_path: Path) -> None:
    before, lines = TERMS[name]
    (found,) = alarms(f"{HEAD}{before}\nfor i in range(4):\n    p = net(x)\n{lines}\n{STEP}", tmp_path)
    assert found["id"] == "constant-term" and found["why"].count("p") > 0, found
    assert not alarms(f"{HEAD}for i in range(4):\n    p = net(x)\n    d = p.abs().mean()\n{STEP}", tmp_path)


def test_a_switch_that_is_on_again_before_a_line_did_not_cut_it(tmp_path: Path) -> None:
    switched = "    torch.set_grad_enabled(False)\n    n = p.norm()\n    torch.set_grad_enabled(True)\n"
    seldom = "    if i > 9:\n        torch.set_grad_enabled(False)\n"
    for before, cut in ((switched, "p.detach()"), (seldom, "p.detach()")):
        text = f"{HEAD}for i in range(4):\n    p = net(x)\n{before}    d = {cut}.abs().mean()\n{STEP}"
        (found,) = alarms(text, tmp_path)
        assert "detaches p" in found["why"], found
    (found,) = alarms(f"{HEAD}for i in range(4):\n    p = net(x)\n{TERMS['a switch'][1]}\n{STEP}", tmp_path)
    assert "torch.set_grad_enabled(False), line 8" in found["why"] and "torch.set_grad_enabled(True)" in found["fix"]


def test_one_of_several_results_that_nothing_reads(tmp_path: Path) -> None:
    script = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.aux = nn.Linear(3, 2), nn.Linear(3, 2)
        def forward(self, x):
            return self.main(x).square().mean(), self.aux(x).square().mean()
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        loss, extra = net(torch.randn(4, 3))
        opt.zero_grad()
        loss.backward()
        opt.step()
    """
    (found,) = alarms(textwrap.dedent(script), tmp_path)
    assert found["names"] == ["net.aux.weight", "net.aux.bias"]
    assert "assigns extra, which nothing reads" in found["why"] and "loss, extra = net" in found["code"]
