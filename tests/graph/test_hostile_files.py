"""Graph files that were made to break the reader: each is refused in one line, and quickly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gradviz
from gradviz.errors import GraphFileError
from gradviz.graph.files import loads

BASE = json.loads((Path(__file__).parents[1] / "draw/golden/everything.json").read_text(encoding="utf-8"))
F = "f" * 10_000


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def _with(place: str, value: str) -> str:
    """The base file as text, with this JSON text at a place such as `nodes.0.op`."""
    data = json.loads(json.dumps(BASE))
    *path, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    inner: Any = data
    for step in path:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[step]
    inner[last] = "@"
    return json.dumps(data).replace('"@"', value)


def _scopes(depth: int) -> str:
    scopes = [{"path": f"m{i}", "type": "M", "call": 1, "parent": i - 1 if i else None} for i in range(depth)]
    return _with("scopes", json.dumps(scopes))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: _with("nodes.0.attributes.a", _nested(800)), "nodes[0].attributes['a'] is nested more than 100 deep"),
        (lambda: _with("nodes.0.op", _nested(900)), "nodes[0].op is [[[[[[[...]]]]]]], not text"),
        (lambda: _with("title", _nested(100_000)), "cannot be read as JSON"),
        (lambda: _with("nodes.0.attributes.a", f'{{"int":"0x{F}"}}'), "number of more than 256 bits"),
        (
            lambda: _with("nodes.0.sequence", f'{{"int":"0x{F}"}}'),
            "nodes[0].sequence is a whole number of more than 256",
        ),
        (lambda: _with("nodes.0.sequence", f'{{"int":"-0x{F}"}}'), "number of more than 256 bits"),
        (lambda: _with("nodes.0.sequence", "9" * 4000), "number of more than 256 bits"),
        (lambda: _with("nodes.0.sequence", "9" * 9000), "cannot be read as JSON"),
        (lambda: _with("backward", f"[[0,{'9' * 400}]]"), "number of more than 256 bits"),
        (lambda: _scopes(5000), "scopes[500] is inside more than 500 others"),
    ],
)
def test_is_refused_in_one_line(make: Callable[[], str], told: str) -> None:
    with pytest.raises(GraphFileError) as caught:
        loads(make())
    message = str(caught.value)
    assert told in message and "\n" not in message and len(message) < 400


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.json")
    with pytest.raises(GraphFileError, match="a pipe or a device"):
        gradviz.load(tmp_path / "net.json")


@pytest.mark.parametrize(
    "place, value", [("nodes.0.attributes.a", "1e400"), ("nodes.0.op", r'"\ud800x"'), ("title", r'"\udcff"')]
)
def test_odd_values_that_can_be_kept_are_drawn(place: str, value: str, tmp_path: Path) -> None:
    graph = loads(_with(place, value))
    for suffix in ("svg", "dot", "txt", "md", "json"):
        graph.save(str(tmp_path / f"graph.{suffix}"))
    again = gradviz.load(tmp_path / "graph.json")
    assert len(again.nodes) == len(graph.nodes)
