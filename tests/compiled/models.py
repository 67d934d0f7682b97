"""Compiled functions that several tests look at, and independent ways to read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A residual block with a parameter that the result does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.aside = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.mlp(self.norm(x))
        cut = self.aside(x).detach()
        return x + kept + cut


def region_nodes(output: torch.Tensor) -> list[Any]:
    """The nodes of all compiled functions behind an output, the nearest first."""
    waiting: list[Any] = [output.grad_fn]
    for node in waiting:
        waiting.extend(child for child, _ in node.next_functions if child is not None and child not in waiting)
    return [node for node in waiting if type(node).__name__ == "CompiledFunctionBackward"]


def region_node(output: torch.Tensor) -> Any:
    """The nearest one."""
    return region_nodes(output)[0]


def backward_calls(output: torch.Tensor) -> Iterator[Any]:
    """The calls in the backward of the region behind an output, as torch.fx has them, without those that pick one of several."""
    graph = region_node(output)._forward_cls._lazy_backward_info.bw_module.graph
    return (node for node in graph.nodes if node.op == "call_function" and "getitem" not in str(node.target))


def held(output: torch.Tensor) -> dict[int, int]:
    """Bytes of the storages that the nodes of all regions hold, by identity."""
    tensors = []
    for node in region_nodes(output):
        tensors += [*(one.data for one in node._raw_saved_tensors), *(node._tensors_no_vc_check or ())]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage._cdata: storage.nbytes() for storage in storages}
