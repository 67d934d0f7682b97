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
from gradviz.armour import hooks
from gradviz.cli.main import cli
from gradviz.walker import private
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
    patch.setattr(private, "compiled_program", lambda kind: "def forward(self, x):\n    return x")


@pytest.mark.slow
@pytest.mark.parametrize("missing", [no_module, other_module, no_information, other_output])
def test_a_function_that_cannot_be_read_is_a_node_all_the_same_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: Callable[[pytest.MonkeyPatch, Any], None]
) -> None:
    loss, node = compiled()
    with monkeypatch.context() as patch:
        missing(patch, node)
        graph = gradviz.walk(loss)
        assert [one.flags for one in graph.nodes if one.op == "CompiledFunctionBackward"] == [("custom", "compiled")]
        assert any("cannot be read with this torch" in note for note in graph.notes)
        assert gradviz.flow(loss, run_custom=True).stopped
        assert node._forward_cls.compiled_bw is None
    loss.backward()


@pytest.mark.parametrize("frames", [None, object()])
def test_a_torch_that_cannot_pause_its_compiler_runs_on(monkeypatch: pytest.MonkeyPatch, frames: object) -> None:
    monkeypatch.setattr(hooks, "_frames", frames)
    assert hooks.pause_compiler() is None
    hooks.keep_from_compiler(compiled)


def test_tree_names_it_without_its_operations(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    loss, node = compiled()
    no_module(monkeypatch, node)
    file = gradviz.walk(loss).save(str(tmp_path / "graph.json"))
    told = CliRunner().invoke(cli, ["tree", file]).stdout
    assert "#1  CompiledFunction  (3, 8)" in told
    assert "what the backward of 1 compiled function does cannot be read with this torch" in told
