"""The models that are measured: scripts of samples/, run up to their call of backward().

Knows nothing of the tools that look at them.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES = Path(__file__).parent.parent / "samples"
BACKWARD = "loss.backward()"


class Script(NamedTuple):
    """A sample, the arguments it gets, and the expression in it that the model is called with."""

    sample: str
    arguments: tuple[str, ...]
    inputs: str


def lstm(steps: int) -> Script:
    """An LSTM cell in a loop."""
    return Script("lstm.py", ("--steps", str(steps)), "sequence")


def gpt(layers: int) -> Script:
    """A small GPT."""
    return Script("gpt.py", ("--layers", str(layers)), "tokens[:, :-1]")


def resnet(depth: int) -> Script:
    """A residual network."""
    return Script("resnet.py", ("--depth", str(depth)), "pictures")


MODELS = {
    "ResNet, 50 layers": resnet(50),
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


def build(script: Script, *, recorded: bool = False) -> Built:
    """Run a sample up to its call of backward(); with `recorded`, inside `gradviz.record()`."""
    path = SAMPLES / script.sample
    source, found, _ = path.read_text(encoding="utf-8").partition(BACKWARD)
    if not found:
        raise ValueError(f"{path} does not call {BACKWARD}")
    recording = _recording(recorded)
    values: dict[str, Any] = {"__name__": "__main__"}
    sys.argv = [str(path), *script.arguments]
    with recording or contextlib.nullcontext():
        exec(compile(source, str(path), "exec"), values)
    return Built(
        values["loss"], values["model"], eval(script.inputs, values), recording
    )


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
