"""The page that explains backward names, against the samples and against the names that `--names forward` writes."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Function, Node
from gradviz.graph.origins import forward_name
from tests.builders import diamond
from tests.run.running import run_target

ROOT = Path(__file__).parents[2]
EXPLAINED = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/backward-names.md").read_text(), re.M))


@pytest.mark.parametrize(
    "name", ["gpt", "resnet", "lstm", "mlp_training", "views", "inplace_view", "exp_function", "saved_hooks"]
)
def test_every_name_in_a_sample_is_explained(name: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        graph = run_target(str(ROOT / "samples" / f"{name}.py")).result
    assert {node.op for node in graph.nodes} <= EXPLAINED


def test_a_custom_function_keeps_its_class() -> None:
    assert forward_name(Node(0, "ExpBackward", function=Function("__main__.Exp", None))) == "Exp"


def shown(format: str, names: str) -> str:
    """What is to be read, without tooltips, which always have the backward function."""
    graph = diamond()
    last = graph.nodes[0]._replace(assigned="total")
    text = str(render(replace(graph, nodes=(last, *graph.nodes[1:])), format, Options(names=names)))  # type: ignore[arg-type]
    return re.sub(r"<title>.*?</title>|tooltip=\"[^\"]*\"", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("format", ["dot", "svg", "md", "txt"])
def test_pictures_and_trees_use_the_names_that_are_asked_for(format: str) -> None:
    backward, forward, variable = (shown(format, names) for names in ("backward", "forward", "variable"))
    assert "ExpBackward0" in backward and "AddBackward0" in backward and "total" not in backward
    assert "ExpBackward0" not in forward and "exp" in forward and "add" in forward and "total" not in forward
    assert "AddBackward0" not in variable and "exp" in variable and "total" in variable
    assert "ExpBackward0" in shown("json", "auto")


def test_a_name_of_a_hostile_file_takes_time_by_its_length() -> None:
    digits = "9" * 1_000_000  # hours, where each letter begins a search of its own
    assert forward_name(Node(0, f"AddmmBackward{digits}")) == "addmm"
    assert forward_name(Node(0, f"a::b{digits}::AddmmBackward0")) == "addmm"
