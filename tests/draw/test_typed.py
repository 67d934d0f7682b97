"""What editors and mypy are told of the options is what `Options` declares."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

import gradviz.graph.model
from gradviz.draw.options import Options, option_fields
from gradviz.draw.typed import DrawOptions, SaveOptions, ShowOptions
from tests.blocks import ROOT

_TEXTS = tuple[str, ...]
PROGRAM = """
import gradviz
graph = gradviz.load("net.json")
graph.save("net.svg", direction="right", depth=3, expand="net.0", force=True)
graph.to_svg(theme="dark"), graph.show(height=300), gradviz.show(graph, depth="all")
graph.save("net.svg", direction="left")  # wrong
graph.to_png(deep=3)  # wrong
graph.show(force=True)  # wrong
"""


def test_they_are_the_fields_of_the_one_declaration() -> None:
    declared, typed = get_type_hints(Options), get_type_hints(DrawOptions)
    assert [*typed] == [item.name for item in option_fields()]
    for name, kind in declared.items():
        assert typed[name] == (str | Sequence[str] if kind == _TEXTS else kind), name
    assert {*SaveOptions.__annotations__} - {*typed} == {"format", "force"}
    assert {*ShowOptions.__annotations__} - {*typed} == {"height"}


def test_a_program_needs_no_typing_extensions() -> None:
    assert not hasattr(gradviz.graph.model, "Unpack") and not hasattr(gradviz.graph.model, "DrawOptions")


def mypy(*given: str) -> str:
    """What it says in the project, whose settings and cache it uses."""
    pytest.importorskip("mypy")
    return subprocess.run([sys.executable, "-m", "mypy", *given], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_mypy_finds_nothing_in_the_package() -> None:
    said = mypy()
    assert said.startswith("Success: no issues found"), said


@pytest.mark.slow
def test_mypy_finds_a_wrong_option(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(PROGRAM)
    said = mypy(str(user))
    wrong = [i for i, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    # which may call the file as it was called then
    assert [int(line) for line in re.findall(r"user\.py:(\d+): error", said)] == wrong, said
