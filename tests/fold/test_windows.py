"""A box of loose ops says that all that leaves it depends on all that enters it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from gradviz.fold.fold import opened
from gradviz.fold.grouping import grouped
from gradviz.fold.groups import nodes_of
from gradviz.fold.opening import Opening
from gradviz.fold.windows import LEAST, between
from gradviz.graph import Data, Graph
from tests.builders import tensor
from tests.fold.test_fold import Program

KINDS = ("Exp", "Mul", "Sin", "Tanh", "Sigmoid", "Relu", "Cos", "Abs")


def random_ops(seed: int) -> Graph:
    """Loose ops around a few modules, with weights, skips and data."""
    rng, program = random.Random(seed), Program()
    values: list[int] = []
    for i in range(rng.randrange(8, 45)):
        inputs = [values[-rng.randrange(1, min(len(values), 5) + 1)] for _ in range(rng.randrange(3)) if values]
        weights = [f"w{rng.randrange(6)}"] if rng.random() < 0.2 or not inputs else []
        op = f"{rng.choice(KINDS)}Backward0"
        if rng.random() < 0.2:
            with program.call(f"m{i}", f"M{i}"):
                inputs = [program.op(op, *inputs, weights=weights)]
            weights = []
        values.append(program.op(op, *inputs, weights=weights))
    graph = program.graph()
    ops = [node.id for node in graph.nodes if node.id not in graph.leaf_of]
    data = tuple(Data((f"x{i}",), tensor(3), tuple(rng.sample(ops, 2))) for i in range(rng.randrange(3)))
    return replace(graph, data=data)


def invented(opening: Opening) -> list[str]:
    """What a window joins, entering and leaving it, though the second does not depend on the first."""
    graph = opening.groups.graph
    # a child of a window is one box, whether it is closed or not
    joined = {node: child for window in opening.windows for child in window.children for node in nodes_of(child)}
    needs: dict[object, set[object]] = {}
    for node in opening.groups.order:
        need = needs.setdefault(joined.get(node, node), set())
        need.update(f"data {i}" for i, data in enumerate(graph.data) if node in data.nodes)
        for edge in graph.inputs(node):
            maker = joined.get(edge.producer, edge.producer)
            need |= needs.get(maker, set()) | {maker}

    found = []
    for window in opening.windows:
        members = set(window.nodes)
        own = {joined[node] for node in members}
        uses = [edge for node in members for edge in graph.inputs(node) if edge.producer not in members]
        entering: set[object] = {joined.get(edge.producer, edge.producer) for edge in uses}
        entering.update(f"data {i}" for i, data in enumerate(graph.data) if members.intersection(data.nodes))
        for node in members:
            users = {edge.consumer for edge in graph.consumers(node)}
            if (users - members or node in graph.roots_of) and not entering - own <= needs[joined[node]]:
                found.append(f"{window.number}: {entering - needs[joined[node]]} -> {node}")
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_no_window_invents_a_dependence(seed: int, shown: int) -> None:
    opening = Opening(grouped(random_ops(seed)))
    for group in [one for one in opening.groups if len(one.children) > LEAST]:
        opening.enclose(group, between(opening, group, shown))
    assert invented(opening) == []


def titles(opening: Opening) -> list[list[str]]:
    ops = opening.groups.graph.ops
    return [[ops[node].removesuffix("Backward0") for node in window.nodes] for window in opening.windows]


def closed(program: Program, data: Sequence[tuple[str, str]] = ()) -> list[list[str]]:
    """The ops in each window, where all of what stands between the modules `first` and `last` is closed."""
    graph = program.graph()
    node_of = {op: node for node, op in enumerate(graph.ops)}
    inputs = [Data((name,), tensor(3), (node_of[f"{op}Backward0"],)) for name, op in data]
    opening = Opening(grouped(replace(graph, data=tuple(inputs)), views=True))
    (net,) = (group for group in opening.groups if group.record is not None and group.record.path == "net")
    opening.enclose(net, between(opening, net, 2))
    assert invented(opening) == []
    return sorted(titles(opening))


def chain(program: Program, names: str, *inputs: int, weights: Sequence[str] = ()) -> int:
    """Ops in a row, one for each letter."""
    first, *others = names
    x = program.op(f"{first}Backward0", *inputs, weights=weights)
    for name in others:
        x = program.op(f"{name}Backward0", x)
    return x


def call(program: Program, path: str, *inputs: int, weights: Sequence[str] = ()) -> int:
    with program.call(path, path):
        return chain(program, "Yz", *inputs, weights=weights)


def two_results(first: str, second: str, *, from_first: bool) -> Program:
    """Two modules, one of which uses what the first chain of ops made, and the other what the second did."""
    program = Program()
    with program.call("net", "Net"):
        x = call(program, "net.stem", weights=["w"])
        a = chain(program, first, x)
        b = chain(program, second, *([a] if from_first else []), weights=["query"])
        call(program, "net.decoder", call(program, "net.encoder", a), b)
    return program


def test_ops_that_nothing_connects_are_boxes_of_their_own() -> None:
    assert closed(two_results("ABCD", "EFGH", from_first=False)) == [list("ABCD"), list("EFGH")]
    assert closed(two_results("ABCD", "E", from_first=False)) == [list("ABCD")]  # one op is shown
    assert closed(two_results("A", "EFGH", from_first=False)) == [list("EFGH")]


def test_what_enters_late_is_no_input_of_what_left_before() -> None:
    """As the query of a contrastive loss, which does not depend on the keys."""
    assert closed(two_results("ABCD", "EFGH", from_first=True)) == [list("ABCD"), list("EFGH")]


def test_data_enter_a_box_as_well() -> None:
    program = Program()
    with program.call("net", "Net"):
        q = chain(program, "ABC", call(program, "net.encoder", weights=["w"]))
        logits = chain(program, "DEF", q)
        call(program, "net.loss", q, logits)
    assert closed(program, [("queue", "D")]) == [list("ABC"), list("DEF")]
    assert closed(program, [("queue", "A")]) == [list("ABCDEF")]


@pytest.mark.parametrize("inputs", [1, 3])
def test_one_result_of_many_inputs_is_one_box(inputs: int) -> None:
    program = Program()
    with program.call("net", "Net"):
        x = call(program, "net.stem", weights=["w"])
        parts = [chain(program, "ABC", x, weights=[f"w{i}"]) for i in range(inputs)]
        call(program, "net.head", program.op("CatBackward0", *parts))
    assert [len(ops) for ops in closed(program)] == [3 * inputs + 1]


def test_the_first_view_has_no_false_window() -> None:
    for seed in range(40):
        opening = opened(random_ops(seed), limit=12).opening
        assert opening is None or invented(opening) == []
