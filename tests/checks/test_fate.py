"""Which lines of a class make a part of it."""

from __future__ import annotations

from pathlib import Path

import torch

from gradviz.cuts.classes import made_at
from tests.checks.test_scripts import check, written


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Net(Base):
    def build(self) -> None:
        self.second = torch.nn.Linear(1, 1)


def test_the_lines_that_make_a_part() -> None:
    made = [made_at(Net, name) for name in ("first", "second", "third")]
    assert [one.text if one is not None else None for one in made] == [
        "self.first = torch.nn.Linear(1, 1)",
        "self.second = torch.nn.Linear(1, 1)",
        None,
    ]


UNREAD = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.spare = torch.nn.Parameter(torch.ones(3))

    @torch.jit.ignore
    def forward(self, x):
        return x * self.weight

net = Net()
net(torch.ones(3)).sum().backward()
"""


def test_the_forward_that_never_reads_a_parameter_is_named(tmp_path: Path) -> None:
    ((finding, *others), _) = check(written(tmp_path, UNREAD))
    assert not others and finding["names"] == ["net.spare"]
    assert "never reads this parameter" in finding["why"] and "script.py:11, or remove" in finding["fix"]
