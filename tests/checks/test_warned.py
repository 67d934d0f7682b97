"""What torch warns of is told at its line with a fix; what it only says about its own plans is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.checks.test_scripts import check, written

FAULTS = {
    "a spectrum, in a trainer": Fault(
        "torch-warning",
        "return spectrum.float()",
        "x.abs()",
        "spectrum.float()",
        "spectrum.abs()",
        """
        import torch

        class Trainer:
            def __init__(self):
                self.net = torch.nn.Linear(9, 1)
                self.opt = torch.optim.Adam(self.net.parameters())

            def features(self, wave):
                spectrum = torch.fft.rfft(wave)
                return spectrum.float()

            def fit(self):
                for _ in range(3):
                    self.opt.zero_grad()
                    loss = self.net(self.features(torch.randn(8, 16))).square().mean()
                    loss.backward()
                    self.opt.step()

        Trainer().fit()
        """,
    ),
    "a window of bytes, read-only": Fault(
        "torch-warning",
        "x = torch.from_numpy(rows)",
        "array.copy()",
        "torch.from_numpy(rows)",
        "torch.from_numpy(rows.copy())",
        """
        import numpy, torch
        rows = numpy.frombuffer(numpy.arange(24, dtype="float32").tobytes(), dtype="float32").reshape(8, 3)
        x = torch.from_numpy(rows)
        w = torch.zeros(3, 1, requires_grad=True)
        for _ in range(3):
            (g,) = torch.autograd.grad((x @ w - 1).square().mean(), w)
            with torch.no_grad():
                w -= 0.001 * g
        """,
    ),
    "a recurrent layer of one, in cells of a notebook": Fault(
        "torch-warning",
        "cells = {kind: getattr(nn, kind)(",
        "torch.nn.Dropout(0.2)",
        "dropout=0.2",
        "num_layers=2, dropout=0.2",
        """
        import torch
        from torch import nn
        # In [1]
        cells = {kind: getattr(nn, kind)(3, 4, dropout=0.2) for kind in ("GRU", "LSTM")}
        opt = torch.optim.RMSprop([weight for cell in cells.values() for weight in cell.parameters()])
        # In [2]
        for _ in range(3):
            opt.zero_grad()
            sum(cell(torch.randn(5, 2, 3))[0].square().mean() for cell in cells.values()).backward()
            opt.step()
        """,
    ),
    "a parameter in two lists": Fault(
        "torch-warning",
        "opt = torch.optim.SGD(",
        "list(dict.fromkeys(parameters))",
        "[*net.parameters(), *net[1].parameters()]",
        "list(dict.fromkeys([*net.parameters(), *net[1].parameters()]))",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        opt = torch.optim.SGD([*net.parameters(), *net[1].parameters()], lr=0.01)
        for _ in range(3):
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
        """,
    ),
}
RIGHT = {
    "a hook on the first layer, which looks at grad_output alone": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        sizes, opt = [], torch.optim.SGD(net.parameters(), lr=0.01)
        net[0].register_full_backward_hook(lambda module, given, got: sizes.append(got[0].norm().item()))
        for _ in range(3):
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
    """,
    "a loss as a number, a tensor copied, and a warning of the script's own": """
        import warnings, torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        seen = []
        for _ in range(3):
            loss = net(torch.tensor(torch.randn(8, 3))).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen.append(float(loss))
        warnings.warn("Casting complex values to real is what this script does not do")
    """,
    "a warning that a filter hides": """
        import warnings, torch
        warnings.filterwarnings("ignore", message="Casting complex")
        net = torch.nn.Linear(3, 1)
        for _ in range(3):
            torch.fft.fft(net(torch.randn(8, 3)), dim=0).float().square().mean().backward()
            net.zero_grad()
    """,
}


@pytest.fixture(autouse=True)
def each_time() -> Iterator[None]:
    """torch says some things once in a process, which an earlier test may have made it say."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


def test_a_message_that_is_not_known_is_a_note(tmp_path: Path) -> None:
    script = "import torch\nw = torch.ones(64, requires_grad=True)\ntorch.stft(w, 16, return_complex=True).abs().sum().backward()\n"
    found, code = check(written(tmp_path, script))
    assert [(one["id"], one["severity"], one["line"]) for one in found] == [("torch-warning", "note", 3)] and code == 0
    assert "A window was not provided" in found[0]["why"]
