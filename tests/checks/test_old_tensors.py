"""The advice about states and constants of earlier steps is code: put where it says, the script runs, or stops to grow."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written
from tests.walker.graphs import needs_raw

SCRIPTS = {
    "one of two results": (
        """
        rnn, h = torch.nn.RNN(2, 3), torch.zeros(1, 1, 3)
        for step in range(3):
            out, h = rnn(torch.ones(4, 1, 2), h)
            out.sum().backward()
            # IN THE LOOP
        """,
        {"h = h.detach()"},
    ),
    "a tuple packed again": (
        """
        lstm, state = torch.nn.LSTM(2, 3), (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3))
        for step in range(3):
            out, (h, c) = lstm(torch.ones(4, 1, 2), state)
            state = (h, c)
            out.sum().backward()
            # IN THE LOOP
        """,
        {"state = tuple(part.detach() for part in state)"},
    ),
    "nested results": (
        """
        lstm, h, c = torch.nn.LSTM(2, 3), torch.zeros(1, 1, 3), torch.zeros(1, 1, 3)
        for step in range(3):
            out, (h, c) = lstm(torch.ones(4, 1, 2), (h, c))
            out.sum().backward()
            # IN THE LOOP
        """,
        {"h = h.detach(); c = c.detach()"},
    ),
    "two constants": (
        """
        linear, w = torch.nn.Linear(3, 3), torch.ones(3, requires_grad=True)
        prior = torch.sigmoid(w)
        mask = torch.tanh(w)
        # ONCE
        for step in range(3):
            y = linear(torch.ones(3)) * prior
            (y * mask).sum().backward()
        """,
        {"mask = mask.detach(); prior = prior.detach()"},
    ),
    "a state and a constant": (
        """
        cell, w = torch.nn.GRUCell(2, 3), torch.ones(3, requires_grad=True)
        scale = torch.exp(w)
        h = torch.zeros(1, 3)
        for step in range(3):
            h = cell(torch.ones(1, 2), h)
            (h * scale).sum().backward()
            # IN THE LOOP
        """,
        {"scale = scale.detach(); h = h.detach()"},
    ),
    "a tuple in a module": (
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = torch.nn.LSTMCell(2, 3)
                self.hidden = (torch.zeros(1, 3), torch.zeros(1, 3))

            def forward(self, x):
                self.hidden = self.cell(x, self.hidden)
                return self.hidden[0]

        net = Net()
        for step in range(3):
            net(torch.ones(1, 2)).sum().backward()
            # IN THE LOOP
        """,
        {"net.hidden = tuple(part.detach() for part in net.hidden)"},
    ),
}
PLACES = {"IN THE LOOP": r"[Dd]etach .*? after \S+: (.*?)\. retain_graph=", "ONCE": r"once, after \S+: (.*)\."}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_advice_is_code_that_helps(name: str, tmp_path: Path) -> None:
    text, expected = SCRIPTS[name]
    text = "import torch\n" + textwrap.dedent(text)
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "freed-graph"]
    assert code == 1 and finding["severity"] == "error"
    advised = {place: match[1] for place, how in PLACES.items() if (match := re.search(how, finding["fix"]))}
    assert set(advised.values()) == expected
    for place, cut in advised.items():
        assert f"# {place}" in text
        text = text.replace(f"# {place}", cut)
    exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})  # it raised before
    found, code = check(written(tmp_path, text))
    assert code == 0 and {one["severity"] for one in found} <= {"note"}


@pytest.mark.parametrize(
    ("name", "state"),
    [("one of two results", "h"), ("a tuple packed again", "state"), ("a tuple in a module", "net.hidden")],
)
def test_a_state_that_is_handed_on_is_told_once(name: str, state: str, tmp_path: Path) -> None:
    text = "import torch\n" + textwrap.dedent(SCRIPTS[name][0]).replace("range(3)", "range(5)")
    found, code = check(written(tmp_path, text.replace("backward()", "backward(retain_graph=True)")))
    (finding,) = [one for one in found if one["id"] == "growing-graph"]
    assert code == 1 and state in finding["names"] and "state = state.detach()" in finding["fix"]
    assert re.search(r"(nn|lstm|cell)\(", finding["code"])


@needs_raw
def test_a_name_that_only_the_code_tells(tmp_path: Path) -> None:
    """The tensors of the first step have no variable any more, and the line that made them gives several."""
    text = """
    import torch
    cell = torch.nn.LSTMCell(2, 3)
    def step(x, state):
        h, c = cell(x, state)
        return h.sum(), (h, c)
    state = (torch.zeros(1, 3), torch.zeros(1, 3))
    for _ in range(3):
        loss, state = step(torch.ones(1, 2), state)
        loss.backward()
    """
    found, _ = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "freed-graph"]
    assert "state = tuple(part.detach() for part in state)" in finding["fix"]


def test_a_state_that_the_output_does_not_use_is_cut_too(tmp_path: Path) -> None:
    """It is no running total, so the advice is another one."""
    text = """
    import torch
    w, state = torch.ones(3, requires_grad=True), torch.zeros(3)
    for _ in range(4):
        state = torch.tanh(state + w)
        w.sum().backward()
    """
    found, _ = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "growing-graph"]
    assert "state = state.detach()" in finding["fix"]
