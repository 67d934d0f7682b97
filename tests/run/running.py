"""A target run as the command line runs it, for tests that want its graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradviz.graph import Graph
from gradviz.run.ending import RunResult
from gradviz.run.program import parse_target
from gradviz.run.reading import read_graph
from gradviz.run.run import Run


def run_target(target: str | Path, **options: Any) -> RunResult[Graph]:
    """The graph that a target leads to. `options` are those of `Run`."""
    return Run(parse_target(str(target)), read_graph, **options).captured()
