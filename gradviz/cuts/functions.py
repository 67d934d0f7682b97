"""The functions of torch that cut, beside the methods of `source.cut`, and the tensors
that they are given.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributions as distributions

from gradviz.source.cut import DetachKind

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors that answer like any tensor."""

OPERATORS: dict[str, DetachKind] = {
    **dict.fromkeys(("__float__", "__int__", "__index__", "__complex__"), "number"),
    **dict.fromkeys(
        ("__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"), "integer"
    ),
}
"""Operators of tensors that cut, and how."""

MOST = 4  # elements of a list


def samples() -> Iterator[Any]:
    """The functions of torch that draw from a distribution."""
    waiting: list[Any] = [distributions.Distribution]
    for kind in waiting:  # grows while it is read
        for derived in kind.__subclasses__():
            if derived.__module__.startswith("torch."):
                waiting.append(derived)
        sample = vars(kind).get("sample")
        if inspect.isfunction(sample):
            yield inspect.unwrap(sample)


def parameters_of(distribution: Any) -> Iterator[Any]:
    """The tensors that a distribution holds, and those that it is made of do."""
    for value in list(vars(distribution).values()):
        if type(value) in PLAIN:
            yield value
        elif isinstance(value, distributions.Distribution):
            yield from parameters_of(value)


def elements(data: Any) -> Iterator[Any]:
    """The first elements of lists in lists, those of the outer ones first."""
    waiting = [data]
    for value in waiting:  # grows while it is read
        if type(value) in (list, tuple):
            waiting += value[:MOST]
        else:
            yield value


def forget(wrapper: Any, theirs: Any) -> None:
    """Let torch's compiler know its own function where it has met a wrapper of it: it
    makes a table of what the names of torch's functions mean, once in a process.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    table = getattr(rules, "get_torch_obj_rule_map", None)
    if table is not None and table.cache_info().currsize:
        rule = table().pop(wrapper, None)
        if rule is not None:
            table()[theirs] = rule
