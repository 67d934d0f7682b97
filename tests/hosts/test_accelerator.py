"""record, check and saved on an accelerator, in streams and in the engine's device threads: nothing waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

import gradviz

DEVICES = {"cuda": torch.cuda, "xpu": torch.xpu, "mps": torch.mps}
"""By the name of the device. One of the CPU has no streams, and nothing to wait for."""


def at_hand() -> str:
    """The accelerator of this machine, "" where there is none."""
    return next((name for name, module in DEVICES.items() if getattr(module, "is_available", bool)()), "")


@pytest.fixture
def device() -> str:
    """The accelerator to try."""
    name = at_hand()
    if not name:
        pytest.skip("no accelerator here: record, check and saved were tried on the CPU only")
    return name


WAITING = ("item", "tolist", "cpu", "numpy")  # methods of a tensor


@contextmanager
def waits(device: str) -> Iterator[list[str]]:
    """The calls in this block that wait for the device. With CUDA torch itself raises where an op would wait."""
    calls: list[str] = []

    def noted(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            calls.append(name)
            return original(*arguments, **options)

        return call

    owners = [(DEVICES[device], "synchronize"), *((torch.Tensor, name) for name in WAITING)]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in owners:
            patch.setattr(owner, name, noted(name, getattr(owner, name)))
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield calls
        finally:
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")


def network(device: str) -> torch.nn.ModuleDict:
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    return torch.nn.ModuleDict({"body": body, "spare": torch.nn.Linear(4, 4)}).to(device)


def step(net: torch.nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    """A loss of which one half was computed in a stream of its own, where there are streams."""
    if x.device.type != "cuda":
        return net["body"](x).pow(2).mean() + net["body"](x + 1).mean()
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        other = net["body"](x + 1).mean()
    main.wait_stream(side)
    return net["body"](x).pow(2).mean() + other


def gradients(net: torch.nn.ModuleDict) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in net.parameters()]


def test_nothing_waits_and_nothing_changes(device: str) -> None:
    plain, watched = network(device), network(device)
    x = torch.randn(32, 8).to(device)
    step(plain, x).backward()
    with waits(device) as calls, gradviz.record() as recording:
        loss = step(watched, x)
        findings = gradviz.check(loss, model=watched)
        graph = recording.graph(loss, model=watched)
        total = gradviz.saved(graph).total
        loss.backward()  # in a thread of the engine for the device
    assert calls == []
    assert [finding.names for finding in findings] == [("spare.weight", "spare.bias")]
    assert all(leaf.tensor.device.startswith(device) for leaf in graph.leaves) and total > 0
    assert {graph.scopes[node.scope].path for node in graph.nodes if node.scope is not None} >= {"body.0", "body.2"}
    for ours, own in zip(gradients(watched), gradients(plain), strict=True):
        assert (ours is None and own is None) or (ours is not None and own is not None and torch.equal(ours, own))
