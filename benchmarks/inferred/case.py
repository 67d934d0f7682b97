"""What a model to compare on is: a function that makes a module, and another that runs it to a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

Case = Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]


def summed(make: Callable[[], nn.Module], *shape: int) -> Case:
    """A model with one input of random numbers, and the sum of its output as loss."""

    def case() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        model = make()
        return model, lambda: model(torch.randn(*shape)).sum()

    return case
