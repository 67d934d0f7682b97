"""Folding: what it joins, and what must hold whatever it joins."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from gradviz.draw.options import Options
from gradviz.errors import FormatError
from gradviz.fold.export import fold
from gradviz.fold.fold import PAGE, UPRIGHT, Measure
from gradviz.fold.folding import folding_of
from gradviz.fold.sizes import Size
from gradviz.graph import Construct, Data, Edge, Graph, Leaf, Node, Root, SavedTensor, Scope, Storage, TensorInfo, Uses
from gradviz.graph.amounts import depth, held_bytes
from gradviz.graph.files import dump, loads
from tests.builders import chain, cycles, tensor
from tests.drawn import scene

VALUE = tensor(3, 4)


class Program:
    """Runs ops as a recorder sees them: each `op` is numbered in order and lies in the innermost open module call."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, list[int], int | None, list[str], TensorInfo]] = []
        self.scopes: list[Scope] = []
        self.open: list[int] = []
        self.calls: dict[str, int] = {}
        self.weights: dict[str, None] = {}

    def call(self, path: str, type: str) -> Program:
        self.calls[path] = self.calls.get(path, 0) + 1
        self.scopes.append(Scope(path, type, self.calls[path], self.open[-1] if self.open else None))
        self.open.append(len(self.scopes) - 1)
        return self

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.pop()

    def op(self, name: str, *inputs: int, weights: Sequence[str] = (), made: TensorInfo = VALUE) -> int:
        self.weights.update(dict.fromkeys(weights))
        self.ops.append((name, list(inputs), self.open[-1] if self.open else None, list(weights), made))
        return len(self.ops) - 1

    def graph(self, *outputs: int) -> Graph:
        """The graph behind these ops (all that have no consumer, by default), ids from the last op to the first."""
        n = len(self.ops)
        leaf_at = {name: n + i for i, name in enumerate(self.weights)}
        nodes, edges, storages = [], [], []
        for i in reversed(range(n)):
            op, inputs, scope, weights, made = self.ops[i]
            storages.append(Storage(len(storages), 8, "activation"))
            saved = (SavedTensor("result", made, len(storages) - 1, "activation", "live", 8),)
            nodes.append(Node(n - 1 - i, op, (made,), i, scope, saved=saved))
            producers = [n - 1 - j for j in inputs] + [leaf_at[name] for name in weights]
            edges += [Edge(n - 1 - i, producer, 0, position) for position, producer in enumerate(producers)]
        nodes += [Node(node, "AccumulateGrad", (VALUE,)) for node in leaf_at.values()]
        leaves = tuple(Leaf(node, (name,), VALUE, "parameter") for name, node in leaf_at.items())
        used = {edge.producer for edge in edges}
        ends = [n - 1 - i for i in outputs] or [node.id for node in nodes if node.id not in used]
        roots = tuple(Root(node, 0, f"out{i}", VALUE) for i, node in enumerate(ends))
        return Graph(tuple(nodes), tuple(sorted(edges)), leaves, roots, tuple(self.scopes), tuple(storages))


def blocks(n: int, *, between: bool = False, odd: int | None = None) -> Graph:
    """A model of `n` blocks, each an Addmm with its own weight and a Relu; one of them may be different."""
    program = Program()
    with program.call("", "Net"):
        x = program.op("ExpBackward0", weights=["input"])
        for i in range(n):
            with program.call(f"blocks.{i}", "Block"):
                with program.call(f"blocks.{i}.linear", "Linear"):
                    y = program.op("AddmmBackward0", x, weights=[f"blocks.{i}.linear.weight"])
                y = program.op("TanhBackward0" if i == odd else "ReluBackward0", y)
            x = program.op("AddBackward0", x, y) if between else y
    program.op("SumBackward0", x)
    return program.graph()


def loop(turns: int, *, mask: bool = False) -> Graph:
    """One cell called again and again, its result fed back, perhaps through an op outside the cell."""
    program = Program()
    x = program.op("ExpBackward0", weights=["input"])
    for _ in range(turns):
        with program.call("cell", "Cell"):
            x = program.op("TanhBackward0", program.op("AddmmBackward0", x, weights=["cell.weight"]))
        if mask:
            x = program.op("MulBackward0", x)
    program.op("SumBackward0", x)
    return program.graph()


def pages(boxes: float) -> Measure:
    """Measures pictures in boxes: a page holds so many."""
    return lambda folding, sheet: Size(0.0, PAGE.height * folding.size / boxes)


def titles(graph: Graph) -> list[tuple[str, str, int]]:
    return [(node.group.kind, node.group.title, node.group.count) for node in graph.nodes if node.group]


# -- what is joined ----------------------------------------------------------------------------------------------------


def test_depth_one_draws_the_outermost_module_as_one_box() -> None:
    folded = fold(blocks(4), depth=1)
    assert titles(folded) == [("module", "Net", 1)]
    assert [node.op for node in folded.nodes if node.group is None] == ["SumBackward0"]
    (group,) = [node.group for node in folded.nodes if node.group]
    assert (group.ops, group.parameters, group.nbytes) == (9, 5 * 12, 9 * 8)


def test_alike_siblings_are_one_box_with_an_edge_to_itself() -> None:
    folded = fold(blocks(12), depth=2)
    assert titles(folded) == [("alike", "blocks.0–11 Block", 12)]
    (box,) = [node.id for node in folded.nodes if node.group]
    assert [edge.count for edge in folded.edges if edge.consumer == edge.producer == box] == [11]


def test_deeper_opens_the_first_of_the_alike() -> None:
    folded = fold(blocks(12), depth=3)
    assert titles(folded) == [("alike", "blocks.1–11 Block", 11), ("module", "blocks.0.linear Linear", 1)]


def test_one_that_differs_stays_alone() -> None:
    """Alike is proven by structure: same class and same length are not enough."""
    assert sorted(titles(fold(blocks(7, odd=3), depth=2))) == [
        ("alike", "blocks.0–2 Block", 3),
        ("alike", "blocks.4–6 Block", 3),
        ("module", "blocks.3 Block", 1),
    ]


def mixed(n: int) -> Graph:
    """Blocks of two kinds in turn, all of which use one more value."""
    program = Program()
    x = bias = program.op("ExpBackward0", weights=["input"])
    with program.call("net", "Net"):
        for i in range(n):
            with program.call(f"net.layers.{i}", "Mamba" if i % 2 else "Attention"):
                for k in range(3 + i % 2):
                    x = program.op(f"Op{k}Backward0", x, bias, weights=[f"net.layers.{i}.{k}"])
    program.op("SumBackward0", x)
    return program.graph()


@pytest.mark.parametrize("n", [6, 48])
def test_layers_that_take_turns_are_joined_by_turns_however_deep(n: int) -> None:
    folded = fold(mixed(n), depth=2)
    assert titles(folded) == [("alike", f"net.layers.0–{n - 1}", n // 2)]
    (uses,) = [edge.count for edge in folded.edges if edge.producer == len(folded.nodes) - 2 or edge.count > n]
    assert uses > n  # the value that all share is one box, with all its uses


def test_ops_between_alike_siblings_join_their_box() -> None:
    folded = fold(blocks(12, between=True), depth=2)
    assert titles(folded) == [("alike", "3 ops, addmm to add", 12)]


def test_a_cell_called_again_and_again_is_one_loop() -> None:
    folded = fold(loop(100), depth=1)
    assert titles(folded) == [("loop", "cell Cell", 100)]
    (box,) = [node.id for node in folded.nodes if node.group]
    assert [edge.count for edge in folded.edges if edge.consumer == edge.producer == box] == [99]
    assert [leaf.names for leaf in folded.leaves] == [("input",)]


@pytest.mark.parametrize(("graph", "levels"), [(loop(9), 1), (blocks(4), 2)], ids=["loop", "blocks"])
def test_a_folded_graph_can_be_saved_and_told(graph: Graph, levels: int) -> None:
    folded = fold(graph, depth=levels)
    assert any(edge.consumer == edge.producer for edge in folded.edges)
    assert depth(folded) <= len(folded.nodes) and "longest path" in str(folded)
    read = loads("".join(dump(folded)))
    assert (read.nodes, read.edges) == (folded.nodes, folded.edges)


def test_an_op_between_the_turns_belongs_to_the_loop() -> None:
    assert titles(fold(loop(100, mask=True), depth=1)) == [("loop", "3 ops, addmm to mul", 100)]


def test_a_module_used_at_both_ends_does_not_swallow_what_lies_between() -> None:
    program = Program()
    with program.call("tied", "Tied"):
        x = program.op("ExpBackward0", weights=["tied.weight"])
    with program.call("middle", "Middle"):
        x = program.op("SinBackward0", x)
    with program.call("tied", "Tied"):
        program.op("ExpBackward0", x, weights=["tied.weight"])
    folded = fold(program.graph(), depth=1)
    assert sorted(titles(folded)) == [
        ("module", "middle Middle", 1),
        ("module", "tied Tied", 1),
        ("module", "tied Tied, call 2", 1),
    ]
    assert folded.leaves == ()  # the weight is inside the first call


def twice(*, different: bool = False) -> Graph:
    """A net of two layers called for two inputs, and the difference of both outputs."""
    program = Program()
    ends = []
    for call in range(2):
        with program.call("net", "Net"):
            x = program.op("ExpBackward0")
            for i in range(2):
                with program.call(f"net.{i}", "Linear"):
                    weight = f"net.{i}.other" if different and call else f"net.{i}.weight"
                    x = program.op("AddmmBackward0", x, weights=[weight])
                x = program.op("ReluBackward0", x)
        ends.append(x)
    for _ in range(60):  # too much to be drawn in full
        ends[0] = program.op(f"Op{_}Backward0", ends[0])
    program.op("SubBackward0", *ends)
    return program.graph()


def test_a_later_call_has_the_parameters_of_the_first() -> None:
    folded = fold(twice(), depth=2)
    by_title = {node.group.title: node for node in folded.nodes if node.group}
    later = by_title["net Net, call 2"]
    assert set(by_title) == {"net.0 Linear", "net.1 Linear", "net Net, call 2"}
    assert later.group is not None and (later.group.same_as, later.group.parameters) == (1, 0)
    assert folded.leaves == ()  # inside the layers of the first call
    homes = sorted(by_title[f"net.{i} Linear"].id for i in range(2))
    assert later.group.shared == tuple(Uses(home, 0, 1) for home in homes)
    assert sorted(edge.producer for edge in folded.inputs(later.id)) == homes  # the graph keeps what no picture draws
    assert sum(group.parameters for group in folded.groups) == 2 * 12  # counted once
    assert [node.outputs for node in folded.nodes if node.group] == [(VALUE,)] * 3  # a weight is no output


def test_a_call_with_parameters_of_its_own_says_nothing_of_another() -> None:
    folded = fold(twice(different=True), depth=2)
    assert [group.same_as for group in folded.groups if group.title == "net Net, call 2"] == [None]


def test_parameters_are_the_same_as_those_of_a_call_only_when_they_are() -> None:
    program = Program()
    x = program.op("ExpBackward0")
    for weights in (["net.a"], ["net.a"], ["net.a", "net.b"]):
        with program.call("net", "Net"):
            for weight in weights:  # only of the last call is all used
                x = program.op("AddmmBackward0", x, weights=[weight])
                x = program.op("ReluBackward0", x)
    said = [(group.title, group.same_as, group.shares) for group in fold(program.graph(), depth=1).groups]
    later = {("net Net, call 2", 1, ""), ("net Net, call 3", None, "call 1")}
    assert {*said} == {("net Net", None, ""), *later}


def test_a_long_chain_of_equal_ops_is_one_box() -> None:
    folded = fold(chain(1000))
    assert [(kind, title) for kind, title, _ in titles(folded)] == [("loop", "mul")]
    assert len(folded.nodes) < 10


def siblings(n: int, *, normed: bool = False) -> Graph:
    """`n` losses in a list, each of three ops, stacked. With `normed` each is divided by what all of them are used for."""
    program = Program()
    x = program.op("LogSoftmaxBackward0", weights=["input"])
    ends = [program.op("NegBackward0", program.op("SelectBackward0", x)) for _ in range(n)]
    if normed:
        norm = program.op("StackBackward0", *ends)
        ends = [program.op("DivBackward0", end, norm) for end in ends]
    else:
        ends = [program.op("MulBackward0", end) for end in ends]
    program.op("SumBackward0", program.op("StackBackward0", *ends))
    return program.graph()


@pytest.mark.parametrize("normed", [False, True])
def test_branches_are_one_box_for_each_step_of_the_script(normed: bool) -> None:
    folded = fold(siblings(30, normed=normed), depth=1)
    assert sorted(titles(folded)) == [("alike", "2 ops, select to neg", 30), ("alike", "div" if normed else "mul", 30)]
    assert not any(edge.consumer == edge.producer for edge in folded.edges)  # no branch feeds another
    assert sum(group.ops for group in folded.groups) == 90


def test_small_graphs_are_not_folded_by_default() -> None:
    graph = chain(20)
    assert fold(graph) is graph
    assert fold(graph, depth="all") is graph


def test_in_a_small_graph_layers_alone_are_boxes() -> None:
    folded = fold(blocks(4))
    assert sorted(titles(folded)) == [("module", f"blocks.{i}.linear Linear", 1) for i in range(4)]
    assert [leaf.names for leaf in folded.leaves] == [("input",)]  # parameters are in their layers


def test_auto_is_the_most_detailed_view_that_fits() -> None:
    graph = blocks(40)
    folded = fold(graph)
    assert sorted(titles(folded)) == [
        ("alike", "blocks.1–39 Block", 39),
        ("module", "blocks.0.linear Linear", 1),  # the first block is open down to its layer
    ]
    assert "ReluBackward0" in [node.op for node in folded.nodes]


def nested(n: int) -> Graph:
    """A model of `n` alike blocks with two parts each, and each part runs three ops of its own and two in a module."""
    program = Program()
    with program.call("", "Net"):
        x = program.op("ExpBackward0", weights=["input"])
        for i in range(n):
            with program.call(f"blocks.{i}", "Block"):
                for part in ("attention", "mlp"):
                    with program.call(f"blocks.{i}.{part}", part.title()):
                        for _ in range(3):
                            x = program.op("SinBackward0", x)
                        with program.call(f"blocks.{i}.{part}.linear", "Linear"):
                            x = program.op("AddmmBackward0", x, weights=[f"blocks.{i}.{part}.weight"])
                            x = program.op("ReluBackward0", x)
    program.op("SumBackward0", x)
    return program.graph()


@pytest.mark.parametrize(("boxes", "least"), [(5, 1), (12, 3)])
def test_a_larger_page_shows_more_of_the_first_of_the_alike(boxes: int, least: int) -> None:
    folded = fold(nested(12), measure=pages(boxes))
    assert len(folded.nodes) <= boxes * UPRIGHT.height / PAGE.height
    depths = {folded.scopes[node.scope].path.count(".") for node in folded.nodes if node.scope is not None}
    assert max(depths, default=0) >= least - 1
    assert sum(count for kind, _, count in titles(folded) if kind == "alike") in (11, 12)


def test_a_small_module_in_focus_is_drawn_in_full() -> None:
    folded = fold(nested(12), focus="blocks.3", limit=20)
    inside = [node.op for node in folded.nodes if node.op in ("SinBackward0", "AddmmBackward0", "ReluBackward0")]
    assert len(inside) == 10
    assert sorted(count for kind, _, count in titles(folded) if kind == "alike") == [2, 8]  # before it and after it


def functions(n: int) -> Graph:
    """Plain functions, irregular enough that nothing repeats: `n` residual steps of four ops, one value between steps."""
    program = Program()
    x = program.op("ExpBackward0", weights=["input"])
    for i in range(n):
        y = program.op(f"Step{i}Backward0", x)
        y = program.op(f"Mid{i}Backward0", program.op(f"Wide{i}Backward0", y), y)
        x = program.op(f"Add{i}Backward0", x, y)
    program.op("SumBackward0", x)
    return program.graph()


def test_what_has_no_modules_and_no_loops_is_cut_into_segments() -> None:
    folded = fold(functions(100))
    assert {kind for kind, _, _ in titles(folded)} == {"chain"}


def test_segments_leave_an_expanded_module_alone() -> None:
    program = Program()
    x = program.op("ExpBackward0", weights=["input"])
    with program.call("net", "Net"):
        for i in range(200):
            x = program.op(f"Op{i}Backward0", x)
    program.op("SumBackward0", x)
    graph = program.graph()
    folded = fold(graph)
    assert sum(group.ops for group in folded.groups) > 150
    assert all(re.fullmatch(r"… \d+ ops, op\d+ to op\d+", group.title) for group in folded.groups)
    assert titles(fold(graph, depth=1)) == [("module", "net Net", 1)]


def test_focus_and_expand_open_one_module() -> None:
    focused = fold(blocks(12), focus="blocks.7", depth=1)
    assert ("module", "blocks.7.linear Linear", 1) in titles(focused)
    expanded = fold(blocks(12), depth=2, expand=["blocks.7"])
    assert ("module", "blocks.7.linear Linear", 1) in titles(expanded)
    assert sorted(titles(expanded))[:2] == [("alike", "blocks.1–6 Block", 6), ("alike", "blocks.8–11 Block", 4)]


# -- the body first ----------------------------------------------------------------------------------------------------


def convolutions(n: int) -> Graph:
    """A Sequential of `n` layers that all differ, between a small stem and a small head, as in an image classifier."""
    program = Program()
    with program.call("model", "Model"):
        with program.call("model.stem", "Stem"):
            x = program.op("CosBackward0", program.op("SinBackward0", weights=["model.stem.weight"]))
        with program.call("model.features", "Sequential"):
            for i in range(n):
                with program.call(f"model.features.{i}", "Conv2d"):
                    x = program.op("ConvolutionBackward0", x, weights=[f"features.{i}"], made=tensor(i + 1))
                    x = program.op("ReluBackward0", x, made=tensor(i + 1))
        with program.call("model.head", "Head"):
            for i in range(5):
                x = program.op(f"Head{i}Backward0", x)
    program.op("NllLossBackward0", x)
    return program.graph()


@pytest.mark.parametrize("n", [50, 60])
def test_a_long_sequential_opens_as_a_window(n: int) -> None:
    folded = fold(convolutions(n))
    assert "model.features" in {folded.scopes[node.scope].path for node in folded.nodes if node.scope is not None}
    shown = [title for _, title, _ in titles(folded) if title.startswith("model.features.")]
    assert {"model.features.0 Conv2d", f"model.features.{n - 1} Conv2d"} <= set(shown)
    middle = [title for title in shown if "–" in title]
    first, last = re.fullmatch(r"model\.features\.(\d+)–(\d+) Conv2d", middle[0]).groups()  # type: ignore[union-attr]
    assert len(middle) == 1
    assert {f"model.features.{int(first) - 1} Conv2d", f"model.features.{int(last) + 1} Conv2d"} <= set(shown)


def test_says_what_is_wrong() -> None:
    with pytest.raises(FormatError, match=r"no module 'blocks\.77'.*Did you mean blocks\.7"):
        fold(blocks(12), focus="blocks.77")
    with pytest.raises(FormatError, match="No modules were recorded"):
        fold(chain(3), expand=["x"])
    with pytest.raises(FormatError, match="depth cannot be 0"):
        fold(chain(3), depth=0)


# -- what must always hold ---------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Random ops in random nested module calls, with loops, shared weights and skips."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    program = Program()
    values: list[int] = []
    for _ in range(draw(st.integers(1, 40))):
        choice = rng.random()
        if choice < 0.25 and len(program.open) < 4:
            name = f"m{rng.randrange(4)}"
            prefix = program.scopes[program.open[-1]].path + "." if program.open else ""
            program.call(prefix + name, name.upper())
        elif choice < 0.45 and program.open:
            program.__exit__()
        else:
            inputs = [values[-1 - min(rng.randrange(1, 6), len(values)) + 1] for _ in range(rng.randrange(3)) if values]
            weights = [f"w{rng.randrange(5)}"] if rng.random() < 0.4 or not inputs else []
            values.append(program.op(rng.choice(["ExpBackward0", "MulBackward0"]), *inputs, weights=weights))
    if not values:
        program.op("ExpBackward0", weights=["w"])
    return program.graph()


def reachable(graph: Graph, start: int) -> set[int]:
    found, stack = {start}, [start]
    while stack:
        for edge in graph.inputs(stack.pop()):
            if edge.producer not in found:
                found.add(edge.producer)
                stack.append(edge.producer)
    return found


def inside(folded: Graph, original: Graph) -> list[int]:
    """The folded node of each original node. Single nodes keep their order among themselves."""
    at = {}
    for node in folded.nodes:
        for member in node.group.nodes if node.group else ():
            at[member] = node.id
    singles = iter(node.id for node in folded.nodes if node.group is None)
    return [at[node.id] if node.id in at else next(singles) for node in original.nodes]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(programs(), st.integers(1, 4), st.booleans())
def test_folding_keeps_everything_that_matters(graph: Graph, depth: int, auto: bool) -> None:
    folded = fold(graph, depth="auto", limit=6, measure=pages(4 * depth)) if auto else fold(graph, depth=depth)
    box = inside(folded, graph)

    assert sorted(member for node in folded.nodes for member in (node.group.nodes if node.group else ())) == sorted(
        i for i in range(len(graph.nodes)) if folded.nodes[box[i]].group
    )
    assert all(
        folded.nodes[box[i]].op == node.op for i, node in enumerate(graph.nodes) if not folded.nodes[box[i]].group
    )

    between = [edge for edge in graph.edges if box[edge.consumer] != box[edge.producer]]
    kept = [edge for edge in folded.edges if edge.consumer != edge.producer]
    assert sum(edge.count for edge in kept) == len(between)
    assert {(box[edge.consumer], box[edge.producer]) for edge in between} == {(e.consumer, e.producer) for e in kept}

    assert cycles([(edge.consumer, edge.producer) for edge in folded.edges]) == []

    held = held_bytes(graph)
    groups = [node.group for node in folded.nodes if node.group]
    assert [group.nbytes for group in groups] == [sum(held[i] for i in group.nodes) for group in groups]
    assert sum(group.ops for group in groups) + sum(
        node.group is None and node.id not in folded.leaf_of for node in folded.nodes
    ) == len(graph.nodes) - len(graph.leaves)

    for i in range(len(graph.nodes)):
        assert {box[j] for j in reachable(graph, i)} <= reachable(folded, box[i])

    again = fold(folded, depth="auto", limit=6, measure=pages(4 * depth)) if auto else fold(folded, depth=depth)
    assert again == folded
    assert len(folded.roots) == len(graph.roots)


def test_what_leaves_a_box_keeps_its_kind() -> None:
    """A router's scores and the hidden state leave one module, and two others take one each."""
    scores, hidden = (TensorInfo(shape, "float32", "cpu") for shape in ((24, 4), (2, 3)))
    scopes = (Scope("moe", "MoE", 1, None),)
    nodes = (
        Node(0, "AddBackward0", (hidden,), 5),
        Node(1, "SoftmaxBackward0", (scores,), 4),
        Node(2, "MulBackward0", (hidden,), 3),
        Node(3, "MmBackward0", (scores,), 2, 0),
        Node(4, "TanhBackward0", (hidden,), 1, 0),
    )
    edges = tuple(Edge(*ends, 0, i) for i, ends in enumerate([(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)]))
    graph = Graph(nodes, tuple(sorted(edges)), roots=(Root(0, 0, "loss", hidden),), scopes=scopes)
    folded = graph.fold(depth=1)
    (box,) = [node for node in folded.nodes if node.group]
    taken = {
        folded.nodes[edge.consumer].op: box.outputs[edge.output] for edge in folded.edges if edge.producer == box.id
    }
    assert taken == {"SoftmaxBackward0": scores, "MulBackward0": hidden}
    made = scene(folded, Options())
    assert {"(24, 4)", "(2, 3)"} <= {link.label for link in made.links}


def test_a_folded_graph_knows_which_nodes_are_in_each_box() -> None:
    graph = blocks(4)
    folded = graph.fold(depth=1)
    for node, nodes in zip(folded.nodes, folded.folding.inside):
        assert nodes == (node.group.nodes if node.group else (nodes[0],))
        assert {folded.folding.box_of[inner] for inner in nodes} == {node.id}
    # what is in a box keeps the number that it has in the graph
    assert [box.id for box in folded.folding.boxes] == [nodes[0] for nodes in folded.folding.inside]
    assert list(folding_of(graph).box_of) == [node.id for node in graph.nodes]


def test_a_folded_graph_is_read_again_from_its_file_with_its_data_at_the_boxes() -> None:
    scopes = (Scope("net", "Net", 1, None),)
    nodes = tuple(Node(i, f"Op{i}Backward0", sequence=9 - i, scope=0 if i else None) for i in range(4))
    edges = tuple(Edge(i, i + 1, 0, 0) for i in range(3))
    data = (Data(("mask",), tensor(2), (0, 2, 3), position=(1, None, 1)),)
    program = (Construct("statement", "x", nodes=(2, 3)),)
    folded = Graph(nodes, edges, scopes=scopes, data=data, program=program).fold(depth=1)
    assert len(folded.nodes) == 2 and folded.data[0][2:] == data[0]._replace(nodes=(0, 1), position=(1, None))[2:]
    assert loads("".join(dump(folded))) == folded
    assert "net Net" in str(folded.tree())
