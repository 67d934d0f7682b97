"""Finding the tensors in whatever a model returned."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import _pytree

from gradviz.errors import NotATensorError
from gradviz.walker.outputs import flatten

A, B = torch.zeros(1), torch.zeros(2)
Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Plain:
    loss: torch.Tensor
    extra: Any = None


@dataclass
class Registered:
    loss: torch.Tensor
    name: str = ""


if hasattr(_pytree, "register_dataclass"):  # torch 2.6 and later
    _pytree.register_dataclass(Registered)


@dataclass
class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """Shaped like Hugging Face's: a dataclass that is an ordered dict of its fields that are not None."""

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Opaque:
    """A class that torch's pytree was told how to take apart."""

    __slots__ = ("inner",)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner


_pytree.register_pytree_node(Opaque, lambda value: ([value.inner], None), lambda children, _: Opaque(*children))


@pytest.mark.parametrize(
    ("outputs", "paths"),
    [
        (A, [""]),
        ([A, B], ["[0]", "[1]"]),
        ({"loss": A, 3: B}, ["['loss']", "[3]"]),
        (OrderedDict(b=A, a=B), ["['b']", "['a']"]),
        (Pair(A, [B]), [".first", ".second[0]"]),
        (deque([A, B]), ["[0]", "[1]"]),
        (Plain(A, {"aux": B}), [".loss", ".extra['aux']"]),
        (Registered(A, "text"), [".loss"]),
        (ModelOutput(loss=A, logits=B), [".loss", ".logits"]),
        (Opaque(A), ["[0]"]),
        (SimpleNamespace(loss=A, steps=3, more=[B]), [".loss", ".more[0]"]),
        ([None, "text", 3, A], ["[3]"]),
        (torch.max(torch.zeros(2, 2), 0), ["[0]", "[1]"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_paths(outputs: object, paths: list[str]) -> None:
    assert [path for path, _ in flatten(outputs)] == paths


def test_a_container_that_holds_itself_is_entered_once() -> None:
    circle: list[object] = [A]
    circle.append(circle)
    circle.append({"back": circle, "b": B})
    assert [path for path, _ in flatten(circle)] == ["[0]", "[2]['b']"]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [5_000, 30_000])  # in time that grows with the square, the second would not end
def test_deep_nesting(depth: int) -> None:
    value: object = A
    for _ in range(depth):
        value = [value]
    ((path, tensor),) = flatten(value)
    assert path == "[0]" * depth and tensor is A


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        (torch.nn.Linear(1, 1), "a module (Linear)"),
        (len, "a function (len)"),
        (3.5, "a Python float"),
        ([], "no tensor in this list"),
    ],
)
def test_what_holds_no_tensor_is_named(outputs: object, says: str) -> None:
    with pytest.raises(NotATensorError) as raised:
        flatten(outputs)
    assert says in str(raised.value)
    assert isinstance(raised.value, TypeError)
