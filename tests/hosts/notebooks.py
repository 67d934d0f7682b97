"""Runs cells in a real kernel and tells every output of each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent.parent


class Output(NamedTuple):
    """One output of a cell: its type (stream, display_data, execute_result, error), and what it holds by MIME type."""

    kind: str
    data: dict[str, str]

    @property
    def text(self) -> str:
        """As a front end without pictures shows it."""
        return self.data.get("text/plain", "")


def outputs(cells: list[str]) -> list[list[Output]]:
    """Every output of each cell, in order."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(notebook, timeout=120, coalesce_streams=True, resources={"metadata": {"path": str(ROOT)}})
    client.execute(env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    return [[_output(output) for output in cell.outputs] for cell in notebook.cells]


def _output(output: nbformat.NotebookNode) -> Output:
    data = {"text/plain": output.text} if output.output_type == "stream" else output.get("data", {})
    return Output(output.output_type, dict(data))
