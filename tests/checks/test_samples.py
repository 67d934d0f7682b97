"""What relates the samples of a batch: found at its line, healed by the advice; what is meant to relate them is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.formulas.dimensions import cuts_samples, followed
from tests.checks.advice import Fault, alarms, shows_and_heals

BEGIN = """
        import torch
        from torch import nn
        import torch.nn.functional as F
        torch.manual_seed(1)
"""
END = """
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(4):
            loss = objective()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
RECURRENT = f"""{BEGIN}
        net = nn.ModuleDict(dict(reader=nn.GRU(5, 6), out=nn.Linear(6, 2)))
        def objective():
            signal, label = torch.randn(9, 4, 5), torch.randint(0, 2, (9,))
            states = net["reader"](signal)[0]
            return F.cross_entropy(net["out"](states[:, 3]), label)
{END}"""
ATTENTION = f"""{BEGIN}
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places = nn.Embedding(30, 8), nn.Parameter(torch.randn(6, 8))
                self.attention = nn.MultiheadAttention(8, 2)
                self.out = nn.Linear(8, 30)
            def forward(self, x):
                x = self.words(x) + self.places
                return self.out(x + self.attention(x, x, x, need_weights=False)[0])
        net = Reader()
        def objective():
            tokens = torch.randint(0, 30, (9, 6))
            return F.cross_entropy(net(tokens).transpose(1, 2), tokens.flip(1))
{END}"""
POOLING = f"""{BEGIN}
        net = nn.ModuleDict(dict(score=nn.Linear(5, 1), out=nn.Linear(5, 1)))
        def objective():
            frames, target = torch.randn(9, 4, 5), torch.randn(9, 1)
            weights = net["score"](frames).softmax(0)
            return (net["out"]((weights * frames).sum(1)) - target).abs().mean()
{END}"""
QUERIES = f"""{BEGIN}
        net = nn.ModuleDict(dict(q=nn.Linear(5, 6), k=nn.Linear(5, 6), out=nn.Linear(5, 1)))
        def objective():
            frames, target = torch.randn(9, 4, 5), torch.randn(9, 1)
            scores = torch.bmm(net["q"](frames), net["k"](frames).transpose(1, 2))
            weights = F.softmax(scores, dim=1)
            return (net["out"](torch.bmm(F.dropout(weights, 0.1), frames).mean(1)) - target).abs().mean()
{END}"""
NORMED = f"""{BEGIN}
        net = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 1))
        def objective():
            points, target = torch.randn(9, 5), torch.randn(9, 1)
            return F.mse_loss(net[1](F.normalize(net[0](points), dim=0)), target)
{END}"""
ORDER = f"""{BEGIN}
        net = nn.ModuleDict(dict(reader=nn.GRU(5, 6), out=nn.Linear(6, 3)))
        def objective():
            signal, labels = torch.randn(9, 4, 5), torch.randint(0, 3, (9, 4))
            states = net["reader"](signal.transpose(0, 1))[0]
            return F.cross_entropy(net["out"](states).flatten(0, 1), labels.flatten())
{END}"""
HEADS = f"""{BEGIN}
        net = nn.ModuleDict(dict(qkv=nn.Linear(8, 24), out=nn.Linear(8, 1)))
        def objective():
            frames, target = torch.randn(9, 5, 8), torch.randn(9)
            q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in net["qkv"](frames).chunk(3, -1))
            heads = F.scaled_dot_product_attention(q, k, v)
            return (net["out"](heads.reshape(9, 5, 8)).mean((1, 2)) - target).square().mean()
{END}"""
RESIDUAL = f"""{BEGIN}
        net = nn.ModuleDict(dict(look=nn.MultiheadAttention(8, 2, batch_first=True), out=nn.Linear(8, 1)))
        def objective():
            query, frames = torch.randn(9, 8), torch.randn(9, 5, 8)
            seen = net["look"](query[:, None], frames, frames)[0]
            both = query + seen
            return net["out"](both).square().mean()
{END}"""
EINSUM = '"btk,btv->tkv", "btk,tkv->btv"'
SUMMED = f"""{BEGIN}
        net = nn.ModuleDict(dict(key=nn.Linear(5, 6), value=nn.Linear(5, 6), out=nn.Linear(6, 1)))
        def objective():
            frames, target = torch.randn(9, 4, 5), torch.randn(9, 1)
            keys, values = net["key"](frames).softmax(-1), net["value"](frames)
            how = {EINSUM}
            state = torch.einsum(how[0], keys, values)
            return F.mse_loss(net["out"](torch.einsum(how[1], keys, state)).mean(1), target)
{END}"""
JOINED = f"""{BEGIN}
        net = nn.Linear(5, 9)
        points = torch.randn(90, 5)
        def objective():
            views = points[torch.randperm(90)[:9]]
            both = F.normalize(torch.cat([net(views), net(views + 0.1)], 0), dim=0)
            return F.cross_entropy(both @ both.t() - 9 * torch.eye(18), torch.arange(18).roll(9))
{END}"""
ONE = f"""{BEGIN}
        net = nn.ModuleDict(dict(gate=nn.Linear(5, 1), out=nn.Linear(5, 1)))
        def objective():
            frames, target = torch.randn(9, 4, 5), torch.randn(9, 1)
            gates = F.softmax(net["gate"](frames), dim=2)
            return F.mse_loss(net["out"]((gates * frames).sum(1)), target)
{END}"""
PAIRS = f"""{BEGIN}
        net = nn.ModuleDict(dict(query=nn.Linear(5, 6), key=nn.Linear(5, 6), out=nn.Linear(5, 1)))
        def objective():
            boxes, target = torch.randn(9, 4, 5), torch.randn(9, 4)
            scores = torch.einsum("nqd,mkd->nqk", net["query"](boxes), net["key"](boxes))
            return (net["out"](scores.softmax(-1) @ boxes).squeeze(-1) - target).square().mean()
{END}"""
BLOCKS = f"""{BEGIN}
        walks, kinds = torch.randn(90, 7, 5), torch.randint(0, 3, (90,))
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.lift, self.out = nn.Linear(5, 8), nn.Linear(8, 3)
                layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
                self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            def forward(self, x):
                return self.out(self.blocks(self.lift(x)).amax(1))
        net = Reader()
        def objective():
            rows = torch.randint(0, 90, (9,))
            return F.cross_entropy(net(walks[rows]), kinds[rows])
{END}"""
PLACES = f"""{BEGIN}
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.out = nn.Embedding(30, 8), nn.Linear(8, 30)
                self.look = nn.MultiheadAttention(8, 2, batch_first=True)
                self.places = nn.Parameter(torch.randn(50, 1, 8))
            def forward(self, ids):
                x = self.words(ids)
                table = self.places
                x = x + table[: x.size(0)]
                hidden = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
                return self.out(x + self.look(x, x, x, attn_mask=hidden)[0])
        net = Reader()
        def objective():
            ids = torch.randint(0, 30, (9, 7))
            return F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
{END}"""
LOADED = f"""{BEGIN}
        rows = torch.utils.data.TensorDataset(torch.randn(36, 7, 1), torch.randn(36, 1))
        batches = iter(torch.utils.data.DataLoader(rows, batch_size=9))
        net = nn.ModuleDict(dict(reader=nn.LSTM(1, 9), out=nn.Linear(9, 1)))
        def objective():
            x, y = next(batches)
            return F.mse_loss(net["out"](net["reader"](x)[0][:, -1]), y)
{END}"""
ROWS = f"""{BEGIN}
        def hidden(lengths, longest):
            rows = torch.ones(longest).bool().expand(len(lengths), -1)
            for row, length in zip(rows, lengths):
                row[:length] = False
            return rows
        net = nn.ModuleDict(dict(words=nn.Embedding(30, 8), out=nn.Linear(8, 3)))
        def objective():
            ids, lengths = torch.randint(1, 30, (9, 6)), torch.randint(2, 7, (9,)).tolist()
            pooled = net["words"](ids).masked_fill(hidden(lengths, 6).unsqueeze(-1), 0.0).sum(1)
            return F.cross_entropy(net["out"](pooled), torch.randint(0, 3, (9,)))
{END}"""
FAULTS = {
    "an einsum with a letter too many": Fault(
        "mixed-samples", "torch.einsum", "the same letter: n in place of m", "mkd", "nkd", PAIRS
    ),
    "blocks": Fault(
        "mixed-samples",
        "nn.TransformerEncoderLayer",
        "batch_first=True",
        "out=0.0",
        "out=0.0, batch_first=True",
        BLOCKS,
    ),
    "places of samples": Fault(
        "mixed-samples",
        "x = x + table",
        "table[:, : x.size(1)]",
        "table = self.places",
        "table = self.places.transpose(0, 1)[:, : x.size(1)]",
        PLACES,
    ),
    "a batch as wide as the state": Fault(
        "mixed-samples", "nn.LSTM", "batch_first=True", "LSTM(1, 9", "LSTM(1, 9, batch_first=True", LOADED
    ),
    "a sum over the batch": Fault(
        "mixed-samples", "einsum(how[0]", "Keep the dimension", EINSUM, EINSUM.replace("tkv", "btkv"), SUMMED
    ),
    "a norm over joined batches": Fault("mixed-samples", "F.normalize", "dim=-1", ", dim=0", ", dim=-1", JOINED),
    "a softmax of one": Fault("loss-input", "F.softmax", "over the steps, dim=1", "dim=2", "dim=1", ONE),
    "a recurrent layer": Fault(
        "mixed-samples", "nn.GRU", "batch_first=True", "GRU(5, 6)", "GRU(5, 6, batch_first=True)", RECURRENT
    ),
    "attention": Fault(
        "mixed-samples", "nn.Multi", "batch_first=True", "on(8, 2)", "on(8, 2, batch_first=True)", ATTENTION
    ),
    "pooling": Fault("mixed-samples", ".softmax(0)", "in place of dim=0", ".softmax(0)", ".softmax(1)", POOLING),
    "weights of queries": Fault("mixed-samples", "bmm(F.drop", "dim=-1", "scores, dim=1", "scores, dim=-1", QUERIES),
    "a norm": Fault("mixed-samples", "F.normalize", "dim=-1", "dim=0", "dim=-1", NORMED),
    "an order": Fault("mixed-samples", "F.cross", ".transpose(0, 1)", "(states)", "(states).transpose(0, 1)", ORDER),
    "heads": Fault("reshape-mixes", "heads.reshape", "(1, 2)", "heads.resh", "heads.transpose(1, 2).resh", HEADS),
    "a residual": Fault("broadcast", "both = ", ".squeeze(1)", "query + seen", "query + seen.squeeze(1)", RESIDUAL),
}


@pytest.mark.parametrize("name", FAULTS)
def test_found_at_its_line_and_healed(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


MEANT = {
    "expanded rows that are only read, or copied before they are written to": """
        net = nn.Linear(5, 1)
        def objective():
            rows = torch.zeros(1, 5).expand(9, 5)
            mask, last = rows.clone(), rows[3]
            mask[2, :3] = 1
            mask[4].fill_(0.5)
            return net(torch.randn(9, 5) + mask + last).square().mean()
""",
    "the sum of all similarities": """
        net = nn.ModuleDict(dict(q=nn.Linear(5, 6), k=nn.Linear(5, 6)))
        def objective():
            points = torch.randn(9, 5)
            return torch.einsum("id,jd->i", net["q"](points), net["k"](points)).square().mean()
""",
    "every sample with every other one, over its steps": """
        net = nn.ModuleDict(dict(q=nn.Linear(5, 6), k=nn.Linear(5, 6)))
        def objective():
            texts, pictures = torch.randn(9, 4, 5), torch.randn(9, 7, 5)
            scores = torch.einsum("aid,bjd->abij", net["q"](texts), net["k"](pictures))
            return F.cross_entropy(scores.amax(3).mean(2), torch.arange(9))
""",
    "picked days, steps first": """
        net = nn.ModuleDict(dict(reader=nn.GRU(5, 6), out=nn.Linear(6, 1)))
        days, target = torch.randn(30, 7, 5), torch.randn(30, 7)
        def objective():
            rows = slice(3, 12)
            return (net["out"](net["reader"](days[rows])[0]).squeeze(2) - target[rows]).square().mean()
""",
    "places of steps, steps first": """
        net = nn.ModuleDict(dict(words=nn.Embedding(30, 8), look=nn.MultiheadAttention(8, 2), out=nn.Linear(8, 30)))
        places = torch.randn(50, 1, 8)
        def objective():
            tokens = torch.randint(0, 30, (8, 9))
            x = net["words"](tokens[:-1])
            x = x + places[: x.size(0)]
            hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
            return F.cross_entropy(net["out"](net["look"](x, x, x, attn_mask=hidden)[0]).flatten(0, 1), tokens[1:].flatten())
""",
    "one state for all steps, steps first": """
        net = nn.ModuleDict(dict(words=nn.Embedding(30, 8), reader=nn.LSTM(8, 8), out=nn.Linear(8, 30)))
        def objective():
            tokens = torch.randint(0, 30, (7, 9))
            states, (last, _) = net["reader"](net["words"](tokens))
            return F.cross_entropy(net["out"](net["reader"](states + last[0])[0]).flatten(0, 1), tokens.flip(0).flatten())
""",
    "each step with each symbol": """
        net = nn.ModuleDict(dict(reader=nn.LSTM(5, 8, batch_first=True), words=nn.Embedding(6, 8), out=nn.Linear(8, 6)))
        def objective():
            frames, symbols = torch.randn(2, 7, 5), torch.randint(0, 6, (2, 3))
            both = net["reader"](frames)[0].unsqueeze(2) + net["words"](symbols).unsqueeze(1)
            return -net["out"](both).log_softmax(-1)[:, -1, -1, 0].mean()
""",
    "every text with every picture": """
        net = nn.ModuleDict(dict(a=nn.Linear(5, 6), b=nn.Linear(4, 6)))
        def objective():
            a, b = net["a"](torch.randn(9, 5)), net["b"](torch.randn(9, 4))
            scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t()
            return F.cross_entropy(scores, torch.arange(9)) + F.cross_entropy(scores.t(), torch.arange(9))
""",
    "one bag of instances": """
        net = nn.ModuleDict(dict(score=nn.Linear(5, 1), out=nn.Linear(5, 1)))
        def objective():
            bag = torch.randn(9, 5)
            weights = net["score"](bag).softmax(0)
            return F.binary_cross_entropy_with_logits(net["out"]((weights * bag).sum(0)), torch.ones(1))
""",
    "slots compete for frames": """
        net = nn.ModuleDict(dict(k=nn.Linear(5, 6), slots=nn.Embedding(3, 6), out=nn.Linear(5, 1)))
        def objective():
            frames, target = torch.randn(9, 4, 5), torch.randn(9, 1)
            weights = (net["slots"].weight.expand(9, 3, 6) @ net["k"](frames).transpose(1, 2)).softmax(1)
            weights = weights / weights.sum(-1, keepdim=True)
            return F.mse_loss(net["out"]((weights @ frames).mean(1)), target)
""",
    "steps first, in all of it": """
        net = nn.ModuleDict(dict(words=nn.Embedding(30, 8), reader=nn.LSTM(8, 6), out=nn.Linear(6, 30)))
        def objective():
            tokens = torch.randint(0, 30, (7, 9))
            return F.cross_entropy(net["out"](net["reader"](net["words"](tokens))[0]).view(-1, 30), tokens.roll(-1, 0).view(-1))
""",
    "one long series": """
        net = nn.ModuleDict(dict(reader=nn.LSTM(3, 6), out=nn.Linear(6, 1)))
        def objective():
            series, target = torch.randn(20, 3), torch.randn(20)
            return F.mse_loss(net["out"](net["reader"](series)[0]).squeeze(1), target)
""",
    "sizes that are equal": """
        net = nn.ModuleDict(dict(score=nn.Linear(5, 1), out=nn.Linear(5, 1)))
        def objective():
            frames, target = torch.randn(4, 4, 5), torch.randn(4, 1)
            return F.mse_loss(net["out"]((net["score"](frames).softmax(1) * frames).sum(1)), target)
""",
    "patches": """
        net = nn.Linear(12, 1)
        def objective():
            images, target = torch.randn(9, 3, 4, 4), torch.randn(9)
            patches = images.view(9, 3, 2, 2, 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(9, 4, 12)
            return F.mse_loss(net(patches).mean((1, 2)), target)
""",
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(f"{BEGIN}{MEANT[name]}{END}", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "cut"),
    [
        ((8, 5, 3), (40, 3), False),
        ((8, 30), (8, 5, 6), False),
        ((7, 8, 12), (7, 32, 3), False),
        ((8, 5, 3), (8, 3, 5), True),
        ((6, 3, 32, 32), (6, 16, 192), True),
        ((2, 16, 8, 2, 16, 2), (2, 16, 16, 32), False),
    ],
)
def test_a_reshape_that_cuts_across(old: tuple[int, ...], new: tuple[int, ...], cut: bool) -> None:
    assert cuts_samples(old, new) == cut


@pytest.mark.parametrize(
    ("name", "arguments", "place"),
    [
        ("transpose", (1, 2), 1),
        ("permute", (2, 1, 0), 15),
        ("flatten", (), 1),
        ("sum", (1,), 1),
        ("sum", (0,), None),
        ("flip", (0,), None),
    ],
)
def test_a_dimension_is_followed(name: str, arguments: tuple[int, ...], place: int | None) -> None:
    torch = pytest.importorskip("torch")
    before = torch.zeros(8, 5, 3)
    after = (
        getattr(before, name)((0,) if name == "flip" else arguments)
        if name in ("flip", "permute")
        else getattr(before, name)(*arguments)
    )
    dim = arguments[0] if arguments else None
    assert followed(name, (8, 1), tuple(before.shape), tuple(after.shape), (before, *arguments), dim) == place
