"""What holds memory across steps is found with the variable that holds it, and the advice heals; what is meant is not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]
"""
STEP = """
    optimizer.zero_grad()
    out = model(x)
    loss = (out - y).square().mean()
    loss.backward()
    optimizer.step()
"""
INNER = STEP.rstrip().replace("\n", "\n    ") + "\n"
TRAIN = f"for x, y in data:{STEP}"

TRAINER = """
class Trainer:
    def loss(self, x, y):
        return (model(x) - y).square().mean()
    def fit(self):
        model.train()
        for x, y in data:
            optimizer.zero_grad()
            self.loss(x, y).backward()
            optimizer.step()
    def validate(self):
        model.eval()
        total = 0.0
        for x, y in data:
            total += self.loss(x, y).item()
        return total
"""

FAULTS = {
    "a validation loss is summed up with its graph": Fault(
        "unused-graph",
        "total += (model(x) - y)",
        "under torch.no_grad(): ",
        "for x, y in data:\n    total",
        "with torch.no_grad():\n  for x, y in data:\n    total",
        f"{HEAD}{TRAIN}model.eval()\ntotal = 0.0\nfor x, y in data:\n    total += (model(x) - y).square().mean()\n",
    ),
    "a function validates between the epochs": Fault(
        "unused-graph",
        "out = model(x)[:, 0]",
        "under torch.no_grad(): ",
        "def validate():",
        "@torch.no_grad()\ndef validate():",
        HEAD
        + "def validate():\n    model.eval()\n    for x, y in data:\n        out = model(x)[:, 0]\n    model.train()\n"
        + f"for epoch in range(2):\n    validate()\n    for x, y in data:{INNER}",
    ),
    "training and validation go through one function": Fault(
        "unused-graph",
        "return (model(x) - y).square()",
        "under torch.no_grad(): ",
        "    def validate(self):",
        "    @torch.no_grad()\n    def validate(self):",
        f"{HEAD}{TRAINER}trainer = Trainer()\nfor epoch in range(2):\n    trainer.fit()\n    trainer.validate()\n",
    ),
    "one function for both, called in a loop beside training": Fault(
        "unused-graph",
        "return (model(x) - y).square()",
        "under torch.no_grad(): ",
        "    for x, y in data[:2]:\n        print",
        "    with torch.no_grad():\n     for x, y in data[:2]:\n        print",
        HEAD
        + "def loss(x, y):\n    return (model(x) - y).square().mean()\ndef main():\n    for x, y in data:\n"
        + "        optimizer.zero_grad()\n        loss(x, y).backward()\n        optimizer.step()\n    model.eval()\n"
        + "    for x, y in data[:2]:\n        print(loss(x, y).item())\nmain()\n",
    ),
    "a named tuple in a buffer": Fault(
        "growing-graph",
        "buffer.append(Seen(",
        "store it without its graph: .detach()",
        "Seen(x, out)",
        "Seen(x, out.detach())",
        f"import collections\n{HEAD}Seen = collections.namedtuple('Seen', 'x out')\nbuffer = collections.deque(maxlen=1000)\n"
        f"{TRAIN}    buffer.append(Seen(x, out))\n",
    ),
    "one thing of a dict in a list": Fault(
        "growing-graph",
        "rows.append({",
        "store it without its graph: .detach()",
        "'out': out}",
        "'out': out.detach()}",
        f"{HEAD}rows = []\n{TRAIN}    rows.append({{'x': x, 'out': out}})\n",
    ),
    "lists by key, made empty before": Fault(
        "growing-graph",
        "kept['loss'].append(loss)",
        "store it without its graph: .detach()",
        "append(loss)",
        "append(loss.detach())",
        f"{HEAD}kept = {{}}\nkept['loss'] = []\n{TRAIN}    kept['loss'].append(loss)\n",
    ),
    "losses that are kept from the tenth step on": Fault(
        "growing-graph",
        "late.append(loss)",
        "store it without its graph: .detach()",
        "late.append(loss)",
        "late.append(loss.detach())",
        HEAD
        + f"late = []\nfor epoch in range(6):\n    for x, y in data:{INNER}"
        + "    if epoch > 1:\n        late.append(loss)\n",
    ),
    "a custom Function keeps what it returns": Fault(
        "reference-cycle",
        "ctx.result = x.exp()",
        "Call ctx.save_for_backward(...) for it",
        "ctx.result = x.exp()\n        return ctx.result\n    @staticmethod\n    def backward(ctx, gradient):\n"
        "        return gradient * ctx.result",
        "result = x.exp()\n        ctx.save_for_backward(result)\n        return result\n    @staticmethod\n"
        "    def backward(ctx, gradient):\n        return gradient * ctx.saved_tensors[0]",
        f"{HEAD}class Exp(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.result = x.exp()\n"
        "        return ctx.result\n    @staticmethod\n    def backward(ctx, gradient):\n        return gradient * ctx.result\n"
        f"{TRAIN.replace('out - y', 'Exp.apply(out) - y')}",
    ),
}

FINE = {
    "functions that keep numbers, and one that keeps the last loss": f"jobs, last = [], {{}}\n{TRAIN}"
    "    jobs.append(lambda value=loss.item(): print(value))\n    last['loss'] = lambda value=loss: print(value)\n",
    "states of a few agents": f"class Agent:\n    pass\nagents = [Agent(), Agent()]\n{TRAIN}"
    "    for agent in agents:\n        agent.seen = model(x)\n",
    "the layer of the fourth loss of a step": "heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))\n"
    "optimizer.add_param_group({'params': heads.parameters()})\nfor x, y in data:\n    h = model[:2](x)\n"
    "    optimizer.zero_grad()\n    for head in heads:\n        head(h).square().mean().backward(retain_graph=True)\n"
    "    model[3](h).sum().backward()\n"
    "    optimizer.step()\n",
    "derivatives of derivatives": "x = torch.tensor(0.3, requires_grad=True)\ny = total = torch.sin(x)\nfor n in range(1, 6):\n"
    "    (y,) = torch.autograd.grad(y, x, create_graph=True)\n    total = total - y / n\n",
    "an inner loop that is differentiated": "for x, y in data:\n    w = model[3].weight\n    for inner in range(5):\n"
    "        (g,) = torch.autograd.grad((model[:3](x) @ w.T).square().mean(), w, create_graph=True)\n        w = w - 0.1 * g\n"
    "    optimizer.zero_grad()\n    (model[:3](x) @ w.T + model[3].bias - y).square().mean().backward()\n    optimizer.step()\n",
    "a hook of each round": "for x, y in data:\n    out = model(x)\n    out.register_hook(lambda g: g / out.detach().norm())\n"
    "    optimizer.zero_grad()\n    out.square().sum().backward()\n    optimizer.step()\n",
    "a window over the last states": "from collections import deque\nstates = deque([torch.zeros(8, 4)], maxlen=3)\n"
    "for x, y in data:\n    state = model[0](x)[:, :4] + states[-1].detach()\n    states.append(state)\n"
    "    optimizer.zero_grad()\n    state.square().mean().backward()\n    optimizer.step()\n",
    "one best loss": "best = None\nfor x, y in data * 6:\n    optimizer.zero_grad()\n    loss = (model(x) - y).square().mean()\n"
    "    loss.backward()\n    optimizer.step()\n    best = loss if best is None or loss < best else best\n",
    "gradients of an evaluation": "model.eval()\nfor x, _ in data:\n    x.requires_grad_()\n"
    "    torch.autograd.grad(model(x).sum(), x)\n",
    "training in eval() mode, several passes a step": "model[2].p = 0.0\nmodel.eval()\nfor step in range(4):\n"
    "    optimizer.zero_grad()\n    sum(model(x).mean() for x, y in data).backward()\n    optimizer.step()\n",
    "an evaluation without recording, in which autocast records how it casts the weights": "model.eval()\n"
    "with torch.no_grad():\n    for x, y in data:\n        with torch.autocast('cpu', dtype=torch.bfloat16):\n"
    "            print((model(x) - y).square().mean())\n",
    "the target of a network, detached": "import copy\ntarget = copy.deepcopy(model).eval()\nfor x, y in data:\n"
    "    goal = target(x).detach()\n    optimizer.zero_grad()\n    (model(x) - goal - 1).square().mean().backward()\n"
    "    optimizer.step()\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(FINE))
def test_nothing_is_told_of_what_is_kept_on_purpose(name: str, tmp_path: Path) -> None:
    assert not alarms(HEAD + TRAIN + FINE[name], tmp_path)


def test_a_line_that_training_goes_through_as_well_gets_words(tmp_path: Path) -> None:
    both = (
        "def run():\n    for x, y in data:\n        loss = (model(x) - y).square().mean()\n        if model.training:\n"
    )
    both += "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n"
    (found,) = alarms(f"{HEAD}{both}for mode in (True, False):\n    model.train(mode)\n    run()\n", tmp_path)
    assert found["id"] == "unused-graph"
    assert "under torch.no_grad(): " in found["fix"]
