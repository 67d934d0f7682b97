"""A walk goes into what torch.compile compiled: operations, edges, modules, lines, saved tensors."""

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
from gradviz.walker import private
from tests.compiled.models import Block, backward_calls, held, region_node

pytestmark = pytest.mark.skipif(
    not hasattr(private, "compiled_backward") or torch.__version__ < "2.7", reason="older torch"
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def inside(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if "in_compiled" in node.flags and "custom" not in node.flags]


def walked(model: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, Graph]:
    loss = model(*inputs).sum()
    return loss, gradviz.walk(loss, model=model)


def test_every_call_of_the_backward_is_a_node() -> None:
    loss, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    found = Counter(node.attributes["name"] for node in inside(graph))
    assert found == Counter(node.name for node in backward_calls(loss))


def test_nodes_have_the_modules_and_lines_of_the_forward() -> None:
    _, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    paths = {graph.scopes[node.scope].path for node in inside(graph) if node.scope is not None}
    assert {"norm", "mlp.0", "mlp.1", "mlp.2"} <= paths
    lines = {node.source.text for node in inside(graph) if node.source is not None}
    assert "kept = self.mlp(self.norm(x))" in lines


def test_gradients_reach_the_leaves_as_they_do_in_backward() -> None:
    model = torch.compile(Block(), backend="aot_eager")
    loss, graph = walked(model, torch.randn(3, 8))
    reached = {name for leaf in graph.leaves if graph.consumers(leaf.node) for name in leaf.names}
    loss.backward()
    assert reached == {name.replace("_orig_mod.", "") for name, one in model.named_parameters() if one.grad is not None}
    assert any("aside.weight" in note and "no gradient" in note for note in graph.notes)


@pytest.mark.parametrize("budget", [1.0, 0.0])
def test_saved_bytes_are_those_of_the_storages_that_are_held(budget: float) -> None:
    with torch._functorch.config.patch(activation_memory_budget=budget):
        loss, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    saved = {slot.storage for node in inside(graph) for slot in node.saved}
    assert sum(graph.storages[i].nbytes or 0 for i in saved if i is not None) == sum(held(loss).values())
    recomputed = [node for node in inside(graph) if "recomputed" in node.flags]
    assert bool(recomputed) == (budget == 0.0)
    if recomputed:
        assert any("saves" in node.attributes for node in recomputed)


def test_saved_slots_have_the_names_of_the_backwards_inputs() -> None:
    loss, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    region = region_node(loss)._forward_cls._lazy_backward_info.bw_module.graph
    names = {node.name for node in region.nodes if node.op == "placeholder"}
    slots = {slot.slot: slot for node in inside(graph) for slot in node.saved}
    assert slots and set(slots) <= names
    assert any(slot.note.startswith("made in") and "models.py:" in slot.note for slot in slots.values())
    assert any(slot.kind == "parameter" for slot in slots.values())


def test_reading_compiles_and_changes_nothing() -> None:
    model, x = torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8)
    loss, _ = walked(model, x)
    region = region_node(loss)._forward_cls
    assert region.compiled_bw is None
    loss.backward()
    first = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.equal(first[name], one.grad) for name, one in model.named_parameters() if one.grad is not None)


def test_symbolic_sizes_have_the_values_of_the_call() -> None:
    model = torch.compile(Block(), backend="aot_eager", dynamic=True)
    _, graph = walked(model, torch.randn(5, 8))
    sizes = {size for node in inside(graph) for one in node.outputs if one and one.shape for size in one.shape}
    assert {5, 8, 16} <= sizes and all(isinstance(size, int) for size in sizes)


def test_an_output_that_is_not_used_has_no_way_to_the_leaves() -> None:
    @torch.compile(backend="aot_eager")
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), y.cos()

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    graph = gradviz.walk(both(x, y)[0].sum())
    reached = {graph.roots[0].node}
    for node in graph.order:
        if node in reached:
            reached |= {edge.producer for edge in graph.inputs(node)}
    assert {leaf.names for leaf in graph.leaves if leaf.node in reached} == {("x",)}


def test_two_regions_and_code_between_them() -> None:
    first, second = torch.compile(torch.sin, backend="aot_eager"), torch.compile(torch.exp, backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    graph = gradviz.walk(second(first(x) * 2).sum())
    assert [node.op for node in graph.nodes].count("CompiledFunctionBackward") == 2
    assert [graph.nodes[edge.producer].op for edge in graph.inputs(0)] == ["CompiledFunctionBackward"]
    assert graph.order and graph.consumers(graph.leaves[0].node)


def test_a_graph_file_keeps_it_all(tmp_path: Path) -> None:
    _, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    assert gradviz.load(graph.save(str(tmp_path / "graph.json"))) == graph


def test_where_torch_tells_nothing_the_function_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "compiled_backward", lambda kind: (0, None, None))
    _, graph = walked(torch.compile(Block(), backend="aot_eager"), torch.randn(3, 8))
    assert not inside(graph)
    assert [node.flags for node in graph.nodes if node.op == "CompiledFunctionBackward"] == [("custom", "compiled")]


def test_make_dot_draws_one_box_as_torchviz_does() -> None:
    loss = torch.compile(torch.sin, backend="aot_eager")(torch.ones(3, requires_grad=True)).sum()
    source = gradviz.make_dot(loss).source
    assert "CompiledFunctionBackward" in source and "aten" not in source


@pytest.mark.slow
def test_under_compiled_autograd_backward_gives_the_same_and_the_graph_is_still_read() -> None:
    from torch._dynamo import compiled_autograd

    net, x = Block(), torch.randn(3, 8)
    net(x).sum().backward()
    wanted = {name: one.grad.clone() for name, one in net.named_parameters() if one.grad is not None}
    net.zero_grad()
    loss, before = walked(torch.compile(net, backend="aot_eager"), x)
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        loss.backward()
    assert all(torch.allclose(wanted[name], one.grad) for name, one in net.named_parameters() if one.grad is not None)
    after = gradviz.walk(loss, model=net)
    assert [node.op for node in inside(after)] == [node.op for node in inside(before)]
    assert any("freed" in node.flags for node in inside(after))
