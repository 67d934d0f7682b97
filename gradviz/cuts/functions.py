"""The functions of torch that cut, beside the methods of `source.cut`, and the tensors
that they are given.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributions import Distribution

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors that answer like any tensor."""

MOST = 4  # elements of a list


def samples() -> Iterator[Any]:
    """The functions of torch that draw from a distribution."""
    classes: list[Any] = [Distribution]
    for kind in classes:  # grows while it is read
        derived = kind.__subclasses__()
        classes += [each for each in derived if each.__module__.startswith("torch.")]
        sample = vars(kind).get("sample")
        if inspect.isfunction(sample):
            yield inspect.unwrap(sample)


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors that a value is made of: itself, the first ones of a list of lists,
    the outer ones first, and the parameters of a distribution.
    """
    values = [value]
    for part in values:  # grows while it is read
        if type(part) in (list, tuple):
            values += part[:MOST]
        elif isinstance(part, Distribution):
            values += vars(part).values()
        elif type(part) in PLAIN:
            yield part


def forget() -> None:
    """Let torch's compiler make its table of torch's functions anew, in which a wrapper
    may stand: it makes it once in a process.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    table = getattr(rules, "get_torch_obj_rule_map", None)
    if table is not None:
        table.cache_clear()
