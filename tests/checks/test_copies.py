"""Copies that are none: two names for one network, a kept state_dict(), weights that are tied no more; each is healed by its
advice, and networks that are copied as they should be are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

HEAD = "import copy\nimport torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
NET = "net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))\n"
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
LOOP = """
for step in range(6):
    x = torch.randn(8, 3)
    with torch.no_grad():
        goal = 0.9 * target(x) + 1
    loss = (net(x) - goal).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # AFTER
"""
LOAD = "if step % 2: target.load_state_dict(net.state_dict())"
MOVE = """with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters()):
            old.mul_(0.9).add_(new, alpha=0.1)"""
AGENT = """
def follow(slow, fast, rate):
    for old, new in zip(slow.parameters(), fast.parameters()):
        old.data.copy_(rate * new.data + (1 - rate) * old.data)
class Agent:
    def __init__(self):
        self.online = nn.Linear(3, 1)
        self.target = self.online
        self.optimizer = torch.optim.Adam(self.online.parameters())
    def learn(self):
        x = torch.randn(8, 3)
        goal = self.target(x).detach() + 1
        loss = (self.online(x) - goal).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        follow(self.target, self.online, 0.1)
agent = Agent()
for step in range(4):
    agent.learn()
"""
TIED = """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.embedding.weight
        # LATER
    def forward(self, x):
        return self.head(self.embedding(x).tanh())
net = Words()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randint(0, 9, (8,))
    loss = nn.functional.cross_entropy(net(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NEW = "self.embedding = nn.Embedding.from_pretrained(torch.randn(9, 4), freeze=False)"
FAULTS = {
    "a target that is loaded": Fault(
        "no-effect", "target = net", "target = copy.deepcopy(net)", "target = net", "target = copy.deepcopy(net)",
        HEAD + NET + SGD + "target = net" + LOOP.replace("# AFTER", LOAD),
    ),
    "a target that is a shallow copy": Fault(
        "no-effect", "copy.copy", "target = copy.deepcopy(net)", "copy.copy(", "copy.deepcopy(",
        HEAD + NET + SGD + "target = copy.copy(net)" + LOOP.replace("# AFTER", MOVE),
    ),
    "a target that a helper moves": Fault(
        "no-effect", "self.target = self.online", "copy.deepcopy(self.online)", "= self.online\n", "= copy.deepcopy(self.online)\n",
        HEAD + AGENT,
    ),
    "the best state": Fault(
        "no-effect", "best = net.state_dict()", "copy.deepcopy(net.state_dict())", "best = net.state_dict()",
        "best = copy.deepcopy(net.state_dict())",
        HEAD + NET + SGD + "target = copy.deepcopy(net)"
        + LOOP.replace("# AFTER", "if step == 2:\n        best = net.state_dict()") + "net.load_state_dict(best)\n",
    ),
    "weights that are tied before one is loaded": Fault(
        "no-effect", "self.head.weight = ", "tie them last", "# LATER", "self.head.weight = self.embedding.weight",
        HEAD + TIED.replace("# LATER", f"{NEW}\n        # LATER"),
    ),
}  # fmt: skip
RIGHT = {
    "a target that is a copy": HEAD + NET + SGD + "target = copy.deepcopy(net)"
    + LOOP.replace("# AFTER", f"{LOAD}\n    {MOVE}"),
    "two loops over one network": HEAD + NET + SGD + "target = net"
    + LOOP.replace("# AFTER", "print(sum((a * b).sum() for a, b in zip(target.parameters(), net.parameters())).item())"),
    "a state that goes through memory": f"{HEAD}import io\n{NET}{SGD}target = copy.deepcopy(net)"
    + LOOP.replace("# AFTER", "file = io.BytesIO(); torch.save(net.state_dict(), file); file.seek(0)")
    + "net.load_state_dict(torch.load(file))\n",
    "weights that are tied": HEAD + TIED.replace("# LATER", "nn.init.normal_(self.embedding.weight, std=0.1)"),
    "weights that are tied again": HEAD + TIED.replace("# LATER", f"{NEW}; self.head.weight = self.embedding.weight"),
    "weights that a condition ties": HEAD
    + TIED.replace("self.head.weight =", "if self.head.bias is not None: self.head.weight ="),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_copy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_as_it_should_be(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
