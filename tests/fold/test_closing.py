"""Folding with any assignment of scopes: recorded, guessed, or read from a file."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import gradviz
from gradviz.fold.export import fold
from gradviz.fold.fold import Depth
from gradviz.graph import Edge, Graph, Leaf, Node, Root, Scope
from tests.builders import cycles, tensor
from tests.fold.test_fold import Program, inside, pages, reachable, titles


def residual() -> Graph:
    """Blocks that say they hold the add after the next one: each waits for the other."""
    program = Program()
    x = program.op("ExpBackward0", weights=["input"])
    values = [x]
    for i in range(3):
        with program.call(f"blocks.{i}", "Block"):
            values.append(program.op("AddmmBackward0", values[-1], weights=[f"w{i}"]))
    ends = []
    for i in range(3):
        program.open.append(i)  # the call of block i goes on
        ends.append(program.op("AddBackward0", values[i + 1], values[-1]))
        program.open.pop()
    program.op("SumBackward0", *ends)
    return program.graph()


def test_a_call_whose_box_would_wait_for_itself_becomes_parts() -> None:
    graph = residual()
    folded = fold(graph, depth=1)
    assert cycles([(edge.consumer, edge.producer) for edge in folded.edges]) == []
    assert ("module", "blocks.2 Block", 1) in titles(folded)  # nothing is between its two ops
    assert [node.op for node in folded.nodes if node.group is None].count("AddBackward0") == 2


def test_parts_say_that_they_are_parts() -> None:
    program = Program()
    x = program.op("ExpBackward0", weights=["input"])
    with program.call("net", "Net"):
        x = program.op("ReluBackward0", program.op("AddmmBackward0", x, weights=["a"]))
    x = program.op("MulBackward0", x)
    program.open.append(0)
    program.op("ReluBackward0", program.op("AddmmBackward0", x, weights=["b"]))
    folded = fold(program.graph(), depth=1)
    assert titles(folded) == [("module", "net Net (part 2 of 2)", 1), ("module", "net Net (part 1 of 2)", 1)]


@st.composite
def scattered(draw: st.DrawFn) -> Graph:
    """A random graph, random modules, each node in any of them or none, numbered in any order."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    size, count = rng.randrange(1, 30), rng.randrange(1, 7)
    paths = [f"m{rng.randrange(3)}" for _ in range(count)]
    parents = [rng.choice([None, *range(i)]) for i in range(count)]
    scopes: list[Scope] = []
    for path, parent in zip(paths, parents):
        outer = scopes[parent].path + "." if parent is not None else ""
        scopes.append(Scope(outer + path, path.upper(), 1 + rng.randrange(2), parent))
    ops, made = ("AddBackward0", "MulBackward0", "ExpBackward0"), (tensor(2), tensor(2, 3))
    edges: list[Edge] = []
    for i in range(size):
        below = sorted(rng.sample(range(i + 1, size), min(rng.randrange(4), size - i - 1)))
        edges += [Edge(i, producer, 0, position) for position, producer in enumerate(below)]
    ends = set(range(size)) - {edge.consumer for edge in edges}
    leaves = tuple(Leaf(i, (f"p{i}",), tensor(2), "parameter") for i in sorted(ends) if rng.random() < 0.8)
    is_leaf = {leaf.node for leaf in leaves}
    numbers = list(range(size))[::-1]
    if rng.random() < 0.5:
        rng.shuffle(numbers)
    if rng.random() < 0.3:
        numbers = [number % 5 for number in numbers]
    where = rng.choice([0.0, 0.3])
    nodes = tuple(
        Node(
            i,
            "AccumulateGrad" if i in is_leaf else rng.choice(ops),
            (rng.choice(made),),
            None if i in is_leaf else numbers[i],
            None if rng.random() < where else rng.randrange(count),
        )
        for i in range(size)
    )
    used = {edge.producer for edge in edges}
    roots = tuple(Root(i, 0, f"out{i}", tensor(2)) for i in range(size) if i not in used)
    return Graph(nodes, tuple(edges), leaves, roots, tuple(scopes), attribution=rng.choice(["recorded", "inferred"]))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(scattered(), st.sampled_from([1, 2, 3, "all", "auto"]), st.booleans())
def test_any_assignment_folds_without_cycles_or_loss(graph: Graph, depth: Depth, expand: bool) -> None:
    limits = {"limit": 5, "measure": pages(5)} if depth == "auto" else {}
    folded = fold(graph, depth=depth, expand=[graph.scopes[0].path] if expand else [], **limits)  # type: ignore[arg-type]
    assert cycles([(edge.consumer, edge.producer) for edge in folded.edges]) == []
    box = inside(folded, graph)
    assert sorted({*box}) == list(range(len(folded.nodes)))
    together = sum(len(node.group.nodes) if node.group else 1 for node in folded.nodes)
    assert together == len(graph.nodes)
    for i in range(len(graph.nodes)):
        assert {box[j] for j in reachable(graph, i)} <= reachable(folded, box[i])
    between = {(box[edge.consumer], box[edge.producer]) for edge in graph.edges}
    assert {(e.consumer, e.producer) for e in folded.edges if e.consumer != e.producer} == {
        (a, b) for a, b in between if a != b
    }


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(scattered(), st.sampled_from([1, 2, "all", "auto"]))
def test_any_assignment_from_a_file_has_a_picture(graph: Graph, depth: Depth) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loaded = gradviz.load(graph.save(str(Path(folder, "g.json")), depth="all"))
        assert loaded == replace(graph, marks=())
        path = loaded.save(str(Path(folder, "g.svg")), depth=depth)
        assert "</svg>" in Path(path).read_text()


def test_a_graph_that_goes_in_circles_has_a_picture(tmp_path: Path) -> None:
    nodes = tuple(Node(i, "AddBackward0", (tensor(2),), i) for i in range(12))
    edges = tuple(sorted([Edge(i, (i + 1) % 12, 0, 0) for i in range(12)]))
    graph = Graph(nodes, edges, roots=(Root(0, 0, "y", tensor(2)),))
    folded = Path(graph.save(str(tmp_path / "folded.svg"), depth=1)).read_text()
    assert "×12" in folded  # a loop, when seen from outside
    drawn = Path(graph.save(str(tmp_path / "full.svg"), depth="all")).read_text()
    assert drawn.count(">add<") == 12
