"""Numbers that change where autograd does not look: found at the line that changes them, healed by the advice, or left alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals


def script(top: str, step: str, end: str = "") -> str:
    """A training: what is made before the loop, what makes the loss in it, and what follows the step."""
    head = f"import torch\nfrom torch import nn\ntorch.manual_seed(0)\n{textwrap.dedent(top).strip()}\n"
    loop = (
        f"{textwrap.dedent(step).strip()}\nopt.zero_grad()\nloss.backward()\nopt.step()\n{textwrap.dedent(end).strip()}"
    )
    made = "opt = torch.optim.SGD(nn.ModuleList(v for v in list(vars().values()) if isinstance(v, nn.Module)).parameters(), lr=0.1)"
    return f"{head}{made}\nfor _ in range(4):\n{textwrap.indent(loop, '    ')}\n"


NET = "net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))\n"
LOSS = "loss = (net(torch.randn(16, 6)) - 1).square().mean()"
FAULTS = {
    "weights of an attention, masked through .data": Fault(
        "unseen-change", "weights.data.mul_", "x = x * mask", "weights.data.mul_(keep)", "weights = weights * keep",
        script(
            "q, k, v = (nn.Linear(8, 8) for _ in range(3))",
            """
            x = torch.randn(4, 5, 8)
            weights = (q(x) @ k(x).transpose(1, 2)).softmax(-1)
            keep = torch.rand_like(weights) > 0.3
            weights.data.mul_(keep)
            loss = (weights @ v(x)).square().mean()
            """,
        ),
    ),
    "parameters that are moved before backward": Fault(
        "unseen-change", "p.data.add_", "behind backward()", "    p.data.add_(0.1 * torch.randn_like(p))", "    pass",
        script(NET, f"{LOSS}\nfor p in net.parameters():\n    p.data.add_(0.1 * torch.randn_like(p))"),
    ),
    "an activation that NumPy writes to": Fault(
        "unseen-change", "view = h.detach().numpy()", "Compute a new tensor", "h.detach().numpy()", "h.detach().clone().numpy()",
        script(
            "a, b = nn.Linear(6, 8), nn.Linear(8, 1)",
            "h = a(torch.randn(16, 6)).sigmoid()\nview = h.detach().numpy()\nview[:, 0] = 0.5\nloss = (b(h) - 1).square().mean()",
        ),
    ),
    "a hook that centres what it looks at": Fault(
        "unseen-change", "flat -= flat.mean", "x.detach().clone()", "result.detach()", "result.detach().clone()",
        script(
            f"""
            {NET.strip()}
            def look(module, given, result):
                flat = result.detach().flatten(1)
                flat -= flat.mean(1, keepdim=True)
            net[0].register_forward_hook(look)
            """,
            LOSS,
        ),
    ),
    "a backward hook that takes squares in place": Fault(
        "unseen-change", "square_()", "grad.abs() in place of grad.abs_()", "square_()", "square()",
        script(
            f"""
            {NET.strip()}
            class Watch:
                def __call__(self, module, grad_input, grad_output):
                    self.note(grad_output[0])
                def note(self, grad):
                    self.norm = grad.square_().sum().item()
            net[1].register_full_backward_hook(Watch().__call__)
            """,
            LOSS,
        ),
    ),
    "a hook on an activation that clears signs": Fault(
        "unseen-change", "grad.abs_()", "return the new one", "grad.abs_()", "grad.abs()",
        script(
            "a, b = nn.Linear(6, 8), nn.Linear(8, 1)\nlargest = []\ndef note(grad):\n    largest.append(grad.abs_().max())",
            "h = torch.tanh(a(torch.randn(16, 6)))\nh.register_hook(note)\nloss = (b(h) - 1).square().mean()",
        ),
    ),
    "dropout in a checkpoint that keeps no state": Fault(
        "unseen-change", "preserve_rng_state=False", "Leave out preserve_rng_state=False", ", preserve_rng_state=False", "",
        script(
            """
            from torch.utils.checkpoint import checkpoint
            body, head = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5)), nn.Linear(8, 1)
            """,
            """
            h = checkpoint(body, torch.randn(16, 6), use_reentrant=False, preserve_rng_state=False)
            loss = (head(h) - 1).square().mean()
            """,
        ),
    ),
    "noise in a checkpoint of a method": Fault(
        "unseen-change", "preserve_rng_state=False", "Leave out preserve_rng_state=False",
        "preserve_rng_state=False", "preserve_rng_state=True",
        script(
            """
            import torch.utils.checkpoint as saving
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(6, 6)
                def inner(self, x):
                    return torch.tanh(self.layer(x * torch.rand_like(x)))
                def forward(self, x):
                    return saving.checkpoint(self.inner, x, preserve_rng_state=False, use_reentrant=False)
            block, head = Block(), nn.Linear(6, 1)
            """,
            "loss = (head(block(torch.randn(16, 6))) - 1).square().mean()",
        ),
    ),
}  # fmt: skip
RIGHT = {
    "an image that a frozen network in eval mode is to like, over many calls": """
        import torch
        features = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).eval().requires_grad_(False)
        image = torch.zeros(2, 6, requires_grad=True)
        opt = torch.optim.SGD([image], lr=0.1)
        for _ in range(40):
            h = image
            for layer in features:
                h = layer(h)
            opt.zero_grad()
            (h - 1).square().mean().backward()
            opt.step()
    """,
    "parameters that are bounded behind a step, or before they are used twice": script(
        """
        class Positive(nn.Linear):
            def forward(self, x):
                self.weight.data.clamp_(min=0)
                return super().forward(x)
        layer, out = Positive(6, 6), nn.Linear(6, 1)
        """,
        "loss = (out(layer(torch.tanh(layer(torch.randn(16, 6))))) - 1).square().mean()",
        "for p in out.parameters():\n    p.data.clamp_(-0.05, 0.05)",
    ),
    "statistics of copies, and scores that are masked before a softmax": script(
        "a, b, seen = nn.Linear(6, 8), nn.Linear(8, 3), torch.zeros(8)",
        """
        h = torch.tanh(a(torch.randn(16, 6)))
        shown = h.data.clone()
        shown.sub_(shown.mean(0))
        seen.mul_(0.9).add_(h.data.mean(0), alpha=0.1)
        h.detach().mean(0).abs_()
        scores = b(h)
        scores.data.masked_fill_(torch.eye(16, 3) > 0, -1e9)
        loss = -(scores.softmax(1)[:, 2] + 1e-3).log().mean()
        """,
    ),
    "hooks that return a gradient, that add up, and that act on leaves": script(
        f"""
        {NET.strip()}
        total = torch.zeros(1)
        def clip(grad):
            grad.clamp_(-0.1, 0.1)
        def half(grad):
            grad = grad.clone()
            return grad.mul_(0.5)
        def add(module, grad_input, grad_output):
            total.add_(grad_output[0].abs().sum().clamp_(max=5))
        def shrink(p):
            p.grad.mul_(0.9)
        net[0].weight.register_hook(clip)
        net[2].bias.register_hook(half)
        net[1].register_full_backward_hook(add)
        net[0].bias.register_post_accumulate_grad_hook(shrink)
        """,
        LOSS,
    ),
    "a checkpoint without state of what draws nothing": script(
        """
        from torch.utils.checkpoint import checkpoint
        body, head = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8)), nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 1))
        """,
        """
        h = checkpoint(body, torch.randn(16, 6), use_reentrant=False, preserve_rng_state=False)
        loss = (head(checkpoint(nn.functional.dropout, h, 0.5, use_reentrant=False)) - 1).square().mean()
        """,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(textwrap.dedent(RIGHT[name]), tmp_path)
