"""What commands print in a terminal of 60, 80 and 120 columns: no line is wider, every number and every title is whole."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.cells import cell_len

from tests.cli.scripts import REPOSITORY, TRAINING, environment, script

pytestmark = pytest.mark.slow

WIDTHS = (60, 80, 120)
SAMPLES = ("gpt", "chain_rule")
READ = ("saved", "saved --by module", "saved --by tensor", "saved --budget 1KiB", "tree", "tree --by node")
RUN = ("check", "flow", "flow --by leaf", "tensors")
WIDE_NAMES = """
import torch

class 学習(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.重みと偏りを持つとても長い名前の層 = torch.nn.Linear(3, 2)
        self.second_layer_with_a_name_that_is_longer_than_any_column_could_be = torch.nn.Linear(2, 1)

    def forward(self, x):
        h = self.重みと偏りを持つとても長い名前の層(x)  # 🚀🚀🚀 コメントも長い
        return self.second_layer_with_a_name_that_is_longer_than_any_column_could_be(h)

モデル = 学習()
損失 = モデル(torch.ones(2, 3)).pow(2).sum()
損失.backward()
"""


class Shown(NamedTuple):
    """What a command printed at one width, and what it prints where nothing is cut."""

    name: str
    width: int
    lines: list[str]
    plain: str


def in_terminal(*arguments: object, cwd: Path, width: int = 80, timeout: float = 600) -> tuple[str, int]:
    """What Python prints in a terminal of its own, without colours, and its exit code."""
    child, descriptor = pty.fork()
    if not child:
        os.chdir(cwd)
        own = {**environment(), "TERM": "xterm", "OMP_NUM_THREADS": "1"}
        own.pop("COLUMNS", None)
        os.execve(sys.executable, [sys.executable, *map(str, arguments)], own)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    written, began = b"", time.monotonic()
    while time.monotonic() - began < timeout:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        written += part
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()).replace("\r\n", "\n"), code


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    folder = tmp_path_factory.mktemp("terminal")
    paths = [REPOSITORY / "samples" / f"{name}.py" for name in SAMPLES]
    paths += [script(folder, WIDE_NAMES, "wide_names.py")]
    runs = []
    for path in paths:
        saved = folder / f"{path.stem}.json"
        commands = [f"render -o {saved}", *RUN]
        runs += [(path.stem, command, [*command.split(), str(path)]) for command in commands]
        runs += [(path.stem, command, [*command.split(), str(saved)]) for command in READ]
    runs.append(("chain_rule", "paths", ["paths", str(paths[SAMPLES.index("chain_rule")]), "--to", "w"]))
    runs.append(("gpt", "diff", ["diff", str(folder / "gpt.json"), str(folder / "chain_rule.json")]))
    asked = [
        {
            "name": f"{stem}/{command.replace(' ', '_')}",
            "arguments": arguments,
            "widths": WIDTHS,
            "plain": str(folder / f"{i}.txt"),
        }
        for i, (stem, command, arguments) in enumerate(runs)
    ]
    (folder / "runs").write_text(json.dumps(asked), encoding="utf-8")
    printed, code = in_terminal("-m", "tests.cli.at_widths", folder / "runs", cwd=REPOSITORY)
    assert code == 0
    return list(_results(printed, {str(one["name"]): Path(str(one["plain"])) for one in asked}))


def _results(printed: str, plain: dict[str, Path]) -> Iterator[Shown]:
    pieces = re.split(r"^.*@@ (\S+) (\d+)\n", printed, flags=re.MULTILINE)
    for name, width, text in zip(pieces[1::3], pieces[2::3], pieces[3::3]):
        if name == "-":
            continue
        lines = [line.rpartition("\r")[2] for line in text.split("\n")]  # and not at "\r"
        yield Shown(name, int(width), lines, plain[name].read_text(encoding="utf-8"))


def test_no_line_is_wider_than_the_terminal(shown: list[Shown]) -> None:
    wide = [(one.name, one.width, line) for one in shown for line in one.lines if cell_len(line) > one.width]
    assert not wide


_NUMBER = re.compile(r"(?<![\w.…])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def test_every_number_is_whole(shown: list[Shown]) -> None:
    """It stands in the output that nothing is cut of, and no ellipsis touches it."""
    for one in shown:
        known = {*_NUMBER.findall(one.plain), str(one.width)}
        for line in (line for line in one.lines if "(max_rows=0 shows all)" not in line):  # a file has all rows
            assert not re.search(r"\d…", line), (one.name, one.width, line)
            assert {*_NUMBER.findall(line)} <= known, (one.name, one.width, line)


FIRST = {"saved": "held", "flow": "norm", "tensors": "shape", "tree": "module"}


def test_titles_are_words_of_the_whole_table(shown: list[Shown]) -> None:
    """Each column has its title, in one line or several, or is named below as hidden."""
    for one in shown:
        command = one.name.partition("/")[2]
        title = next((line for line in one.plain.splitlines() if FIRST.get(command) in line.split()), "")
        words = " ".join(one.lines).replace("hidden to fit", "").split()
        missing = [word for word in title.split() if word not in words and f"{word}," not in words]
        assert not missing, (one.name, one.width, missing)


def test_what_names_a_row_differs_where_it_can(shown: list[Shown]) -> None:
    rows = next(one for one in shown if one.name == "gpt/flow" and one.width == 80).lines
    names = [line.split()[0] for line in rows if re.match(r"(…|model)", line)]
    assert len(names) > 15 and len(set(names)) == len(names)


def test_errors_fit(tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    for arguments in (["render", f"{path.name}:model.nothing.at.all"], ["check", "a.json"]):
        text, code = in_terminal("-m", "gradviz", *arguments, cwd=tmp_path, width=60)
        assert code == 2 and "Error" in text
        assert [line for line in text.splitlines() if cell_len(line.rpartition("\r")[2]) > 60] == []
