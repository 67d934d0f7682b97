"""Looks at models that follow a trained one, as target networks and averages of weights do: how far they went from call to call.

Compares a few elements, and keeps models weakly. Concludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from gradviz.checks.collect.calls import ByIdentity
from gradviz.checks.collect.lines import Models
from gradviz.checks.collect.numbers import is_readable
from gradviz.checks.record import RunRecord
from gradviz.variables.objects import joined, parameters, submodules
from gradviz.walker.tensors import version_of

_COMPARED, _ELEMENTS = 4, 64  # parameters of a model, and elements of each
_SINGLE = 4  # bytes of a number in single precision
_Weights = Sequence[torch.Tensor]


class _Follower(NamedTuple):
    """A follower at the call before: elements of its parameters, their versions, and elements of both models' buffers."""

    weights: torch.Tensor
    versions: tuple[int | None, ...]
    buffers: torch.Tensor
    others: torch.Tensor


class Followers:
    """Of one run. `look` belongs before each backward call that is read."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._last = ByIdentity[_Follower]()

    def look(self, models: Models, held: set[int], in_a_row: bool) -> None:
        """Compare the models that no optimizer holds with trained ones. `in_a_row`: the call before was read as well."""
        parts = [part for name, model in models for part in ((name, model), *_children(name, model))]
        known = [(name, module, own) for name, module in parts if (own := parameters(module)[:_COMPARED])]
        trained = [(module, own) for _, module, own in known if held.issuperset(map(id, own))]
        for name, module, own in known:
            alike = (part for part in trained if type(part[0]) is type(module) and _shapes(part[1]) == _shapes(own))
            other = next(alike, None) if held.isdisjoint(map(id, own)) else None
            if other is not None and all(map(is_readable, (*own, *other[1]))):
                self._compare(name, module, own, other, in_a_row)

    def _compare(
        self, name: str, module: torch.nn.Module, own: _Weights, other: tuple[torch.nn.Module, _Weights], in_a_row: bool
    ) -> None:
        last, versions = self._last.of(module), tuple(map(version_of, own))
        now = _Follower(_few(own), versions, _few(module.buffers()), _few(other[0].buffers()))
        self._last.put(module, now)
        if last is None:
            return
        half, written = own[0].element_size() < _SINGLE, versions != last.versions
        went = _part(last.weights, now.weights, _few(other[1]), half, written) if half or in_a_row else ()
        self._record.averages.setdefault(name, []).extend(went)
        moved, stays = not torch.equal(now.weights, last.weights), torch.equal(now.buffers, last.buffers)
        if moved and stays and not module.training and not torch.equal(now.others, last.others):
            self._record.outdated[name] += 1


def _part(last: torch.Tensor, now: torch.Tensor, goal: torch.Tensor, half: bool, written: bool) -> Iterator[float]:
    """Which part of the distance to another model one went; 0 where half precision has rounded away what was written."""
    gap, moved = goal - last, now - last
    if half:
        far = gap.abs() > last.abs() / 2**6
        if written and far.double().mean() > 0.5 and (moved[far] == 0).double().mean() > 0.75:
            yield 0.0
    elif gap.any() and moved.any():
        part = float(moved @ gap / (gap @ gap))
        if (moved - part * gap).norm() < 0.01 * moved.norm():
            yield part


def _children(name: str, model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    return ((joined(name, path), module) for path, module in submodules(model) if path and "." not in path)


def _shapes(weights: _Weights) -> list[torch.Size]:
    return [weight.shape for weight in weights]


def _few(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """A few elements of each, without counters."""
    real = [tensor.detach() for tensor in tensors if tensor.is_floating_point() and is_readable(tensor)]
    return torch.cat([torch.zeros(1).double(), *(tensor.flatten()[:_ELEMENTS].double().cpu() for tensor in real)])
