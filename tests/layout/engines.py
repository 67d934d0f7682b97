"""Builders for the tests that start Graphviz: which engines are here, graphs that take dot long, and the process table."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time

import pytest

ENGINES = [
    pytest.param("system", marks=pytest.mark.skipif(not shutil.which("dot"), reason="no system Graphviz")),
    pytest.param(
        "bundled", marks=pytest.mark.skipif(not importlib.util.find_spec("pygraphviz"), reason="no pygraphviz wheel")
    ),
]


def endless(size: int = 300) -> str:
    """DOT of a complete DAG: dot works on it for minutes."""
    return "digraph {" + "".join(f"n{i}->n{j};" for i in range(size) for j in range(i)) + "}"


def running(marker: str) -> list[str]:
    """Processes with this CHILD in their environment, without zombies."""
    table = subprocess.run(["ps", "axeww", "-o", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in table.splitlines() if f"CHILD={marker}" in line and not line.startswith("Z")]


def wait_for(marker: str, *, present: bool, seconds: float = 20.0) -> bool:
    """Wait until a process with the marker is there, or is gone."""
    deadline = time.monotonic() + seconds
    while bool(running(marker)) != present:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
