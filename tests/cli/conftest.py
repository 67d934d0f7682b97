"""Fixtures of the command line's tests: commands run in this process, and proof that they left it as it was."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.command_line import CliRunner, Result

Gradviz = Callable[..., Result]


def _state() -> dict[str, Any]:
    """What running a user's script may not change for this process."""
    return {
        "argv": list(sys.argv),
        "path": list(sys.path),
        "path list": id(sys.path),
        "main": id(sys.modules["__main__"]),
        "folder": os.getcwd(),
        "streams": (id(sys.stdin), id(sys.stdout), id(sys.stderr)),
        "descriptors": tuple(os.fstat(number)[:3] for number in (0, 1, 2)),
        "hooks": (sys.excepthook, threading.excepthook),
        "finders": list(sys.meta_path),
        "engine": (torch.autograd._engine_run_backward, torch.autograd.graph._engine_run_backward),
        "tracing": (sys.gettrace(), sys.getprofile()),
    }


@pytest.fixture(autouse=True)
def unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder, and fail when something of this process was changed."""
    monkeypatch.chdir(tmp_path)
    before = _state()
    yield
    assert _state() == before


@pytest.fixture
def gradviz() -> Gradviz:
    """Runs the command line in this process."""
    from gradviz.cli.main import cli

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="gradviz")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run
