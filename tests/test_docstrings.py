"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
from contextlib import redirect_stdout

import pytest

import gradviz

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gradviz.__path__, "gradviz.")
    if not module.name.rpartition(".")[2].startswith("_")  # programs of their own
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    told = io.StringIO()
    with redirect_stdout(told):
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0, told.getvalue()


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [one for name in MODULES for one in finder.find(importlib.import_module(name)) if one.examples]
    assert len(found) > 40
