"""Where features hang on the core: a row names what a feature does there, and it is
left out where the feature's folder is.

The core imports no feature. What it knows of one is a name in a row, such as that of
the renderer of a format.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

NEEDS: dict[str, tuple[str, ...]] = {
    "checks": ("cuts", "gradients"),
    "ranks": ("comparison",),
}
"""What a feature needs of other features, where it needs any: it is as good as deleted
without them.
"""


@cache
def is_there(target: str) -> bool:
    """Whether there is the package or module right below gradviz that a target is in,
    and all that it needs.

    >>> is_there("gradviz.draw.svg:render"), is_there("gradviz.poetry")
    (True, False)
    """
    name = target.partition(":")[0].split(".")[1]
    needs = [is_there(f"gradviz.{feature}") for feature in NEEDS.get(name, ())]
    return all(needs) and find_spec(f"gradviz.{name}") is not None


def load(target: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@cache
def hook(target: str) -> Any:
    """The same; None where its feature is not there."""
    return load(target) if is_there(target) else None
