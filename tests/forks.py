"""Many runs, each in a process of its own, for the price of one import of torch: a process that has imported it forks them.

`Forks` is the side of the tests; run as a program, this is the process that forks. Unix only.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.cli.scripts import environment


class Done(NamedTuple):
    """How a run ended. `returncode` is negative after a signal, as `subprocess` has it."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """Runs programs in forks of a process that has imported these modules."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.forks", str(folder), *modules]
        self._parent = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, program: Path, *arguments: str) -> Done:
        """Run a file as `python FILE ARGUMENTS` does, but that what was imported is there."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(json.dumps([str(program), *arguments]) + "\n")
        code = int(self._parent.stdout.readline())
        return Done(code, *(self._folder.joinpath(name).read_text(errors="replace") for name in ("out", "err")))

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._parent.communicate()


def serve(folder: Path) -> list[str] | None:
    """Fork a process for each line, and answer with its exit code. Gives the words of the line in the fork, None at the end."""
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if not child:
            for descriptor, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            words: list[str] = json.loads(line)
            return words
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


if __name__ == "__main__":
    for module in sys.argv[2:]:
        __import__(module)
    sys.argv = serve(Path(sys.argv[1])) or []
    if sys.argv:
        runpy.run_path(sys.argv[0], run_name="__main__")  # and then this interpreter ends as any other
