"""One forward pass that nobody ran: what it is given, and that it leaves no trace."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradviz.errors import TargetError
from gradviz.run.forward import Forward, forward_pass
from gradviz.run.inputs import parse_input


class Restless(nn.Module):
    """Changes all that a forward may change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout()
        self.register_buffer("steps", torch.zeros(()))
        self.cache = torch.zeros(2)
        self.seen: list[int] = []
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.cache.add_(1)
        self.seen.append(len(x))
        self.calls += 1
        self.last = x
        self.eval()
        self.train(self.calls > 0)
        self.drop.p = random.random() * np.random.rand()
        self.conv.weight.square().sum().backward()
        torch.set_grad_enabled(True)
        return self.drop(self.norm(self.conv(x))).mean()


def state(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        yield type(module), module.training, sorted(vars(module))
        yield {k: v for k, v in vars(module).items() if isinstance(v, (int, float, list))}
        tensors = [*module._buffers.values(), *(v for v in vars(module).values() if isinstance(v, torch.Tensor))]
        yield [(id(tensor), tensor._version, tensor.tolist()) for tensor in tensors if tensor is not None]
        yield [(id(p), p._version, p.requires_grad) for p in module._parameters.values() if p is not None]
    yield torch.is_grad_enabled(), torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def pass_of(value: Any, *texts: str) -> Forward:
    inputs = [(parse_input(text), None) for text in texts]
    with forward_pass(value, "net", "model.py", inputs) as run:
        return run


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("recording", [True, False])
def test_all_is_as_before(training: bool, recording: bool) -> None:
    model = Restless().train(training)
    model.conv.weight.grad = torch.ones_like(model.conv.weight)
    grad = model.conv.weight.grad
    with torch.set_grad_enabled(recording):
        before = copy.deepcopy(list(state(model)))
        assert pass_of(model, "2,3,5,5").outputs.requires_grad  # type: ignore[attr-defined]
        assert list(state(model)) == before
    assert model.conv.weight.grad is grad and bool((grad == 1).all())
    assert model.norm.weight.grad is None


def test_all_is_as_before_when_forward_fails() -> None:
    model = Restless()
    before = copy.deepcopy(list(state(model)))
    with pytest.raises(RuntimeError):
        pass_of(model, "2,9,5,5")
    assert list(state(model)) == before


def test_a_graph_from_before_can_still_run_backward() -> None:
    """A buffer that was replaced has the same version: backward() sees no change."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    loss = model(torch.ones(2, 3)).sum()
    pass_of(model.train(), "2,3")
    loss.backward()


def test_a_lazy_module_is_lazy_again() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    assert pass_of(model, "2,7").outputs.shape == (2, 3)  # type: ignore[attr-defined]
    assert type(model[0]) is nn.LazyLinear and nn.parameter.is_lazy(model[0].weight)
    assert model(torch.ones(2, 5)).shape == (2, 3)


def test_inputs_have_the_dtype_of_the_model() -> None:
    assert pass_of(nn.Linear(3, 3).double(), "2,3").outputs.dtype == torch.float64  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "most"),
    [
        ("2,16:int64", (2, 16), torch.int64, 0),
        ("2,500:int64<10", (2, 500), torch.int64, 9),
        ("(2, 3)", (2, 3), torch.float32, None),
        ("x=4:bool", (4,), torch.bool, 0),
        ("2,50:float32<1", (2, 50), torch.float32, None),
    ],
)
def test_a_shape_is_filled(text: str, shape: tuple[int, ...], dtype: torch.dtype, most: int | None) -> None:
    x = pass_of(lambda x: x * 1, text).arguments["x"]
    assert isinstance(x, torch.Tensor) and (x.shape, x.dtype) == (shape, dtype)
    assert most is None or int(x.max()) == most
    if "<1" in text and "<10" not in text:
        assert 0 <= float(x.detach().min()) <= float(x.detach().max()) < 1


def test_where_all_is_frozen_the_input_requires_grad_and_the_title_says_so() -> None:
    run = pass_of(nn.Linear(3, 3).requires_grad_(False), "2,3")
    assert run.outputs.requires_grad and "the input does" in run.remark  # type: ignore[attr-defined]
    assert pass_of(nn.Linear(3, 3), "2,3").remark == ""


def test_a_batch_is_spread_where_forward_takes_its_parts() -> None:
    class Pair(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a * b

    given = (torch.ones(2), torch.ones(2))
    for batch in (given, list(given), dict(zip("ba", given))):
        with forward_pass(Pair(), "net", "model.py", [(parse_input("json:batch"), batch)]) as run:
            assert {*run.arguments} == {"a", "b"}


class Sized(nn.Module):
    def __init__(self, width: int, depth: int = 2) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("value", "texts", "words"),
    [
        (Sized, ["3"], r"needs arguments: width. Make an instance there, net = Sized\(width=...\)"),
        (nn.Bilinear(2, 2, 2), ["1,2"], "1 more input: input2"),
        (nn.Linear(2, 2), ["1,2", "3"], "too many positional arguments"),
        (nn.Linear(2, 2), ["inputs=1,2"], "Did you mean input?"),
        (nn.Linear(2, 2), ["1,2:int65"], "no dtype 'int65'"),
        (7, ["1"], "net in model.py is a int, not a model"),
    ],
)
def test_what_is_missing_is_said(value: Any, texts: list[str], words: str) -> None:
    with pytest.raises(TargetError, match=words):
        pass_of(value, *texts)


@pytest.mark.parametrize("text", ["1x3x224", "", "1,3:", "-1,3", "nofile/batch.py:x", "1,3<", "a b:c"])
def test_other_words_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(TargetError, match="Give a shape"):
        parse_input(text)


def test_a_scripted_module_is_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    before = [buffer.clone() for buffer in model.buffers()]
    pass_of(model, "5,3")
    assert len(before) == 3 and all(torch.equal(*pair) for pair in zip(before, model.buffers()))


used = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


class Uses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return used(x)


@pytest.mark.parametrize("value", [Uses, Uses(), lambda x: used(x)])
def test_a_module_that_forward_finds_by_name_is_as_before(value: Any) -> None:
    assert pass_of(value, "5,3").remark == ""
    assert used[1].num_batches_tracked == 0
