"""What masks hide, what labels say of a sequence, and rows that meet columns: found at their line; what is right is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

BEGIN = """
        import torch
        import torch.nn.functional as F
        from torch import nn
        torch.manual_seed(3)

        def batch(n=6, steps=9, padded=True):
            ids = torch.randint(1, 20, (n, steps))
            lengths = torch.randint(3, steps, (n,))
            lengths[:2] = torch.tensor([steps - 1, steps - 2])
            return torch.where(torch.arange(steps) < lengths[:, None], ids, 0) if padded else ids
"""
END = """
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(4):
            loss = objective()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
ATTENTION = f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), look=nn.MultiheadAttention(8, 2, batch_first=True),
                                 out=nn.Linear(8, 2)))
        def objective():
            ids = batch()
            x = net["words"](ids)
            seen, weights = net["look"](x, x, x, key_padding_mask=ids > 0)
            return F.cross_entropy(net["out"](seen[:, 0]), ids[:, 0] % 2)
{END}"""
OWN = f"""{BEGIN}
        net = nn.ModuleDict(dict(q=nn.Linear(5, 8), k=nn.Linear(5, 8), out=nn.Linear(5, 1)))
        def objective():
            valid = batch() > 0
            frames = torch.randn(6, 9, 5) * valid[..., None]
            scores = net["q"](frames) @ net["k"](frames).transpose(1, 2)
            weights = scores.masked_fill(valid[:, None], -1e9).softmax(-1)
            return (net["out"]((weights @ frames)[:, 0]) - frames[:, :1, 0]).abs().mean()
{END}"""
SUMMARY = f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), look=nn.TransformerEncoderLayer(8, 2, 9, 0.0, batch_first=True),
                                 out=nn.Linear(8, 2)))
        front = nn.Parameter(torch.randn(1, 1, 8))
        def objective():
            ids = batch()
            x = torch.cat([front.expand(len(ids), -1, -1), net["words"](ids)], 1)
            real = F.pad(ids > 0, (1, 0), value=True)
            return F.cross_entropy(net["out"](net["look"](x, src_key_padding_mask=real)[:, 0]), ids[:, 0] % 2)
{END.replace("net.parameters()", "[front, *net.parameters()]")}"""
WINDOW = f"""{BEGIN}
        series = torch.randn(99).cumsum(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        def objective():
            starts = torch.randint(0, 90, (16, 1))
            windows, ahead = series[starts + torch.arange(6)], series[starts + 5]
            return F.mse_loss(net(windows), ahead)
{END}"""
STEPS = "net = nn.ModuleDict(dict(read=nn.GRU(1, 8, batch_first=True), out=nn.Linear(8, 1)))"
PAST = f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), q=nn.Linear(8, 8), out=nn.Linear(8, 20)))
        def objective():
            ids = batch(padded=False)
            x = net["words"](ids[:, :-1])
            keep = torch.triu(torch.ones(8, 8, dtype=torch.bool))
            x = x + F.scaled_dot_product_attention(net["q"](x), x, x, attn_mask=keep)
            return F.cross_entropy(net["out"](x).flatten(0, 1), ids[:, 1:].flatten())
{END}"""
SAME = f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), read=nn.GRU(8, 8, batch_first=True), out=nn.Linear(8, 20)))
        def objective():
            ids = batch(padded=False)
            x, y = ids[:, :-1], ids[:, :-1]
            scores = net["out"](net["read"](net["words"](x))[0])
            return F.cross_entropy(scores.transpose(1, 2), y)
{END}"""
AHEAD = f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), look=nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                                 out=nn.Linear(8, 20)))
        def objective():
            ids = batch(padded=False)
            scores = net["out"](net["look"](net["words"](ids)))[:, :-1]
            return F.cross_entropy(scores.reshape(-1, 20), ids[:, 1:].reshape(-1))
{END}"""
BOTH = f"""{BEGIN}
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(20, 8)
                self.read = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
                self.out = nn.Linear(16 if self.read.bidirectional else 8, 20)
            def forward(self, ids):
                return self.out(self.read(self.words(ids))[0])
        net = Reader()
        def objective():
            ids = batch(padded=False)
            return F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
{END}"""
PARTNERS = f"""{BEGIN}
        net = nn.Linear(5, 8)
        def objective():
            x = torch.randn(7, 5)
            z = F.normalize(net(torch.cat([x + 0.1 * torch.randn(7, 5), x + 0.1 * torch.randn(7, 5)])))
            scores = (z @ z.t() / 0.2).masked_fill(torch.eye(14, dtype=torch.bool), -1e9)
            partner = torch.arange(14) ^ 1
            return F.cross_entropy(scores, partner)
{END}"""
IN_TURN = f"""{BEGIN}
        net = nn.Linear(5, 8)
        def objective():
            x = torch.randn(7, 5)
            z = F.normalize(torch.stack([net(x + 0.1 * torch.randn(7, 5)), net(x)], 1).flatten(0, 1))
            scores = (z @ z.t() / 0.2).masked_fill(torch.eye(14, dtype=torch.bool), -1e9)
            partner = (torch.arange(14) + 7) % 14
            return F.cross_entropy(scores, partner)
{END}"""
SWAPPED = f"""{BEGIN}
        net = nn.Linear(5, 1)
        def objective():
            x = torch.randn(8, 5)
            return F.binary_cross_entropy_with_logits((x[:, :1] > 0).float(), net(x))
{END}"""
COLUMNS = f"""{BEGIN}
        net = nn.Linear(5, 8)
        def objective():
            x = torch.randn(8, 5)
            z = net(x)
            z = z / z.norm(dim=1).clamp(min=1e-8)
            return F.cross_entropy(z @ z.t(), torch.arange(8))
{END}"""
CENTERED = f"""{BEGIN}
        net = nn.ModuleDict(dict(inner=nn.Linear(5, 8), out=nn.Linear(8, 1)))
        def objective():
            x = torch.randn(8, 5)
            h = net["inner"](x)
            h = h - h.mean(-1)
            return (net["out"](h) - x[:, :1]).square().mean()
{END}"""
POLICY = f"""{BEGIN}
        net = nn.Linear(3, 4)
        def objective():
            policy = torch.distributions.Categorical(logits=net(torch.randn(16, 3)))
            action = policy.sample()
            advantage = (action == 1).float() - 0.2
            return 0.01 * policy.entropy().mean() - (policy.log_prob(action) * advantage).mean()
{END}"""
GAUSSIAN = f"""{BEGIN}
        net = nn.Linear(3, 2)
        def objective():
            mean = net(torch.randn(16, 3))
            policy = torch.distributions.Independent(torch.distributions.Normal(mean, torch.ones(2) + 0.1 * mean.exp()), 1)
            action = policy.sample()
            gain = policy.log_prob(action) * action[:, 0].tanh() - 0.01 * policy.entropy()
            return -gain.mean()
{END}"""
POSITIONS = f"""{BEGIN}
        class Places(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.randn(30, 1, 8))
            def forward(self, x):
                return x + self.table[: x.size(0)]
        net = nn.ModuleDict(dict(words=nn.Embedding(20, 8), places=Places(), out=nn.Linear(8, 2)))
        def objective():
            ids = batch(padded=False)
            x = net["places"](net["words"](ids))
            return F.cross_entropy(net["out"](x.mean(1)), (ids[:, 0] % 2))
{END}"""

SCHEDULE = f"""{BEGIN}
        noise = torch.linspace(0.1, 0.9, 20)
        net = nn.ModuleDict(dict(time=nn.Embedding(20, 8), out=nn.Linear(8, 8)))
        def objective():
            clean, at = torch.randn(8, 8), torch.randint(0, 20, (8,))
            share = noise[at]
            noisy = share.sqrt() * clean + 0.1
            return (net["out"](noisy) + net["time"](at) - clean).square().mean()
{END}"""
LETTERS = f"""{BEGIN}
        net = nn.ModuleDict(dict(q=nn.Linear(5, 8), k=nn.Linear(5, 8)))
        def objective():
            frames = torch.randn(4, 6, 5)
            scores = torch.einsum("nqc,nkd->nqk", net["q"](frames), net["k"](frames))
            return F.cross_entropy(scores.flatten(0, 1), torch.arange(6).repeat(4))
{END}"""
WEIGHED = f"""{BEGIN}
        net, criterion = nn.Linear(5, 3), nn.CrossEntropyLoss()
        def objective():
            x, gain = torch.randn(8, 5), torch.rand(8)
            loss = criterion(net(x), x.argmax(1) % 3) * gain
            return loss.mean()
{END}"""
MASKED = f"""{BEGIN}
        net = nn.Linear(5, 5)
        def objective():
            x, valid = torch.randn(6, 9, 5), (batch() > 0).float()
            error = 0.5 * (net(x) - x).square().sum() * valid
            return error.sum() / valid.sum()
{END}"""
MESSAGES = f"""{BEGIN}
        net = nn.Linear(5, 4)
        def objective():
            x, source, goal = torch.randn(8, 5), torch.randint(0, 8, (30,)), torch.randint(0, 8, (30,))
            told = torch.zeros(8, 4)
            told[goal] += net(x)[source]
            return (told - x[:, :4]).square().mean()
{END}"""
COUNTS = f"""{BEGIN}
        net = nn.Linear(5, 4)
        def objective():
            x, words = torch.randn(3, 5), torch.randint(0, 4, (12,))
            counts = torch.zeros(4)
            counts[words] = counts[words] + torch.ones(12)
            return (net(x) - counts).square().mean()
{END}"""
APART = f"""{BEGIN}
        net = nn.Linear(5, 3)
        x = torch.randn(24, 5)
        y = (x[:, 0] > 0).long()
        def objective():
            order = torch.randperm(24)
            xs, ys = x[order], y[torch.randperm(24)]
            return F.cross_entropy(net(xs[:8]), ys[:8])
{END}"""

FAULTS = {
    "a mask of what is real": Fault(
        "inverted-mask", "key_padding_mask=", "Invert the mask", "ids > 0)", "ids == 0)", ATTENTION
    ),
    "a mask that keeps a summary in front": Fault(
        "inverted-mask",
        "key_padding_mask=",
        "=~real",
        "ids > 0,",
        "ids == 0,",
        SUMMARY.replace("value=True", "value=False"),
    ),
    "a mask of one's own": Fault(
        "inverted-mask", "masked_fill(", "Invert the mask", "valid[:, None]", "~valid[:, None]", OWN
    ),
    "a mask of the past": Fault("inverted-mask", "attn_mask=keep", "torch.tril", "torch.triu(", "torch.tril(", PAST),
    "labels that are the input": Fault(
        "useless-labels",
        "scores.transpose",
        "ids[:, 1:]",
        "y = ids[:, :-1], ids[:, :-1]",
        "y = ids[:, :-1], ids[:, 1:]",
        SAME,
    ),
    "attention to what comes": Fault(
        "useless-labels",
        'net["look"](net["words"](ids))',
        "is_causal=True",
        'net["words"](ids))',
        'net["words"](ids), src_mask=nn.Transformer.generate_square_subsequent_mask(9))',
        AHEAD,
    ),
    "a language model that reads both ways": Fault(
        "useless-labels",
        "self.out(self.read",
        "bidirectional=False",
        "bidirectional=True)\n",
        "bidirectional=False)\n",
        BOTH,
    ),
    "labels first": Fault(
        "useless-labels",
        "F.binary_cross_entropy_with_logits(",
        "Swap them",
        "(x[:, :1] > 0).float(), net(x)",
        "net(x), (x[:, :1] > 0).float()",
        SWAPPED,
    ),
    "a schedule by sample": Fault(
        "broadcast", "noisy = ", ".view(-1, 1)", "noise[at]\n", "noise[at].view(-1, 1)\n", SCHEDULE
    ),
    "two letters for one dimension": Fault(
        "mixed-samples", "torch.einsum", "c in place of d", "nkd->", "nkc->", LETTERS
    ),
    "a weight for each sample of a mean": Fault(
        "broadcast",
        "* gain",
        "reduction='none'",
        "nn.CrossEntropyLoss()",
        'nn.CrossEntropyLoss(reduction="none")',
        WEIGHED,
    ),
    "a mask of a sum of all": Fault(
        "broadcast", "* valid", "last dimensions", ".sum() * valid", ".sum(-1) * valid", MASKED
    ),
    "words that are counted": Fault(
        "no-effect",
        "counts[words] = ",
        "x.index_add(0, index, y)",
        "counts[words] = counts[words] + torch.ones(12)",
        "counts = counts.index_add(0, words, torch.ones(12))",
        COUNTS,
    ),
    "positions along the batch": Fault(
        "mixed-samples",
        "x + self.table",
        "table[:, : x.size(1)]",
        "self.table[: x.size(0)]",
        "self.table.transpose(0, 1)[:, : x.size(1)]",
        POSITIONS,
    ),
}
RIGHT = {
    "a text that is written anew from one vector, and a translation": f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(21, 8), read=nn.GRU(8, 8, batch_first=True), out=nn.Linear(8, 20),
                                 write=nn.GRU(8, 8, batch_first=True),
                                 look=nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)))
        def objective():
            ids = batch(padded=False)
            whole = net["read"](net["words"](ids))[1][0]
            again = net["out"](net["write"](whole.unsqueeze(1).expand(-1, 9, -1))[0])
            loss = F.cross_entropy(again.flatten(0, 1), ids.flatten())
            before = torch.cat([torch.full((6, 1), 20), ids[:, :-1]], 1)
            source = net["look"](net["words"](ids.flip(1))).mean(1, keepdim=True)
            told = net["out"](net["write"](net["words"](before) + source)[0])
            return loss + F.cross_entropy(told.flatten(0, 1), ids.flatten())
{END}""",
    "words that were hidden, and padding on the left": f"""{BEGIN}
        net = nn.ModuleDict(dict(words=nn.Embedding(21, 8), look=nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                                 out=nn.Linear(8, 20)))
        def objective():
            ids = batch().flip(1)
            hidden = (torch.rand(ids.shape) < 0.3) & (ids > 0)
            scores = net["out"](net["look"](net["words"](ids.masked_fill(hidden, 20)), src_key_padding_mask=ids == 0))
            return F.cross_entropy(scores.flatten(0, 1), torch.where(hidden, ids, -100).flatten())
{END}""",
    "partners, normalised graphs, and pairs of the right order": f"""{BEGIN}
        net = nn.ModuleDict(dict(inner=nn.Linear(8, 8), words=nn.Embedding(9, 8, padding_idx=0)))
        graph = (torch.rand(8, 8) < 0.4).float()
        graph = ((graph + graph.t()) > 0).float() + torch.eye(8)
        def objective():
            x = torch.randn(8, 8)
            h = (graph / graph.sum(1)) @ net["inner"](x)
            h = h - h.mean(0)
            h = h / h.pow(2).sum(1, keepdim=True).sqrt()
            z = torch.cat([h, F.normalize(net["inner"](x + 0.1))])
            scores = (z @ z.t()).masked_fill(torch.eye(16, dtype=torch.bool), -1e9)
            ids = torch.randint(0, 9, (8, 1)) * torch.randint(0, 2, (8, 5))
            bags = net["words"](ids).sum(1)
            soft = F.binary_cross_entropy_with_logits(bags, h.detach().sigmoid())
            return F.cross_entropy(scores, (torch.arange(16) + 8) % 16) + bags.square().mean() + soft
{END}""",
    "numbers of each class, of pairs, of parts and of single places": f"""{BEGIN}
        net = nn.ModuleDict(dict(inner=nn.Linear(8, 8), kind=nn.Embedding(8, 8), out=nn.Linear(8, 8)))
        scale, table, x, y = torch.rand(8), torch.zeros(8, 8), torch.randn(24, 8), torch.arange(24) % 8
        def objective():
            order, others = torch.randperm(24), torch.randperm(24)
            seen, extra, labels = x[order][:8], x[others][:8], y[order][:8]
            h = net["inner"](seen) * scale + net["kind"](labels) * scale[labels][:, None]
            table[torch.randperm(8)[:4]] += 0.1
            bank = torch.zeros(8, 8)
            bank[labels] = 0.9 * bank[labels] + 0.1 * h.detach()
            single = F.cross_entropy(net["out"](h), labels, reduction="none") * torch.rand(8)
            tasks = torch.stack([h.square().mean(), h.abs().mean()]) * torch.rand(2)
            scores = torch.einsum("nd,md->nm", h, net["inner"](extra))
            pooled = torch.einsum("nd,m->n", h, torch.rand(3))
            return single.mean() + tasks.sum() + scores.square().mean() * 0.01 + pooled.mean() + (h * bank).mean()
{END}""",
    "a dropout that is to go on": """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.last = torch.nn.Linear(5, 1)
            def forward(self, x):
                return self.last(torch.nn.functional.dropout(x, 0.2, training=True))
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(4):
            x = torch.randn(8, 5)
            optimizer.zero_grad()
            (net(x) - x[:, :1]).square().mean().backward()
            optimizer.step()
            net.eval()
            with torch.no_grad():
                print(torch.stack([net(x) for _ in range(3)]).std(0).mean())
            net.train()
    """,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
