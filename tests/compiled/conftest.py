"""What tests of compiled functions share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def inductors_folder_is_taken_off_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor puts the folder of its cache on `sys.path` when it first compiles, in whichever test that is."""
    monkeypatch.setattr(sys, "path", list(sys.path))
