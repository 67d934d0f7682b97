"""Whose a file is, by one rule for all who ask."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import functorch
import pytest
import torch

import gradviz
from gradviz.packages import is_foundation, package_of
from gradviz.run import engine
from gradviz.run.engine import call_place
from gradviz.variables.scanner import variables_at


def called_by(file: str, inner: Callable[[], Any]) -> Callable[[], Any]:
    """A function of this file that calls another one."""
    scope: dict[str, Any] = {"inner": inner, "__file__": file}
    exec(compile("def called():\n    here = __file__\n    return inner()\n", file, "exec"), scope)
    made: Callable[[], Any] = scope["called"]
    return made


@pytest.mark.parametrize("module", [torch.nn.functional, functorch, gradviz, engine, threading, os])
def test_what_the_users_code_stands_on_is_nobodys_line(module: Any) -> None:
    """Not of the variables that name things, and not where a call is said to be."""
    file = module.__file__
    assert is_foundation(file) and package_of(file)
    frame = called_by("train.py", called_by(file, sys._getframe))()
    assert frame.f_code.co_filename == file
    outermost = sys._getframe().f_code
    assert call_place(frame, outermost) == "train.py:3"
    assert [space["here"] for space in variables_at(frame, {}, outermost) if "here" in space] == ["train.py"]


@pytest.mark.parametrize(
    "file", ["train.py", "<stdin>", "<string>", pytest.__file__, "/x/site-packages/torchvision/a.py"]
)
def test_scripts_and_other_libraries_call_torch(file: str) -> None:
    assert not is_foundation(file)


def test_a_script_called_torch_is_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"], "__file__", "/home/me/torch.py")
    assert package_of("/home/me/others.py") == ""


def test_a_torch_that_runs_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"], "__file__", "/home/me/pytorch/torch/__init__.py")
    assert package_of("/home/me/pytorch/torch/nn/modules/linear.py") == "torch"
    assert package_of("/home/me/pytorch/train.py") == ""


def test_a_module_that_a_library_writes_at_each_start_is_no_place(tmp_path: Path) -> None:
    files = ("pytest.core_propagate_x1y2.py", "train.v2.py", "pytest.py", "pytest.ipynb")
    assert [is_foundation(str(tmp_path / name)) for name in files] == [True, False, False, False]
