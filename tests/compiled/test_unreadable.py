"""Another torch keeps less, or keeps it elsewhere: what is missing is said, and nothing raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.utils
import torch._functorch.config

import gradviz
from gradviz.cli.main import cli
from gradviz.graph import Graph
from gradviz.walker import private
from gradviz.walker.walk import capture
from tests.command_line import CliRunner
from tests.compiled.models import Block, region_node


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled() -> tuple[torch.Tensor, Any]:
    loss = torch.compile(Block(), backend="aot_eager")(torch.randn(3, 8)).sum()
    return loss, region_node(loss)


def no_module(patch: pytest.MonkeyPatch, node: Any) -> None:
    patch.setattr(node._forward_cls._lazy_backward_info, "bw_module", None)


def other_module(patch: pytest.MonkeyPatch, node: Any) -> None:
    patch.setattr(node._forward_cls._lazy_backward_info, "bw_module", object())


def no_information(patch: pytest.MonkeyPatch, node: Any) -> None:
    patch.delattr(node._forward_cls, "_lazy_backward_info")


def other_output(patch: pytest.MonkeyPatch, node: Any) -> None:
    graph = node._forward_cls._lazy_backward_info.bw_module.graph
    (output,) = [one for one in graph.nodes if one.op == "output"]
    patch.setattr(output, "args", ((), ()))


def no_needs(patch: pytest.MonkeyPatch, node: Any) -> None:
    patch.setattr(private, "compiled_state", lambda node: (0, (), ()))


@pytest.mark.parametrize("missing", [no_module, other_module, no_information, other_output, no_needs])
def test_a_region_that_cannot_be_read_stays_closed_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: Callable[[pytest.MonkeyPatch, Any], None]
) -> None:
    loss, node = compiled()
    with monkeypatch.context() as patch:
        missing(patch, node)
        graph = gradviz.walk(loss)
        assert [one.flags for one in graph.nodes if one.op == "CompiledFunctionBackward"] == [("custom", "compiled")]
        assert any("cannot be read with this torch" in note for note in graph.notes)
        flow = gradviz.flow(loss, run_custom=True)
        assert flow.stopped and any("torch does not tell what its backward does" in note for note in flow.notes)
        assert node._forward_cls.compiled_bw is None
    loss.backward()


@pytest.mark.parametrize("name", ["num_symints_saved_for_bw", "compiled_bw", "maybe_subclass_metadata", "metadata"])
def test_what_a_region_does_without_is_not_missed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    loss, node = compiled()
    whole = gradviz.walk(loss)
    monkeypatch.delattr(node._forward_cls, name)
    graph = gradviz.walk(loss)
    assert len(graph.nodes) == len(whole.nodes) and len(gradviz.flow(loss).leaves) > 2
    told = [one.attributes.get("backward_compiled") for one in graph.nodes if "custom" in one.flags]
    assert told == [None if name == "compiled_bw" else False]


@pytest.mark.parametrize("name", ["symints", "_tensors_no_vc_check"])
def test_a_node_without_sizes_or_unwatched_tensors_is_read(name: str) -> None:
    loss, node = compiled()
    if name in vars(node):
        delattr(node, name)
    assert len(gradviz.flow(loss).leaves) > 2


def test_a_torch_without_notes_on_breaks_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._dynamo.utils, "graph_break_reasons")
    assert private.break_reasons() == []
    assert gradviz.check(compiled()[0]) is not None


def test_a_torch_whose_cache_has_no_switch_compiles_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "torch._functorch.config":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with private.compiled_anew():
        pass


@pytest.mark.parametrize("frames", [None, object()])
def test_a_torch_that_cannot_pause_its_compiler_runs_on(monkeypatch: pytest.MonkeyPatch, frames: object) -> None:
    monkeypatch.setattr(private, "_frames", frames)
    assert private.pause_compiler() is None
    private.keep_from_compiler(compiled)


def test_info_says_that_a_backward_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    loss, node = compiled()
    no_module(monkeypatch, node)
    file = gradviz.walk(loss).save(str(tmp_path / "graph.json"))
    told = CliRunner().invoke(cli, ["info", file]).stdout
    assert "1 compiled function; what the backward of 1 does cannot be read with this torch" in told


def test_live_nodes_of_two_regions_are_each_at_their_own() -> None:
    first, second = torch.compile(torch.sigmoid, backend="aot_eager"), torch.compile(torch.tanh, backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    loss = second(first(x) * 2).sum()
    walks: list[Any] = []
    graph: Graph = capture([loss, x], inspect=lambda walked: walks.append((walked.nodes, walked.parts)))
    nodes, parts = walks[0]
    assert len(nodes) == len(graph.nodes) and len({part.region for part in parts.values()}) == 2
    for i, part in parts.items():
        assert nodes[i] is nodes[part.region] and type(nodes[i]).__name__ == "CompiledFunctionBackward"
