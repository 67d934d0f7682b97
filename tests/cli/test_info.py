"""`gradviz info` and the numbers behind it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Gradviz
from tests.cli.scripts import script


def test_the_screen_and_the_json_say_the_same(gradviz: Gradviz, tmp_path: Path) -> None:
    code = (
        "import torch\nws = [torch.ones(i + 1, requires_grad=True) for i in range(30)]\ny = sum(w.sum() for w in ws)\n"
    )
    path = script(tmp_path, code)
    data = json.loads(gradviz("info", "--json", path).stdout)
    said = gradviz("info", path).stdout
    assert data["operations"] == {"AddBackward0": 30, "SumBackward0": 30}
    assert len(data["leaves"]) == data["leaf_counts"]["input"] == 30 and data["leaf_elements"] == {"input": 465}
    assert (data["nodes"], data["edges"], data["depth"]) == (90, 89, 31)
    assert "60 backward functions, 30 leaves, 1 output, 89 edges" in said
    assert "longest path  31 backward functions" in said
    assert len(said.splitlines()) <= 40
    assert data["environment"]["torch"] and "graphviz" in data["environment"]


def test_nothing_is_run_beyond_the_first_backward_call(gradviz: Gradviz, tmp_path: Path) -> None:
    code = "import torch\nw = torch.ones(2, requires_grad=True)\nw.sum().backward()\nprint('not reached')\n"
    assert "not reached" not in gradviz("info", script(tmp_path, code)).stderr
