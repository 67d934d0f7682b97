"""`make_dot` against the real torchviz 0.0.3, on the same tensors in the same process."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from networkx.algorithms.isomorphism import categorical_multiedge_match, categorical_node_match
from torch import nn

from gradviz.errors import LayoutTimeout, NotATensorError
from gradviz.torchviz import make_dot, make_dot_from_trace
from tests.walker.graphs import needs_raw

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchviz

NODE = re.compile(r'^\t(?P<id>"?[\w]+"?) \[label="?(?P<label>.*?)"?(?: fillcolor=(?P<color>\w+))?\]$', re.DOTALL)
EDGE = re.compile(r'^\t(?P<tail>"?[\w]+"?) -> (?P<head>"?[\w]+"?)(?: \[(?P<style>.*)\])?$', re.DOTALL)


def picture(dot: Any, *, merge_leaf_slots: bool = False) -> networkx.MultiDiGraph:
    """What a DOT body draws, as a graph of labels and colours; the ids are opaque. A repeated node is drawn once, last wins."""
    found = networkx.MultiDiGraph()
    for line in dot.body:
        text = line.rstrip("\n")
        node, edge = NODE.match(text), EDGE.match(text)
        assert node or edge, text
        if edge:
            found.add_edge(edge["tail"], edge["head"], style=edge["style"] or "")
        elif node:
            found.add_node(node["id"], label=node["label"], color=node["color"] or "")
    return found


def same(ours: networkx.MultiDiGraph, theirs: networkx.MultiDiGraph) -> bool:
    return bool(
        networkx.is_isomorphic(
            ours,
            theirs,
            node_match=categorical_node_match(["label", "color"], ["", ""]),
            edge_match=categorical_multiedge_match("style", ""),
        )
    )


def named(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return tensors


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (result,) = ctx.saved_tensors
        return grad * result


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


Case = tuple[object, dict[str, torch.Tensor] | None]


def chain_rule() -> Case:
    x, w = leaf(1), leaf(1)
    a, b = x + w, w + 1
    y = a * b
    return y, named(x=x, w=w, y=y)


def double_backward() -> Case:
    x = leaf(3)
    y = (x**3).sum()
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    return grad.norm() + y, named(x=x)


def lstm_cell() -> Case:
    cell = nn.LSTMCell(4, 5)
    return cell(torch.randn(2, 4), (torch.randn(2, 5), torch.randn(2, 5))), dict(cell.named_parameters())


def output_and_leaf() -> Case:
    x = leaf(3)
    return (x * 2, x), named(x=x)


def leaf_alone() -> Case:
    x = leaf(2, 2)
    return x, named(x=x)


def no_graph() -> Case:
    return torch.ones(2, 3), None


def output_twice() -> Case:
    x = leaf(3)
    y = x * 2
    return (y, y), None


def view() -> Case:
    x = leaf(4, 4)
    return (x * 2)[1:, 2], named(x=x)


def view_of_leaf() -> Case:
    x = leaf(4, 6)
    return x.view(-1), named(x=x)


def view_and_base() -> Case:
    x = leaf(4, 6)
    y = x.exp()
    return (y[0], y), None


def base_and_view() -> Case:
    x = leaf(4, 6)
    y = x.exp()
    return (y, y[0]), None


def custom_function() -> Case:
    x = leaf(3)
    return Exp.apply(x) * 2, named(x=x)


def in_place_on_view() -> Case:
    x = leaf(3, 3)
    y = x * 2
    y[0].mul_(3)
    return y.sum(), named(x=x)


def parallel_edges() -> Case:
    x = leaf(3)
    y = x + 1
    return y * y, named(x=x)


def multi_output_ops() -> Case:
    x = leaf(4, 4)
    values, _ = x.topk(2)
    return values.sum() + torch.linalg.qr(x)[1].sum() + x.unbind()[2].sum(), named(x=x)


CASES: list[Callable[[], Case]] = [
    chain_rule, double_backward, lstm_cell, output_and_leaf, leaf_alone, no_graph, output_twice,
    view, view_of_leaf, view_and_base, base_and_view, in_place_on_view, parallel_edges, multi_output_ops,
    pytest.param(custom_function, marks=needs_raw),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("with_params", [True, False], ids=["params", "no params"])
def test_is_torchvizs_picture(case: Callable[[], Case], with_params: bool) -> None:
    var, params = case()
    given = params if with_params else None
    ours, theirs = make_dot(var, given), torchviz.make_dot(var, given)
    assert same(picture(ours), picture(theirs)), f"ours:\n{ours.source}\ntheirs:\n{theirs.source}"
    assert ours.node_attr == theirs.node_attr
    assert set(ours.graph_attr) == set(theirs.graph_attr)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("width", [50, 8])
@needs_raw
def test_attributes_are_torchvizs(case: Callable[[], Case], width: int) -> None:
    var, params = case()
    ours = make_dot(var, params, show_attrs=True, max_attr_chars=width)
    theirs = torchviz.make_dot(var, params, show_attrs=True, max_attr_chars=width)
    assert same(signed(picture(ours)), signed(picture(theirs))), f"ours:\n{ours.source}\ntheirs:\n{theirs.source}"


def signed(drawn: networkx.MultiDiGraph) -> networkx.MultiDiGraph:
    """Rows with an int64 that torch gives as unsigned, and ours as the negative number it is, are left out on both sides.

    Column widths follow the longest value, so in such a label runs of spaces and of dashes are made equal too.
    """
    for _, data in drawn.nodes(data=True):
        rows = [re.sub(r" +|-{2,}", " ", row) for row in data["label"].split("\n")]
        data["label"] = "\n".join(row for row in rows if not re.search(r": (-\d+|18446\S*)$", row))
    return drawn


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@needs_raw
def test_saved_tensors_are_torchvizs_slot_by_slot(case: Callable[[], Case]) -> None:
    """Every (function, slot label) pair that torchviz draws is drawn; torchviz merges slots that hold one tensor, we do not."""
    var, params = case()
    ours, theirs = (make(var, params, show_saved=True) for make in (make_dot, torchviz.make_dot))
    assert _slots(theirs, merged=True) <= _slots(ours, merged=False)
    count = sum(line.count("dir=none") for line in theirs.body)
    assert sum(line.count("dir=none") for line in ours.body) == count


def _slots(dot: Any, *, merged: bool) -> set[tuple[str, str]]:
    drawn = picture(dot)
    orange = {node for node, data in drawn.nodes(data=True) if data["color"] == "orange"}
    pairs = set()
    for tail, head, style in drawn.edges(data="style"):
        if "dir=none" in style:
            saved, function = (tail, head) if tail in orange else (head, tail)
            if saved in orange:
                pairs.add((drawn.nodes[function]["label"], drawn.nodes[saved]["label"]))
    # A tensor in two slots is one box of torchviz's, labelled by the slot it met last: only such labels are comparable.
    return pairs if not merged else {pair for pair in pairs if _alone(drawn, pair[1])}


def _alone(drawn: networkx.MultiDiGraph, label: str) -> bool:
    return all(drawn.degree(node) == 1 for node, data in drawn.nodes(data=True) if data["label"] == label)


def deep(n: int) -> torch.Tensor:
    y = leaf(2)
    for _ in range(n):
        y = y + 1
    return y


def freed() -> torch.Tensor:
    x = leaf(3)
    y = (x.exp() * x).sum()
    y.backward()
    return y


def modified() -> torch.Tensor:
    x = leaf(3)
    y = x * 2
    z = y.exp() * y
    with torch.no_grad():
        y.add_(1)
    return z.sum()


def nested() -> object:
    x = leaf(3)
    return {"loss": x.sum(), "parts": [x.exp(), (x.sin(), None)]}


@pytest.mark.parametrize(
    "make", [lambda: deep(3000), freed, modified, nested], ids=["deep", "freed", "modified", "nested"]
)
def test_draws_where_torchviz_raises(make: Callable[[], object]) -> None:
    var = make()
    with pytest.raises((RecursionError, RuntimeError, TypeError, AttributeError)):
        torchviz.make_dot(var, show_saved=True, show_attrs=True)
    drawn = picture(make_dot(var, show_saved=True, show_attrs=True))
    assert sum(data["color"] == "darkolivegreen1" for _, data in drawn.nodes(data=True)) == (
        3 if isinstance(var, dict) else 1
    )
    assert all("label" in data for _, data in drawn.nodes(data=True))


@needs_raw
def test_says_freed_and_modified() -> None:
    assert "freed" in make_dot(freed(), show_saved=True).source
    assert "modified" in make_dot(modified(), show_saved=True).source


def test_checkpoints_do_not_run_again() -> None:
    runs = 0

    def part(x: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        return x.exp().sin()

    y = torch.utils.checkpoint.checkpoint(part, leaf(3), use_reentrant=False)
    make_dot(y, show_saved=True, show_attrs=True)
    assert runs == 1


def test_names_are_text_and_never_markup() -> None:
    x = leaf(2)
    for name in ("<b>x</b>", 'say "x"', "back\\slash", "a\\nb", "tab\there", "😀"):
        source = make_dot(x * 2, params={name: x}).source
        assert "label=<" not in source
        svg = make_dot(x * 2, params={name: x}).pipe(format="svg", encoding="utf-8")
        shown = name.replace("\t", "\\t").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
        assert shown in svg.replace("&#45;", "-").replace("&#39;", "'")


def test_rejects_what_is_not_a_tensor() -> None:
    with pytest.raises(NotATensorError, match="module"):
        make_dot(nn.Linear(2, 2))
    with pytest.raises(NotATensorError, match=r"params\['x'\] is a int"):
        make_dot(leaf(2) * 2, params={"x": 3})  # type: ignore[dict-item]
    with pytest.raises(NotImplementedError, match="SummaryWriter"):
        make_dot_from_trace(None)


@pytest.mark.parametrize("engine", ["system", "bundled"])
def test_renders_with_and_without_a_system_graphviz(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "bundled":
        monkeypatch.setenv("PATH", str(tmp_path))
    dot = make_dot(leaf(2) * 2)
    assert dot.pipe(format="png").startswith(b"\x89PNG")
    assert "<svg" in dot.pipe(format="svg", encoding="utf-8")
    assert "image/svg+xml" in dot._repr_mimebundle_()
    written = dot.render(tmp_path / "graph", format="svg")
    assert Path(written) == tmp_path / "graph.svg"
    assert "MulBackward0" in Path(written).read_text()
    assert "MulBackward0" in (tmp_path / "graph").read_text()
    written = dot.render(outfile=tmp_path / "other.png", cleanup=True)
    assert Path(written).read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "graph.svg", "other.png"]


@pytest.mark.slow
def test_drawing_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dot").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("gradviz.torchviz.TIME_LIMIT", 0.5)
    dot = make_dot(leaf(2) * 2)
    for draw in (dot.pipe, lambda: dot.render(tmp_path / "graph", format="svg")):
        with pytest.raises(LayoutTimeout, match=r"within 0\.5 s.*TIME_LIMIT = None"):
            draw()


def test_a_format_that_graphviz_does_not_know_is_refused_as_by_graphviz() -> None:
    with pytest.raises(ValueError, match="unknown format: 'nope'"):
        make_dot(leaf(2) * 2).pipe(format="nope")


def test_outputs_of_a_dict_are_named_by_their_keys() -> None:
    x = leaf(2)
    outputs = {"scores": x * 2, "boxes": [x * 3], "none": None}
    boxes = [line for line in make_dot(outputs).body if "darkolivegreen1" in line]
    assert ["['scores']" in boxes[0], "['boxes'][0]" in boxes[1]] == [True, True]
    (named, other) = (line for line in make_dot(outputs, params={"s": outputs["scores"]}).body if "green1" in line)
    assert '"s\n' in named and "['boxes'][0]" in other
