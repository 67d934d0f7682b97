"""The line that says what takes long."""

from __future__ import annotations

import io
import sys
import time

import pytest

from gradviz.cli import progress as module
from gradviz.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "wait", "said"), [(Terminal(), 0.5, True), (Terminal(), 0.0, False), (io.StringIO(), 0.5, False)]
)
def test_only_on_a_terminal_and_only_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, wait: float, said: bool
) -> None:
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    with progress("reading"):
        time.sleep(wait)
    written = stream.getvalue()
    assert written.startswith("\rreading ... 0 s") is said
    assert written.endswith("\r" + 15 * " " + "\r") is said
    assert bool(written) is said


def test_it_counts_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    with progress("reading"):
        time.sleep(0.8)
    assert stream.getvalue().count("\rreading ... ") > 2
    assert "reading ... 1 s" in stream.getvalue()
