"""Modules guessed from who owns the parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import gradviz
from gradviz.analysis.infer import infer_scopes
from gradviz.graph import Edge, Graph, Node, Scope


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
        "MulBackward0": "",
        "SigmoidBackward0": "",  # between blocks.0.norm and the net's own parameter
        "NativeLayerNormBackward0": "blocks.0.norm",
        "TanhBackward0": "blocks.0",
        "ConvolutionBackward0": "blocks.0.conv",
        "UnsqueezeBackward0": "blocks.0",
        "ReluBackward0": "blocks.0",
        "AddmmBackward0": "blocks.0.fc",
        "TBackward0": "blocks.0.fc",
        "ExpBackward0": None,  # nothing before it
    }
    owners = {leaf.names[0]: graph.nodes[leaf.node].scope for leaf in graph.leaves}
    paths = {name: graph.scopes[scope].path if scope is not None else None for name, scope in owners.items()}
    assert paths["blocks.0.fc.weight"] == "blocks.0.fc"
    assert paths["scale.0"] == ""
    assert paths["x"] is None


def test_scopes_are_the_models_modules() -> None:
    net = Net()
    graph = gradviz.walk(net(torch.ones(2, 4)), model=net)
    assert [(scope.path, scope.type, scope.parent, scope.parameters) for scope in graph.scopes] == [
        ("", "Net", None, 36),
        ("blocks.0", "Block", 0, 32),
        ("blocks.0.fc", "Linear", 1, 20),
        ("blocks.0.conv", "Conv1d", 1, 4),
        ("blocks.0.norm", "LayerNorm", 1, 8),
    ]


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
    assert infer_scopes(graph) is graph


def test_inference_agrees_with_the_recording_on_what_has_parameters() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = nn.Sequential(layer, nn.Linear(8, 3))
    with gradviz.record() as recording:
        loss = net(torch.randn(2, 5, 8))
    recorded, inferred = recording.graph(loss, model=net), gradviz.walk(loss, model=net)
    checked = 0
    for node, guess in zip(recorded.nodes, inferred.nodes):
        if node.op in ("NativeLayerNormBackward0", "LinearBackward0", "AddmmBackward0") and guess.scope is not None:
            told = recorded.scopes[node.scope].path if node.scope is not None else None
            path = inferred.scopes[guess.scope].path
            assert path == told or path.removesuffix(".out_proj") == told
            checked += 1
    assert checked >= 6
