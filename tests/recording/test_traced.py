"""What torch.export and torch.fx made of a model has the boxes of the model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradviz
from gradviz.graph import Graph


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5, -1)
        result: torch.Tensor = self.out(weights @ value)
        return result


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), Attention()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """Two blocks, of which the first runs once more at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.blocks[0](x))
        return result


X = torch.arange(24.0).reshape(1, 3, 8) / 24
WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "export": lambda model: torch.export.export(model, (X,)).module(),
    "strict": lambda model: torch.export.export(model, (X,), strict=True).module(),
    "symbolic_trace": torch.fx.symbolic_trace,
}


def _graph(model: nn.Module, root: nn.Module | None = None) -> Graph:
    with gradviz.record() as recording:
        loss = model(X).sum()
    return recording.graph(loss, model=root or model)


def _boxes(graph: Graph) -> list[tuple[str, tuple[str, str, int] | None]]:
    """The op of each node, with path, class and number of the call that it is in."""
    calls = [(scope.path, scope.type, scope.call) for scope in graph.scopes]
    return [(node.op, calls[node.scope] if node.scope is not None else None) for node in graph.nodes]


def _tree(graph: Graph) -> list[tuple[str, int, int | None]]:
    return [(scope.path, scope.call, scope.parent) for scope in graph.scopes]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_boxes_are_those_of_the_model(way: str) -> None:
    model = Transformer()
    eager, traced = _graph(model), _graph(WAYS[way](model))
    assert _boxes(traced) == _boxes(eager) and _tree(traced) == _tree(eager)
    assert [scope.parameters for scope in traced.scopes if scope.type == "Block"] == [
        scope.parameters for scope in eager.scopes if scope.type == "Block"
    ]


def test_a_traced_module_inside_another_one_is_below_its_path() -> None:
    model = nn.Sequential(nn.Linear(8, 8), torch.export.export(Block(), (X,)).module())
    assert [scope.path for scope in _graph(model).scopes][:5] == ["", "0", "1", "1.norm", "1.attention"]


def test_a_forward_that_was_written_has_no_lines_of_the_graph() -> None:
    """Its variables may be called as nodes are."""
    traced = torch.fx.symbolic_trace(Block())

    class Written(torch.fx.GraphModule):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            norm = x * 2
            return norm

    module = Written(traced, traced.graph)
    type(module).forward = Written.forward  # type: ignore[method-assign]
    x = torch.ones(2, 8, requires_grad=True)
    with gradviz.record() as recording:
        result = module(x)
    graph = recording.graph(result, model=module)
    assert [scope.path for scope in graph.scopes if scope.path] == []


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__ < "2.8", reason="torch's own record there says L__self___head where the module is head"
)
def test_what_the_compiler_exports_has_the_boxes_too() -> None:
    model = Transformer()
    traced, _ = torch._dynamo.export(model)(X)
    ops = [box for box in _boxes(_graph(model)) if box[0] != "AccumulateGrad"]
    assert [box for box in _boxes(_graph(traced)) if box[0] != "AccumulateGrad"] == ops


def test_a_graph_that_was_changed_by_hand_keeps_what_its_nodes_say() -> None:
    traced = torch.fx.symbolic_trace(Block())
    mlp = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    with traced.graph.inserting_after(mlp):
        doubled = traced.graph.call_function(torch.mul, (mlp, 2.0))
    mlp.replace_all_uses_with(doubled, delete_user_cb=lambda user: user is not doubled)
    traced.recompile()
    assert _boxes(_graph(traced))[1] == ("MulBackward0", ("", "Block", 1))


def test_a_traced_module_that_fails_is_named() -> None:
    model = nn.Sequential(torch.fx.symbolic_trace(Block()), nn.Linear(9, 1))
    setattr(model[0].mlp, "2", nn.Linear(15, 8))
    with pytest.raises(RuntimeError, match="shapes") as failed, gradviz.record() as recording:
        model(X)
    assert recording.last_outputs(failed.value).module == "model.0.mlp.2"


def test_the_numbers_are_as_without_a_recording() -> None:
    traced = torch.export.export(Transformer(), (X,)).module()
    plain = traced(X)
    with gradviz.record():
        assert torch.equal(traced(X), plain)
        with torch.no_grad():
            assert torch.equal(traced(X), plain)
