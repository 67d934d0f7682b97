"""How predictions are counted: a wrong way is found at its line and healed by the advice; the right ways are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

LOOP = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        torch.manual_seed(1)
        x = torch.randn(96, 5)
        loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).{kind}()), batch_size=16)
        net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, {scores}))
        measure = nn.{loss}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def share_right():
            right, seen = 0, 0
            net.eval()
            with torch.no_grad():
                for x, y in loader:
                    scores = net(x)
                    {count}
                    seen += len(y)
            net.train()
            return {share}

        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                loss = measure(net(x){squeezed}, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                {added}
            print(epoch, share_right(), {mean})
"""


def _script(
    count: str,
    share: str = "right / seen",
    added: str = "total += loss.item()",
    mean: str = "total / len(loader)",
    **loss: str,
) -> str:
    two = {"kind": "long", "scores": "2", "loss": "CrossEntropyLoss()", "squeezed": ""}
    return LOOP.format(**two | loss, count=count, share=share, added=added, mean=mean)


ONE = {"kind": "float", "scores": "1", "loss": "BCEWithLogitsLoss()", "squeezed": ".squeeze(1)"}
RIGHT = "right += (scores.argmax(1) == y).sum().item()"
FAULTS = {
    "half of a logit": Fault(
        "wrong-metric",
        "> 0.5",
        "right += ((scores[:, 0] > 0) == y.bool()).sum().item()",
        "> 0.5",
        "> 0",
        _script("right += ((scores[:, 0] > 0.5) == y.bool()).sum().item()", **ONE),
    ),
    "a rounded logit": Fault(
        "wrong-metric",
        "round()",
        "torch.sigmoid()",
        "scores.round()",
        "scores.sigmoid().round()",
        _script("right += (scores.round().squeeze(1) == y).sum().item()", **ONE),
    ),
    "every probability is above zero": Fault(
        "wrong-metric",
        "sigmoid() > 0",
        "between 0 and 1",
        "sigmoid() > 0",
        "sigmoid() > 0.5",
        _script("right += ((scores.sigmoid() > 0).squeeze(1) == y.bool()).sum().item()", **ONE),
    ),
    "one score to choose from": Fault(
        "wrong-metric", "argmax(1)", "scores > 0", "scores.argmax(1)", "(scores > 0).squeeze(1)", _script(RIGHT, **ONE)
    ),
    "the largest scores": Fault(
        "wrong-metric",
        "max(1)",
        "_, chosen = scores.max(1)",
        "chosen, _ =",
        "_, chosen =",
        _script("chosen, _ = scores.max(1); right += (chosen == y).sum().item()"),
    ),
    "data of another scale": Fault(
        "wrong-metric",
        "scores = net(x * 50 + 9)",
        "Prepare both alike",
        "net(x * 50 + 9)",
        "net(x * 5)",
        _script(RIGHT).replace("scores = net(x)", "scores = net(x * 50 + 9)"),
    ),
    "a count by batches": Fault(
        "wrong-metric",
        "return 100 * right",
        "return 100 * right / len(loader.dataset)",
        "right / len(loader)",
        "right / len(loader.dataset)",
        _script(RIGHT, "100 * right / len(loader)"),
    ),
    "means by samples": Fault(
        "wrong-metric",
        "print(",
        "total / len(loader))",
        "total / len(loader.dataset)",
        "total / len(loader)",
        _script(RIGHT, mean="total / len(loader.dataset)"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_found_at_its_line_and_healed(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


MEANT = {
    "samples by samples, in two divisions": _script(RIGHT, "right / len(loader) / loader.batch_size"),
    "shares by batches": _script("right += (scores.argmax(1) == y).float().mean().item()", "right / len(loader)"),
    "shares of a batch by batches": _script(
        "right += (scores.argmax(1) == y).sum().item() / len(y)", "right / len(loader)"
    ),
    "sums by samples": _script(RIGHT, mean="total / len(loader.dataset)", loss="CrossEntropyLoss(reduction='sum')"),
    "means times samples": _script(RIGHT, added="total += loss.item() * len(y)", mean="total / len(loader.dataset)"),
    "half of a probability": _script("right += ((scores.sigmoid() > 0.5).squeeze(1) == y.bool()).sum().item()", **ONE),
    "another threshold": _script("right += ((scores[:, 0] > 1.5) == y.bool()).sum().item()", **ONE),
    "half of what is no logit": _script(
        "right += ((scores[:, 0] > 0.5) == y.bool()).sum().item()", **ONE | {"loss": "MSELoss()"}
    ),
    "the largest of the scores": _script("right += (scores == scores.max(1, keepdim=True)[0]).sum().item() * 0"),
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(MEANT[name].replace("\n        ", "\n"), tmp_path)
