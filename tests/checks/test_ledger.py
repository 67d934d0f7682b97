"""The ledger of a run: what an optimizer holds now, what got a gradient and moved; each fault is healed by its advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.checks.collect.functions import APPLY
from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

HEAD = "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
LOOP = """
for step in range(30):
    x = torch.randn(8, 3)
    # CHANGE
    loss = (net(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # AFTER
"""
NET = "net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))\n"
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
SCALED = """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.scale = torch.ones(3, requires_grad=True)
    def forward(self, x):
        return self.fc(x) * self.scale
net = Scaled()
"""
RAISES = """
def batch():
    raise ValueError("a bad batch")
other = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
try:
    {}.step(batch)
except ValueError:
    pass
"""
REPLACES = "if step == {}: net[1] = nn.Linear(3, 1)"
GIVES = "; optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
FAULTS = {
    **{
        f"a layer replaced at step {step}": Fault(
            "nonleaf-parameter",
            "optimizer = ",
            "once more behind a copy or a replaced layer",
            REPLACES.format(step),
            REPLACES.format(step) + GIVES,
            HEAD + NET + SGD + LOOP.replace("# CHANGE", REPLACES.format(step)),
        )
        for step in (1, 10)
    },
    "a clone that keeps the optimizer of the original": Fault(
        "never-updated",
        "optimizer = ",
        "Make a new optimizer where the model was replaced or copied: SGD(net.parameters(), ...)",
        "fit(clone, optimizer)",
        "fit(clone, torch.optim.SGD(clone.parameters(), lr=0.1))",
        f"""{HEAD}import copy
def fit(net, optimizer):{LOOP.replace(chr(10), chr(10) + "    ")}
{NET}{SGD}fit(net, optimizer)
clone = copy.deepcopy(net)
fit(clone, optimizer)
""",
    ),
    "a tensor that requires grad and is no Parameter": Fault(
        "nonleaf-parameter",
        "self.scale = ",
        "make self.scale a torch.nn.Parameter(...)",
        "torch.ones(3, requires_grad=True)",
        "nn.Parameter(torch.ones(3))",
        HEAD + SCALED + SGD + LOOP,
    ),
    "a schedule that sets the rate to 0": Fault(
        "idle-optimizer",
        "schedule.step()",
        "Give the schedule a factor (gamma) nearer to 1",
        "gamma=0",
        "gamma=0.5",
        f"{HEAD}{NET}{SGD}schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0)"
        + LOOP.replace("# AFTER", "schedule.step()"),
    ),
    "a step behind a condition that is never true": Fault(
        "idle-optimizer",
        "if step % every:",
        "correct the condition step % every",
        "if step % every:",
        "if step % every == 0:",
        f"{HEAD}{NET}{SGD}every = 1" + LOOP.replace("optimizer.step()", "if step % every:\n        optimizer.step()"),
    ),
    "a bare Parameter that is used without recording": Fault(
        "never-reached",
        "x = x + shift",
        "out of torch.no_grad()",
        "with torch.no_grad():",
        "if True:",
        f"{HEAD}{NET}shift = nn.Parameter(torch.zeros(3))\noptimizer = torch.optim.SGD([*net.parameters(), shift], lr=0.1)"
        + LOOP.replace("# CHANGE", "with torch.no_grad():\n        x = x + shift"),
    ),
    "codes that are rounded": Fault(
        "no-slope",
        "torch.round(",
        "let the gradient pass straight through: y = x + (torch.round(x) - x).detach()",
        "x = torch.round(net[0](x))",
        "x = net[0](x); x = x + (torch.round(x) - x).detach()",
        HEAD + NET + SGD + LOOP.replace("# CHANGE", "x = torch.round(net[0](x))").replace("(net(x)", "(net[1](x)"),
    ),
    "a term that is rounded beside one that is not": Fault(
        "no-slope",
        "torch.round(",
        "let the gradient pass straight through: y = x + (torch.round(x) - x).detach()",
        "x = torch.round(net(x) * 2)",
        "x = net(x) * 2; x = x + (torch.round(x) - x).detach()",
        HEAD
        + NET
        + SGD
        + LOOP.replace("# CHANGE", "first = net(x).tanh(); x = torch.round(net(x) * 2)").replace(
            "(net(x) -", "(first * x -"
        ),
    ),
    "a sample that is decoded": Fault(
        "constant-term",
        "z = q.sample()",
        "use rsample()",
        "q.sample()",
        "q.rsample()",
        f"{HEAD}{NET}{SGD}"
        + LOOP.replace("# CHANGE", "q = torch.distributions.Normal(net[0](x), 1.0)\n    z = q.sample()").replace(
            "(net(x) - 1).square().mean()", "(net[1](z) - 1).square().mean() + 0.1 * q.mean.square().mean()"
        ),
    ),
    "a term of each sample that was cut off": Fault(
        "constant-term",
        "extra = ",
        "remove .detach()",
        ".detach()",
        "",
        f"{HEAD}{NET}{SGD}"
        + LOOP.replace("# CHANGE", "extra = net[0](x).square().sum(1).detach()").replace(
            "(net(x) - 1).square().mean()", "((net(x) - 1).square().sum(1) + extra).mean()"
        ),
    ),
    "a term that was cut off, beside one that is subtracted": Fault(
        "constant-term",
        "loss = ",
        "remove .detach()",
        ".detach()",
        "",
        f"{HEAD}{NET}{SGD}"
        + LOOP.replace(
            "loss = (net(x) - 1).square().mean()",
            "fit, size = (net(x) - 1).square().mean(), net(x).abs().mean()\n"
            "    loss = fit - 0.01 * net[1].bias.mean() + size.detach()",
        ),
    ),
    "an average that is given to a name of the loop": Fault(
        "no-effect",
        "old = 0.9",
        "old.data.copy_(0.9 * old + 0.1 * new)",
        "old = 0.9 * old + 0.1 * new",
        "old.data.copy_(0.9 * old + 0.1 * new)",
        f"""{HEAD}import copy
{NET}{SGD}mean = copy.deepcopy(net).requires_grad_(False)
@torch.no_grad()
def update():
    for old, new in zip(mean.parameters(), net.parameters()):
        old = 0.9 * old + 0.1 * new
{LOOP.replace("# AFTER", "update()")}""",
    ),
    "what is optimized is assigned anew": Fault(
        "nonleaf-parameter",
        "optimizer = ",
        "with torch.no_grad(): field.copy_(...)",
        "field = field.detach().clamp(0, 1).requires_grad_()",
        "with torch.no_grad(): field.copy_(field.clamp(0, 1))",
        f"{HEAD}field = torch.full((3,), 0.5, requires_grad=True)\noptimizer = torch.optim.Adam([field], lr=0.1)"
        + LOOP.replace("net(x)", "field * x").replace("# AFTER", "field = field.detach().clamp(0, 1).requires_grad_()"),
    ),
    "a backward that returns None for a weight": Fault(
        "none-grad",
        "return grad @ weight",
        "return the gradient of that input",
        "return grad @ weight, None",
        "return grad @ weight, grad.T @ x",
        f"""{HEAD}
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, None
{NET.replace("3, 1)", "3, 1, bias=False)")}{SGD}{LOOP.replace("net(x)", "Product.apply(net[0](x), net[1].weight)")}""",
    ),
    "a step that is taken before the batches are added up": Fault(
        "no-update",
        "optimizer.zero_grad()",
        "right before optimizer.zero_grad()",
        "if step % 4 == 0:",
        "if step % 4 == 3:",
        f"{HEAD}{NET}{SGD}"
        + LOOP.replace("    optimizer.zero_grad()\n", "").replace(
            "    optimizer.step()",
            "    if step % 4 == 0:\n        optimizer.step()\n    if step % 4 == 3:\n        optimizer.zero_grad()",
        ),
    ),
    "targets that are rows of a column": Fault(
        "broadcast",
        "targets[step",
        "Give both one shape",
        "targets[step : step + 8]",
        "targets[step : step + 8].squeeze(1)",
        f"{HEAD}{NET}{SGD}targets = torch.randn(64, 1)"
        + LOOP.replace("net(x) - 1", "net(x).squeeze(1) - targets[step : step + 8]"),
    ),
    "a loss that is counted twice": Fault(
        "doubled-gradient",
        "fit.backward",
        "Leave out script.py:12",
        "fit.backward(retain_graph=True)",
        "pass",
        HEAD
        + NET
        + SGD
        + LOOP.replace("loss = (net(x) - 1).square().mean()", "fit = (net(x) - 1).square().mean()")
        .replace("    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    fit.backward(retain_graph=True)\n")
        .replace("loss.backward()", "(fit + net[0].weight.square().sum()).backward()"),
    ),
    "a running total": Fault(
        "doubled-gradient",
        "loss.backward",
        "out of the loop",
        "        loss.backward(retain_graph=True)\n",
        "    loss.backward()\n",
        HEAD
        + NET
        + SGD
        + LOOP.replace(
            "loss = (net", "optimizer.zero_grad(); loss = 0\n    for part in range(3):\n        loss = loss + (net"
        )
        .replace("    optimizer.zero_grad()\n", "")
        .replace("    loss.backward()", "        loss.backward(retain_graph=True)"),
    ),
    "a single step, in front of backward": Fault(
        "no-update",
        "optimizer.step()",
        "behind backward()",
        "optimizer.step()\n    loss.backward()",
        "loss.backward()\n    optimizer.step()",
        HEAD
        + NET
        + SGD
        + LOOP.replace("range(30)", "range(1)")
        .replace("    optimizer.step()\n", "")
        .replace("loss.b", "optimizer.step()\n    loss.b"),
    ),
    **{
        f"a step of {who} that raised before": Fault(
            "no-update",
            "optimizer.zero_grad()",
            "only after that, or before backward()",
            "loss.backward()\n    optimizer.zero_grad()",
            "optimizer.zero_grad()\n    loss.backward()",
            HEAD
            + NET
            + SGD
            + RAISES.format(name)
            + LOOP.replace("optimizer.zero_grad()\n    loss.backward()", "loss.backward()\n    optimizer.zero_grad()"),
        )
        for who, name in (("the same optimizer", "optimizer"), ("another one", "other"))
    },
    **{
        f"reset, {look}": Fault(
            "no-update",
            "optimizer.zero_grad()",
            "only where optimizer.step() was called",
            "    optimizer.zero_grad()",
            "    if step % 4 == 0: optimizer.zero_grad()",
            f"{HEAD}{NET}{SGD}"
            + LOOP.replace("optimizer.step()", f"if step % 4 == 3:\n        {look}; optimizer.step()"),
        )
        for look in (
            "print(net[0].weight.grad)",
            "print(f'{net[0].weight.grad}')",
            "print([p.grad.norm() for p in net.parameters() if p.grad is not None])",
        )
    },
    "ReLUs that are dead from the start": Fault(
        "dead-relu",
        "net(x)",
        "biases of 0",
        "constant_(net[0].bias, -50.0)",
        "constant_(net[0].bias, 0.0)",
        HEAD + NET.replace("), nn", "), nn.ReLU(), nn") + "nn.init.constant_(net[0].bias, -50.0)\n" + SGD + LOOP,
    ),
    "a hook that lets no negative gradient through": Fault(
        "wrong-backward",
        "clamp(0, 1)",
        "clamp to both sides of 0, as in clamp(-1, 1)",
        "clamp(0, 1)",
        "clamp(-1, 1)",
        f"{HEAD}{NET}for weight in net.parameters():\n    weight.register_hook(lambda grad: grad.clamp(0, 1))\n{SGD}{LOOP}",
    ),
    "a reversal that reverses nothing": Fault(
        "wrong-backward",
        "return grad * 0.5",
        "return the negative gradient",
        "return grad",
        "return -grad",
        f"""{HEAD}
class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5
{NET}{SGD}{LOOP.replace("net(x)", "net[1](GradientReversal.apply(net[0](x)))")}""",
    ),
    "copies that an inner loop trains": Fault(
        "idle-optimizer",
        "optimizer = ",
        "parameter.grad = copy.grad",
        "optimizer.step()",
        "for parameter, of_copy in zip(net.parameters(), inner.parameters()): parameter.grad = of_copy.grad\n    optimizer.step()",
        f"import copy\n{HEAD}{NET}{SGD}"
        + LOOP.replace("# CHANGE", "inner = copy.deepcopy(net)").replace("(net(", "(inner("),
    ),
    "a derivative in a residual": Fault(
        "constant-term",
        "slope = ",
        "pass create_graph=True",
        "net(x).sum(), x)",
        "net(x).sum(), x, create_graph=True)",
        f"from torch import autograd\n{HEAD}{NET.replace('), nn', '), nn.Tanh(), nn')}{SGD}"
        + LOOP.replace("# CHANGE", "x.requires_grad_(); slope = autograd.grad(net(x).sum(), x)[0]").replace(
            "(net(x) -", "(slope + net(x) -"
        ),
    ),
    "an output that a ReLU cuts off": Fault(
        "dead-relu",
        "relu(net(x))",
        "leave it out behind the last layer",
        "torch.relu(net(x))",
        "net(x)",
        f"{HEAD}{NET}{SGD}nn.init.constant_(net[1].bias, -9.0)" + LOOP.replace("(net(x)", "(torch.relu(net(x))"),
    ),
    "an output that is outside of a clamp": Fault(
        "dead-relu",
        "clamp(0, 1)",
        "use it for what is shown alone",
        ".clamp(0, 1)",
        "",
        f"{HEAD}{NET}{SGD}nn.init.constant_(net[1].bias, -9.0)" + LOOP.replace("net(x)", "net(x).clamp(0, 1)"),
    ),
    "probabilities for kl_div": Fault(
        "loss-input",
        "kl_div(",
        "give it log_softmax() in place of softmax()",
        "net(x).softmax(1)",
        "net(x).log_softmax(1)",
        HEAD
        + NET.replace("3, 1", "3, 2")
        + SGD
        + LOOP.replace(
            "(net(x) - 1).square().mean()",
            "nn.functional.kl_div(net(x).softmax(1), torch.full((8, 2), 0.5), reduction='sum')",
        ),
    ),
    "a rate that falls to nothing": Fault(
        "idle-optimizer",
        "schedule.step()",
        "nearer to 1",
        "optimizer, 0.2",
        "optimizer, 0.9",
        f"{HEAD}{NET}{SGD}schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.2)"
        + LOOP.replace("# AFTER", "schedule.step()"),
    ),
    **{
        f"an optimizer for each step, {made}": Fault(
            "idle-optimizer",
            "optimizer = ",
            "in front of the loop",
            f"    optimizer = torch.optim.{made}\n",
            f"    optimizer = optimizer if step else torch.optim.{made}\n",
            HEAD + NET + LOOP.replace("    # CHANGE", f"    optimizer = torch.optim.{made}"),
        )
        for made in ("Adam(net.parameters())", "SGD(net.parameters(), 0.1, momentum=0.9)")
    },
    "a hook for each step": Fault(
        "wrong-backward",
        "register_hook",
        "Register it once",
        "net[0].weight.register_hook",
        "step or net[0].weight.register_hook",
        HEAD + NET + SGD + LOOP.replace("# CHANGE", "net[0].weight.register_hook(lambda grad: grad / 2)"),
    ),
    "the second derivative of ReLUs": Fault(
        "no-slope",
        "slope = ",
        "use a smooth activation, such as torch.nn.Tanh(), SiLU() or Softplus(), instead of ReLU",
        "nn.ReLU()",
        "nn.Tanh()",
        f"""{HEAD}
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
{SGD}for step in range(3):
    x = torch.rand(8, 3, requires_grad=True)
    u = net(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    curve = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
    loss = (curve.sum(1) - 1).square().mean() + u.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    ),
}
RIGHT = {
    "an optimizer without a memory for each step": HEAD
    + NET
    + "class Descent(torch.optim.SGD): pass\n"
    + LOOP.replace("# CHANGE", "optimizer = torch.optim.SGD(net.parameters(), 0.1)")
    + LOOP.replace("# CHANGE", "optimizer = Descent(net.parameters(), 0.1)"),
    **{
        f"a loss that shows another number, {loss}": f"{HEAD}{NET}{SGD}"
        + LOOP.replace("loss =", "fit =").replace(
            "    optimizer.z", f"    size = net(x).abs().mean()\n    loss = {loss}\n    optimizer.z"
        )
        for loss in ("size.detach() + fit - fit.detach()", "fit - fit.detach() + size.detach()", "fit - size.detach()")
    },
    **{
        f"reset, {use}": f"{HEAD}{NET}{SGD}kept = []\n"
        + LOOP.replace("optimizer.step()", f"{use}\n    if step % 4 == 3:\n        optimizer.step()")
        for use in (
            "kept.append(net[0].weight.grad)",
            "print(net[1].bias.data.sub_(0.1 * net[1].bias.grad).norm())",
            "bias = net[1].bias; bias.data -= 0.1 * bias.grad / bias.grad.norm()",
        )
    },
    "a closure that is called again and again": f"{HEAD}{NET}optimizer = torch.optim.LBFGS(net.parameters())\n"
    + LOOP.replace("    loss =", "    def closure():\n        optimizer.zero_grad(); loss =")
    .replace("    optimizer.zero_grad()\n    loss.backward()", "        loss.backward(); return loss")
    .replace(".step()", ".step(closure)"),
    "a hook that limits the length of a gradient": HEAD
    + NET
    + "def limit(grad):\n    scale = (1.0 / (grad.norm() + 1e-6)).clamp(0, 1)\n    return grad * scale\n"
    + "net[0].weight.register_hook(limit)\n"
    + SGD
    + LOOP,
    "a hook that masks a gradient": HEAD
    + NET
    + "mask = torch.rand(1, 3)\nnet[0].weight.register_hook(lambda grad: grad * mask.clamp(0.0, 1.0))\n"
    + SGD
    + LOOP,
    "a hook that clamps lengths alone": HEAD
    + NET
    + "net[0].weight.register_hook(lambda grad: grad.sign() * grad.abs().clamp(0, 1))\n"
    + SGD
    + LOOP,
    "a hook that logs a clamped gradient": HEAD
    + NET
    + "def log(grad):\n    logged = grad.clamp(0, 1).mean().item()\nnet[0].weight.register_hook(log)\n"
    + SGD
    + LOOP,
    "a head that is trained, of all that the optimizer holds": HEAD
    + "body, net = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))\n"
    + "for p in [*body.parameters(), *net.parameters()]: p.requires_grad_(False)\n"
    + "for p in net[1].parameters(): p.requires_grad_(True)\n"
    + SGD
    + LOOP.replace("net(x)", "net(body(x))"),
    "a weight that was taken from a layer of the same name": HEAD
    + "old, new = nn.Linear(3, 3), nn.Linear(3, 3)\nnew.weight = old.weight\nold = nn.Linear(3, 1)\n"
    + "net = nn.Sequential(new, old)\n"
    + SGD
    + LOOP,
    "a weight that layers of a loop take": HEAD
    + "layers = [nn.Linear(3, 3) for _ in range(3)]\nfirst = layers[0]\n"
    + "for layer in layers[1:]:\n    layer.weight = first.weight\nfirst = nn.Linear(3, 3)\n"
    + "net = nn.Sequential(first, *layers, nn.Linear(3, 1))\n"
    + SGD
    + LOOP,
    "a margin that every sample keeps": HEAD
    + NET
    + "optimizer = torch.optim.SGD(net.parameters(), lr=0.5)\ny = torch.tensor([[2.0, 2.0, 2.0], [-2.0, -2.0, -2.0]])\n"
    + "for i in range(60):\n    loss = torch.clamp(1 - y[:, :1] * net(y), min=0).mean() + 1e-3\n"
    + "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n",
    "inputs that are changed along a gradient": HEAD
    + NET
    + SGD
    + LOOP.replace(
        "# CHANGE", "x.requires_grad_(); x = x + 0.1 * torch.autograd.grad(net(x).square().sum(), x)[0].sign()"
    ),
    "an inner step of first order": HEAD
    + NET
    + SGD
    + LOOP.replace(
        "# CHANGE",
        "own = dict(net.named_parameters()); slopes = torch.autograd.grad(net(x).square().mean(), list(own.values()))\n"
        "    own = {name: own[name] - 0.1 * slope for name, slope in zip(own, slopes)}",
    ).replace("(net(x) -", "(torch.func.functional_call(net, own, (x,)) -"),
    "a weight of a loss that comes from gradients": HEAD
    + NET
    + SGD
    + LOOP.replace(
        "    optimizer.zero_grad()\n",
        "    extra = net[0](x).abs().mean(); slopes = [torch.autograd.grad(each, net[0].weight, retain_graph=True)[0].norm()\n"
        "        for each in (loss, extra)]; loss = loss + slopes[0] / slopes[1] * extra\n    optimizer.zero_grad()\n",
    ),
    "several hooks of one line": f"{HEAD}{NET}for share in (1.0, 0.5, 2.0, 1.0):\n"
    f"    net[0].weight.register_hook(lambda grad, share=share: grad * share)\n{SGD}{LOOP}",
    "an optimizer for each copy": f"import copy\n{HEAD}{NET}{SGD}"
    + LOOP.replace(
        "# CHANGE",
        "inner = copy.deepcopy(net); first = torch.optim.Adam(inner.parameters())\n"
        "    inner(x).mean().backward(); first.step(); del inner, first",
    ),
    "a branch that is given nothing": HEAD
    + NET
    + "other = nn.Linear(2, 3, bias=False)\n"
    + SGD.replace("net.parameters()", "[*net.parameters(), *other.parameters()]")
    + LOOP.replace("net(x)", "net[1](net[0](x) + torch.relu(other(torch.zeros(8, 2))))"),
    "a margin that is reached": HEAD
    + NET
    + SGD
    + LOOP.replace("(net(x) - 1).square().mean()", "torch.relu(0.1 - (net(x) + 20)).mean()"),
    "a rate that falls along a cosine": f"{HEAD}{NET}{SGD}schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)"
    + LOOP.replace("# AFTER", "schedule.step()"),
    "losses whose graphs overlap": HEAD
    + NET
    + SGD
    + LOOP.replace("loss = (net(x)", "h = net[0](x); first = h.square().mean(); loss = (net[1](h)").replace(
        "    loss.backward()", "    first.backward(retain_graph=True); loss.backward()"
    ),
    "a loss whose gradient is only measured": HEAD
    + NET
    + SGD
    + LOOP.replace(
        "    optimizer.zero_grad()\n",
        "    loss.backward(retain_graph=True)\n    norm = net[0].weight.grad.norm()\n    optimizer.zero_grad()\n",
    ).replace("    loss.backward()", "    (loss / norm).backward()"),
    "a step before the first one, for a schedule": f"{HEAD}{NET}{SGD}optimizer.step()"
    + LOOP.replace("range(30)", "range(1)"),
    "ReLUs of which few let something through": HEAD
    + NET.replace("), nn", "), nn.ReLU(), nn").replace("3, 3", "3, 64").replace("(3, 1", "(64, 1")
    + f"nn.init.constant_(net[0].bias, -1.0); nn.init.zeros_(net[2].weight)\n{SGD}{LOOP}",
    "a backbone that is thawed later": HEAD
    + NET
    + "net[0].requires_grad_(False)\noptimizer = torch.optim.SGD([{'params': part.parameters()} for part in net], lr=0.1)"
    + LOOP.replace("# AFTER", "net[0].requires_grad_(step > 9)"),
    "loops over parameters that work in place": f"""{HEAD}{NET}
for weight in net.parameters():
    weight = nn.init.normal_(weight, std=0.1)
old = nn.Linear(3, 1)
for weight in old.parameters():
    weight = weight.requires_grad_(False)
{SGD}
def clip(params):
    for weight in params:
        weight = weight.data.clamp_(-1, 1)
{LOOP.replace("# AFTER", "clip(net.parameters())")}""",
    "steps that pass the gradient around, each spelled otherwise": f"""{HEAD}{NET}{SGD}
def rounded(x):
    return x + torch.round(8 * x) / 8 - x.detach()
def clamped(x):
    return torch.clamp(torch.round(x / 0.1), -8, 7) * 0.1 + (x - x.detach())
def phase(x):
    return 4 * x - torch.floor(4 * x)
{LOOP.replace("# CHANGE", "z = net[0](x)").replace("(net(x)", "(net(x) + net[1](rounded(z) + clamped(z) + phase(z)) * 0.05")}""",
    "two losses through one line": f"""{HEAD}
def run(loss):
    loss.backward()
maker, judge = nn.Linear(3, 3), nn.Linear(3, 1)
first, second = (torch.optim.SGD(each.parameters(), lr=0.01) for each in (maker, judge))
for step in range(8):
    made = maker(torch.randn(8, 3))
    second.zero_grad()
    run((judge(made) - 1).square().mean() + judge(torch.randn(8, 3)).square().mean())
    second.step()
    first.zero_grad()
    run(judge(maker(torch.randn(8, 3))).square().mean())
    first.step()
""",
    "a matrix for each element of a row": f"{HEAD}{NET}{SGD}pairs, column = torch.randn(8, 8), torch.randn(8, 1)"
    + LOOP.replace("net(x) - 1", "net(x).squeeze(1) - pairs[:8] + column[0]"),
    "batches that are left over at the end of an epoch": HEAD
    + NET
    + SGD
    + LOOP.replace("    optimizer.zero_grad()\n", "    if step % 5 == 0:\n        optimizer.zero_grad()\n").replace(
        "    optimizer.step()", "    if step % 5 == 3:\n        optimizer.step()\n        optimizer.zero_grad()"
    ),
    "a penalty on the gradient of a network of ReLUs": f"""{HEAD}
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
{SGD}for step in range(3):
    x = torch.rand(8, 3, requires_grad=True)
    slope = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
    optimizer.zero_grad()
    (slope.norm(dim=1) - 1).square().mean().backward()
    net(torch.rand(8, 3)).mean().backward()
    optimizer.step()
""",
    "points whose gradient is asked for": f"""{HEAD}
class Physics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        self.points = torch.linspace(0, 1, 9)[:, None].requires_grad_()
    def forward(self, _):
        u = self.net(self.points)
        return torch.autograd.grad(u.sum(), self.points, create_graph=True)[0]
net = Physics()
{SGD}{LOOP}""",
    "a rate that is 0 at the end": f"{HEAD}{NET}{SGD}schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 27)"
    + LOOP.replace("# AFTER", "schedule.step()"),
    "a layer added with its group": HEAD
    + NET
    + SGD
    + LOOP.replace(
        "# CHANGE",
        "if step == 9:\n        net.append(nn.Linear(1, 1)); optimizer.add_param_group({'params': net[2].parameters()})",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_what_the_ledger_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if APPLY is None and "save_for_backward" not in FAULTS[name].script and ".Function" in FAULTS[name].script:
        pytest.skip("this torch shows a custom Function where it saves tensors, and only there")
    monkeypatch.chdir(tmp_path)
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(RIGHT))
def test_what_is_as_it_should_be(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


TWO_DEAD = f"""{HEAD}
net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(6, 1))
for layer, bias in zip(net, (-50.0, 1e4)):
    nn.init.constant_(layer.bias, bias)
{SGD}""" + LOOP.replace(
    "loss = (net(x)",
    "low = net[0](x).relu()\n    high = net[1](x).tanh()\n    loss = (net[2](torch.cat([low, high], 1))",
)


@pytest.mark.slow
def test_all_dead_layers_are_told_at_once(tmp_path: Path) -> None:
    (found,) = alarms(TWO_DEAD, tmp_path)
    assert (found["id"], set(found["names"])) == (
        "dead-relu",
        {"net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias"},
    )
    assert "`low = " in found["why"] and "`high = " in found["why"]
    assert not alarms(TWO_DEAD.replace("(-50.0, 1e4)", "(0.0, 0.0)"), tmp_path)
