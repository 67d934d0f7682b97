"""Scripts about which nothing is said: what nobody asked for, and what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import alarms
from tests.checks.left_alone import LEFT_ALONE
from tests.rows import every_other


@pytest.mark.parametrize("id", every_other(LEFT_ALONE))
def test_nothing_is_said_of_it(id: str, tmp_path: Path) -> None:
    assert not alarms(LEFT_ALONE[id], tmp_path)


@pytest.mark.parametrize("written_to", ["parameter", "parameter.data"])
def test_an_update_by_hand_is_left_alone(written_to: str, tmp_path: Path) -> None:
    script = f"""
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    {written_to} -= optimizer.param_groups[0]["lr"] * parameter.grad
    """
    assert not alarms(script, tmp_path)
