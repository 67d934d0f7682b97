"""The models that are measured: scripts of the repository, run up to their first call of backward().

Knows nothing of the tools that look at them.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).parent.parent


class Script(NamedTuple):
    """A file of the repository, the arguments it gets, and the expression in it that the model is called with."""

    path: str
    arguments: tuple[str, ...]
    inputs: str


def lstm(steps: int) -> Script:
    """An LSTM cell in a loop."""
    return Script("samples/lstm.py", ("--steps", str(steps)), "sequence")


def gpt(layers: int) -> Script:
    """A small GPT."""
    return Script("samples/gpt.py", ("--layers", str(layers)), "tokens[:, :-1]")


def resnet(depth: int) -> Script:
    """A residual network."""
    return Script("samples/resnet.py", ("--depth", str(depth)), "pictures")


def program(name: str, inputs: str) -> Script:
    """One of the programs of the tests."""
    return Script(f"tests/real/programs/{name}.py", (), inputs)


MODELS = {
    "ResNet, 50 layers": resnet(50),
    "U-Net": program("unet_dice", "images"),
    "mixture of experts": program("moe_router", "tokens[:, :-1]"),
    "LSTM, 20 steps": lstm(20),
    "LSTM, 100 steps": lstm(100),
    "LSTM, 1,000 steps": lstm(1000),
    "GPT, 12 blocks": gpt(12),
    "GPT, 48 blocks": gpt(48),
    "GPT, 200 blocks": gpt(200),
}
SMALL_MODELS = {"LSTM, 3 steps": lstm(3), "GPT, 1 block": gpt(1)}


class Built(NamedTuple):
    """A model with the loss of one forward pass. `recording` is gradviz's, when one was asked for."""

    loss: Any
    model: Any
    inputs: Any
    recording: Any


class _Reached(BaseException):
    """Its arguments are the loss and the variables at the call of backward()."""


def _stop(loss: Any, *_: Any, **__: Any) -> None:
    frame = sys._getframe(1)
    raise _Reached(loss, {**frame.f_globals, **frame.f_locals})


def build(script: Script, *, recorded: bool = False) -> Built:
    """Run a script up to its first call of backward(); with `recorded`, inside `gradviz.record()`."""
    import torch

    path = ROOT / script.path
    source = path.read_text(encoding="utf-8")
    recording = _recording(recorded)
    sys.argv = [str(path), *script.arguments]
    with mock.patch.object(torch.Tensor, "backward", _stop):
        try:
            with recording or contextlib.nullcontext():
                exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
        except _Reached as reached:
            loss, values = reached.args
        else:
            raise ValueError(f"{path} does not call backward()")
    inputs = eval(script.inputs, values)
    return Built(loss, values["model"], inputs, recording)


def tiny(*, recorded: bool = False) -> Built:
    """One linear layer, to warm a tool up with."""
    import torch

    recording = _recording(recorded)
    with recording or contextlib.nullcontext():
        model, inputs = torch.nn.Linear(2, 1), torch.ones(1, 2)
        loss = model(inputs).sum()
    return Built(loss, model, inputs, recording)


def _recording(wanted: bool) -> Any:
    if not wanted:
        return None
    import gradviz

    return gradviz.record()
