"""Gradients that explode are told, once; models that begin small are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""
TRAIN = """
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(4):
    loss = F.cross_entropy(model(torch.randn(4, 5, 8)).mean(1), torch.randint(0, 8, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FINE = {
    "a fresh BERT": """
        from transformers import BertConfig, BertForSequenceClassification
        config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64)
        model = BertForSequenceClassification(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for step in range(3):
            loss = model(input_ids=torch.randint(0, 50, (4, 12)), labels=torch.randint(0, 2, (4,))).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "a generator and a discriminator with norms": """
        def block(make, *shape):
            return nn.Sequential(make(*shape, bias=False), nn.BatchNorm2d(shape[1]), nn.LeakyReLU(0.2))
        up = nn.ConvTranspose2d
        G = nn.Sequential(block(up, 8, 32, 4), block(up, 32, 16, 4, 2, 1), nn.Conv2d(16, 1, 1), nn.Tanh())
        D = nn.Sequential(block(nn.Conv2d, 1, 16, 4, 2, 1), block(nn.Conv2d, 16, 32, 4), nn.Flatten(), nn.Linear(32, 1))
        for p in [*G.parameters(), *D.parameters()]:
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.002)
        g, d = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
        for step in range(4):
            fake = G(torch.randn(4, 8, 1, 1))
            d.zero_grad()
            (F.softplus(-D(torch.randn(4, 1, 8, 8))) + F.softplus(D(fake.detach()))).mean().backward()
            d.step()
            g.zero_grad()
            F.softplus(-D(fake)).mean().backward()
            g.step()
    """,
    "LayerScale": """
        class Block(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.norm, self.attention = nn.LayerNorm(size), nn.MultiheadAttention(size, 2, batch_first=True)
                self.scale, self.scale2 = (nn.Parameter(1e-6 * torch.ones(size)) for _ in range(2))
                self.mlp = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 16), nn.GELU(), nn.Linear(16, size))
            def forward(self, x):
                y = self.norm(x)
                x = x + self.scale * self.attention(y, y, y, need_weights=False)[0]
                return x + self.scale2 * self.mlp(x)
        model = nn.Sequential(nn.Linear(8, 8), *(Block(8) for _ in range(4)), nn.Linear(8, 8))
    """
    + TRAIN.replace("\n", "\n        "),
    "residual blocks that begin at zero": """
        class Block(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.inner, self.last = nn.Linear(size, size), nn.Linear(size, size)
                nn.init.zeros_(self.last.weight)
            def forward(self, x):
                return x + self.last(torch.relu(self.inner(x)))
        model = nn.Sequential(*(Block(8) for _ in range(6)))
    """
    + TRAIN.replace("\n", "\n        "),
    "twelve layers with the norm behind": """
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=False)
        model = nn.TransformerEncoder(layer, 12)
    """
    + TRAIN.replace("\n", "\n        "),
}
RECURRENCE = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.again, self.last = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
            nn.init.orthogonal_(self.again.weight, gain=3.0)
        def forward(self, x):
            h = torch.zeros(4, 8)
            for step in range(25):
                h = self.first(x[:, step % 5]) + self.again(h)
            return 1e-3 * self.last(h)[:, None]
    model = Net()
""" + TRAIN.replace("\n", "\n    ")


def _script(folder: Path, text: str) -> Path:
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return written(folder, HEAD + "\n".join(line[indent:] for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if "BERT" in one else one for one in FINE])
def test_what_begins_small_is_not_accused(name: str, tmp_path: Path) -> None:
    if name == "a fresh BERT":
        pytest.importorskip("transformers")
    found, code = check(_script(tmp_path, FINE[name]))
    assert code == 0, found


def test_a_recurrence_with_large_weights_explodes_and_is_told_once(tmp_path: Path) -> None:
    found, code = check(_script(tmp_path, RECURRENCE))
    assert code == 1 and [one["id"] for one in found if one["severity"] != "note"] == ["exploding-gradient"], found
