"""The check that nothing stays installed can itself fail."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

import pytest
import torch

Measure = Callable[[Callable[[], object]], list[str]]


def _pack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@pytest.mark.parametrize(
    ("name", "install", "undo"),
    [
        ("gc.isenabled()", gc.disable, gc.enable),
        ("sys.argv", lambda: sys.argv.append("more"), lambda: sys.argv.pop()),
        ("the working directory", lambda: os.chdir(".."), None),
        pytest.param(
            "saved tensor hooks",
            lambda: torch._C._autograd._push_saved_tensors_default_hooks(_pack, _pack),
            lambda: torch._C._autograd._pop_saved_tensors_default_hooks(),
            marks=pytest.mark.skipif(
                not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"), reason="this torch does not tell"
            ),
        ),
        ("Tensor.backward", lambda: setattr(torch.Tensor, "backward", _pack), None),
        ("torch.autograd.grad", lambda: setattr(torch.autograd, "grad", _pack), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stays_installed_is_seen(
    name: str, install: Callable[[], object], undo: Callable[[], object] | None, leaves_behind: Measure
) -> None:
    here, backward, grad = os.getcwd(), torch.Tensor.backward, torch.autograd.grad
    try:
        assert leaves_behind(install) == [name]
    finally:
        if undo is not None:
            undo()
        os.chdir(here)
        torch.Tensor.backward, torch.autograd.grad = backward, grad  # type: ignore[method-assign]
