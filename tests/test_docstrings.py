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


@pytest.mark.slow
def test_examples() -> None:
    tried = 0
    for name in MODULES:
        told = io.StringIO()
        with redirect_stdout(told):
            result = doctest.testmod(importlib.import_module(name))
        assert result.failed == 0, told.getvalue()
        tried += result.attempted
    assert tried > 100
