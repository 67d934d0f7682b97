"""The one module that starts Graphviz: the system's program, else the engine inside the
pygraphviz wheel.

Either runs in a child process of its own group, with a time limit: Graphviz can take
minutes on a large graph, can crash, and cannot be interrupted from inside Python.
Whatever goes wrong here, a time-out and Ctrl-C included, the child is ended before the
call returns. This module knows DOT as opaque text; it knows nothing of graphs, torch or
pictures.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

from gradviz.errors import (
    FormatError,
    GraphvizNotFound,
    LayoutError,
    LayoutTimeout,
    did_you_mean,
)

Engine = Literal["system", "bundled"]

VARIABLE = "GRADVIZ_GRAPHVIZ"
CHOICES = ("system", "bundled", "none")
PROGRAMS = (
    *("dot", "neato", "fdp", "sfdp", "twopi", "circo", "osage", "patchwork"),
    "nop2",  # draws what has its places already
)

_CHILD = Path(__file__).with_name("_child.py")
_WINDOWS = sys.platform == "win32"
_GRACE = 5  # seconds after the time limit when a child that nobody ended ends itself
# seconds: more, infinity included, is no limit, and more than the system calls take
_LONGEST = 1e6
_SLICE = 0.2  # seconds: Windows does not notice Ctrl-C inside one longer wait
_SHOWN = 5  # lines of Graphviz's own words in an error
_NOISE = re.compile(r"^\s*$|^Fontconfig (warning|error):|Pango-WARNING|GLib-")

_log = logging.getLogger(__name__)


def run(
    source: str,
    *,
    program: str = "dot",
    format: str = "svg",
    timeout: float | None = 20.0,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """What Graphviz makes of DOT text. `timeout` is in seconds; None waits for as long
    as it takes.

    If the system's program fails, the engine inside pygraphviz is tried too.
    `environment` is added to that of this process.

    Raises `LayoutTimeout`, `GraphvizNotFound`, or `LayoutError` with Graphviz's own
    words.

    >>> run("digraph { a -> b }", format="plain").split()[0]
    b'graph'
    """
    if program not in PROGRAMS:
        raise FormatError(
            f"{program!r} is no Graphviz program. {did_you_mean(program, PROGRAMS, what='programs')}"
        )

    if timeout is not None and timeout > _LONGEST:
        timeout = None

    data = source.encode("utf-8", errors="replace")
    first: LayoutError | None = None
    for engine in _engines():
        try:
            command = _command(engine, program, format, timeout)
            return _output(command, data, program, timeout, environment)
        except LayoutTimeout:
            raise
        except LayoutError as error:
            first = first or error

    raise first or _not_found()


def which() -> Engine | None:
    """The engine that `run` takes first for `dot`, None if there is none.

    >>> which() in ("system", "bundled", None)
    True
    """
    return next(iter(_engines()), None)


def version() -> str:
    """Version of the Graphviz that `run` takes, such as "14.1.5": it is in every
    picture. Raises what `run` raises.
    """
    match = re.search(
        r"version ([^\s)]+)",
        run("graph {}").decode(errors="replace"),
    )
    return match[1] if match else "unknown"


def _engines() -> list[Engine]:
    """The engines that are there and allowed, in the order in which to try them."""
    forced = os.environ.get(VARIABLE, "")
    if forced and forced not in CHOICES:
        raise FormatError(
            f"{VARIABLE}={forced!r} is not known. {did_you_mean(forced, CHOICES, what='values')}"
        )
    engines: list[Engine] = []
    if forced in ("", "system") and shutil.which("dot"):
        engines.append("system")
    if forced in ("", "bundled") and _wheel_folder() and _interpreter():
        engines.append("bundled")
    return engines


def _not_found() -> GraphvizNotFound:
    forced = os.environ.get(VARIABLE, "")
    missing = {
        "none": f"{VARIABLE}=none forbids Graphviz.",
        "system": f"{VARIABLE}=system asks for a Graphviz program, and there is none on the PATH.",
        "bundled": f"{VARIABLE}=bundled asks for the Graphviz inside pygraphviz, and pygraphviz cannot be started here.",
    }
    reason = missing.get(
        forced, "Graphviz was not found: no program on the PATH, and no pygraphviz."
    )

    if forced:
        step = f"Unset {VARIABLE}"
    else:
        step = "Install it (`pip install pygraphviz`, or https://graphviz.org/download)"

    return GraphvizNotFound(f"{reason} {step}, or write an SVG, which needs none.")


def _wheel_folder() -> str:
    """The folder that holds the package pygraphviz, found without importing it; "" if
    there is none.
    """
    with suppress(ImportError, ValueError):
        spec = find_spec("pygraphviz")
        if spec and spec.origin:
            return str(Path(spec.origin).parent.parent)
    return ""


def _interpreter() -> str:
    """The Python to start children with; "" inside a frozen application, where
    `sys.executable` is the application.
    """
    return "" if getattr(sys, "frozen", False) else (sys.executable or "")


def _command(
    engine: Engine,
    program: str,
    format: str,
    timeout: float | None,
) -> list[str]:
    if engine == "bundled":
        return _python(timeout, "draw", _wheel_folder(), program, format)
    path = [shutil.which("dot") or "", f"-K{program}", f"-T{format}"]
    # By way of our child, so that it ends with us; on Windows and in a frozen
    # application it must do without.
    return _python(timeout, "exec", *path) if _interpreter() and not _WINDOWS else path


def _python(
    timeout: float | None,
    task: str,
    *rest: str,
) -> list[str]:
    """Command of our child: isolated and without site, so that nothing of the user's is
    imported or can disturb it.
    """
    seconds = 0 if timeout is None else math.ceil(timeout) + _GRACE
    return [
        _interpreter(),
        "-I",
        "-S",
        str(_CHILD),
        str(os.getpid()),
        str(seconds),
        task,
        *rest,
    ]


def _output(
    command: list[str],
    data: bytes,
    program: str,
    timeout: float | None,
    environment: Mapping[str, str] | None,
) -> bytes:
    """Standard output of a command that must succeed: it runs to its end, or is ended."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            **_own_group(),
        )
    except OSError as error:
        raise LayoutError(
            f"Graphviz {program} could not be started: {error}"
        ) from error

    with process:  # closes the pipes and reaps
        try:
            output, errors = _communicate(process, data, timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise LayoutTimeout(
                f"Graphviz {program} did not finish within {timeout:g} s."
            ) from None
        except BaseException:
            _end(process)
            raise

    words = [
        line
        for line in errors.decode(errors="replace").splitlines()
        if not _NOISE.search(line)
    ]
    said = "\n".join(words[:_SHOWN])
    if process.returncode < 0:
        raise LayoutError(
            f"Graphviz {program} crashed (signal {-process.returncode}). {said}".rstrip()
        )

    if process.returncode or not output:
        raise LayoutError(
            f"Graphviz {program} failed: {said or f'exit code {process.returncode}, and no word why'}"
        )

    if said:
        _log.info("Graphviz %s: %s", program, said)

    return output


def _communicate(
    process: subprocess.Popen[bytes], data: bytes, timeout: float | None
) -> tuple[bytes, bytes]:
    if not _WINDOWS:
        return process.communicate(data, timeout)

    deadline = math.inf if timeout is None else time.monotonic() + timeout
    remaining: bytes | None = data
    # in slices, which only Windows may do: elsewhere a second call forgets what is left
    # to write
    while True:
        try:
            return process.communicate(
                remaining, max(0.0, min(_SLICE, deadline - time.monotonic()))
            )
        except subprocess.TimeoutExpired:
            remaining = None  # the first call has written all of it
            if time.monotonic() >= deadline:
                raise


def _own_group() -> dict[str, Any]:
    """Arguments of Popen that put the child in a group of its own, out of reach of the
    terminal's Ctrl-C.
    """
    if _WINDOWS:
        flags = cast(Any, subprocess)
        return {
            "creationflags": flags.CREATE_NEW_PROCESS_GROUP | flags.CREATE_NO_WINDOW
        }
    return {"start_new_session": True}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child and all that it started. `returncode` is None until it is reaped,
    so its id is still its own.
    """
    if process.returncode is not None:
        return

    if _WINDOWS:
        with suppress(OSError):
            subprocess.run(
                ["taskkill", "/F", "/T", "/PID", str(process.pid)],
                capture_output=True,
                check=False,
            )
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    process.kill()
