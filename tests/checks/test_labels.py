"""Padding that counts and labels that teach nothing are found, and what is right is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, lists

from gradviz.checks.collect.labels import Padding, padding_of
from tests.checks.advice import Fault, alarms, shows_and_heals

FAULTS = {
    "a tagger whose batches are padded by hand": Fault(
        "padding-counted",
        "loss = F.cross_entropy(self(ids).transpose(1, 2), tags)",
        "Pass ignore_index=7",
        "transpose(1, 2), tags)",
        "transpose(1, 2), tags, ignore_index=7)",
        """
        import torch
        import torch.nn.functional as F

        class Tagger(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.tags = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 8)

            def forward(self, ids):
                return self.tags(self.words(ids))

            def training_step(self, ids, tags):
                loss = F.cross_entropy(self(ids).transpose(1, 2), tags)
                return loss

        def collate(lengths):
            ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
            tags = torch.full_like(ids, 7)
            for row, length in enumerate(lengths):
                ids[row, :length] = torch.randint(1, 30, (length,))
                tags[row, :length] = torch.randint(7, (length,))
            return ids, tags

        model = Tagger()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for lengths in ([3, 9, 5], [7, 4, 6], [8, 2, 5]):
            opt.zero_grad()
            model.training_step(*collate(lengths)).backward()
            opt.step()
        """,
    ),
    "a reconstruction under a mask that is filled": Fault(
        "padding-counted",
        "return error.masked_fill(~mask.unsqueeze(-1), 0.0).mean()",
        ".sum() / mask.sum()",
        "0.0).mean()",
        "0.0).sum() / mask.sum()",
        """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.Adam(net.parameters())

        def masked_error(x, y, lengths):
            mask = torch.arange(x.shape[1])[None, :] < lengths[:, None]
            error = (net(x) - y).abs()
            return error.masked_fill(~mask.unsqueeze(-1), 0.0).mean()

        for _ in range(3):
            loss = masked_error(torch.randn(5, 8, 4), torch.randn(5, 8, 1), torch.randint(1, 7, (5,)))
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "the last output of a padded batch": Fault(
        "padding-counted",
        "scores = head(out[:, -1])",
        "lengths - 1",
        "out[:, -1]",
        "out[torch.arange(len(lengths)), torch.tensor(lengths) - 1]",
        """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        emb, rnn, head = torch.nn.Embedding(50, 8), torch.nn.LSTM(8, 8, batch_first=True), torch.nn.Linear(8, 2)
        opt = torch.optim.Adam([*emb.parameters(), *rnn.parameters(), *head.parameters()])
        for lengths in ([3, 9, 5], [7, 4, 6], [8, 2, 5]):
            x = pad_sequence([torch.randint(1, 50, (n,)) for n in lengths], batch_first=True)
            out, _ = rnn(emb(x))
            scores = head(out[:, -1])
            loss = torch.nn.functional.cross_entropy(scores, torch.randint(2, (3,)))
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "a mean of word vectors": Fault(
        "padding-counted",
        "vectors = self.words(ids).mean(1)",
        "mask = ids != 0",
        "vectors = self.words(ids).mean(1)",
        "mask = (ids != 0).float(); vectors = (self.words(ids) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)",
        """
        import torch

        class Bag(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = torch.nn.Embedding(40, 8), torch.nn.Linear(8, 3)

            def forward(self, ids):
                vectors = self.words(ids).mean(1)
                return self.head(vectors)

        bag = Bag()
        opt = torch.optim.SGD(bag.parameters(), lr=0.1)
        texts = torch.tensor([[5, 9, 3, 21, 8], [7, 2, 0, 0, 0], [11, 4, 30, 0, 0], [6, 0, 0, 0, 0]])
        for _ in range(3):
            opt.zero_grad()
            torch.nn.functional.cross_entropy(bag(texts), torch.tensor([0, 2, 1, 1])).backward()
            opt.step()
        """,
    ),
    "a background that is a class": Fault(
        "useless-labels",
        "loss = F.nll_loss(F.log_softmax(net(x), 1), y, ignore_index=0)",
        "Leave out ignore_index=0",
        ", ignore_index=0",
        "",
        """
        import torch
        import torch.nn.functional as F
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        opt = torch.optim.Adam(net.parameters())
        for _ in range(3):
            x = torch.randn(16, 3)
            y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
            loss = F.nll_loss(F.log_softmax(net(x), 1), y, ignore_index=0)
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
}
RIGHT = {
    "a language model that leaves padding out, and a mean over what is left": """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        emb, rnn, head = torch.nn.Embedding(20, 8, padding_idx=0), torch.nn.GRU(8, 8, batch_first=True), torch.nn.Linear(8, 20)
        opt = torch.optim.Adam([*emb.parameters(), *rnn.parameters(), *head.parameters()])
        for lengths in ([3, 9, 5], [7, 4, 6], [8, 2, 5]):
            x = pad_sequence([torch.randint(1, 20, (n,)) for n in lengths], batch_first=True)
            out, _ = rnn(emb(x[:, :-1]))
            y = x[:, 1:].reshape(-1)
            mask = (x[:, 1:] != 0).float()
            plain = torch.nn.functional.cross_entropy(head(out).reshape(-1, 20), y, ignore_index=0)
            single = torch.nn.functional.cross_entropy(head(out).reshape(-1, 20), y, reduction="none").view_as(mask)
            even = (single * mask).mean() / mask.mean()
            pooled = (out * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
            loss = plain + (single * mask).sum() / mask.sum() + even + pooled.square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "parts of one text whose columns end alike by chance, and sorted numbers": """
        import torch
        text = torch.tensor([0, 3, 1, 7, 2, 8, 4, 6, 5] * 60).view(4, -1).t()
        emb, head = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)
        opt = torch.optim.Adam([*emb.parameters(), *head.parameters()])
        numbers = torch.tensor([[3, 7, 0, 7], [7, 5, 7, 7], [1, 7, 2, 4]])
        for _ in range(3):
            for i in range(0, len(text) - 1, 10):
                x, y = text[i : i + 10], text[i + 1 : i + 11]
                opt.zero_grad()
                torch.nn.functional.cross_entropy(head(emb(x[: len(y)])).view(-1, 9), y.reshape(-1)).backward()
                opt.step()
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(emb(numbers)).flatten(0, 1), numbers.sort(1).values.flatten())
            loss.backward()
            opt.step()
    """,
    "a contrastive loss, and labels that are 0 and 1 by chance": """
        import torch
        net = torch.nn.Linear(3, 8)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            q, k = net(torch.randn(32, 3)), net(torch.randn(32, 3))
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ net(torch.randn(5, 3)).t()], 1)
            labels = torch.zeros(32, dtype=torch.long)
            confident = (torch.rand(32) > 0.5).float()
            two = torch.nn.functional.cross_entropy(q, torch.randint(2, (32,)), reduction="none")
            loss = torch.nn.functional.cross_entropy(scores, labels) + (two * confident).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "pixels without a label, and tokens of one length": """
        import torch
        net, emb = torch.nn.Conv2d(3, 4, 1), torch.nn.Embedding(30, 3)
        opt = torch.optim.SGD([*net.parameters(), *emb.parameters()], lr=0.1)
        for _ in range(3):
            tokens = torch.randint(30, (4, 6))
            y = torch.randint(4, (2, 5, 5))
            y[:, :2] = 0
            loss = torch.nn.functional.cross_entropy(net(torch.randn(2, 3, 5, 5)), y, ignore_index=0)
            loss = loss + emb(tokens).mean(1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


def test_a_batch_whose_labels_are_all_ignored(tmp_path: Path) -> None:
    script = """
        import torch
        net = torch.nn.Linear(3, 4)
        for labels in ([0, 3, 1], [2, -100, 1], [-100, -100, -100]):
            loss = torch.nn.functional.cross_entropy(net(torch.randn(3, 3)), torch.tensor(labels))
            net.zero_grad()
            loss.backward()
    """
    found = {one["id"]: one for one in alarms(script, tmp_path)}
    assert "all 3 labels of a batch are ignored" in found["useless-labels"]["summary"]
    assert found["useless-labels"]["line"] == 5


@given(lists(integers(0, 9), min_size=2, max_size=6))
def test_padding_is_what_ends_rows_and_is_nowhere_else(lengths: list[int]) -> None:
    rows = torch.arange(1, 1 + 10 * len(lengths)).reshape(-1, 10)
    rows[torch.arange(10) >= torch.tensor(lengths)[:, None]] = 0
    missing = [10 - length for length in lengths]
    known = len(set(missing)) > 1
    assert padding_of(rows) == (Padding(0, sum(missing), 10 * len(rows), len(rows), len(rows)) if known else None)
    rows[0, 0], rows[0, 1] = 0, 5
    assert padding_of(rows) is None
