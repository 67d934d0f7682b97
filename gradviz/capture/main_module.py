"""Finds the module that `python -m NAME` runs, and its code. Knows nothing of torch or graphs."""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType
from typing import Any

from gradviz.errors import TargetError


def main_module(name: str) -> tuple[ModuleSpec, CodeType]:
    """The spec and the code of a module, or of `NAME.__main__` for a package. Imports the packages around it.

    Raises what importing these raises, and TargetError when there is no such module, or no Python code of it.
    """
    parent = name.rpartition(".")[0]
    if parent:
        _import(parent)
    spec = find_spec(name)
    if spec is None:
        raise _none(name)
    if spec.submodule_search_locations is not None:
        _import(name)
        spec = find_spec(f"{name}.__main__")
        if spec is None:
            raise TargetError(
                f"{name!r} is a package without a __main__ module, so there is nothing to run. Name one of its modules."
            )
    code = getattr(spec.loader, "get_code", lambda name: None)(spec.name)
    if code is None:
        raise TargetError(f"{spec.name!r} has no Python code to run ({spec.origin})")
    return spec, code


def attributes_of(spec: ModuleSpec) -> dict[str, Any]:
    """What Python tells a module that it runs with -m."""
    return {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }


def as_module(path: str) -> tuple[str, str]:
    """The folder to be in and the name to give so that `python -m` runs this file as part of its package: "pkg.train"."""
    folder, base = os.path.split(os.path.realpath(path))
    folder, package = os.path.split(folder)  # at least one, for packages need no __init__.py
    parts = [package, os.path.splitext(base)[0]]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        parts.insert(0, package)
    return folder, ".".join(parts)


def _import(name: str) -> None:
    try:
        __import__(name)  # and not importlib, whose frames would stand in the user's traceback
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _none(error.name) from error
        raise


def _none(name: str) -> TargetError:
    return TargetError(f"there is no module {name!r} in {os.getcwd()!r} nor on Python's path")
