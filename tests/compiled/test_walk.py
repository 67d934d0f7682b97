"""A compiled function is one node, which says what it runs; and it has edges only to what it gives a gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import gradviz
from gradviz.graph import Graph, Node
from gradviz.report.labels import flag_words
from tests.compiled.models import Block, backward_calls, region_node

pytestmark = pytest.mark.skipif(torch.__version__ < "2.7", reason="older torch")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if "compiled" in node.flags]


def walked(model: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, Graph]:
    loss = model(*inputs).sum()
    return loss, gradviz.walk(loss, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_node_says_what_it_runs_and_where_it_was_called(dynamic: bool) -> None:
    model, x = torch.compile(Block(), backend="aot_eager", dynamic=dynamic), torch.randn(3, 8)
    with gradviz.record() as recording:
        loss = model(x).sum()
    graph = recording.graph(loss)

    (node,) = compiled(graph)
    calls = Counter(str(call.target).split(".")[1] for call in backward_calls(loss))
    kinds = [kind.partition(" ×") for kind in node.attributes["ops"].split(", ")]
    assert {name: int(count or 1) for name, _, count in kinds} == calls
    assert node.attributes["operations"] == calls.total()
    assert flag_words(node) == {"compiled": f"compiled: {calls.total()} operations"}
    assert node.source is not None and node.source.file.endswith("models.py")
    assert node.scope is not None and graph.scopes[node.scope].type == "Block"


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_reach_the_leaves_as_they_do_in_backward(dynamic: bool) -> None:
    model = torch.compile(Block(), backend="aot_eager", dynamic=dynamic)
    loss, graph = walked(model, torch.randn(3, 8))
    reached = {name for leaf in graph.leaves if graph.consumers(leaf.node) for name in leaf.names}
    loss.backward()
    given = {name.replace("_orig_mod", "model") for name, one in model.named_parameters() if one.grad is not None}
    assert reached == given
    assert any("aside.weight" in note and "no gradient" in note for note in graph.notes)


def test_reading_compiles_and_changes_nothing() -> None:
    model, x = torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8)
    loss, graph = walked(model, x)
    region = region_node(loss)._forward_cls
    assert region.compiled_bw is None
    assert [node.attributes["backward_compiled"] for node in compiled(graph)] == [False]
    loss.backward()
    first = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.equal(first[name], one.grad) for name, one in model.named_parameters() if one.grad is not None)


def test_two_regions_and_code_between_them() -> None:
    first, second = torch.compile(torch.sin, backend="aot_eager"), torch.compile(torch.exp, backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    graph = gradviz.walk(second(first(x) * 2).sum())
    assert [node.attributes["ops"] for node in compiled(graph)] == ["mul", "cos, mul"]
    assert graph.consumers(graph.leaves[0].node)


def test_a_graph_file_keeps_it_all(tmp_path: Path) -> None:
    _, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    assert gradviz.load(graph.save(str(tmp_path / "graph.json"))) == graph


OPENED = """
{"format":"gradviz-graph","version":1,"title":"loss","torch":"2.13.0+cpu","attribution":"recorded","notes":[],
"nodes":[
{"op":"CompiledFunctionBackward","outputs":[0],"sequence":12,"attributes":{"backward_compiled":false,"operations":2},
"flags":["custom","in_compiled"],"names":["loss"]},
{"op":"AccumulateGrad","outputs":[1],"names":["w"]},
{"op":"aten.sin","outputs":[0],"sequence":12,"source":0,"attributes":{"name":"sin","saves":"24 B"},
"flags":["in_compiled","recomputed"]},
{"op":"aten.mul","outputs":[0],"sequence":12,"source":0,"attributes":{"name":"mul","forward_call":3,"gradient of":"cos"},
"saved":[{"slot":"primals_1","tensor":1,"storage":0,"kind":"parameter","state":"live","nbytes":16,"leaf":1}],
"flags":["in_compiled"]}],
"edges":[[0,3,0,0],[3,1,0,0],[3,2,0,1]],
"leaves":[{"node":1,"names":["w"],"tensor":1,"storage":0}],
"roots":[{"node":0,"output":0,"name":"loss","tensor":0}],
"scopes":[],"storages":[{"nbytes":16,"kind":"parameter"}],
"tensors":[[[],"float32","cpu"],[[2,2],"float32","cpu"]],
"sources":[["train.py",3,"f","def f(w): return w.cos().sum()"]]
}
"""


def test_a_file_of_a_version_that_opened_it_still_loads(tmp_path: Path) -> None:
    file = tmp_path / "opened.json"
    file.write_text(OPENED)
    graph = gradviz.load(str(file))
    assert [node.flags for node in graph.nodes] == [("custom",), (), (), ()]
    assert "aten.sin" in graph.to_svg()


def test_make_dot_draws_one_box_as_torchviz_does() -> None:
    loss = torch.compile(Block(), backend="aot_eager")(torch.randn(3, 8)).sum()
    dot = gradviz.make_dot(loss, show_attrs=True).source
    assert "CompiledFunctionBackward" in dot and "operations" not in dot
