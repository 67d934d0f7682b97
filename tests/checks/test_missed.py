"""Faults of sets that others wrote, which were once missed: found at their line, healed by the advice; the nearest are not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

BEGIN = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
"""
END = """
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    loss = objective()
    loss.backward()
    opt.step()
"""


def _script(model: str, *lines: str) -> str:
    """A training of a model, whose loss these lines compute."""
    return f"{BEGIN}net = {model}\ndef objective():\n" + "".join(f"    {line}\n" for line in lines) + END


PAIRS = _script(
    "nn.ModuleDict(dict(user=nn.Embedding(20, 4), item=nn.Embedding(30, 4), bias=nn.Embedding(20, 1)))",
    "users, items, stars = torch.randint(0, 20, (16,)), torch.randint(0, 30, (16,)), torch.rand(16)",
    "score = (net['user'](users) * net['item'](items)).sum()",
    "score = score + net['bias'](users).squeeze(1)",
    "return (score - stars).square().mean()",
)
ATTENDS = _script(
    "nn.Linear(6, 6)",
    "x = torch.randn(8, 5, 6)",
    "seen = torch.arange(5) < torch.tensor([5, 3, 2, 5, 4, 1, 2, 3])[:, None]",
    "scores = (net(x) @ x.transpose(1, 2)).masked_fill(~seen[:, None, :], 1e-9)",
    "return (scores.softmax(-1) @ x).square().mean()",
)
TOWERS = _script(
    "nn.Linear(4, 4)",
    "x = torch.randn(24, 4)",
    "a, b = F.normalize(net(x), dim=1), F.normalize(net(x + 0.1), dim=1)",
    "return F.cross_entropy(a @ b.T * 5, torch.zeros(24, dtype=torch.long))",
)
FOLLOWS = _script(
    "nn.ModuleDict(dict(teacher=nn.Linear(4, 3), student=nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 3))))",
    "x = torch.randn(16, 4)",
    "goal = net['teacher'](x)",
    "return F.mse_loss(net['student'](x), goal)",
)
LEAVES = f"""{BEGIN}
w = torch.randn(3, 1, requires_grad=True).double()
b = torch.zeros(1, dtype=torch.float64, requires_grad=True)
for step in range(4):
    loss = (torch.ones(8, 3, dtype=torch.float64) @ w + b).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            if p.grad is not None:
                p -= 0.01 * p.grad
                p.grad = None
"""
REST = f"""{BEGIN}
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(4):
    opt.zero_grad()
    for i in range(10):
        loss = net(torch.randn(8, 4)).square().mean() / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
"""
SEARCH = f"""{BEGIN}
net = nn.Linear(4, 4)
net.mix = nn.Parameter(torch.zeros(4))
weights = torch.optim.SGD(net.parameters(), lr=0.01)
mixing = torch.optim.SGD([net.mix], lr=0.01)
for step in range(6):
    mixing.zero_grad()
    valid = (net(torch.randn(8, 4)) * net.mix.softmax(0)).square().mean()
    valid.backward()
    mixing.step()
    weights.zero_grad()
    train = (net(torch.randn(8, 4)) * net.mix.softmax(0)).square().mean()
    train.backward()
    weights.step()
"""
TWINS = _script(
    "nn.Linear(4, 6)",
    "x = torch.randn(12, 4)",
    "z = F.normalize(torch.cat([net(x), net(x + 0.1)]), dim=1)",
    "scores = z @ z.T / 0.2",
    "return F.cross_entropy(scores, torch.arange(24).roll(12))",
)
SIGNS = _script("nn.Linear(4, 3)", "return (Sign.apply(net(torch.randn(8, 4))) - 0.5).square().mean()").replace(
    "def objective",
    "class Sign(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.sign()\n"
    "    @staticmethod\n    def backward(ctx, g):\n        return g\ndef objective",
)
INNER = f"""{BEGIN}
w = torch.randn(4, 1, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
for step in range(5):
    loss = 0
    for task in range(5):
        x, fast = torch.randn(8, 4), w
        for i in range(4):
            (grad,) = torch.autograd.grad((x @ fast).square().mean(), fast, create_graph=True)
            fast = fast - 0.1 * grad
        loss = loss + (x @ fast).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
THAWED = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
net[0].requires_grad_(False)
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
for epoch in range(4):
    net[0].requires_grad_(epoch > 1)
    for i in range(4):
        loss = net(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
TEACHER = f"""{BEGIN}
teacher, net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 1)), nn.Linear(4, 1)
opt = torch.optim.SGD(teacher.parameters(), lr=0.01)
for step in range(4):
    loss = teacher(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
teacher.requires_grad_(False).eval()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(8, 4)
    loss = (net(x) - teacher(x)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
STUDENT = TEACHER.replace(
    "loss = (net(x) - teacher(x))", "with torch.no_grad():\n        y = teacher(x)\n    loss = (net(x) - y)"
).replace(".requires_grad_(False).eval()", ".requires_grad_(False)")
MASKED = f"""{BEGIN}
net = nn.Linear(4, 2)
mask = torch.ones(2, 4).tril()
net.weight.register_hook(lambda grad: mask){END}""".replace("objective()", "net(torch.randn(8, 4)).square().mean()")
RESUMED = f"""{BEGIN}
import io
net, file = nn.Linear(4, 1), io.BytesIO()
opt = torch.optim.Adam(net.parameters())
def train(first, last):
    for step in range(first, last):
        loss = net(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
train(0, 2)
torch.save({{"net": net.state_dict(), "opt": opt.state_dict(), "step": 2}}, file)
file.seek(0)
opt = torch.optim.Adam(net.parameters())
saved = torch.load(file)
net.load_state_dict(saved["net"])
train(saved["step"], 4)
"""
WARMUP = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.SGD([dict(params=net[0].parameters()), dict(params=net[2].parameters())], lr=0.0)
for step in range(12):
    opt.param_groups[1]["lr"] = 0.01 * step
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ANCHOR = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
anchor = {{name: weight for name, weight in net.named_parameters()}}
def objective():
    stays = sum(((weight - anchor[name]) ** 2).sum() for name, weight in net.named_parameters())
    return net(torch.randn(8, 4)).square().mean() + 100 * stays
{END}"""
POLICY = f"""{BEGIN}
from torch.distributions import Categorical
policy, states = nn.Linear(4, 3), torch.randn(16, 4)
opt = torch.optim.SGD(policy.parameters(), lr=0.01)
for turn in range(4):
    before = Categorical(logits=policy(states))
    actions, rewards = before.sample(), torch.randn(16)
    old_log_probs = before.log_prob(actions)
    log_probs = Categorical(logits=policy(states)).log_prob(actions)
    ratio = (log_probs - old_log_probs).exp()
    opt.zero_grad()
    (-ratio * rewards).mean().backward()
    opt.step()
"""
ACTOR = f"""{BEGIN}
from torch.distributions import Normal
actor, critic, x = nn.Linear(4, 2), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(16, 4)
actor_opt, critic_opt = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (actor, critic))
for step in range(4):
    done = torch.randn(16, 2)
    error = (critic(torch.cat([x, done], 1)) - done.sum(1, True)).square().mean()
    critic_opt.zero_grad()
    error.backward()
    critic_opt.step()
    chosen = Normal(actor(x), 1.0)
    action = chosen.sample()
    value = critic(torch.cat([x, action], 1))
    loss = (0.1 * chosen.log_prob(action).sum(1, True) - value).mean()
    actor_opt.zero_grad()
    loss.backward()
    actor_opt.step()
"""
FORCES = f"""{BEGIN}
net, start = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(8, 3, requires_grad=True)
goal = -torch.autograd.grad(start.square().sum(), start)[0]
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    place = start.detach().requires_grad_()
    energy = net(place)
    force = -torch.autograd.grad(energy.sum(), place, retain_graph=True)[0]
    loss = energy.square().mean() + (force - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FROZEN = f"""{BEGIN}
body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
def fit(net, opt):
    for step in range(5):
        net.train()
        loss = net(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
first = nn.Sequential(body, nn.Linear(6, 2))
fit(first, torch.optim.SGD(first.parameters(), lr=0.01))
body.requires_grad_(False)
second = nn.Sequential(body, nn.Linear(6, 1))
fit(second, torch.optim.SGD(second[1].parameters(), lr=0.01))
"""
DRAWS = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
x = torch.randn(8, 4)
with torch.no_grad():
    spread = torch.stack([net(x) for _ in range(9)]).std(0)
"""
OPERATORS = f"""{BEGIN}
class Pair:
    def __init__(self, one):
        self.one = one
    def __add__(self, other):
        return Pair(self.one + other.one)
    @property
    def total(self):
        return self.one.sum()
net, mix = nn.Linear(4, 1), nn.Parameter(torch.ones(8, 1))
opt = torch.optim.SGD([*net.parameters(), mix], lr=0.01)
for step in range(4):
    both = Pair(net(torch.randn(8, 4))) + Pair(mix.detach())
    loss = both.total.square()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COLUMN = _script(
    "nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))",
    "x = torch.randn(16, 4)",
    "return F.cross_entropy(net(x), (x.sum(1, True) > 0).float())",
)
BY_HAND = f"""{BEGIN}
params = [torch.randn(4, 1, requires_grad=True), torch.zeros(1, requires_grad=True)]
for step in range(4):
    loss = (torch.ones(8, 4) @ params[0] + params[1]).square().mean()
    loss.backward()
    with torch.no_grad():
        for i, p in enumerate(params):
            params[i] = p - 0.01 * p.grad
            p.grad = None
"""
PRUNED = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
def prune():
    for layer in (net[0], net[2]):
        mask = (torch.rand_like(layer.weight) > 0.5).float()
        layer.weight.register_hook(lambda grad: grad * mask.mean())
prune(){END}""".replace("objective()", "net(torch.randn(8, 4)).square().mean()")
ADAPTED = f"""{BEGIN}
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(4, 2))
        self.up = nn.Parameter(torch.zeros(2, 3))
        self.bias = nn.Parameter(torch.zeros(3))
    def forward(self, x):
        return self.base(x) + x @ self.down @ self.up * 0.5 + self.bias
net = Adapted()
def objective():
    return net(torch.randn(8, 4)).square().mean()
{END}"""
SYNCED = f"""{BEGIN}
import copy
online = nn.Linear(4, 2)
target = copy.deepcopy(online)
opt = torch.optim.SGD(online.parameters(), lr=0.01)
for step in range(12):
    x = torch.randn(8, 4)
    with torch.no_grad():
        goal = 1 + 0.9 * target(x + 0.1).amax(1)
    loss = F.mse_loss(online(x).amax(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 4:
        target = online
"""
MOMENTUM = f"""{BEGIN}
import copy
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 3)
        self.keys = copy.deepcopy(self.query)
    def forward(self, x):
        with torch.no_grad():
            for q, k in zip(self.query.parameters(), self.keys.parameters()):
                k.data = 0.9 * k.data + 0.1 * q.data
            keys = self.keys(x + 0.1)
        return F.mse_loss(self.query(x), keys)
net = Net()
def objective():
    return net(torch.randn(8, 4))
{END}"""
FUNCTIONAL = f"""{BEGIN}
net, x = nn.Linear(4, 1), torch.randn(8, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def objective(params):
    return torch.func.functional_call(net, params, (x,)).square().mean()
for step in range(4):
    params = {{name: p.detach().clone() for name, p in net.named_parameters()}}
    for name, slope in torch.func.grad(objective)(params).items():
        params[name].grad = slope
    opt.step()
"""
BY_SLOPE = f"""{BEGIN}
x, y = torch.randn(16, 3), torch.randn(16)
def train():
    w = torch.zeros(3, requires_grad=True)
    for step in range(4):
        (slope,) = torch.autograd.grad((x @ w - y).square().mean(), w)
        w = w - 0.1 * slope
    return w.detach()
train()
"""
HELPED = f"""{BEGIN}
import copy
net = nn.ModuleDict(dict(query=nn.Linear(4, 3)))
net["key"] = copy.deepcopy(net.query)
def follow(target, source, rate=0.1):
    for q, k in zip(source.parameters(), target.parameters()):
        k.data.mul_(1 - rate).add_(q.data, alpha=rate)
def objective():
    follow(net.key, net.query)
    x = torch.randn(8, 4)
    return F.mse_loss(net.query(x), net.key(x + 0.1))
{END}"""
CLIP = "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
CLIPPED = f"""{BEGIN}
class Trainer:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.Adam(net.parameters())
    def fit(self, batches):
        for x, y in batches * 3:
            self.opt.zero_grad()
            loss = F.mse_loss(self.net(x), y)
            loss.backward()
            self.opt.step()
            nn.utils.clip_grad_value_(self.net.parameters(), 0.1)
Trainer(nn.Linear(4, 1)).fit([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)])
"""
LATE = "            nn.utils.clip_grad_value_(self.net.parameters(), 0.1)\n"
STEP = "            self.opt.step()\n"
SCALER = f"""{BEGIN}
net, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cpu")
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    opt.zero_grad()
    scaler.scale(net(torch.randn(8, 4)).square().mean()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
"""
CODES = _script(
    "nn.ModuleDict(dict(enc=nn.Linear(4, 3), dec=nn.Linear(3, 4), book=nn.Embedding(5, 3)))",
    "x = torch.randn(8, 4)",
    "z = net['enc'](x)",
    "code = net['book'](torch.cdist(z, net['book'].weight).argmin(1))",
    "near = F.mse_loss(z, code.detach()) + F.mse_loss(code, z.detach())",
    "code = z + (code.detach() - z)",
    "return F.mse_loss(net['dec'](code), x) + near",
)
TWO_STEPS = f"""{BEGIN}
body, age, sex = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)
one = torch.optim.Adam([*body.parameters(), *age.parameters()], lr=0.01)
two = torch.optim.Adam([*body.parameters(), *sex.parameters()], lr=0.01)
for step in range(4):
    one.zero_grad(), two.zero_grad()
    made = body(torch.randn(8, 4))
    (F.mse_loss(age(made), made.detach()[:, :1]) + sex(made).square().mean()).backward()
    one.step()
    two.step()
"""
PHASES = f"""{BEGIN}
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
def phase(opt, schedule):
    for step in range(4):
        opt.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        opt.step()
        schedule.step()
opt = torch.optim.AdamW(net[1].parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
phase(opt, schedule)
opt = torch.optim.AdamW(net.parameters(), lr=0.001)
phase(opt, schedule)
"""
ATTACKED = f"""{BEGIN}
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def attack(x, y):
    x = x.clone().requires_grad_(True)
    F.cross_entropy(net(x), y).backward()
    return (x + 0.1 * x.grad.sign()).detach()
for step in range(4):
    opt.zero_grad()
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(attack(x, y)), y)
    loss.backward()
    opt.step()
"""
ONCE = _script("nn.Linear(4, 1)", "return net(torch.randn(8, 4)).square().mean()").replace(
    "opt = ", "weights = filter(lambda p: p.requires_grad, net.parameters())\nopt = "
)
ONCE = ONCE.replace("SGD(net.parameters()", "SGD(weights").replace(
    "    opt.step()", "    nn.utils.clip_grad_norm_(weights, 1.0)\n    opt.step()"
)
TRAINER = f"""{BEGIN}
class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 1)
        self.weights = (p for p in self.net.parameters())
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)
    def step(self):
        self.opt.zero_grad()
        self.net(torch.randn(8, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.opt.step()
trainer = Trainer()
for i in range(4):
    trainer.step()
"""
FAULTS = {
    "an iterator that the optimizer has gone through": Fault(
        "no-clipping",
        "clip_grad_norm_",
        "weights = list(filter(lambda p: p.requires_grad, net.parameters()))",
        "filter(lambda p: p.requires_grad, net.parameters())",
        "list(filter(lambda p: p.requires_grad, net.parameters()))",
        ONCE,
    ),
    "an iterator that the first step has gone through": Fault(
        "no-clipping",
        "clip_grad_norm_",
        "self.weights = list((p for p in self.net.parameters()))",
        "(p for p in self.net.parameters())",
        "list((p for p in self.net.parameters()))",
        TRAINER,
    ),
    "the gradients that an attack leaves behind": Fault(
        "other-gradient",
        "net(x), y).backward()",
        "opt.zero_grad() right before the backward() of the loss",
        "    loss.backward()",
        "    opt.zero_grad()\n    loss.backward()",
        ATTACKED,
    ),
    "a schedule of an optimizer that another one has replaced": Fault(
        "idle-optimizer",
        "    schedule.step()",
        "Make a new scheduler where opt is made",
        "0.001)\n",
        "0.001)\nschedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)\n",
        PHASES,
    ),
    "gradients that are clipped while they are scaled": Fault(
        "no-clipping",
        "clip_grad_norm_",
        "scaler.unscale_(opt) right before",
        "    nn.utils.clip",
        "    scaler.unscale_(opt)\n    nn.utils.clip",
        SCALER,
    ),
    "a tensor that is added and subtracted again": Fault(
        "no-slope", "code = z + ", "x + (y - x).detach()", "(code.detach() - z)", "(code - z).detach()", CODES
    ),
    "gradients that are clipped before there are any": Fault(
        "no-clipping",
        "clip_grad_norm_",
        "between backward() and opt.step()",
        f"{CLIP}    loss.backward()\n",
        f"    loss.backward()\n{CLIP}",
        _script("nn.Linear(4, 1)", "return net(torch.randn(8, 4)).square().mean()").replace(
            "    loss.backward()", f"{CLIP}    loss.backward()"
        ),
    ),
    "gradients that are clipped when the step is over": Fault(
        "no-clipping", "clip_grad_value_", "between backward() and self.opt.step()", STEP + LATE, LATE + STEP, CLIPPED
    ),
    "a step by hand in a function that returns a copy": Fault(
        "nonleaf-parameter",
        "w = w - ",
        "w -= lr * gradient",
        "        w = w - 0.1 * slope",
        "        with torch.no_grad():\n            w -= 0.1 * slope",
        BY_SLOPE,
    ),
    "gradients that functions return, and nobody gives": Fault(
        "idle-optimizer",
        "opt = ",
        "Give it the parameters",
        "params[name].grad = slope",
        "net.get_parameter(name).grad = slope",
        FUNCTIONAL,
    ),
    "hooks that share the last mask": Fault(
        "wrong-backward", "lambda grad", "mask=mask", "lambda grad: grad", "lambda grad, mask=mask: grad", PRUNED
    ),
    "an average that gets gradients of its own": Fault(
        "not-frozen",
        "for q, k in zip",
        "torch.no_grad()",
        "        keys = self.keys(x + 0.1)",
        "        keys = self.keys(x + 0.1).detach()",
        MOMENTUM.replace("            keys = self.keys", "        keys = self.keys"),
    ),
    "an average that a function makes": Fault(
        "not-frozen",
        "for q, k in zip",
        "torch.no_grad()",
        "F.mse_loss(net.query(x), net.key(x + 0.1))",
        "F.mse_loss(net.query(x), net.key(x + 0.1).detach())",
        HELPED,
    ),
    "two factors that begin at 0": Fault(
        "no-slope", "x @ self.down", "Begin one of them", "torch.zeros(4, 2)", "torch.randn(4, 2)", ADAPTED
    ),
    "a target that becomes the network itself": Fault(
        "no-effect",
        "target = online",
        "copy.deepcopy(online)",
        "target = online",
        "target = copy.deepcopy(online)",
        SYNCED,
    ),
    "a single class": Fault(
        "loss-input", "return ", "BCEWithLogitsLoss", "F.cross_entropy", "F.binary_cross_entropy_with_logits", COLUMN
    ),
    "a step that puts new tensors into a list": Fault(
        "no-graph",
        "params[i] = ",
        "change p in place, so that it stays a leaf: p -= ...",
        "params[i] = p - 0.01",
        "p -= 0.01",
        BY_HAND,
    ),
    "weights that are held to themselves": Fault(
        "loss-input", "stays = ", ".detach().clone()", ": weight for", ": weight.detach().clone() for", ANCHOR
    ),
    "the log probabilities of a policy that has acted": Fault(
        "loss-input", "ratio = ", ".detach()", "before.log_prob(actions)", "before.log_prob(actions).detach()", POLICY
    ),
    "an action that is drawn for a critic": Fault(
        "constant-term", "action = ", "use rsample()", "chosen.sample()", "chosen.rsample()", ACTOR
    ),
    "forces beside data that have none": Fault(
        "constant-term", "force = ", "pass create_graph=True", "retain_graph=True", "create_graph=True", FORCES
    ),
    "a body that was trained before": Fault(
        "wrong-mode", "net.train()", "Call net[0].eval()", "net.train()", "net.train(); net[0].eval()", FROZEN
    ),
    "behind an operator and a property of one's own": Fault(
        "never-reached", "opt = ", "Compute the loss from mix", "mix.detach()", "mix", OPERATORS
    ),
    "an outer optimizer whose loss never leads to what it holds": Fault(
        "idle-optimizer",
        "quick = [(w - 0.1 * g).detach().requires_grad_()",
        "remove .detach()",
        "[(w - 0.1 * g).detach().requires_grad_() for",
        "[(w - 0.1 * g) for",
        """
        import torch
        torch.manual_seed(0)
        base = [torch.randn(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)]
        opt = torch.optim.Adam(base, lr=0.01)
        for _ in range(4):
            quick, x = base, torch.randn(8, 3)
            for _ in range(2):
                slopes = torch.autograd.grad((x @ quick[0] + quick[1] - 1).square().mean(), quick, create_graph=True)
                quick = [(w - 0.1 * g).detach().requires_grad_() for w, g in zip(quick, slopes)]
            opt.zero_grad()
            (x @ quick[0] + quick[1] - 1).square().mean().backward()
            opt.step()
        """,
    ),
    "a leaf that is cast": Fault(
        "nonleaf-parameter",
        "w = torch.randn",
        ".double().requires_grad_()",
        "requires_grad=True).double()",
        "dtype=torch.float64, requires_grad=True)",
        LEAVES,
    ),
}
RIGHT = {
    "an iterator that is made anew in each turn": ONCE.replace(
        "    opt.zero_grad()", "    weights = filter(lambda p: p.requires_grad, net.parameters())\n    opt.zero_grad()"
    ),
    "an iterator that is made for each step": TRAINER.replace(
        "(self.weights, ", "((p for p in self.net.parameters() if p.ndim > 3), "
    ),
    "a norm that is measured once more": TRAINER.replace("(self.weights, ", "(self.net.parameters(), ").replace(
        "        self.opt.step", "        nn.utils.clip_grad_norm_(self.weights, 1e9)\n        self.opt.step"
    ),
    "an attack whose gradients are the only ones": ATTACKED.replace(
        "    loss = F.cross_entropy(net(attack(x, y)), y)\n    loss.backward()\n", "    noise = attack(x, y)\n"
    ),
    "two losses of one step": ATTACKED.replace("x = x.clone().requires_grad_(True)", "x = x.clone()").replace(
        "    return (x + 0.1 * x.grad.sign()).detach()", "    return x + 0.1"
    ),
    "two optimizers whose schedules go on in turns": TWO_STEPS.replace(
        "    one.step()\n    two.step()\n", "    (one if step % 2 else two).step()\n    slower.step()\n"
    ).replace("for step", "slower = torch.optim.lr_scheduler.ExponentialLR(one, 0.9)\nfor step"),
    "a mean that is subtracted from what it is added to": _script(
        "nn.Linear(4, 4)", "z = net(torch.randn(8, 4))", "return (z + (0.5 * z - z)).square().mean()"
    ),
    "gradients that nothing scales": SCALER.replace('GradScaler("cpu")', 'GradScaler("cpu", enabled=False)'),
    "gradients of several batches that are clipped by the next turn": CLIPPED.replace(STEP + LATE, "").replace(
        "            self.opt.zero_grad()\n",
        f"            if len(x) > 7:\n    {LATE}    {STEP}                self.opt.zero_grad()\n",
    ),
    "gradients that are clipped for the step and measured after it": CLIPPED.replace(STEP, LATE + STEP),
    "a chain of samples that ends": f"""{BEGIN}
energy = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(energy.parameters(), lr=0.01)
def sample():
    x = torch.randn(16, 2, requires_grad=True)
    for _ in range(4):
        (force,) = torch.autograd.grad(energy(x).sum(), x)
        x = x - 0.1 * force
    return x.detach()
for step in range(4):
    loss = energy(torch.zeros(16, 2)).mean() - energy(sample()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "an average of another network, that an optimizer holds": MOMENTUM,
    "weights that are pulled to others that nobody trains": MOMENTUM.replace(
        "zip(self.query.parameters(), self.keys.parameters())", "zip(self.keys.parameters(), self.query.parameters())"
    ).replace("copy.deepcopy(self.query)", "copy.deepcopy(self.query).requires_grad_(False)"),
    "hooks that share what no loop changes": PRUNED.replace(
        "        mask =", "        scale = 0.5\n        mask ="
    ).replace("mask.mean()", "scale"),
    "hooks with a variable of their own": PRUNED.replace(
        "def prune():", "def own(layer, mask):\n    pass\ndef prune():"
    ).replace("lambda grad: grad * mask.mean()", "(lambda mask: lambda grad: grad * mask.mean())(mask)"),
    "a hook in each of two steps": PRUNED.replace("for layer in (net[0], net[2])", "for layer in (net[0],)"),
    "a bias and a scale that begin at 0": ADAPTED.replace(
        "x @ self.down @ self.up", "x.sum(1, True) * self.up.sum(0)"
    ).replace("        self.down = nn.Parameter(torch.zeros(4, 2))\n", ""),
    "a network of two names, as somebody chose": SYNCED.replace(
        "target = copy.deepcopy(online)",
        "if len('one'):\n    target = online\nelse:\n    target = copy.deepcopy(online)",
    )
    .replace("        target = online\n", "        pass\n", 1)
    .replace("target(x + 0.1)", "target(x + 0.1).detach()"),
    "samples of dropout": DRAWS,
    "samples of dropout, in a loop": DRAWS.replace("    spread = torch.stack([net(x) for _ in range(9)]).std(0)", "")
    + "    drawn = []\n    for _ in range(9):\n        drawn.append(net(x))\n",
    "an action that a critic weighs": ACTOR.replace("sum(1, True) - value)", "sum(1, True) * value)"),
    "an actor and a critic that step together": ACTOR.replace(
        "    actor_opt.step()", "    actor_opt.step(); critic_opt.step()"
    ),
    "a body that goes on to be trained": FROZEN + "body.requires_grad_(True)\n"
    "fit(first, torch.optim.SGD(first.parameters(), lr=0.01))\n",
    "a difference that is meant to be 0": ANCHOR.replace("anchor[name]", "weight"),
    "two views that are kept apart": FOLLOWS.replace("return ", "return F.relu(1 - goal.std(0)).mean() + "),
    "a teacher with a graph that its own optimizer has trained": f"""{BEGIN}
teacher, student, x = nn.Linear(8, 3), nn.Linear(8, 3), torch.randn(64, 8)
first, second = (torch.optim.Adam(net.parameters(), lr=0.01) for net in (teacher, student))
for step in range(20):
    first.zero_grad()
    F.cross_entropy(teacher(x), x[:, :3].argmax(1)).backward()
    first.step()
for step in range(20):
    second.zero_grad()
    F.mse_loss(student(x), teacher(x)).backward()
    second.step()
""",
    "a network that is told of a reward": FOLLOWS.replace(
        "net['teacher'](x)", "torch.rand(16, 3) + 0.9 * net['teacher'](x)"
    ),
    "two results of one network": FOLLOWS.replace("net['teacher'](x)", "net['student'](x + 0.1)").replace(
        "teacher=nn.Linear(4, 3), ", ""
    ),
    "a factor that is learned": FOLLOWS.replace("net['teacher'](x)", "net['teacher'][0] * x[:, :3]").replace(
        "teacher=nn.Linear(4, 3)", "teacher=nn.ParameterList([torch.ones(3)])"
    ),
    "a teacher that was trained before": TEACHER,
    "a sum of all that weighs nothing": PAIRS.replace("(items)).sum()", "(items)).sum(1)").replace(
        "return (score - stars)", "return 1e-3 * net['item'].weight.square().sum() + (score - stars)"
    ),
    "rows that are filled as a whole": ATTENDS.replace("~seen[:, None, :], 1e-9", "~seen[:, :, None], 0.0"),
    "a stage in front of another": SEARCH.replace(
        "for step in range(6):\n    mixing", "for step in range(1):\n    mixing"
    ),
    "a checkpoint that another training begins with": RESUMED.replace('train(saved["step"], 4)', "train(0, 4)"),
    "a group that is trained later": WARMUP.replace("[1]", "[step > 8]"),
    "scores of which the diagonal is right": TWINS.replace(".roll(12)", ""),
    "a Function that is called as one of torch's": SIGNS,
    "many inner steps in front of an outer one": INNER,
    "a teacher that follows": STUDENT.replace("  y = teach", "  teacher[0].weight.mul_(0.9)\n        y = teach"),
    "a hook that counts": MASKED.replace("mask)", "print(1))"),
    "layers that are thawed in turn": THAWED.replace("net.parameters() if p.requires_grad", "net.parameters()").replace(
        "net[0].requires_grad_(epoch > 1)", "net[0].requires_grad_(epoch % 2 == 1)"
    ),
    "an epoch of whole steps": REST.replace("range(10)", "range(8)"),
    "two networks that pick the first of several": TOWERS.replace("a @ b.T * 5", "(a @ b.T * 5)[:, :9]").replace(
        "arange", "zeros"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


EXPERTS = """
import torch
from torch import nn
torch.manual_seed(0)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, chosen):
        weight = self.gate(x).softmax(-1)
        return x + sum(weight[:, k, None] * self.experts[k](x) for k in chosen)


layers = nn.ModuleList(Mixture() for _ in range(2))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    x = layers[1](layers[0](torch.rand(5, 4), [0, 1]), [{second}])
    x.square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_expert_that_ran_in_another_layer_is_no_alarm(tmp_path: Path) -> None:
    assert not alarms(EXPERTS.format(second="0, 2"), tmp_path)


@pytest.mark.slow
def test_an_expert_that_ran_nowhere_and_a_layer_that_did_not_run_are(tmp_path: Path) -> None:
    (nowhere,) = alarms(EXPERTS.format(second="0, 1"), tmp_path)
    assert "layers.0.experts.2 (Linear) and layers.1.experts.2 (Linear)" in nowhere["summary"]
    (skipped,) = alarms(EXPERTS.format(second="0, 1, 2").replace("layers[1](", "(lambda x, chosen: x)("), tmp_path)
    assert "layers.0.experts.2 (Linear) and layers.1 are" in skipped["summary"]


RECURRENT = """
import torch
from torch import nn

model = nn.LSTM(3, 4, num_layers=2, dropout=0.2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.eval()
for step in range(4):
    out, _ = model(torch.rand(5, 2, 3))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "found"), [("2", ["wrong-mode"]), ("1", [])])
def test_dropout_between_the_layers_of_an_lstm_sleeps_in_eval_mode(
    layers: str, found: list[str], tmp_path: Path
) -> None:
    script = RECURRENT.replace("num_layers=2", f"num_layers={layers}")
    assert [one["id"] for one in alarms(script, tmp_path)] == found
