"""Printing a result draws no random number of the user's."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import random, sys
import numpy, torch
import gradviz

model = torch.nn.Linear(3, 1)
loss = model(torch.ones(2, 3)).sum()
random.seed(1); numpy.random.seed(1); torch.manual_seed(1)
before = random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()
graph = gradviz.walk(loss)
str({result})
assert "rich.style" in sys.modules
assert before == (random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("result", ["gradviz.check(loss, model=model)", "gradviz.flow(loss)"])
def test_the_first_result_that_is_printed_draws_nothing(result: str) -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT.format(result=result)], check=True, timeout=100)
