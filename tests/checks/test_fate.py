"""Which lines of a class make a part of it."""

from __future__ import annotations

import torch

from gradviz.cuts.classes import forward_of, made_at


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Net(Base):
    def build(self) -> None:
        self.second = torch.nn.Linear(1, 1)


def test_the_lines_that_make_a_part_and_use_it() -> None:
    made = [made_at(Net, name) for name in ("first", "second", "third")]
    assert [one.text if one is not None else None for one in made] == [
        "self.first = torch.nn.Linear(1, 1)",
        "self.second = torch.nn.Linear(1, 1)",
        None,
    ]
    forward = forward_of(Net)
    assert forward is not None and forward.text.startswith("def forward(")
