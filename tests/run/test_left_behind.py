"""What a script leaves replaced does not reach what gradviz does afterwards, and its own handlers find it as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gradviz
from tests.rows import every_other
from tests.walker.graphs import needs_raw

pytestmark = pytest.mark.slow

STEP = "import torch\nw = torch.ones(2, requires_grad=True)\n(w * 2).sum().backward()\n"


def told(folder: Path, code: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(code)
    words = [sys.executable, "-m", "gradviz", *command, "train.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100)


def test_built_in_functions_are_put_back(tmp_path: Path) -> None:
    code = (
        STEP + "import builtins\ndef mine(*_): raise RuntimeError('not for you')\nbuiltins.sum = builtins.open = mine\n"
    )
    done = told(tmp_path, code, "render", "--continue", "-o", "net.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "net.svg").read_text()


REPLACED = (
    "import ast, atexit, collections, dataclasses, functools, importlib, inspect, linecache, os, re, typing\n"
    "def mine(*_, **__): raise RuntimeError('not for you')\n"
    "atexit.register(lambda: print('still mine', re.compile is mine))\n"
    "re.compile = ast.parse = collections.namedtuple = dataclasses.dataclass = functools.lru_cache = mine\n"
    "importlib.import_module = inspect.getsource = linecache.getline = os.path.join = typing.NamedTuple = mine\n"
)


@pytest.mark.parametrize(
    "command", [("render", "-o", "net.svg"), ("check",), pytest.param(("saved",), marks=needs_raw)], ids=" ".join
)
def test_functions_of_the_library_are_put_back_but_for_the_script(tmp_path: Path, command: tuple[str, ...]) -> None:
    first, rest = STEP.split("\n", 1)
    done = told(tmp_path, f"{first}\n{REPLACED}{rest}", *command)
    assert done.returncode == 0, done.stderr
    assert "still mine True" in done.stdout + done.stderr
    done = told(tmp_path, f"{first}\n{REPLACED}{rest}torch.ones(3) @ w\n", *command, "--continue")
    assert done.returncode == 3 and "torch.ones(3) @ w" in done.stderr
    assert str(Path(gradviz.__file__).parent) not in done.stderr


@pytest.mark.parametrize(
    "closes",
    every_other(
        [
            "sys.stdout.close()",
            "os.close(1)",
            "sys.stdout.detach()",
            "sys.stderr.close()",
            "sys.stderr = sys.stdout = None",
        ]
    ),
)
def test_a_script_may_close_its_streams(tmp_path: Path, closes: str) -> None:
    code = f"import os, sys\n{STEP}print('END', flush=True)\n{closes}\n"
    for command in (("render", "-o", "net.svg"), ("tree",)):
        done = told(tmp_path, code, *command, "--continue")
        assert done.returncode in (0, 120) and "gradviz/" not in done.stderr, (
            done.stderr
        )  # 120: Python's own, of detach
        done = told(tmp_path, f"{code}raise ValueError", *command, "--continue")
        assert done.returncode in (3, 120) and "gradviz/" not in done.stderr, done.stderr
    assert "<svg" in (tmp_path / "net.svg").read_text()


def test_a_message_given_to_exit_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = told(tmp_path, STEP + "import sys\nsys.exit('no data in ./here')\n", "tree", "--continue")
    assert done.stderr.splitlines() == ["no data in ./here", "Error: train.py exited with code 1"]
    assert done.returncode == 3 and "output" in done.stdout


def test_how_the_script_exited_is_told_where_the_result_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code = STEP + "import shutil, sys\nshutil.rmtree('out')\nsys.exit(5)\n"
    done = told(tmp_path, code, "render", "--continue", "-o", "out/net.svg")
    failed, exited = done.stderr.splitlines()
    assert failed.startswith("Error: cannot write") and exited == "Error: train.py exited with code 5"
    assert done.returncode == 3


@pytest.mark.fresh
@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of open files")
def test_a_script_that_holds_all_open_files(tmp_path: Path) -> None:
    hoard = (
        "import resource, torch\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\nheld = []\n"
        "try:\n    while True: held.append(open(__file__))\nexcept OSError: pass\n"
    )
    done = told(tmp_path, hoard + STEP, "render", "--continue", "-o", "net.svg")
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))  # torch may have more to say
    assert str(Path(gradviz.__file__).parent) not in done.stderr
    assert line.startswith("Error: too many files are open") and done.returncode == 2
