"""How every result shows itself: one line as `repr`, its table in `print`, in rich and as HTML."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console

import gradviz
from gradviz.memory.checkpoint import checkpoint_plan

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
loss = net(torch.ones(2, 3)).pow(2).sum()
graph = gradviz.walk(loss, model=net)
stranger = torch.optim.SGD([torch.ones(1)], 0.1)

CHECKED = "<Findings: 1 warning: optimizer holds 1 tensor that the output does not depend on [nonleaf-parameter]>"
RESULTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "check": (lambda: gradviz.check(loss, net, stranger), CHECKED, "[nonleaf-parameter]"),
    "flow": (lambda: gradviz.flow(loss, model=net), "<GradientFlow: 10 edges, 4 leaves>", "bars: norm"),
    "paths": (
        lambda: gradviz.paths(loss, net[0].weight, model=net),
        "<Paths: 1 path, 1 followed>",
        "1 path from loss to",
    ),
    "diff": (
        lambda: gradviz.diff(graph, gradviz.walk(loss.exp(), model=net)),
        "<GraphDiff: +1 op, +1 edge, 11 the same>",
        "+1 op",
    ),
    "saved": (lambda: gradviz.saved(graph), "<Saved: 80 B held for backward, 4 rows by module>", "held for backward"),
    "advice": (
        lambda: checkpoint_plan(graph, 1),
        "<Advice: wrap 1 module, 64 B held now, 40 B then>",
        "the budget of 1 B",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_line_a_table_and_html(name: str) -> None:
    make, line, words = RESULTS[name]
    result = make()
    assert repr(result) == line
    assert words in str(result) and len(str(result).splitlines()) > 3
    console = Console(file=io.StringIO(), width=70)
    with console.capture() as shown:
        console.print(result)
    assert words[:12] in shown.get() and max(map(len, shown.get().splitlines())) <= 70
    html = result._repr_html_()
    assert html.startswith("<style>") and html.endswith("</div>") and words in html


other = net(torch.ones(3, 3)).relu().mean()
TABLES = {
    "saved": (lambda: gradviz.saved(graph), ("module", "exclusive")),
    "flow": (lambda: gradviz.flow(loss, model=net), ("leaf", "norm")),
    "paths": (lambda: gradviz.paths(loss, net[0].weight, model=net), ("path", "norm of contribution")),
    "summary": (lambda: gradviz.summary(net, torch.ones(1, 3)), ("module", "parameters")),
}
FLAT = {
    **TABLES,
    "diff": (lambda: gradviz.diff(loss, other), ("change", "")),
    "merge": (lambda: gradviz.merge([loss, other]), ("ranks", "")),
}


@pytest.mark.parametrize("name", FLAT)
def test_rows_for_pandas_are_flat_with_numbers_as_numbers(name: str) -> None:
    make, (word, number) = FLAT[name]
    rows = list(make())
    assert rows and all(row.keys() == rows[0].keys() for row in rows) and "bar" not in rows[0]
    assert all(isinstance(value, (str, int, float, type(None))) for row in rows for value in row.values())
    assert isinstance(rows[0][word], str) and rows[0][word]
    assert not number or isinstance(rows[0][number], (int, float))


def test_rows_of_a_difference_are_its_nodes() -> None:
    rows = list(gradviz.diff(loss, other))
    assert {row["op"] for row in rows if row["change"] == "removed"} == {"PowBackward0", "SumBackward0"}
    assert {row["op"] for row in rows if row["change"] == "added"} == {"ReluBackward0", "MeanBackward0"}
    shapes = [row for row in rows if row["what"] == "shape"]
    assert [(row["module"], row["before"], row["after"]) for row in shapes] == [
        ("net.0", "(2, 4)", "(3, 4)"),
        ("net.1", "(2, 4)", "(3, 4)"),
        ("net.2", "(2, 1)", "(3, 1)"),
    ]
    ranks = [(row["ranks"], row["op"]) for row in gradviz.merge([loss, other]) if not row["what"]]
    assert {
        ("rank 0", "PowBackward0"),
        ("rank 0", "SumBackward0"),
        ("rank 1", "ReluBackward0"),
        ("rank 1", "MeanBackward0"),
    } == set(ranks)


@pytest.mark.parametrize("name", TABLES)
def test_in_a_notebook_rows_are_those_of_a_table_that_do_not_wrap(name: str) -> None:
    make, _ = TABLES[name]
    result = make()
    html = result._repr_html_()
    assert html.count("<tr") > len(list(result)) and html.count("<table") >= 1
    cells = re.findall(r"<t[dh] style=\"([^\"]*)\"", html)
    assert len(cells) >= 4 and all("white-space:pre" in style for style in cells)


def test_why_names_a_tensor_that_is_no_variable() -> None:
    assert gradviz.why(loss, net[0].weight).name == "net.0.weight"


def test_a_failed_assertion_says_what_was_found() -> None:
    findings = gradviz.check(loss, net, torch.optim.SGD([torch.ones(1)], 0.1), only=["nonleaf-parameter"])
    with pytest.raises(AssertionError, match=r"assert not <Findings: 1 warning: optimizer holds 1 tensor .*\]>"):
        assert not findings
    finding = findings[0]
    many = repr(replace(findings, found=(finding,) * 5))
    assert many.startswith("<Findings: 5 warnings: ") and many.count("[nonleaf-parameter]") == 2 and len(many) <= 240
    assert repr(replace(findings, found=())) == "<Findings: none>"


def test_text_of_the_user_is_escaped_in_html() -> None:
    spaces = {"<script>alert(1)</script>": torch.ones(2, requires_grad=True)}
    found = gradviz.flow(next(iter(spaces.values())).sum(), params=spaces)
    assert "<script>" in str(found)
    assert "<script>" not in found._repr_html_() and "&lt;script&gt;" in found._repr_html_()
