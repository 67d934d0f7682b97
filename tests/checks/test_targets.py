"""What losses are given to compare with: it is found where it teaches something else, and what looks alike is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

_CTC = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    BLANK = {blank}
    net = nn.LSTM(5, 6)
    loss_of = nn.CTCLoss(blank=BLANK)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(4):
        words = torch.randint({first}, {end}, (8, 3))
        scores = net(torch.randn(12, 8, 5))[0].log_softmax(2)
        error = loss_of(scores, words, torch.full((8,), 12), torch.tensor([3, 2] * 4))
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
"""
_PAIRS = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    net = nn.Linear(5, 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(4):
        one, other = net(torch.randn(12, 5)), net(torch.randn(12, 5))
        alike = {alike}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_COSINE = "nn.CosineEmbeddingLoss()(one, other, alike)"
_BITS = "torch.randint(0, 2, (12,))"
_TABLE = """
    import torch
    torch.manual_seed(0)
    features = torch.randn(64, 4)
    grades = 2 * torch.sigmoid(features.sum(1))

    class Grades(torch.utils.data.Dataset):
        def __len__(self):
            return len(grades)

        def __getitem__(self, i):
            return features[i], {item}

    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in torch.utils.data.DataLoader(Grades(), batch_size=16):
        loss = torch.nn.functional.{loss}(net(x).flatten(), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_SORTED = """
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence
    torch.manual_seed(0)
    rnn, head = torch.nn.GRU(3, 6, batch_first=True), torch.nn.Linear(6, 2)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
    for _ in range(3):
        lengths, x, y = torch.randint(2, 9, (12,)), torch.randn(12, 9, 3), torch.randint(2, (12,))
        order = lengths.argsort(descending=True)
        x = x[order]; lengths = lengths[order]{more}
        state = rnn(pack_padded_sequence(x, lengths, batch_first=True))[1][-1]{back}
        loss = torch.nn.functional.cross_entropy(head(state), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_WEIGHTS = """
    import torch
    torch.manual_seed(0)
    words, query, head = torch.nn.Embedding(9, 6), torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)
    optimizer = torch.optim.Adam([*words.parameters(), *query.parameters(), *head.parameters()])
    for _ in range(3):
        mask = (torch.arange(7) < torch.randint(2, 8, (8, 1))).float()
        x = words(torch.randint(1, 9, (8, 7)) * mask.long())
        scores = query(x).squeeze(2)
        {weights}
        loss = (head((weights.unsqueeze(2) * x).sum(1)).squeeze(1) - torch.randn(8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_LAST = """
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
    torch.manual_seed(0)
    rnn, head = torch.nn.LSTM(3, 6, batch_first=True), torch.nn.Linear(6, 2)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
    for _ in range(3):
        lengths, x = torch.tensor({lengths}), torch.randn(6, 8, 3)
        packed, (state, _) = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        output, _ = pad_packed_sequence(packed, batch_first=True)
        loss = torch.nn.functional.cross_entropy(head(output[:, -1]), torch.randint(2, (6,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_STORED = """
    import torch
    torch.manual_seed(0)
    signals, labels = torch.randn(48, 6), torch.randint(2, (48,))
    net = torch.nn.Linear(6, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def shaken(batch):
        {change}
        return batch

    for epoch in range(3):
        for start in range(0, 48, 12):
            {batch}
            loss = torch.nn.functional.cross_entropy(net(x), labels[start : start + 12])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_LOADED = """
    import torch
    torch.manual_seed(0)

    class Waves(torch.utils.data.Dataset):
        def __init__(self):
            self.waves = torch.randn(24, 5)

        def __len__(self):
            return 24

        def __getitem__(self, i):
            wave = {wave}
            wave *= torch.rand(1) + 0.5
            return wave, wave.sum() * 0 + i % 2

    net = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Waves(), batch_size=8)
    for _ in range(3):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(net(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
_FOCAL = """
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        errors = F.cross_entropy(net(torch.randn(16, 4)), torch.randint(3, (16,)), reduction="none")
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_CLOCK = """
    import torch
    torch.manual_seed(0)
    clock = {origin} + torch.arange(40) * 7
    times = clock{cast}
    x = ((times - times.min()) / (times.max() - times.min())).float().unsqueeze(1)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        loss = (net(x) - x.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

FAULTS = {
    "pairs that are 0 or 1": Fault(
        "useless-labels", "loss = ", "2 * target - 1", "(12,))", "(12,)) * 2 - 1", _PAIRS.format(alike=_BITS, loss=_COSINE)
    ),
    "an order that is 0 or 1": Fault(
        "useless-labels", "loss = ", "2 * target - 1", "(12,))", "(12,)) * 2 - 1",
        _PAIRS.format(alike=_BITS, loss="nn.functional.margin_ranking_loss(one.mean(1), other.mean(1), alike)"),
    ),
    "a label that is the blank": Fault(
        "useless-labels", "nn.CTCLoss(", "pass blank=5", "BLANK = 0", "BLANK = 5", _CTC.format(blank=0, first=0, end=5)
    ),
    "a mask as a factor of scores": Fault(
        "inverted-mask", "scores * mask", "masked_fill(mask == 0", "scores * mask", "scores.masked_fill(mask == 0, float('-inf'))",
        _WEIGHTS.format(weights="weights = torch.softmax(scores * mask, 1)"),
    ),
    "the last step of what was unpacked": Fault(
        "padding-counted", "output[:, -1]", "lengths - 1", "output[:, -1]", "output[torch.arange(6), lengths - 1]",
        _LAST.format(lengths=[3, 8, 5, 2, 6, 4]),
    ),
    "noise that stays in the data": Fault(
        "lost-numbers", "batch += ", ".clone()", "(signals[start : start + 12])", "(signals[start : start + 12].clone())",
        _STORED.format(change="batch += 0.1 * torch.randn_like(batch)", batch="x = shaken(signals[start : start + 12])"),
    ),
    "a gain that stays in the data set": Fault(
        "lost-numbers", "wave *= ", ".clone()", "wave = self.waves[i]", "wave = self.waves[i].clone()",
        _LOADED.format(wave="self.waves[i]")
    ),
}  # fmt: skip
RIGHT = {
    "pairs that are all alike": _PAIRS.format(alike="torch.ones(12)", loss=_COSINE),
    "pairs that are all different": _PAIRS.format(
        alike="-torch.ones(12)", loss="nn.HingeEmbeddingLoss()((one - other).norm(dim=1), alike)"
    ),
    "an order that is not known for some": _PAIRS.format(
        alike="torch.randint(-1, 2, (12,))", loss="nn.functional.margin_ranking_loss(one.mean(1), other.mean(1), alike)"
    ),
    "bits that a cross entropy expects": _PAIRS.format(
        alike=_BITS, loss="nn.functional.binary_cross_entropy_with_logits((one * other).sum(1), alike.float())"
    ),
    "a perplexity": _FOCAL.format(loss="loss = errors.mean(); print(loss.exp().item())"),
    "seconds of a day": _CLOCK.format(origin=40_000, cast=".float()"),
    "large numbers that differ by more": _CLOCK.format(origin="1_600_000_000 + 1_000_000 * torch.arange(40)", cast=".float()"),
    "a buffer whose parts are filled anew": _STORED.format(
        change="batch -= batch.mean(); batch /= batch.std()",
        batch="signals[start : start + 12] = torch.randn(12, 6); x = shaken(signals[start : start + 12])"
    ),
    "a batch that was copied": _STORED.format(
        change="batch[:, 2:4] = 0", batch="x = shaken(signals[torch.arange(start, start + 12)])"
    ),
    "micro batches of new data": _STORED.format(
        change="batch += 0.1", batch="new = torch.randn(48, 6); x = shaken(new[start : start + 12])"
    ),
    "data that is scaled once": _STORED.format(change="pass", batch="x = signals[start : start + 12]").replace(
        "    def shaken", "    for row in signals:\n        row /= row.norm()\n\n    def shaken"
    ),
    "a blank that is no label": _CTC.format(blank=0, first=1, end=6),
    "bins of numbers as classes": _TABLE.format(item="(grades * 3).long()[i]", loss="cross_entropy").replace(
        "net(x).flatten(), y.float()", "net(x), y"
    ).replace("Linear(4, 1)", "Linear(4, 6)"),
    "grades that were whole numbers": _TABLE.format(item="torch.round(grades).long()[i]", loss="mse_loss"),
    "scores of five in steps": _TABLE.format(item="(grades * 5).long()[i]", loss="mse_loss"),
    "the order is put back": _SORTED.format(more="", back="[order.argsort()]"),
    "a mask that is applied again": _WEIGHTS.format(
        weights="weights = torch.softmax(scores * mask, 1) * mask; weights = weights / weights.sum(1, keepdim=True)"
    ),
    "a mask that makes a difference": _WEIGHTS.format(weights="weights = torch.softmax(scores * mask - 1e9 * (1 - mask), 1)"),
    "sequences of one length": _LAST.format(lengths=[8] * 6),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
