"""Differences of graphs, against edits whose outcome is known."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gradviz.cli.source import Source
from gradviz.comparison.diff import diff
from gradviz.graph import Edge, Graph, Node, SavedTensor
from gradviz.run.target import parse_target
from tests.builders import GRAPHS, chain, diamond, random_dag, tensor


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_does_not_differ_from_itself(name: str) -> None:
    found = diff(GRAPHS[name], GRAPHS[name])
    assert found.empty
    assert found.matched == {i: i for i in range(len(GRAPHS[name].nodes))}
    assert "no difference" in str(found)


@pytest.mark.parametrize("seed", range(30))
def test_added_and_removed_mirror_each_other(seed: int) -> None:
    one, other = random_dag(seed, 40), random_dag(seed + 1, 44)
    forth, back = diff(one, other), diff(other, one)
    assert len(forth.matched) + len(forth.removed) == len(one.nodes)
    assert len(forth.matched) + len(forth.added) == len(other.nodes)
    assert len(set(forth.matched.values())) == len(forth.matched)
    assert all(one.nodes[a].op == other.nodes[b].op for a, b in forth.matched.items())
    kept = len(one.edges) - len(forth.removed_edges)
    assert kept == len(other.edges) - len(forth.added_edges)
    assert len(back.matched) > 0


def inserted(graph: Graph, at: int, op: str = "NewBackward0") -> Graph:
    """A chain with one more op before node `at`."""
    nodes = [replace_id(node, i + (i >= at)) for i, node in enumerate(graph.nodes)]
    nodes.insert(at, Node(at, op, (tensor(3, 4),)))
    nodes = [
        node if node.sequence is None and node.op == "AccumulateGrad" else node._replace(sequence=len(nodes) - i)
        for i, node in enumerate(nodes)
    ]
    leaves = tuple(leaf._replace(node=leaf.node + 1) for leaf in graph.leaves)
    return replace(
        graph, nodes=tuple(nodes), edges=tuple(Edge(i, i + 1, 0, 0) for i in range(len(nodes) - 1)), leaves=leaves
    )


def replace_id(node: Node, number: int) -> Node:
    return node._replace(id=number)


@pytest.mark.parametrize("at", [1, 3, 7])
def test_one_op_more_in_a_chain(at: int) -> None:
    before = chain(8)
    after = inserted(before, at)
    found = diff(before, after)
    assert (found.added, found.removed, found.changed) == ((at,), (), ())
    assert {edge[:2] for edge in found.added_edges} == {(at - 1, at), (at, at + 1)}
    assert [edge[:2] for edge in found.removed_edges] == [(at - 1, at)]
    back = diff(after, before)
    assert (back.added, back.removed) == ((), (at,))


def test_shapes_bytes_and_attributes_that_changed() -> None:
    before = diamond()
    slot = SavedTensor("result", tensor(3, 4), None, "activation", "live", 48)
    node = before.nodes[1]._replace(outputs=(tensor(5, 4, dtype="float16"),), saved=(slot,), attributes={"dim": 1})
    after = replace(before, nodes=(before.nodes[0], node, *before.nodes[2:]))
    (one,) = diff(before, after).changed
    assert (one.before, one.after) == (1, 1)
    assert {change.what: (change.before, change.after) for change in one.changes} == {
        "shape": ("(3, 4)", "(5, 4)"),
        "dtype": ("float32", "float16"),
        "saved bytes": ("0", "48"),
        "saved tensors": ("0", "1"),
        "dim": ("None", "1"),
    }


def test_leaves_are_matched_by_name() -> None:
    before = diamond()
    renamed = replace(before, leaves=(before.leaves[0]._replace(names=("other",)),))
    found = diff(before, renamed)
    assert (found.removed, found.added) == ((3,), (3,))
    unnamed = replace(before, leaves=(before.leaves[0]._replace(names=()),))
    assert diff(unnamed, unnamed).empty


def test_an_output_that_comes_from_elsewhere() -> None:
    before = diamond()
    after = replace(before, roots=(before.roots[0]._replace(node=1),))
    (change,) = diff(before, after).outputs
    assert (change.before, change.after) == ("made by AddBackward0", "made by ExpBackward0")


@pytest.mark.slow
def test_a_long_chain_with_edits_in_many_places() -> None:
    before = chain(20_000)
    nodes = list(before.nodes)
    chosen = sorted(random.Random(1).sample(range(1, 19_999), 50))
    for i in chosen:
        nodes[i] = nodes[i]._replace(op="OtherBackward0")
    found = diff(before, replace(before, nodes=tuple(nodes)))
    assert not found.changed
    assert sorted(found.removed) == sorted(found.added) == chosen


# -- what an edit of the code leaves alone -----------------------------------------------------------------------------

SCRIPT = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
loss = net(torch.ones(2, 4)).square().mean()
loss.backward()
"""
EDITS = {
    "the calling line": [("net(torch.ones(2, 4))", "net( torch.ones((2, 4)) )")],
    "lines above": [("import torch", "import torch\n# a comment\nseed = torch.manual_seed(0)")],
    "the model's variable": [("net", "classifier")],
    "the loss's variable and line": [("loss = net", "objective = 1 and net"), ("loss.b", "objective.b")],
}


def _graph_of(folder: Path, script: str) -> Graph:
    path = folder / "train.py"
    path.write_text(script)
    return Source(parse_target(str(path)), (), None, False).graph().result


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_that_leaves_the_model_alone_makes_no_difference(edit: str, tmp_path: Path) -> None:
    edited = functools.reduce(lambda script, change: script.replace(*change), EDITS[edit], SCRIPT)
    assert edited != SCRIPT
    found = diff(_graph_of(tmp_path, SCRIPT), _graph_of(tmp_path, edited))
    assert (found.added, found.removed, found.changed, found.added_edges) == ((), (), (), ())


def test_an_op_put_into_an_edited_line_is_all_that_differs(tmp_path: Path) -> None:
    before, after = (_graph_of(tmp_path, text) for text in (SCRIPT, SCRIPT.replace(".square()", ".tanh().square()")))
    found = diff(before, after)
    assert [after.nodes[i].op for i in found.added] == ["TanhBackward0"]
    assert after.nodes[found.added[0]].scope is None, "not the one in the model"
    assert (found.removed, found.changed) == ((), ())


def test_a_module_that_was_replaced_is_in_a_scope_of_its_own(tmp_path: Path) -> None:
    before, after = (_graph_of(tmp_path, text) for text in (SCRIPT, SCRIPT.replace("Tanh", "Sigmoid")))
    found = diff(before, after)
    joined = found.joined.graph
    (gone,), (new,) = found.removed, found.added
    record = joined.nodes[found.joined.number[gone]]
    assert record.op == "TanhBackward0" and record.scope is not None
    assert joined.scopes[record.scope].path == "net.1" == after.scopes[after.nodes[new].scope or 0].path
    assert len(joined.nodes) == len(after.nodes) + 1
    assert {edge.consumer for edge in found.joined.gone} <= {*range(len(joined.nodes))}


def test_sums_come_first(tmp_path: Path) -> None:
    before, after = (_graph_of(tmp_path, text) for text in (SCRIPT, SCRIPT.replace("8, 1)", "8, 1), torch.nn.Tanh()")))
    assert str(diff(after, before)).splitlines()[3] == "-1 op, -2 +1 edges, 11 the same, 1 module gone"
    assert str(diff(before, after)).splitlines()[3] == "+1 op, -1 +2 edges, 11 the same, 1 new module"


def test_unnamed_leaves_of_another_size_are_the_same_leaves() -> None:
    before = diamond()
    leaf = before.leaves[0]._replace(names=())
    other = replace(before, leaves=(leaf._replace(tensor=tensor(9, 9)),))
    assert not diff(replace(before, leaves=(leaf,)), other).added
    assert diff(replace(before, leaves=(leaf,)), replace(other, leaves=(leaf._replace(kind="buffer"),))).added == (3,)
