"""What tests of compiled functions share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch._functorch.config


@pytest.fixture(autouse=True)
def inductors_folder_is_taken_off_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor puts the folder of its cache on `sys.path` when it first compiles, in whichever test that is."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(autouse=True)
def budget() -> Iterator[None]:
    """A sample that another test has run in this process sets it, as a script may: what backward keeps would be other tensors."""
    with torch._functorch.config.patch(activation_memory_budget=1.0):
        yield
