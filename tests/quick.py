"""Python processes that need not import torch: they are forks of this one, which has done so. For tests that start many.

`forked` has `subprocess` start them so. What has a `preexec_fn`, or is no Python, starts as ever, as does what a fork starts.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

REAL = subprocess.Popen


class Forked(REAL[Any]):
    """A child that runs `python WORDS` without starting an interpreter."""

    def _execute_child(self, *given: Any) -> None:
        words, _, before, _, _, folder, environment, _, _, _, *pipes = given[:16]
        if type(words) is not list or words[0] != sys.executable or before is not None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid = os.fork()
        if not self.pid:
            _run(words[1:], folder, environment, (pipes[0], pipes[3], pipes[5]), session=given[-2])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _run(words: Sequence[str], folder: Any, environment: Any, ends: Sequence[int], session: bool) -> None:
    """In the fork: take over what the process would have been started with, run it, and end."""
    code: Any = 1
    try:
        subprocess.Popen = REAL  # type: ignore[misc]
        for number, end in enumerate(ends):
            if end != -1:
                os.dup2(end, number)
        os.closerange(3, 256)
        if session:
            os.setsid()
        os.chdir(folder or ".")
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.excepthook = sys.__excepthook__
        sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest")]
        sys.path[0] = os.getcwd()
        kind, what, *sys.argv[1:] = words if words[0] in ("-c", "-m") else ["", *words]
        sys.argv[0] = kind if kind == "-c" else what
        if kind == "-c":
            exec(what, sys.modules["__main__"].__dict__)
        elif kind == "-m":
            for known in (what, f"{what}.__main__"):  # else it is not run, but what has loaded it is asked for it
                sys.modules.pop(known, None)
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(what, run_name="__main__")
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children of Python are forked while a test runs, where this system can."""
    if hasattr(os, "fork"):
        import torch._dynamo  # noqa: F401 -- once, for all of them: a step of an optimizer imports it

        monkeypatch.setattr(subprocess, "Popen", Forked)
    yield
