"""What gradviz puts in place while a script runs does not get into what is compiled, nor break it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._dynamo.utils import graph_break_reasons

from tests.checks.test_scripts import check, written

STEPS = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.01))

@torch.compile(backend="aot_eager")
def step():
    optimizer.step()

for _ in range(3):
    loss = net(torch.ones(2, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    step()
"""


@pytest.mark.slow
def test_a_compiled_step_is_counted_and_no_hook_is_compiled_into_it(tmp_path: Path) -> None:
    before = len(graph_break_reasons)
    assert check(written(tmp_path, STEPS)) == ([], 0)
    assert not [reason for reason in graph_break_reasons[before:] if "gradviz" in str(reason.user_stack)]


def test_an_optimizer_that_takes_no_step_is_still_named(tmp_path: Path) -> None:
    (found,), _ = check(
        written(
            tmp_path, STEPS.replace("    step()\n", "    fast = torch.compile(torch.sin, backend='aot_eager')(loss)\n")
        )
    )
    assert found["id"] == "idle-optimizer"
