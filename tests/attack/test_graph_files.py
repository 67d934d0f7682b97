"""Fuzzes graph files: each gives every picture and report, or one line of GraphFileError, within a time limit."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.errors import GradvizError, GraphFileError
from gradviz.graph import Graph
from gradviz.graph.files import dump
from tests.attack.budget import BOUND, report, tries
from tests.attack.mutations import mutated
from tests.builders import folded, random_dag, views

pytestmark = pytest.mark.long

FORMATS = ("dot", "txt", "md", "json", "svg")
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"depth": "all"}, {"saved": True}, {"color": "memory"}, {"numbers": True})


@pytest.fixture(scope="module")
def bases() -> list[dict[str, Any]]:
    golden = Path(__file__).parents[1] / "draw" / "golden" / "everything.json"
    graphs = [random_dag(3, 30), folded(), views()]
    return [json.loads(golden.read_text(encoding="utf-8")), *(json.loads("".join(dump(graph))) for graph in graphs)]


def attack(text: str, file: Path, random: Random) -> str:
    """Load and use one file. "refused" or "drawn"; anything but GradvizError is raised with the file in the message."""
    file.write_text(text, encoding="utf-8")
    try:
        graph = gradviz.load(file)
    except GraphFileError as error:
        _one_line(error)
        return "refused"
    return _use(graph, random)


def _use(graph: Graph, random: Random) -> str:
    for what in (str, gradviz.saved, Graph.fold, lambda graph: gradviz.diff(graph, graph)):
        try:
            str(what(graph))
        except GradvizError as error:
            _one_line(error)
    try:
        render(graph, random.choice(FORMATS), Options.of({"layout": "layered", **random.choice(OPTIONS)}))
    except GradvizError as error:
        _one_line(error)
    return "drawn"


def _one_line(error: GradvizError) -> None:
    assert "\n" not in str(error) and len(str(error)) < 2000, str(error)[:300]


@pytest.mark.slow
def test_mutated_graph_files(bases: list[dict[str, Any]], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    counts: Counter[str] = Counter()
    for seed, random in tries(least=50):
        text = mutated(random.choice(bases), random)
        began = time.process_time()
        try:
            counts[attack(text, tmp_path / "graph.json", random)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}") from error
        took = time.process_time() - began
        assert took < BOUND, f"seed {seed} took {took:.0f} s"
    assert counts["refused"] and counts["drawn"], counts
    for what, count in counts.items():
        report(request, f"graph files {what}", count)
