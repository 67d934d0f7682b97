"""Inside a transform of torch.func: what a walk can show, and what it says where it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import grad, jvp, vmap

import gradviz
from gradviz.errors import NoGraphError

weight = torch.ones(3, requires_grad=True)


def walked(x: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    y = (x * weight).sum()
    try:
        return y, [gradviz.walk(y)]
    except NoGraphError as error:
        return y, [str(error)]


def seen(transform: Any) -> Any:
    found: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y, what = walked(x)
        found.extend(what)
        return y

    transform(function)
    return found[0]


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        ("vmap", lambda function: vmap(function)(torch.ones(2, 3))),
        ("jvp", lambda function: jvp(function, (torch.ones(3),), (torch.ones(3),))),
    ],
)
def test_no_graph_names_the_transform(name: str, transform: Any) -> None:
    said = seen(transform)
    assert f"y has no graph to show: it is inside {name} of torch.func" in said
    assert f"look at what {name} returns" in said


def test_grad_has_a_graph_also_inside_vmap() -> None:
    for transform in (
        lambda function: grad(function)(torch.ones(3)),
        lambda function: vmap(grad(function))(torch.ones(2, 3)),
    ):
        assert [node.op for node in seen(transform).nodes][:2] == ["SumBackward0", "MulBackward0"]


def test_what_vmap_returns_has_a_graph() -> None:
    y = vmap(lambda x: (x * weight).sum())(torch.ones(2, 3))
    assert gradviz.walk(y).leaves[0].names == ("weight",)
