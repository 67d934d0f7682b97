"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import io
from contextlib import redirect_stdout

import pytest

from tests.forks import of_gradviz

MODULES = sorted((*of_gradviz(), "gradviz.torchviz"))


@pytest.mark.slow
def test_examples() -> None:
    tried = 0
    for name in MODULES:
        module = importlib.import_module(name)
        examples = [one for one in doctest.DocTestFinder().find(module, name) if one.examples]
        told, runner = io.StringIO(), doctest.DocTestRunner()
        with redirect_stdout(told):
            for one in examples:
                runner.run(one)
        assert runner.failures == 0, told.getvalue()
        tried += runner.tries
    assert tried > 100
