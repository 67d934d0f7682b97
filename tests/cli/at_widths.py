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
from gradviz.cli import render
from gradviz.cli.main import main

_write_table, _print_tree = results.write_table, render._print


def at_each_width(run: dict[str, Any]) -> None:
    """Run the command, and have what it writes written at each width."""

    def everywhere(stream: TextIO, write: Callable[[TextIO], None]) -> None:
        for width in run["widths"]:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
            stream.write(f"@@ {run['name']} {width}\n")
            write(stream)
            stream.flush()
        with open(run["plain"], "a", encoding="utf-8") as file:
            write(file)

    results.write_table = lambda stream, table, title="": everywhere(stream, lambda to: _write_table(to, table, title))
    render._print = lambda graph, options, stream: everywhere(stream, lambda to: _print_tree(graph, options, to))
    sys.argv[1:] = run["arguments"]
    main()


if __name__ == "__main__":
    for module in ("torch", "transformers"):
        if find_spec(module):
            __import__(module)  # once, for all that are forked
    for run in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if run["arguments"][-1].endswith(".json"):  # a saved graph leaves nothing behind
            with suppress(SystemExit):
                at_each_width(run)
            continue
        child = os.fork()
        if not child:
            at_each_width(run)
        os.waitpid(child, 0)
