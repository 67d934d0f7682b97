"""Many runs, each in a process of its own, for the price of one import of torch: a process that has imported it forks them.

`Forks` is the side of the tests; run as a program, this is the process that forks. Unix only.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.cli.scripts import environment


class Done(NamedTuple):
    """How a run ended. `returncode` is negative after a signal, as `subprocess` has it."""

    returncode: int
    stdout: str
    stderr: str


class Running(NamedTuple):
    """Runs that go on beside one another."""

    pids: tuple[int, ...]
    answers: int  # the descriptor that tells their exit codes

    def codes(self, timeout: float) -> list[int]:
        """Their exit codes, negative after a signal. Raises TimeoutError when they have not all ended by then."""
        if not select.select([self.answers], [], [], timeout)[0]:
            raise TimeoutError(f"still running after {timeout:.0f} s")
        codes: list[int] = json.loads(_line(self.answers))
        return codes


class Forks:
    """Runs programs in forks of a process that has imported these modules."""

    def __init__(self, *modules: str) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *modules],
            env={**environment(), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(
        self, folder: Path, runs: Sequence[tuple[Sequence[str], Mapping[str, str]]], *, output: Path | None = None
    ) -> Running:
        """Run `python WORDS` for each of them, at the same time, with more environment, and with the folder to work in.

        What they write is in `out` and `err` of `output`, or else of the folder.
        """
        assert self._parent.stdin is not None and self._parent.stdout is not None
        asked = {"folder": str(folder), "output": str(output or folder), "runs": runs}
        self._parent.stdin.write(json.dumps(asked).encode() + b"\n")
        self._parent.stdin.flush()
        answers = self._parent.stdout.fileno()
        return Running(tuple(json.loads(_line(answers))), answers)

    def run(self, folder: Path, program: Path, *arguments: str) -> Done:
        """Run a file as `python FILE ARGUMENTS` does, but that what was imported is there."""
        (code,) = self.start(folder, [([str(program), *arguments], {})]).codes(600)
        return Done(code, *(folder.joinpath(name).read_text(errors="replace") for name in ("out", "err")))

    def end(self) -> None:
        """End the process that forks, which it does when nothing can be asked any more."""
        self._parent.communicate()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def _line(descriptor: int) -> bytes:
    """The next line, and nothing that comes after it."""
    line = b""
    while not line.endswith(b"\n"):
        some = os.read(descriptor, 1)
        if not some:
            raise EOFError("the process that forks has ended")
        line += some
    return line


def _serve() -> list[str] | None:
    """Fork the runs of each line, and answer with their ids, then their exit codes. Gives the words of a run in its fork."""
    for line in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(line)
        open_ones = [
            os.open(os.path.join(asked["output"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for name in ("out", "err")
        ]
        children = []
        for words, more in asked["runs"]:
            child = os.fork()
            if not child:
                _become(asked["folder"], more, open_ones)
                return list(words)
            children.append(child)
        for descriptor in open_ones:
            os.close(descriptor)
        print(json.dumps(children), flush=True)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
    return None


def _become(folder: str, more: Mapping[str, str], output: Sequence[int]) -> None:
    """Take over what a process of its own would have been started with."""
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *output)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.update(more)
    os.chdir(folder)
    tempfile.tempdir = None  # TMPDIR may be another one


if __name__ == "__main__":
    for module in sys.argv[1:]:
        __import__(module)
    words = _serve()
    if words and words[0] == "-m":
        sys.path[0], sys.argv = os.getcwd(), words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words:
        sys.path[0], sys.argv = os.path.dirname(words[0]), words
        runpy.run_path(words[0], run_name="__main__")  # and then this interpreter ends as any other
