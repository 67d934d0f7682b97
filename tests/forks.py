"""Python processes that need not import torch: a process that has done so, and does nothing else, forks them.

`forked` has `subprocess` start them so in each test, and what those start; `Forks` is such a process with other modules in it.
Run as a program, this is that process: it has one thread, so no lock can be held at a fork. Unix only.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pytest

REAL = subprocess.Popen
MODULES = ("torch._dynamo", "rich.table", "rich.syntax")
_MOST = 1 << 20  # bytes of what is asked for
_DEAD = os.WEXITED | os.WNOHANG | os.WNOWAIT if hasattr(os, "waitid") else 0


class Done(NamedTuple):
    """How a run ended. `returncode` is negative after a signal, as `subprocess` has it."""

    returncode: int
    stdout: str
    stderr: str


class Forked(REAL[Any]):
    """A child that runs `python WORDS` as a fork. What a fork cannot do, such as an option of the interpreter, starts as ever."""

    place: Callable[[], str] = lambda: usual().place
    """Gives the socket at which the process that forks is asked."""

    def _execute_child(self, *given: Any) -> None:
        words, _, before, _, kept, folder, environment, _, _, _, *pipes = given[:16]
        words = [str(word) for word in words] if isinstance(words, (list, tuple)) else [words]
        known = words[0] == sys.executable and re.match("-[cu]$|-m|[^-]", (words[1:] or ["-"])[0])
        if not known or before is not None or kept:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        asked = {
            "words": words[1:],
            "folder": os.fspath(folder or os.getcwd()),
            "environment": dict(os.environ if environment is None else environment),
            "session": given[-2],
        }
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.connect(type(self).place())
        ends = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        socket.send_fds(self._told, [json.dumps(asked).encode()], ends)
        self.pid = int(self._told.recv(100))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if not hasattr(self, "_told"):
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        if flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        status = int(self._told.recv(100) or signal.SIGKILL)  # nothing, where what waited for it was killed
        self._told.close()
        return self.pid, status

    def _internal_poll(self, _deadstate: Any = None) -> int | None:
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode


def at(place: str) -> type[Forked]:
    """The same at this socket."""
    return type("Popen", (Forked,), {"place": staticmethod(lambda: place)})


class Forks:
    """A process that has imported these modules, and whose forks run programs. `nested`: what those start is forked, too.

    `freed`: they free all that they have, as an interpreter does at its end, which takes longer than most programs of
    tests; else those that end without an exception end after what `atexit` runs.
    """

    def __init__(self, *modules: str, nested: bool = False, freed: bool = False) -> None:
        from tests.cli.scripts import environment

        self.place = os.path.join(tempfile.mkdtemp(prefix="forks"), "asked")
        self.popen = at(self.place)
        listens = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listens.bind(self.place)
        listens.listen(64)
        self._alive, other = socket.socketpair()
        ends = (str(listens.fileno()), str(other.fileno()))
        options = ["yes" if option else "" for option in (nested, freed)]
        self._parent = REAL(
            [sys.executable, "-m", "tests.forks", self.place, *options, *ends, *modules],
            env={**environment(), "OMP_NUM_THREADS": "1"},
            pass_fds=(listens.fileno(), other.fileno()),
        )
        listens.close()
        other.close()

    def start(
        self, folder: Path, runs: Sequence[tuple[Sequence[str], Mapping[str, str]]], *, output: Path | None = None
    ) -> list[subprocess.Popen[bytes]]:
        """Run `python WORDS` for each of them, at the same time, with more environment, and with the folder to work in.

        What they write is in `out` and `err` of `output`, or else of the folder.
        """
        with open((output or folder) / "out", "wb") as out, open((output or folder) / "err", "wb") as err:
            return [
                self.popen(
                    [sys.executable, *words],
                    cwd=folder,
                    env={**os.environ, **more},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
                for words, more in runs
            ]

    def run(self, folder: Path, program: Path, *arguments: str) -> Done:
        """Run a file as `python FILE ARGUMENTS` does, but that what was imported is there."""
        (code,) = ended(self.start(folder, [([str(program), *arguments], {})]), 600)
        return Done(code, *(folder.joinpath(name).read_text(errors="replace") for name in ("out", "err")))

    def end(self) -> None:
        """End the process that forks, which it does when nobody can ask any more."""
        self._alive.close()
        self._parent.wait()
        shutil.rmtree(os.path.dirname(self.place), ignore_errors=True)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def ended(processes: Sequence[subprocess.Popen[Any]], seconds: float) -> list[int]:
    """The exit codes of processes, when they have ended. Raises TimeoutExpired after so long, and those that go on are killed."""
    until = time.monotonic() + seconds
    try:
        return [process.wait(max(0.0, until - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@cache
def of_gradviz() -> tuple[str, ...]:
    """All modules of gradviz but programs of their own, and the one that imports graphviz."""
    import gradviz

    names = [module.name for module in pkgutil.walk_packages(gradviz.__path__, "gradviz.")]
    return tuple(name for name in names if "._" not in name and name != "gradviz.torchviz")


@cache
def usual() -> Forks:
    """The process that has imported torch and gradviz, once for all tests of this one; it ends with it."""
    forks = Forks(*MODULES, *of_gradviz(), nested=True)
    atexit.register(forks.end)
    return forks


@pytest.fixture(autouse=True)
def forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Children of Python are forked while a test runs, where this system can, unless it is marked as `fresh`."""
    if hasattr(os, "fork") and not request.node.get_closest_marker("fresh"):
        subprocess.Popen = Forked  # type: ignore[misc]
    yield
    subprocess.Popen = REAL  # type: ignore[misc]


# -- in the process that forks ----------------------------------------------------------------------------------------------


def _serve(place: str, nested: bool, listens: socket.socket, alive: socket.socket) -> list[str] | None:
    """Fork what is asked for until nobody is there to ask, and tell how it ended. Gives the words of a run in its fork.

    Those who ask are told the number of the process, then its status: all have this one as their parent, as ranks have theirs.
    """
    asking: dict[int, socket.socket] = {}  # by process
    died, dies = os.pipe()
    os.set_blocking(dies, False)
    signal.set_wakeup_fd(dies)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while alive not in (ready := select.select([listens, alive, died], [], [])[0]):
        if died in ready:
            os.read(died, 4096)
            for process in [process for process in asking if os.waitid(os.P_PID, process, _DEAD)]:
                with asking.pop(process) as connection, suppress(OSError):  # it may have been killed itself
                    connection.send(str(os.waitpid(process, 0)[1]).encode())
        if listens in ready:
            connection, _ = listens.accept()
            words, ends, _, _ = socket.recv_fds(connection, _MOST, 3)
            asked = json.loads(words)
            process = os.fork()
            if not process:
                for other in (listens, alive, *asking.values()):
                    other.close()
                signal.set_wakeup_fd(-1)
                os.close(died)
                os.close(dies)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                if nested:
                    subprocess.Popen = at(place)  # type: ignore[misc]
                _become(asked["folder"], asked["environment"], ends, asked["session"])
                with connection:  # told from here, so that who asks finds it in a session of its own
                    connection.send(str(os.getpid()).encode())
                return list(asked["words"])
            for end in ends:
                os.close(end)
            asking[process] = connection
    return None


def _become(folder: str, environment: Mapping[str, str], ends: Sequence[int], session: bool) -> None:
    """Take over what a process of its own would have been started with."""
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # TMPDIR may be another one
    sys.path += [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115 -- by lines where it is a terminal
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _run(words: list[str]) -> None:
    """What `python WORDS` does."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-u":
        words = words[1:]
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    if words[0][:2] == "-m" and words[0] != "-m":
        words[:1] = ["-m", words[0][2:]]
    kind, what, *sys.argv[1:] = words if words[0] in ("-c", "-m") else ["", *words]
    sys.argv[0] = kind if kind == "-c" else what
    sys.path[0] = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(what)))
    if kind == "-c":
        exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))
    elif kind == "-m":
        for known in (what, f"{what}.__main__"):  # else it is not run, but what has loaded it is asked for it
            sys.modules.pop(known, None)
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(what, run_name="__main__")


def _run_and_end(words: list[str]) -> None:
    """The same, and end as an interpreter does, up to where it frees what it has."""
    code: object = None
    try:
        _run(words)
    except SystemExit as asked:
        code = asked.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # the script may have closed it
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    for module in sys.argv[6:]:
        __import__(module)
    gc.collect()
    gc.freeze()
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[4:6]]
    nested, freed = (bool(told) for told in sys.argv[2:4])
    given = _serve(sys.argv[1], nested, *sockets)
    if given:
        (_run if freed else _run_and_end)(given)
