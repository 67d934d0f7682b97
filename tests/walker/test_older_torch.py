"""What a torch that shows less gives: a smaller graph that says what is missing, never a hook that runs."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

import gradviz
from gradviz.errors import GradientError, UnreadableError
from gradviz.testing import assert_saved_at_most
from gradviz.testing.golden import golden_text
from gradviz.walker import private
from tests.walker.graphs import leaf, ops


def test_without_raw_saved_tensors_none_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "HAS_RAW_DATA", False)

    def unpack(_: Any) -> torch.Tensor:
        pytest.fail("a hook ran")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = torch.tanh(leaf()) ** 2
    graph = gradviz.walk(y)
    assert ops(graph) == ["PowBackward0", "TanhBackward0", "AccumulateGrad"]
    assert all(not node.saved for node in graph.nodes)
    assert graph.nodes[0].attributes == {"exponent": 2}
    assert any("cannot show saved tensors" in note for note in graph.notes)
    with pytest.raises(
        UnreadableError, match=r"cannot show saved tensors .* is unknown. torch 2\.10 and later show it"
    ):
        gradviz.saved(graph)
    with pytest.raises(UnreadableError):
        gradviz.checkpoint_plan(graph, 1)
    with pytest.raises(UnreadableError):
        assert_saved_at_most(y, "2 GiB")
    assert "saved for backward: unknown" in golden_text(graph)


def test_without_raw_saved_tensors_no_backward_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "HAS_RAW_DATA", False)
    w = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda _: pytest.fail("a hook ran")):
        y = (torch.tanh(w) ** 2).sum()
    for ask in (gradviz.flow, lambda y: gradviz.paths(y, w)):
        with pytest.raises(GradientError, match="does not tell which saved tensors a hook would have to unpack"):
            ask(y)
    found = gradviz.check((y, torch.ones(1)), values=True)
    told = "cannot show saved tensors without running hooks"
    assert {"stale-saved", "freed-graph"} <= {one for one, why in found.skipped if why.endswith(told)}
    assert not {"stale-saved", "freed-graph"} & {*found.checked}
    assert "no-graph" in [one.id for one in found] and "a hook" in dict(found.skipped)["gradients"]


def test_without_metadata_no_shapes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "HAS_METADATA", False)
    graph = gradviz.walk(leaf() * 2)
    assert [node.outputs for node in graph.nodes] == [(), ()]
    assert graph.roots[0].tensor.shape == (3,)
    assert any("does not tell the shapes" in note for note in graph.notes)


def test_nothing_is_missing_from_this_torch_without_a_note() -> None:
    graph = gradviz.walk(leaf() * 2)
    assert bool(graph.notes) == (not private.HAS_RAW_DATA or not private.HAS_METADATA)


def test_looking_for_private_names_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # A thread that makes a tensor inside the script's `import torch` waits for that import for ever on torch 2.6 to 2.8.
    import _thread

    assert private.__spec__ is not None and private.__file__ is not None
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: pytest.fail("a thread was started"))
    monkeypatch.setattr(torch, "ones", lambda *_, **__: pytest.fail("a tensor was made"))
    copy = importlib.util.spec_from_file_location("gradviz_private_again", private.__file__)
    assert copy is not None and copy.loader is not None
    copy.loader.exec_module(importlib.util.module_from_spec(copy))


def test_while_an_old_torch_is_imported_no_other_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(private, "HAS_RAW_DATA", False)
    monkeypatch.setattr(torch.__spec__, "_initializing", True, raising=False)
    monkeypatch.setattr(private._thread, "start_new_thread", lambda *arguments: started.append(arguments))
    probe = private._Probe()
    assert started == [] and len(probe.small) == 3
