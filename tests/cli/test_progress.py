"""The line that says how far a run is: what it says, where it is shown, and that nothing of it stays."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradviz import stages
from gradviz.cli import progress as module
from gradviz.cli.progress import progress, stage_text
from gradviz.draw.output import save
from gradviz.stages import Stage
from tests.builders import chain
from tests.cli.scripts import environment, script
from tests.rows import every_other

pytestmark = pytest.mark.slow

# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "seconds", "text"),
    [
        (Stage("walk", "nodes", lambda: 412_000), 1.3, "walk    412,000 nodes  1.3 s"),
        (Stage("write", "boxes", lambda: 640_000, 1_000_000), 2.9, "write   640,000 of 1,000,000 boxes  2.9 s"),
        (Stage("layout", doing="waiting for dot"), 12.6, "layout  waiting for dot  13 s"),
        (Stage("walk", "nodes", lambda: 1 // 0), 2.0, "walk    0 nodes  2.0 s"),  # what it looks at is being changed
    ],
)
def test_a_stage_in_one_line(stage: Stage, seconds: float, text: str) -> None:
    assert stage_text(stage, seconds, 80) == text


def test_a_narrow_terminal_gets_less() -> None:
    stage = Stage("write", "boxes", lambda: 640_000, 1_000_000)
    lines = [stage_text(stage, 2.9, width) for width in range(80)]
    assert all(len(line) <= width for width, line in enumerate(lines))
    assert len(lines[79]) > len(lines[20]) == 20


# -- where it is shown -------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise OSError("Input/output error")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    monkeypatch.setattr(module, "_INTERVAL", 0.01)


def shown(stream: Terminal, text: str) -> None:
    """Wait until the text has been written."""
    deadline = time.monotonic() + 20
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.005)


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@pytest.mark.usefixtures("hasty")
def test_it_follows_the_stages_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "__stderr__", stream)
    found = [1] * 1200
    with progress("reading the graph"):
        shown(stream, "\rreading the graph  0.")
        with Stage("walk", "nodes", found.__len__):
            shown(stream, "\rwalk    1,200 nodes ")
            found.append(1)
            shown(stream, "\rwalk    1,201 nodes ")
            with Stage("read", "nodes", total=4) as reading:
                for _ in reading.each(range(3)):
                    pass
                shown(stream, "\rread    3 of 4 nodes ")
        with progress("something inside"):
            shown(stream, "\rreading the graph  0.")
    assert "something inside" not in stream.getvalue()
    assert screen(stream.getvalue()) == [""]
    assert not stages.is_watched()


@pytest.mark.usefixtures("hasty")
def test_it_can_end_before_the_block_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "__stderr__", stream)
    with progress("drawing") as line:
        shown(stream, "drawing")
        line.end()
        stream.write("result\n")
        time.sleep(0.1)
    assert screen(stream.getvalue()) == ["result", ""]


@pytest.mark.usefixtures("hasty")
def test_nothing_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    for place in (stream, None, Gone()):  # a pipe, a closed stream, a terminal that went away
        monkeypatch.setattr(sys, "__stderr__", place)
        with progress("reading"), Stage("walk", "nodes", lambda: 1 // 0):
            time.sleep(0.1)
    assert stream.getvalue() == ""


# -- a real terminal ---------------------------------------------------------------------------------------------------

# Runs the command line on a terminal of its own, impatiently; what is shown while the script runs would be a mistake.
# However busy the machine is, the first stage of each name stays open until the line has been written at its end.
ON_TERMINAL = """
import fcntl, sys, termios, time
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
from gradviz.cli import progress
from gradviz.stages import Stage
progress._PATIENCE, progress._INTERVAL = 0.01, 0.001
sys.setswitchinterval(0.0005)
said, asked, write, leave = [], set(), progress.Line._write, Stage.__exit__

def noted(line, text, end=""):
    write(line, text, end)
    said.append(text)

def patient(stage, kind, error, trace):
    if stage._among is not None and kind is None and stage.name not in asked:
        asked.add(stage.name)
        sofar, deadline = len(said) + 1, time.monotonic() + 5  # + 1: one may be on its way
        while not any(text.startswith(stage.name) for text in said[sofar:]) and time.monotonic() < deadline:
            time.sleep(0.001)
    leave(stage, kind, error, trace)

progress.Line._write, Stage.__exit__ = noted, patient
from gradviz.cli.main import main
main()
"""


def on_terminal(folder: Path, columns: int, *arguments: str, press: tuple[str, bytes] | None = None) -> tuple[int, str]:
    """Exit code, and all that was written to standard error, a terminal. `press` sends keys when a text has appeared."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written = b""
    with subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, *arguments],
        cwd=folder,
        env={**environment(), "PYTHONIOENCODING": "utf-8"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        while True:
            try:
                some = os.read(ours, 4096)
            except OSError:  # Linux says so when nobody has the terminal open any more
                break
            if not some:
                break
            written += some
            if press is not None and press[0].encode() in written:
                os.write(ours, press[1])
                press = None
    os.close(ours)
    return process.returncode, written.decode()


posix = pytest.mark.skipif(os.name != "posix", reason="needs pseudo terminals")


@posix
@pytest.mark.parametrize("columns", every_other([120, 40]))
def test_a_saved_graph_on_a_terminal(columns: int, tmp_path: Path) -> None:
    save(chain(16_000), tmp_path / "chain.json")  # a fast machine loads fewer before anything is said
    code, written = on_terminal(tmp_path, columns, "render", "chain.json", "--depth", "all", "-o", "a.svg")
    shown = screen(written)
    assert code == 0 and "pixels tall" in shown[-2] and shown[-1] == ""
    lines = [line.rstrip() for line in written.split("\n")[0].split("\r") if "pixels tall" not in line]
    assert max(map(len, lines)) < columns
    words = {line.split()[0] for line in lines if line}
    assert words >= {"load", "draw", "layout", "write"}
    whole = [line for line in lines if line.startswith("write") and "boxes" in line]
    assert any(" of 16,00" in line for line in whole)


@posix
def test_a_script_on_a_terminal(tmp_path: Path) -> None:
    text = "import sys, time, torch\ny = torch.ones(3, requires_grad=True)\nfor _ in range(20_000):\n    y = y + 1\n"
    script(tmp_path, f"{text}time.sleep(0.1)\nprint('mine', file=sys.stderr)\ny.sum().backward()\n")
    code, written = on_terminal(tmp_path, 80, "render", "script.py", "-o", "a.json")
    runs = "gradviz: running script.py up to its first backward()"  # where importing torch takes a second
    assert code == 0 and screen(written) in ([runs, "mine", ""], ["mine", ""])
    assert {line.split()[0] for line in written.split("\r")[2:] if line.strip()} >= {"walk", "read", "write"}


@posix
def test_control_c_on_a_terminal(tmp_path: Path) -> None:
    save(chain(4000), tmp_path / "chain.json")
    arguments = ["render", "chain.json", "--depth", "all", "-o", "a.svg"]
    code, written = on_terminal(tmp_path, 80, *arguments, press=("\rdraw ", b"\x03"))
    assert (code, os.listdir(tmp_path)) == (130, ["chain.json"])
    assert screen(written)[-2:] == ["Interrupted; nothing was written.", ""]
    assert [line.removeprefix("^C") for line in screen(written)[:-2]] in ([], [""])


# -- while the script runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"), [(1.6, "gradviz: running train.py up to its first backward()\n"), (0.1, "")]
)
def test_a_script_that_takes_long_is_said_to_run(monkeypatch: pytest.MonkeyPatch, seconds: float, said: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "__stderr__", terminal)
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    with module.running("gradviz: running train.py up to its first backward()"):
        time.sleep(seconds)
        with progress("reading the graph"):
            pass
        time.sleep(0.7)
    assert terminal.getvalue() == said
