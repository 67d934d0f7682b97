"""Faults in other manners than those of the other tables: one finding each."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from gradviz.checks.finding import Findings
from gradviz.checks.output import report
from tests.checks.advice import alarms, skip_unread
from tests.rows import every_other


class Manner(NamedTuple):
    """A script, the check that finds its fault, a piece of the line that is to change, and one of the advice."""

    id: str
    at: str
    script: str
    advice: str = ""


STEP = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(4, 3),
    nn.Identity(),
)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 3), torch.randint(0, 3, (32, 1)))
for x, y, labels in torch.utils.data.DataLoader(data, batch_size=8):
"""
TWICE = STEP.replace(
    "net = nn.Sequential(\n    nn.Linear(4, 3),\n    nn.Identity(),\n)",
    "net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))",
)
METER = """
class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def update(self, value, count):
        self.sum, self.count = self.sum + value * count, self.count + count
meter = Meter()
"""
REST = """    opt.zero_grad()
    loss.backward()
    opt.step()
"""


UPDATES = [
    Manner(
        "nonleaf-parameter",
        "params[k] =",
        """
        import torch
        def main():
            params = {"w": torch.randn(4, 1, requires_grad=True), "b": torch.zeros(1, requires_grad=True)}
            for epoch in range(4):
                loss = (torch.randn(8, 4) @ params["w"] + params["b"]).square().mean()
                loss.backward()
                for k in params:
                    params[k] = params[k] - 0.01 * params[k].grad
        main()
        """,
    ),
    Manner(
        "nonleaf-parameter",
        "w = w - ",
        """
        import torch
        w, b = torch.randn(4, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
        for epoch in range(4):
            loss = (torch.randn(8, 4) @ w + b).square().mean()
            loss.backward()
            w = w - 0.01 * w.grad
            b = b - 0.01 * b.grad
        """,
    ),
    Manner(
        "nonleaf-parameter",
        "layers = [w - ",
        """
        import torch
        layers = [torch.randn(4, 4, requires_grad=True), torch.randn(4, 1, requires_grad=True)]
        for epoch in range(4):
            loss = (torch.randn(8, 4) @ layers[0] @ layers[1]).square().mean()
            grads = torch.autograd.grad(loss, layers)
            layers = [w - 0.01 * g for w, g in zip(layers, grads)]
        """,
    ),
    Manner(
        "stale-saved",
        "slots[:, t % 2] =",
        """
        import torch
        from torch import nn
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.write, self.ask = nn.Linear(4, 3), nn.Linear(4, 3)
            def forward(self, x):
                slots, read = torch.zeros(len(x), 2, 3), []
                for t in range(4):
                    slots[:, t % 2] = self.write(x[:, t]).tanh()
                    weights = torch.einsum("bd,bsd->bs", self.ask(x[:, t]), slots).softmax(-1)
                    read.append(torch.einsum("bs,bsd->bd", weights, slots))
                return torch.stack(read, 1)
        net = Memory()
        net(torch.randn(8, 4, 4)).square().mean().backward()
        """,
        "slots = slots.clone()",
    ),
    Manner(
        "stale-saved",
        "y, self.state = self.rnn(",
        """
        import torch
        class Reader(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.state = torch.nn.LSTM(4, 8), None
            def forward(self, x):
                y, self.state = self.rnn(x, self.state)
                return y
        class Trainer:
            def __init__(self):
                self.model = Reader()
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
            def fit(self):
                for step in range(4):
                    loss = self.model(torch.randn(5, 2, 4)).square().mean()
                    self.optimizer.zero_grad()
                    loss.backward(retain_graph=True)
                    self.optimizer.step()
        Trainer().fit()
        """,
    ),
]
RAISED = [
    Manner(
        "raised",
        "u_t = torch.autograd.grad(",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        def residual(points):
            x, t = points[:, 0:1], points[:, 1:2]
            u = net(points)
            u_t = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
            u_x = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            return (u_t + u_x).square().mean()
        for step in range(4):
            loss = residual(torch.rand(32, 2, requires_grad=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
        "of a part of a tensor, ask for the gradient of the whole",
    ),
    Manner(
        "raised",
        "v = torch.randn(8, 1, requires_grad=True) * 0.1",
        """
        import torch
        from torch import optim
        w = torch.randn(4, 8, requires_grad=True) * 0.1
        v = torch.randn(8, 1, requires_grad=True) * 0.1
        optimizer = optim.SGD([w, v], lr=0.01)
        for step in range(4):
            loss = ((torch.randn(16, 4) @ w).relu() @ v).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        "v = (torch.randn(8, 1) * 0.1).requires_grad_()",
    ),
    Manner(
        "raised",
        "torch.nn.MSELoss(",
        f"{STEP}    loss = torch.nn.MSELoss(net(x), y)\n{REST}",
        "Make the module first, then call it",
    ),
    Manner(
        "raised",
        "total += loss.item",
        f"total = 0.0\n{STEP}    loss = (net(x) - y).square().mean()\n{REST}    total += loss.item\n",
        "Call it, as in loss.item()",
    ),
]
MASKS = [
    Manner(
        "growing-graph",
        "meter.update(loss",
        f"{METER}{STEP}    loss = (net(x) - y).square().mean()\n{REST}    meter.update(loss, x.size(0))\n",
        "store it without its graph",
    )
]
LEARNER = """
import copy
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
class Learner:
    def __init__(self, net, lr=0.01):
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=lr)
        {init}
    def forward(self, x):
        h = self.net[0](x)
        {forward}
        return self.net[1](h)
    def step(self, x, y):
        loss = {loss}
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        {after}
learner = Learner(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)))
x = torch.randn(32, 4)
for step in range(4):
    learner.step(x, x.sum(1))
"""


def _learner(forward: str = "pass", loss: str = "(self.forward(x)[:, 0] - y).square().mean()", **parts: str) -> str:
    return LEARNER.format(**{"init": "pass", "after": "pass", "forward": forward, "loss": loss} | parts)


COPIES = [
    Manner(
        "no-update",
        "self.opt.zero_grad()",
        _learner().replace(
            "        self.opt.zero_grad()\n        loss.backward()\n",
            "        loss.backward()\n        self.opt.zero_grad()\n",
        ),
    ),
    Manner(
        "no-graph",
        "loss = F.cross_entropy",
        """
        import torch
        from torch.nn import functional as F
        torch.manual_seed(0)
        def attack(x, y, w):
            loss = F.cross_entropy(x @ w, y)
            loss.backward()
            return x + 0.1 * x.grad.sign()
        attack(torch.randn(8, 4), torch.randint(0, 3, (8,)), torch.randn(4, 3))
        """,
        "call requires_grad_() on it",
    ),
    Manner(
        "gradient-not-reset",
        "loss.backward()",
        """
        import torch
        torch.manual_seed(0)
        net, x = torch.nn.Linear(2, 1), torch.rand(32, 2)
        opt = torch.optim.LBFGS(net.parameters(), max_iter=10)
        def closure():
            loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            return loss
        for step in range(3):
            opt.step(closure)
        """,
        "Call opt.zero_grad() once in every step",
    ),
]
SWEEP = [
    Manner(
        "wrong-mode",
        "net.eval()",
        STEP.replace("nn.Identity()", "nn.Dropout(0.1)")
        + f"    loss = (net(x) - y).square().mean()\n{REST}    net.eval()\n",
        "before the training steps, first thing in the loop",
    ),
    Manner(
        "not-frozen",
        "net[0].requires_grad",
        _learner(init="net[0].requires_grad = False"),
        "module.requires_grad_(False)",
    ),
    Manner(
        "constant-term",
        "p.data.pow(2)",
        _learner(
            loss="F.mse_loss(self.forward(x)[:, 0], y) + 1e-3 * sum(p.data.pow(2).sum() for p in self.net.parameters())"
        ),
        "use the tensor itself instead of .data",
    ),
    Manner(
        "gradient-not-reset",
        "loss.backward()",
        _learner().replace("        self.opt.zero_grad()\n", ""),
        "Call self.opt.zero_grad()",
    ),
]
STATES = [
    Manner(
        "freed-graph",
        "self.h = torch.tanh(self.b(x))",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        class Gated(nn.Module):
            def __init__(self):
                super().__init__()
                self.g, self.a, self.b, self.h = nn.Linear(4, 1), nn.Linear(4, 4), nn.Linear(4, 4), torch.zeros(8, 4)
            def forward(self, x):
                if x.mean() > 0:
                    self.h = torch.tanh(self.a(x) + self.h)
                else:
                    self.h = torch.tanh(self.b(x))
                return torch.sigmoid(self.g(x)) * self.h
        net = Gated()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def step(x):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        for i in range(6):
            step(torch.randn(8, 4) + (1 if i % 2 else -1))
        """,
        "net.h = net.h.detach()",
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    every_other([*UPDATES, *RAISED, *MASKS, *COPIES, *SWEEP, *STATES]),
    ids=lambda fault: f"{fault.id}: {fault.at}",
)
def test_one_finding(fault: Manner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = textwrap.dedent(fault.script)
    (found,) = alarms(script, tmp_path)
    assert found["id"] == fault.id, found
    assert fault.at in found["code"], found["code"]
    assert fault.advice in found["fix"], found["fix"]


def test_a_hook_that_returns_nothing_may_look(tmp_path: Path) -> None:
    """What is computed is read further down, returned, or of a function that is called for its time only."""
    looks = """
        seen = []
        def look(grad):
            grad = grad.norm()
            seen.append(grad)
        def halve(grad):
            grad = grad / 2
            return grad
        def warm(x):
            x = net(x)
        net[0].weight.register_hook(look)
        net[0].bias.register_hook(halve)
        warm(torch.ones(1, 4))
        """
    step, rest = f"{STEP}    loss = (net(x) - y).square().mean()\n", REST
    loop = step.index("for x, y")
    assert not alarms(step[:loop] + textwrap.dedent(looks) + step[loop:] + rest, tmp_path)


def test_a_wrong_backward_explains_gradients_that_explode(tmp_path: Path) -> None:
    skip_unread("wrong-backward")
    script = """
        import torch
        class Swish(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * torch.sigmoid(x)
            @staticmethod
            def backward(ctx, grad):
                s = torch.sigmoid(ctx.saved_tensors[0])
                return grad * s * (1 + ctx.saved_tensors[0] * s) * 300
        class Act(torch.nn.Module):
            def forward(self, x):
                return Swish.apply(x)
        torch.manual_seed(0)
        layers = [part for _ in range(4) for part in (torch.nn.Linear(8, 8), Act())]
        net = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for step in range(4):
            loss = net(torch.randn(8, 8)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """
    (found,) = alarms(textwrap.dedent(script), tmp_path)
    assert found["id"] == "wrong-backward"
    assert [one["id"] for one in found["consequences"]] == ["exploding-gradient"]
    (raised,) = alarms(
        f"{STEP}    net[0].weight.register_hook(lambda grad: grad.norm())\n    loss = net(x).mean()\n{REST}", tmp_path
    )
    assert raised["id"] == "raised" and raised["fix"].startswith(
        "Return a gradient like the one that the hook is given"
    ), raised
    fails = """
        import torch
        x = torch.rand(5, 3, requires_grad=True)
        y = x.square().sum()
        torch.autograd.grad(y, x[:, 0])
        """
    (raised,) = alarms(textwrap.dedent(fails), tmp_path)
    assert raised["fix"].startswith("Compute y from an input itself")


def test_two_networks_of_one_class_are_no_state_that_goes_on(tmp_path: Path) -> None:
    """One line of code made both ends of what joins the two steps of a GAN: the generator's forward, and the discriminator's."""
    script = """
        import torch
        from torch import nn
        torch.manual_seed(2)
        class MLP(nn.Module):
            def __init__(self, inside, outside):
                super().__init__()
                self.seq = nn.Sequential(nn.Linear(inside, 16), nn.ReLU(), nn.Linear(16, outside))
            def forward(self, x):
                return self.seq(x)
        gen, dis = MLP(2, 1), MLP(1, 1)
        opt_g, opt_d = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (gen, dis))
        for step in range(6):
            fake = gen(torch.randn(16, 2))
            opt_d.zero_grad()
            loss_d = (dis(3.0 + torch.randn(16, 1)) - 1).square().mean() + dis(fake.detach()).square().mean()
            loss_d.backward()
            opt_d.step()
            opt_g.zero_grad()
            loss_g = (dis(fake) - 1).square().mean()
            loss_g.backward()
            opt_g.step()
        """
    assert not alarms(textwrap.dedent(script), tmp_path)


HALF = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(8, 4).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(3):
    loss = torch.log(net(torch.randn(8, 8).half()).relu()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SHARED = """
import torch
torch.manual_seed(0)
enc, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
opt = torch.optim.Adam([*enc.parameters(), *head.parameters()])
@torch.no_grad()
def embed(x):
    return torch.relu(enc(x))
for step in range(3):
    loss = head(embed(torch.randn(8, 4))).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(embed(torch.randn(8, 4)).mean().item())
"""
DROPS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out, self.drops = nn.Linear(8, 16), nn.Linear(16, 1), [nn.Dropout(0.5)]
    def forward(self, x):
        return self.out({}(self.fc(x)))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net.train()
    loss = net(torch.randn(8, 8)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.eval()
    with torch.no_grad():
        net(torch.randn(8, 8))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "at", "advice", "never"),
    [
        (HALF, "torch.log", "(1e-4 in float16)", "1e-8"),
        (SHARED, "@torch.no_grad()", "make the call inside `with torch.no_grad():`", ""),
    ],
)
def test_advice_is_of_the_script(script: str, at: str, advice: str, never: str, tmp_path: Path) -> None:
    (found,) = alarms(script, tmp_path)
    assert at in found["code"] and advice in found["fix"], found
    assert not never or never not in found["fix"] + found["why"], found


def test_the_end_of_a_report_is_as_wide_as_the_rest() -> None:
    failed = Findings((), (), (), (), failed="RuntimeError: " + "Missing key in state_dict " * 20)
    assert max(len(line) for line, _ in report(failed)) <= 80


ALIKE = {
    "a dropout that the model knows": DROPS.format("self.drops[0]").replace(
        "[nn.Dropout(0.5)]", "nn.ModuleList([nn.Dropout(0.5)])"
    ),
    "a dropout that is told of the mode": DROPS.format("(lambda h: nn.functional.dropout(h, 0.5, self.training))"),
    "a dropout for several passes": DROPS.format("self.drops[0]")
    .replace("step in", "_ in")
    .replace("[nn.Dropout(0.5)]", "nn.Dropout(0.5)")
    .replace("drops[0]", "drops")
    .replace("net.eval()", "net.eval().drops.train()"),
    "an evaluation without a graph": SHARED.replace("@torch.no_grad()\n", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("script", ALIKE.values(), ids=ALIKE)
def test_what_looks_alike_is_silent(script: str, tmp_path: Path) -> None:
    assert not alarms(textwrap.dedent(script), tmp_path)


def test_the_step_of_an_environment_is_no_update(tmp_path: Path) -> None:
    skip_unread("stale-saved")
    script = """
        import torch
        class World:
            def step(self, action):
                return torch.randn(4)
        trunk, value, world = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3)), torch.nn.Linear(3, 1), World()
        first = torch.optim.SGD(trunk.parameters(), lr=0.1)
        for episode in range(3):
            h = torch.stack([trunk(world.step(0)) for _ in range(3)])
            early, late = h.square().mean(), value(h).square().mean()
            early.backward(retain_graph=True)
            first.step()
            late.backward()
        """
    (found,) = (one for one in alarms(textwrap.dedent(script), tmp_path) if one["id"] == "stale-saved")
    assert found["code"].strip() == "first.step()" and "the change is in " in found["why"], found
