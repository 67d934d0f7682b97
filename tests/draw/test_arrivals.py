"""Pictures with gradients: boxes of single nodes, leaves, folded boxes, and none measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import gradviz
from gradviz.draw.heat import gradient_heat
from gradviz.draw.options import Options
from gradviz.errors import FormatError
from gradviz.fold.folding import Folding, unfolded
from gradviz.graph import BackwardStep, Graph, Group, Leaf, Node, TensorInfo
from tests.drawn import scene

GRAD = Options(color="grad")


def measured(*norms: float | None) -> Graph:
    nodes = tuple(Node(i, "ExpBackward0") for i in range(len(norms)))
    return Graph(nodes, backward=tuple(BackwardStep(i, norm) for i, norm in enumerate(norms)))


def test_boxes_say_the_norm() -> None:
    made = scene(measured(2.0, 0.5, 0.1, 0.0, None), GRAD)
    assert [box.kind for box in made.boxes] == ["heat5", "heat3", "heat1", "op", "op"]
    assert [box.lines[-1] for box in made.boxes] == [
        "gradient norm 2",
        "gradient norm 0.5",
        "gradient norm 0.1",
        "exp",
        "no gradient arrives",
    ]
    assert [box.flags for box in made.boxes] == [(), (), ("smallest gradient",), ("gradient zero",), ()]
    assert [entry.text for entry in made.legend][1:] == [
        "gradient norm up to 0.12",
        "gradient norm 0.25 to 0.5",
        "gradient norm above 1",
    ]


def test_the_engine_agrees() -> None:
    """Norms against the engine's own calls, told by hooks on the nodes."""
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    a = x + w
    b = w + 1
    y = a * b
    drawn = scene(gradviz.flow(y).graph, GRAD)
    called: list[str] = []
    functions = (y.grad_fn, a.grad_fn, b.grad_fn)
    for function in functions:
        assert function is not None
        function.register_prehook(lambda grads: called.append(f"gradient norm {float(grads[0].abs()):.4g}"))
    y.backward()
    ops = [box for box in drawn.boxes if isinstance(box.about, Node)]
    assert {box.lines[-1] for box in ops} == set(called) == {"gradient norm 1", "gradient norm 3", "gradient norm 2"}
    leaves = {box.lines[0]: box.lines[-1] for box in drawn.boxes if box.lines[0] in ("x", "w")}
    assert w.grad is not None and x.grad is not None
    assert leaves == {"w": f"gradient norm {w.grad:.4g}", "x": f"gradient norm {x.grad:.4g}"}


def test_leaves_are_tinted_too() -> None:
    graph = measured(1.0, 0.5)
    leaf = Leaf(1, ("w",), TensorInfo((), "float32", "cpu"))
    graph = Graph(graph.nodes, leaves=(leaf,), backward=graph.backward)
    box = scene(graph, GRAD).boxes[1]
    assert (box.kind, box.lines[0], box.lines[-1]) == ("heat4", "w", "gradient norm 0.5")
    assert scene(graph, Options()).boxes[1].kind == "leaf"


def with_group(graph: Graph, name: str, inside: tuple[int, ...]) -> Folding:
    """A cut with these nodes in one box, and each other in its own."""
    alone = [(node,) for node in range(len(graph.nodes)) if node not in inside]
    boxes = sorted([inside, *alone])
    group = Node(inside[0], name, group=Group("module", name, inside))
    drawn = tuple(group if nodes == inside else graph.nodes[nodes[0]] for nodes in boxes)
    box_of = [box for node in range(len(graph.nodes)) for box, nodes in enumerate(boxes) if node in nodes]
    return replace(unfolded(graph), boxes=drawn, box_of=box_of, edges=())


@pytest.mark.parametrize("inside", [(0, 1), (0, 2)])
def test_folded_boxes_have_a_range(inside: tuple[int, ...]) -> None:
    whole = measured(1.0, 0.1, 0.01)
    made = scene(with_group(whole, "fc", inside), GRAD)
    assert made.boxes[0].lines[-1] == f"gradient norms {whole.backward[inside[-1]].norm} to 1"


def test_folding_keeps_no_ids_of_another_graph() -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 2)).sum()
    graph = gradviz.flow(loss, model=net, recording=recording).graph
    folded = graph.fold(depth=1)
    assert folded.backward == () and folded.whole is graph
    assert set(gradient_heat(folded.folding).said) == set(range(len(folded.nodes)))


def test_a_gradient_that_is_not_finite_says_so() -> None:
    x = torch.zeros(2, requires_grad=True)
    graph = gradviz.flow(x.sqrt().sum()).graph
    assert [step.norm for step in graph.backward][-1] == math.inf
    made = scene(graph, GRAD)
    kinds = {box.lines[0]: (box.kind, box.flags) for box in made.boxes}
    assert kinds["sqrt"] == ("heat5", ())
    assert kinds["x"] == ("leaf", ("gradient not finite",))


def test_without_gradients_the_error_says_what_to_do() -> None:
    with pytest.raises(FormatError, match=r"gradviz\.flow\(loss\)\.graph"):
        scene(Graph((Node(0, "ExpBackward0"),)), GRAD)


def test_the_smallest_is_the_smallest_number_that_a_box_says() -> None:
    """A folded box that holds the smallest gradient beside a large one had no mark."""
    folding = with_group(measured(2.0, 0.5, 0.1, 0.001, 1.0), "two", (3, 4))
    assert gradient_heat(folding).alarms == {3: "smallest gradient"}
    assert gradient_heat(folding).words(3) == "gradient norms 0.001 to 1"
    alike = measured(2.0, 0.12341, 0.12342, 0.5)
    assert gradient_heat(unfolded(alike)).alarms == dict.fromkeys((1, 2), "smallest gradient")
