"""The notebook in samples/, executed by a real kernel."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parent.parent / "samples"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells of the notebook after it ran."""
    notebook = nbformat.read(SAMPLES / "notebook.ipynb", as_version=4)
    path = os.pathsep.join(filter(None, [str(SAMPLES.parent), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path_factory.mktemp("run"))}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": path})
    installs, *cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "google.colab" in installs.source and not installs.outputs  # nothing is installed here
    return cells


def shown(cell: Any) -> Any:
    """What the cell's last expression displayed, by MIME type."""
    (result,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    return result.data


def test_a_graph_shows_its_picture_and_a_text(cells: list[Any]) -> None:
    data = shown(cells[0])
    texts = [element.text for element in ElementTree.fromstring(data["image/svg+xml"]).iter() if element.text]
    for name in ("x", "w", "a", "b", "y", "mul", "add"):
        assert name in texts, name
    assert "MulBackward0" in data["text/plain"]


def test_hints_under_a_picture_are_code() -> None:
    import torch

    import gradviz

    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(60)))
    loss = net(torch.ones(1, 4)).sum()
    graph = gradviz.walk(loss)
    assert "more: graph.to_svg(depth=" in graph._repr_mimebundle_()["image/svg+xml"]
    assert "to see more: --depth" in graph.to_svg()
    assert "white-space:pre;" in graph.tree()._repr_html_()  # type: ignore[union-attr]
