"""A script whose forward pass raises: its graph up to there is still written, then its own traceback is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.errors import ScriptError
from tests.run.running import run_target

SCRIPT = """
import torch
first, second = torch.nn.Linear(4, 8), torch.nn.Linear(9, 1)
hidden = first(torch.ones(2, 4)).relu()
second(hidden)
"""


def write(folder: Path, text: str) -> str:
    path = folder / "model.py"
    path.write_text(text)
    return str(path)


def test_the_graph_up_to_the_failure_is_read(tmp_path: Path) -> None:
    captured = run_target(write(tmp_path, SCRIPT))
    graph = captured.result
    assert sorted(node.op for node in graph.nodes) == [
        "AccumulateGrad", "AccumulateGrad", "AddmmBackward0", "ReluBackward0", "TBackward0",
    ]  # fmt: skip
    (root,) = graph.roots
    assert root.name.startswith("input of second") and root.tensor.shape == (2, 8)
    assert {leaf.names for leaf in graph.leaves} == {("first.weight",), ("first.bias",)}
    assert graph.notes[0].startswith("stopped at model.py:5") and "second(hidden)" in graph.notes[0]
    assert "2x8 and 9x1" in graph.notes[1]
    with pytest.raises(ScriptError):
        captured.raise_failure()


@pytest.mark.parametrize(
    "failing", ["import torch\nraise ValueError('early')", "1 / 0", "import torch\nraise SystemExit(4)"]
)
def test_without_a_graph_only_the_failure_is_shown(
    tmp_path: Path, failing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ScriptError):
        run_target(write(tmp_path, failing))
