"""Finds models, optimizers and the like among the user's variables and the attributes of their objects, by type.

Asks types only and reads `__dict__` past the class: a lazy proxy among the variables would run its owner's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

from gradviz.capture.find import Namespace

_WITHOUT_ATTRIBUTES = (
    torch.Tensor,
    torch.nn.Module,
    type,
    ModuleType,
    FunctionType,
    str,
    bytes,
    int,
    float,
    list,
    tuple,
    dict,
    set,
)
"""What is not looked into: it is no object of a class of the user's, or others know it better."""


def of_type(variables: Sequence[Namespace], kind: type) -> Iterator[tuple[str, Any]]:
    """Variables of this kind, then such attributes of objects, by name."""
    for namespace in variables:
        for name, value in list(namespace.items()):
            if issubclass(type(value), kind):
                yield name, value
    yield from attributes_of_type(variables, kind)


def attributes_of_type(variables: Sequence[Namespace], kind: type) -> Iterator[tuple[str, Any]]:
    """Attributes of this kind that objects of the user's own classes have, such as `trainer.model`."""
    for namespace in variables:
        for name, value in list(namespace.items()):
            if name.startswith("_") or issubclass(type(value), _WITHOUT_ATTRIBUTES):
                continue
            for part, inner in list(own_attributes(value).items()):
                if issubclass(type(inner), kind):
                    yield f"{name}.{part}", inner


def attribute_tensors(variables: Sequence[Namespace]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that such objects have as attributes, themselves or in a list, such as `trainer.total`."""
    yield from attributes_of_type(variables, torch.Tensor)
    for name, several in attributes_of_type(variables, list):
        yield from ((name, one) for one in list(several) if issubclass(type(one), torch.Tensor))


def own_attributes(value: Any) -> dict[str, Any]:
    """What an object's `__dict__` holds, without running code of its class."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return own if type(own) is dict else {}
