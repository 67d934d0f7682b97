"""Checks inside compiled functions: parameters without a gradient, and where compiling broke off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo
from click.testing import CliRunner

import gradviz
from gradviz.cli.main import cli
from tests.compiled.models import Block

SCRIPT = """
import torch
from tests.compiled.models import Block

model = torch.compile(Block(), backend=BACKEND)
loss = model(torch.randn(3, 8)).sum()
loss.backward()
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def test_a_parameter_that_the_backward_gives_none_is_unused_and_the_others_are_not() -> None:
    model = torch.compile(Block(), backend="aot_eager")
    findings = gradviz.check(model(torch.randn(3, 8)).sum(), model=model)
    (unused,) = [one for one in findings if one.id == "unused-parameter"]
    assert unused.names == ("aside.weight", "aside.bias")
    assert "inside the compiled function" in unused.summary and unused.severity != "note"


def test_every_break_is_named_with_its_line() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos().sum()

    loss = torch.compile(step, backend="aot_eager")(torch.ones(3, requires_grad=True))
    (found,) = [one for one in gradviz.check(loss) if one.id == "graph-break"]
    assert found.code is not None and found.code.text.strip() == "torch._dynamo.graph_break()"


@pytest.mark.parametrize(("backend", "compiled"), [("eager", 0), ("aot_eager", 1)])
def test_info_says_whether_backward_is_compiled(tmp_path: Path, backend: str, compiled: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("BACKEND", repr(backend)))
    found = json.loads(CliRunner().invoke(cli, ["info", "--json", str(script)]).stdout)
    assert len(found["compiled"]) == compiled
    if compiled:
        assert found["compiled"][0]["backward_compiled"] is False and found["compiled"][0]["operations"] > 10
    told = CliRunner().invoke(cli, ["info", str(script)]).stdout
    assert ("backward is not compiled" in told) == (not compiled)
