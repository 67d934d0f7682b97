"""A replay against the engine for the operators of torch's own operator database."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from gradviz.errors import NotATensorError
from gradviz.gradients.flow import size
from gradviz.gradients.live import open_graph
from gradviz.gradients.replay import replay
from gradviz.walker.outputs import flatten
from tests.gradients.engine import gradients, same

PER_OPERATOR = 2


def samples() -> Iterator[tuple[str, list[Tensor]]]:
    """Outputs with a graph, of the first samples of every operator that has a gradient."""
    database = pytest.importorskip("torch.testing._internal.common_methods_invocations")  # it takes seconds
    for op in database.op_db:
        if not op.supports_autograd or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        for number, sample in enumerate(_samples_of(op)):
            try:
                outputs = flatten(op(sample.input, *sample.args, **sample.kwargs))
            except (NotATensorError, RuntimeError, NotImplementedError):
                continue
            tensors = [tensor for _, tensor in outputs if tensor.grad_fn is not None]
            if tensors and all(tensor.layout == torch.strided for tensor in tensors):
                yield f"{op.name} {number}", tensors


def _samples_of(op: Any) -> list[Any]:
    torch.manual_seed(0)
    try:
        return [sample for sample, _ in zip(op.sample_inputs_func(op, "cpu", torch.float32, True), range(PER_OPERATOR))]
    except Exception:  # some samples need packages that are not installed
        return []


@pytest.mark.slow
@pytest.mark.long
def test_every_operator_has_the_engines_gradients() -> None:
    checked, different = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, tensors in samples():
            live = open_graph(tensors)
            given = [torch.randn_like(tensor) for tensor in tensors]
            starts = tuple(start._replace(gradient=seed) for start, seed in zip(live.starts, given))
            try:
                expected = gradients(live, tensors, given)
            except RuntimeError:  # the gradient is not defined for this sample
                continue
            steps = replay(live._replace(starts=starts))
            found = {(step.node, k): gradient for step in steps for k, gradient in enumerate(step.incoming)}
            different += [name for place, one in expected.items() if not same(found.get(place), one)]
            assert all(size(one).norm >= 0 or size(one).nonfinite for one in found.values() if one is not None)
            checked += 1
    assert not different
    assert checked > 700
