"""Modules guessed from who owns the parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import gradviz
from benchmarks.inference import agreement, both
from benchmarks.inferred import CASES, hugging_face
from gradviz.graph import Edge, Graph, Node, Scope
from gradviz.graph.origins import Ownership, Registered, forward_name
from gradviz.inference import infer_scopes
from tests.builders import cycles
from tests.drawn import footer_lines
from tests.fold.test_closing import scattered
from tests.rows import every_other
from tests.walker.graphs import needs_raw


def places(graph: Graph) -> dict[str, str | None]:
    """Path of the module by operation, for graphs in which no operation occurs twice."""
    made = [node for node in graph.nodes if node.sequence is not None]
    return {node.op: graph.scopes[node.scope].path if node.scope is not None else None for node in made}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.fc(x))
        return self.norm(torch.tanh(self.conv(hidden.unsqueeze(1)))).sigmoid()  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[0](x.exp()) * self.scale[0]  # type: ignore[no-any-return]


def test_operations_lie_with_their_parameters() -> None:
    net = Net()
    x = torch.ones(2, 4, requires_grad=True)
    graph = gradviz.walk(net(x).sum(), model=net)
    assert graph.attribution == "inferred"
    assert places(graph) == {
        "SumBackward0": None,  # nothing after it
        "MulBackward0": "net",
        "SigmoidBackward0": "net.blocks.0",  # its forward says so
        "NativeLayerNormBackward0": "net.blocks.0.norm",
        "TanhBackward0": "net.blocks.0",
        "ConvolutionBackward0": "net.blocks.0.conv",
        "UnsqueezeBackward0": "net.blocks.0",
        "ReluBackward0": "net.blocks.0",
        "AddmmBackward0": "net.blocks.0.fc",
        "TBackward0": "net.blocks.0.fc",
        "ExpBackward0": "net",
    }
    owners = {leaf.names[0]: graph.nodes[leaf.node].scope for leaf in graph.leaves}
    paths = {name: graph.scopes[scope].path if scope is not None else None for name, scope in owners.items()}
    assert paths["net.blocks.0.fc.weight"] == "net.blocks.0.fc"
    assert paths["net.scale.0"] == "net"
    assert paths["x"] is None


def test_modules_are_found_among_the_callers_variables() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    graph = gradviz.walk(second(first(torch.ones(1, 2)).relu()))
    assert [(scope.path, scope.parent) for scope in graph.scopes] == [("first", None), ("second", None)]
    assert places(graph)["ReluBackward0"] is None  # between two modules that nothing contains


def test_without_modules_nothing_is_inferred() -> None:
    x = torch.ones(2, requires_grad=True)
    graph = gradviz.walk(x.exp())
    assert (graph.scopes, graph.attribution) == ((), "")


def test_a_recorded_graph_stays_as_it_is() -> None:
    graph = Graph(
        nodes=(Node(0, "MulBackward0"), Node(1, "AccumulateGrad", scope=0)),
        edges=(Edge(0, 1, 0, 0),),
        scopes=(Scope("fc", "Linear", 1, None),),
        attribution="recorded",
    )
    assert infer_scopes(graph, Ownership((Registered("fc", "Linear", "Linear", None),), {1: (0,)})) is graph


WITHOUT_TRANSFORMERS = [name for name, case in CASES.items() if name not in hugging_face.CASES]
SOME = ["BERT", "GPT-2", "Llama (HF)", "T5", "RWKV (HF)", "ResNet (HF)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", every_other([*WITHOUT_TRANSFORMERS, *(name for name in SOME if name in hugging_face.CASES)])
)
def test_inference_agrees_with_the_recording(name: str) -> None:
    recorded, inferred = both(CASES[name])
    found = agreement(recorded, inferred)
    assert found.share >= 0.9 and found.calls >= 0.9, found.wrong
    assert not [group.title for group in inferred.fold().groups if "(part" in group.title]


def test_calls_are_told_apart() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    graph = gradviz.walk((net(torch.ones(1, 2)) - net(torch.ones(1, 2))).sum(), model=net)
    assert [(scope.path, scope.call, scope.parent) for scope in graph.scopes] == [
        ("net", 1, None), ("net.0", 1, 0), ("net.1", 1, 0), ("net", 2, None), ("net.0", 2, 3), ("net.1", 2, 3),
    ]  # fmt: skip


def test_a_cell_is_called_again_and_a_loop_inside_a_module_is_one_call() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.tanh(self.fc(x))
            return x

    net = Again()
    graph = gradviz.walk(net(torch.ones(1, 2)).sum(), model=net)
    assert [(scope.path, scope.call) for scope in graph.scopes] == [
        ("net", 1),
        ("net.fc", 1),
        ("net.fc", 2),
        ("net.fc", 3),
    ]


def test_a_penalty_on_weights_lies_in_no_module() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    loss = net(torch.ones(1, 2)).sum() + sum(p.pow(2).sum() for p in net.parameters())
    loss = loss + torch.cat([p.reshape(-1) for p in net.parameters()]).norm()
    graph = gradviz.walk(loss, model=net)
    outside = {node.op for node in graph.nodes if node.scope is None and node.sequence is not None}
    assert {"PowBackward0", "CatBackward0"} <= outside
    assert [scope.call for scope in graph.scopes] == [1, 1, 1]


def test_a_weight_that_two_modules_share_is_each_ones_where_it_works() -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    net = nn.ModuleDict({"embedding": embedding, "head": head})
    graph = gradviz.walk(head(embedding(torch.tensor([1, 2]))).sum(), model=net)
    assert places(graph)["EmbeddingBackward0"] == "net.embedding"
    assert places(graph)["MmBackward0"] == places(graph)["TBackward0"] == "net.head"


def test_attention_multiplies_by_a_layer_that_it_does_not_call() -> None:
    net = nn.MultiheadAttention(4, 2, batch_first=True)
    x = torch.randn(1, 3, 4)
    graph = gradviz.walk(net(x, x, x)[0].sum(), model=net)
    assert [scope.path for scope in graph.scopes] == ["net"]


@needs_raw
def test_a_layer_without_gradient_is_seen_beside_its_adapter() -> None:
    net = CASES["LoRA"]()[0]
    graph = gradviz.walk(net(torch.randn(2, 8)).sum(), model=net)
    assert {"net.3.base", "net.3.lora_dropout"} <= {scope.path for scope in graph.scopes}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_parameters_in_any_order_give_scopes(data: st.DataObject) -> None:
    """Whatever modules own what, calls nest, and nothing but scopes changes."""
    graph = data.draw(scattered())
    modules: list[Registered] = []
    types = st.sampled_from(["Linear", "Sequential", "LSTM", "", "Dropout", "ReLU", "MultiheadAttention"])
    for i in range(data.draw(st.integers(1, 6))):
        chain = [None] if not modules else [j for j in range(len(modules)) if _is_open(modules, j)]
        base = data.draw(types)
        modules.append(Registered(f"m{i}", base or "Own", base, data.draw(st.sampled_from(chain)), i))
    some = st.lists(st.integers(0, len(modules) - 1), min_size=1, max_size=2).map(tuple)
    owners = {leaf.node: data.draw(some) for leaf in graph.leaves}
    bare = replace(graph, scopes=(), attribution="", nodes=tuple(node._replace(scope=None) for node in graph.nodes))
    found = infer_scopes(bare, Ownership(tuple(modules), owners))
    assert [node._replace(scope=None) for node in found.nodes] == list(bare.nodes)
    assert all(scope.parent is None or scope.parent < i for i, scope in enumerate(found.scopes))
    assert all(node.scope is None or node.scope < len(found.scopes) for node in found.nodes)
    folded = found.fold(depth=1)
    assert cycles([(edge.consumer, edge.producer) for edge in folded.edges]) == []


def _is_open(modules: list[Registered], one: int) -> bool:
    """Whether the next module may lie inside this one: modules inside one follow it at once."""
    last: int | None = len(modules) - 1
    while last is not None:
        if last == one:
            return True
        last = modules[last].parent
    return False


def test_the_backward_of_a_backward_is_in_no_module() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    gradient = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
    inferred = gradviz.walk(net(x).mean() + gradient.norm(), model=net)
    places = {node.op: node.scope for node in inferred.nodes}
    assert places["AddmmBackward0"] is not None and places["TanhBackwardBackward0"] is None


def test_a_picture_says_that_its_modules_are_inferred() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    inferred = gradviz.walk(net(torch.randn(5, 3)).sum(), model=net)
    (line,) = [line for line in footer_lines(inferred) if "inferred" in line]
    assert "gradviz.record() gives exact ones" in line
    assert line in list(footer_lines(inferred.fold(depth=1)))


def test_a_scripted_module_is_looked_at_and_not_asked() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    scripted = torch.jit.script(net)
    for _ in range(4):  # from the second call on it is one node
        loss = scripted(torch.ones(2, 4)).sum()
    graph = gradviz.walk(loss, model=scripted)
    assert [forward_name(node) for node in graph.nodes[:2]] == ["sum", "differentiable_graph"]
    assert {scope.type for scope in graph.scopes} == {"RecursiveScriptModule"}
