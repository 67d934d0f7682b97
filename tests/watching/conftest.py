"""Every step has its numbers and every look is taken, however busy the machine is; tests of the limits set their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.watching.steps.FREE", 1e9)
    monkeypatch.setattr("gradviz.watching.watch._FREE", 1e9)
