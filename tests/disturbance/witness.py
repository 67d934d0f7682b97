"""Runs one script in one way, and notes what is left of it in torch: python witness.py FOLDER SCRIPT WORDS.

WORDS are nothing for plain Python, `record` for `gradviz.record()`, else the words of a command. What the script prints goes to
the file `printed` in either way, and the result of a command to `result`.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import sys
import threading
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy
import torch

import gradviz
from gradviz.__main__ import main as command
from tests.conftest import _installed_in_torch


def run_as_python(script: str) -> None:
    """Run a file as `python FILE` does."""
    main = types.ModuleType("__main__")
    vars(main).update(__file__=script, __loader__=SourceFileLoader("__main__", script), __cached__=None)
    vars(main).update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"], sys.argv = main, [script]
    exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), vars(main))


def run(script: str, words: list[str]) -> object:
    """Run it; the exit code of a command, else None."""
    if words == ["record"]:
        with gradviz.record():
            return run_as_python(script)
    if not words:
        return run_as_python(script)
    sys.argv = ["gradviz", *words]
    try:
        command()
    except SystemExit as ended:
        return ended.code
    return None


def point_streams(own_result: bool) -> None:
    """Standard error to `printed`, and standard output, too, or to `result`; written line by line, so that their order is kept."""
    printed, result = (os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("printed", "result"))
    os.dup2(printed, 2)
    os.dup2(result if own_result else printed, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def end() -> None:
    """End the process as Python does, but that nothing is torn down, which takes longer than a script."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def main() -> None:
    """Run it, and write what is otherwise in torch than before."""
    folder, script, *words = sys.argv[1:]
    os.chdir(folder)
    sys.path[0] = os.path.dirname(script)
    point_streams(bool(words) and words[0] not in ("record", "render"))  # render has a file of its own
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):  # a fork begins with a seed of its own
        seed(0)
    before = _installed_in_torch()
    code = run(script, words)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    after = _installed_in_torch()
    changed = {
        "code": code,
        "printed": os.fstat(2).st_size,
        "left": [name for name in before if before[name] != after[name]],
    }
    Path("afterwards").write_text(json.dumps(changed))


if __name__ == "__main__":
    main()
    end()
