"""The Python functions that look at the caller's variables for names."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import torch

from gradviz.capture.naming import namespaces
from gradviz.capture.walker import capture
from gradviz.graph import Graph


def walk(
    outputs: object,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    *,
    saved: bool = True,
) -> Graph:
    """The autograd graph behind `outputs`, as a detached `Graph`.

    Args:
        outputs: a tensor, or any nesting of dict, list, tuple, namedtuple, dataclass or model output.
        model: names its parameters and buffers.
        params: tensor by name, for what `model` does not name. What neither names is looked up in the caller's variables.
        saved: whether to read what the nodes saved for backward. Never runs a hook, recomputes, or keeps memory.

    Raises:
        NoGraphError: none of the outputs has a graph; the message says why.
        NotATensorError: there is no tensor in `outputs`.

    >>> import torch, gradviz
    >>> w = torch.ones(1, requires_grad=True)
    >>> y = (w + 1) * w
    >>> [node.op for node in gradviz.walk(y).nodes]
    ['MulBackward0', 'AddBackward0', 'AccumulateGrad']

    Source: https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.Node
    """
    return capture(outputs, model=model, params=params, variables=namespaces(sys._getframe(1)), saved=saved)
