"""Throwaway scripts for the tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

TRAINING = """
import torch

model = torch.nn.Linear(3, 1)

def train(steps):
    for step in range(steps):
        x = torch.ones(2, 3)
        loss = model(x).pow(2).sum() * (step + 1)
        loss.backward()
        print("step", step)

if __name__ == "__main__":
    train(3)
    print("end")
"""

GRAPH = ("render", "--format", "json", "-o", "-")
"""Prints the graph that a target leads to, which `gradviz.graph.files.loads` reads."""


def script(folder: Path, text: str, name: str = "script.py") -> Path:
    """A script in `folder` with this text, its common indentation taken away."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """This process's environment, with the package under test first on the path."""
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


def python(*arguments: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs this Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
    )


def gradviz(*arguments: object, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own."""
    return python("-m", "gradviz", *arguments, cwd=cwd, timeout=timeout)
