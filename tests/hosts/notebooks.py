"""Runs cells in a real kernel and tells every output of each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent.parent
_COLORS = re.compile(r"\x1b\[[\d;]*m")


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
    return outputs_of(executed(cells))


def executed(cells: list[str], **options: object) -> nbformat.NotebookNode:
    """A notebook of these cells after a kernel has run it. Options: those of NotebookClient."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    resources = {"metadata": {"path": str(ROOT)}}
    client = NotebookClient(notebook, timeout=120, coalesce_streams=True, resources=resources, **options)
    client.execute(env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    return notebook


def outputs_of(notebook: nbformat.NotebookNode) -> list[list[Output]]:
    """The same of one that has run."""
    return [[_output(output) for output in cell.outputs] for cell in notebook.cells]


def _output(output: nbformat.NotebookNode) -> Output:
    data = output.get("data", {})
    if output.output_type in ("stream", "error"):
        data = {"text/plain": output.get("text") or _COLORS.sub("", "\n".join(output.traceback))}
    return Output(output.output_type, dict(data))
