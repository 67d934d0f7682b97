"""Losses that are given something else than they expect: found at the line, and the advice, word for word, helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 16), nn.Linear(16, 3)
        self.one = nn.Linear(16, 1)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        return HEAD

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
y = torch.randint(0, 3, (8,))
for epoch in range(4):
    out = net(torch.randn(8, 6))
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CASES = {
    "softmax in the model, cross entropy": (
        "F.softmax(self.fc2(x), dim=1)", "nn.CrossEntropyLoss()(out, y)", "leave out this softmax", "self.fc2(x)",
    ),
    "sigmoid in the model, cross entropy": (
        "self.fc2(x).sigmoid()", "F.cross_entropy(out, y)", "leave out this sigmoid", "self.fc2(x)",
    ),
    "sigmoid in the model, loss with logits": (
        "torch.sigmoid(self.fc2(x)).view(-1)", "F.binary_cross_entropy_with_logits(out, torch.ones(24))",
        "leave out this sigmoid", "self.fc2(x).view(-1)",
    ),
    "probabilities for nll_loss": (
        "self.fc2(x).softmax(-1)", "nn.NLLLoss()(out, y)", "Use log_softmax in place of this softmax",
        "self.fc2(x).log_softmax(-1)",
    ),
    "scores for nll_loss": (
        "self.fc2(x)", "F.nll_loss(out, y)", "put log_softmax(scores, dim=1) before it", "F.log_softmax(self.fc2(x), dim=1)",
    ),
}  # fmt: skip
AT_THE_LOSS = "put log_softmax(scores, dim=1) before it"
RIGHT = {
    "a mixture of two": ("torch.logaddexp(self.fc2(x).log_softmax(1), self.fc2(-x).log_softmax(1))", "F.nll_loss(out, y)"),
    "by hand": ("self.fc2(x) - self.fc2(x).logsumexp(1, keepdim=True)", "F.nll_loss(out, y)"),
    "classes that are joined": ("self.fc2(x).log_softmax(1) @ torch.eye(3)", "F.nll_loss(out, y)"),
    "the mean of two views": ("(self.fc2(x).log_softmax(1) + self.fc2(-x).log_softmax(1)) / 2", "F.nll_loss(out, y)"),
    "the class dimension behind": ("self.fc2(x).view(2, 4, 3).log_softmax(-1).transpose(1, 2)", "F.nll_loss(out, y.view(2, 4))"),
    "similarities compared in both directions": (
        "x @ x.T", "F.nll_loss(out.log_softmax(1), torch.arange(8)) + F.nll_loss(out.log_softmax(0), torch.arange(8))",
    ),
    "logarithms for kl_div": (
        "F.softmax(self.fc2(x), dim=1).clamp_min(1e-6).log()", "F.kl_div(out, torch.full((8, 3), 1 / 3), reduction='batchmean')",
    ),
    "a softmax as the target of kl_div": (
        "self.fc2(x)", "F.kl_div(out.detach().log_softmax(1), out.softmax(1), reduction='batchmean')",
    ),
    "attention over the words": ("(self.fc2(x).softmax(0) * self.fc2(x)).log_softmax(1)", "F.nll_loss(out, y)"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_logarithms_are_left_alone(name: str, tmp_path: Path) -> None:
    head, loss = RIGHT[name]
    script = HEAD.replace("LOSS", loss).replace("return HEAD", f"return {head}")
    assert check(written(tmp_path, script), "--only", "loss-input") == ([], 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_found_and_the_advice_helps(name: str, tmp_path: Path) -> None:
    head, loss, advice, better = CASES[name]
    script = HEAD.replace("LOSS", loss)
    text = script.replace("return HEAD", f"return {head}")
    found, code = check(written(tmp_path, text), "--only", "loss-input")
    (alarm,) = found
    assert code == 1 and advice in alarm["fix"]
    assert ("loss = " if advice == AT_THE_LOSS else "return") in alarm["code"]
    mended = script.replace("return HEAD", f"return {better}")
    assert check(written(tmp_path, mended), "--only", "loss-input") == ([], 0)


RAISES = {
    "a number": ("loss.item().backward()", "loss.backward()", "Call backward() on the tensor itself"),
    "scores for BCELoss": (
        "F.binary_cross_entropy(out * 9, torch.ones(8, 3)).backward()",
        "F.binary_cross_entropy(torch.sigmoid(out * 9), torch.ones(8, 3)).backward()",
        "give it torch.sigmoid(scores)",
    ),
    "a scaler without an update": (
        "s = torch.amp.GradScaler('cpu', init_scale=2.0)\ns.scale(loss).backward()\ns.step(optimizer)\ns.step(optimizer)",
        "s = torch.amp.GradScaler('cpu', init_scale=2.0)\ns.scale(loss).backward()\ns.step(optimizer)\ns.update()",
        "Call scaler.update() once in every step",
    ),
    "a scaler without a scaled loss": (
        "s = torch.amp.GradScaler('cpu', init_scale=2.0)\nloss.backward()\ns.step(optimizer)",
        "s = torch.amp.GradScaler('cpu', init_scale=2.0)\ns.scale(loss).backward()\ns.step(optimizer)",
        "Call scaler.scale(loss).backward() in place of loss.backward()",
    ),
    "a second derivative of fused attention": (
        "q = torch.randn(1, 2, 8, 16, requires_grad=True)\na = F.scaled_dot_product_attention(q, q, q).sum()\n"
        "torch.autograd.grad(a, q, create_graph=True)[0].square().sum().backward()",
        "q = torch.randn(1, 2, 8, 16, requires_grad=True)\n"
        "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):\n"
        "    a = F.scaled_dot_product_attention(q, q, q).sum()\n"
        "torch.autograd.grad(a, q, create_graph=True)[0].square().sum().backward()",
        "run the forward pass inside",
    ),
}


@pytest.mark.parametrize("name", RAISES)
def test_the_exception_is_explained(name: str, tmp_path: Path) -> None:
    wrong, right, advice = RAISES[name]
    head = HEAD[: HEAD.index("for epoch")].replace("HEAD", "self.fc2(x)")
    head += "out = net(torch.randn(8, 6))\nloss = F.cross_entropy(out, y)\n"
    found, code = check(written(tmp_path, head + wrong), "--only", "raised")
    (alarm,) = found
    assert code == 1 and advice in alarm["fix"]
    assert check(written(tmp_path, head + right), "--only", "raised") == ([], 0)
