"""The one module that starts Graphviz: the system's program, else the engine inside the
pygraphviz wheel.

Either runs in a child process with a time limit: Graphviz can take minutes on a large
graph, can crash, and cannot be interrupted from inside Python. Whatever goes wrong
here, a time-out and Ctrl-C included, the child is ended before the call returns. This
module knows DOT as opaque text; it knows nothing of graphs, torch or pictures.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

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

_CHILD = Path(__file__).with_name("_child.py")
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
    data = source.encode("utf-8", errors="replace")
    first: LayoutError | None = None
    for engine in _engines():
        try:
            command = _command(engine, program, format)
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
    match = re.search(r"version ([^\s)]+)", run("graph {}").decode(errors="replace"))
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
    if forced in ("", "bundled") and _wheel_folder():
        engines.append("bundled")
    return engines


def _not_found() -> GraphvizNotFound:
    forced = os.environ.get(VARIABLE, "")
    if forced:
        words = f"{VARIABLE}={forced} leaves no Graphviz here. Unset {VARIABLE}"
    else:
        words = (
            "Graphviz was not found: no program on the PATH, and no pygraphviz. "
            "Install it (`pip install pygraphviz`, or https://graphviz.org/download)"
        )
    return GraphvizNotFound(f"{words}, or write an SVG, which needs none.")


def _wheel_folder() -> str:
    """The folder that holds the package pygraphviz, found without importing it; "" if
    there is none.
    """
    with suppress(ImportError, ValueError):
        spec = find_spec("pygraphviz")
        if spec and spec.origin:
            return str(Path(spec.origin).parent.parent)
    return ""


def _command(engine: Engine, program: str, format: str) -> list[str]:
    if engine == "system":
        return [shutil.which("dot") or "", f"-K{program}", f"-T{format}"]
    # isolated and without site, so that nothing of the user's is imported
    child = [sys.executable, "-I", "-S", str(_CHILD)]
    return [*child, _wheel_folder(), program, format]


def _output(
    command: list[str],
    data: bytes,
    program: str,
    timeout: float | None,
    environment: Mapping[str, str] | None,
) -> bytes:
    """Standard output of a command that must succeed: it runs to its end, or is ended."""
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LayoutTimeout(
            f"Graphviz {program} did not finish within {timeout:g} s."
        ) from None
    except OSError as error:
        raise LayoutError(
            f"Graphviz {program} could not be started: {error}"
        ) from error

    words = [
        line
        for line in done.stderr.decode(errors="replace").splitlines()
        if not _NOISE.search(line)
    ]
    said = "\n".join(words[:_SHOWN])
    if done.returncode < 0:
        raise LayoutError(
            f"Graphviz {program} crashed (signal {-done.returncode}). {said}".rstrip()
        )

    if done.returncode or not done.stdout:
        raise LayoutError(
            f"Graphviz {program} failed: {said or f'exit code {done.returncode}, and no word why'}"
        )

    if said:
        _log.info("Graphviz %s: %s", program, said)

    return done.stdout
