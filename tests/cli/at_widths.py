"""Commands that print their results at each of several widths of the terminal that this runs in, after one run of the script.

`python -m tests.cli.at_widths FILE`: the file lists runs as JSON, each `{"name", "arguments", "widths", "plain"}`. A line
`@@ NAME WIDTH` comes before each result. The result without a terminal, where nothing is cut, goes to the file `plain`.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import gradviz.report.results as results
from gradviz.cli import options, render
from gradviz.cli.main import main

_write_table, _print_tree = results.write_table, render._print


_run: dict[str, Any] = {}


def _everywhere(stream: TextIO, write: Callable[[TextIO], None]) -> None:
    """Have something written at each width."""
    for width in _run["widths"]:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        stream.write(f"@@ {_run['name']} {width}\n")
        write(stream)
        stream.flush()
    stream.write("@@ - 0\n")  # what comes now is not ours
    stream.flush()
    with open(_run["plain"], "a", encoding="utf-8") as file:
        write(file)


def _table_everywhere(stream: TextIO, table: Any, title: str = "") -> None:
    _everywhere(stream, lambda to: _write_table(to, table, title))


def _tree_everywhere(graph: Any, options: Any, stream: TextIO) -> None:
    _everywhere(stream, lambda to: _print_tree(graph, options, to))


def _execute(run: dict[str, Any]) -> None:
    _run.update(run)
    sys.argv[1:] = run["arguments"]
    with suppress(SystemExit):
        main()


if __name__ == "__main__":
    results.write_table = options.write_table = _table_everywhere
    render._print = _tree_everywhere
    for module in ("torch",):
        if find_spec(module):
            __import__(module)  # once, for all that are forked
    for run in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        child = 0 if run["arguments"][-1].endswith(".json") else os.fork()  # a saved graph leaves nothing behind
        if child:
            os.waitpid(child, 0)
            continue
        _execute(run)
        if not run["arguments"][-1].endswith(".json"):
            os._exit(0)
