"""A script sees the interpreter that plain `python script.py` would show it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.scripts import gradviz, python, script

pytestmark = [pytest.mark.slow, pytest.mark.fresh]

FACTS = """
import sys
before_torch = "torch" in sys.modules
import builtins, inspect, json, os, pickle, threading, warnings
from dataclasses import dataclass

@dataclass
class Point:
    x: int

import neighbour
warnings.warn("an old thing", DeprecationWarning)
os.environ["OMP_NUM_THREADS"] = "1"
import torch

facts = {
    "globals": sorted(name for name in globals() if name != "facts"),
    "name": __name__, "file": __file__, "doc": __doc__, "package": __package__, "spec": repr(__spec__),
    "loader": [type(__loader__).__name__, __loader__.name, __loader__.path],
    "builtins": __builtins__ is builtins,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(),
    "code": sys._getframe().f_code.co_filename,
    "future": sys._getframe().f_code.co_flags,
    "pickle": pickle.loads(pickle.dumps(Point(3))).x,
    "source": inspect.getsource(Point),
    "neighbour": neighbour.__file__,
    "relative": open("data.txt").read(),
    "filters": repr(warnings.filters),
    "torch before": before_torch,
    "threads": torch.get_num_threads(),
    "random": torch.manual_seed(0) and torch.rand(3).tolist(),
    "meta_path": [type(finder).__name__ for finder in sys.meta_path],
    "threading": threading.excepthook is threading.__excepthook__,
    "excepthook": sys.excepthook is sys.__excepthook__,
    "stdin": sys.stdin.read(),
}
with open(sys.argv[1], "w") as file:
    json.dump(facts, file)
print("to standard output")
print("to standard error", file=sys.stderr)
x = torch.ones(2, requires_grad=True)
y = (x * x).sum()
"""


@pytest.mark.parametrize(
    "path",
    [
        "script.py",
        pytest.param("../{here}/link/script.py", marks=pytest.mark.long),
        pytest.param("{absolute}/script.py", marks=pytest.mark.long),
    ],
)
def test_the_same_facts(tmp_path: Path, path: str) -> None:
    script(tmp_path, FACTS)
    script(tmp_path, "", "neighbour.py")
    (tmp_path / "data.txt").write_text("read from the folder I am in")
    (tmp_path / "link").symlink_to(tmp_path)
    target = path.format(here=tmp_path.name, absolute=tmp_path)
    plain = python(target, tmp_path / "plain.json", "--", "-x", "--at", cwd=tmp_path)
    ours = gradviz("tree", target, "--", tmp_path / "ours.json", "--", "-x", "--at", cwd=tmp_path)
    assert (plain.returncode, ours.returncode) == (0, 0), ours.stderr
    expected, found = (json.loads((tmp_path / name).read_text()) for name in ("plain.json", "ours.json"))
    expected["argv"][1] = found["argv"][1] = ""
    assert found == expected
    assert found["torch before"] is False
    assert {"to standard output", "to standard error"} <= set(ours.stderr.splitlines())


LEAVING = """
import atexit, os, pickle, sys
import neighbour
import torch

class Point:
    x = 3

@atexit.register
def leave():
    import __main__

    seen = [__main__.Point is Point, sys.argv[1:], os.path.basename(os.getcwd()), neighbour is sys.modules["neighbour"]]
    again = [type(pickle.loads(pickle.dumps(one()))).__module__ for one in (Point, neighbour.Row)]
    print("left", *seen, *again, file=sys.stderr)

os.chdir("inside")
torch.ones(2, requires_grad=True).sum().backward()
"""


@pytest.mark.long
@pytest.mark.parametrize("command", ["tree", "check", "saved"])
def test_functions_that_run_at_exit_see_the_script(tmp_path: Path, command: str) -> None:
    script(tmp_path, LEAVING)
    script(tmp_path, "class Row: ...\n", "neighbour.py")
    (tmp_path / "inside").mkdir()
    plain = python("script.py", "--rate", "3", cwd=tmp_path)
    ours = gradviz(command, "script.py", "--", "--rate", "3", cwd=tmp_path)
    assert plain.stderr == "left True ['--rate', '3'] inside True __main__ neighbour\n"
    assert ours.stderr == plain.stderr and ours.returncode == 0


@pytest.mark.long
def test_who_logs_the_stop_logs_what_it_is(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import sys, torch
        try:
            torch.ones(2, requires_grad=True).sum().backward()
        except BaseException as error:
            print(f"terminating due to: {error}", file=sys.stderr)
            raise
        """,
    )
    ours = gradviz("tree", "script.py", cwd=tmp_path)
    assert (
        ours.stderr.startswith("terminating due to: gradviz stopped the script here on purpose") and not ours.returncode
    )


FAILING = {
    "raises": "import helper\ndef f():\n    helper.fail()\nf()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('é') from error\n",
    "syntax": "x = 1\nif x\n    y = 2\n",
    "own hook": "import sys\nsys.excepthook = lambda t, v, tb: print('mine', t.__name__, tb.tb_lineno, file=sys.stderr)\n1 / 0\n",
    "neighbour syntax": "import broken\n",
    "cause is itself": "e = ValueError('round')\ne.__context__ = e\nraise e\n",
}


@pytest.mark.parametrize("name", FAILING)
def test_the_same_traceback(tmp_path: Path, name: str) -> None:
    script(tmp_path, FAILING[name])
    script(tmp_path, "def fail():\n    raise ValueError('from the neighbour')\n", "helper.py")
    script(tmp_path, "def (:\n", "broken.py")
    plain = python("script.py", cwd=tmp_path)
    ours = gradviz("tree", "script.py", cwd=tmp_path)
    assert ours.stderr == plain.stderr
    assert "gradviz" not in ours.stderr
    assert (ours.returncode, ours.stdout) == (3, "")


def test_a_torch_that_fails_to_import(tmp_path: Path) -> None:
    script(tmp_path, "import helper\n")
    script(tmp_path, "import torch\n", "helper.py")
    script(tmp_path, "raise OSError('libtorch_cpu.so: cannot open')\n", "torch.py")
    plain = python("script.py", cwd=tmp_path)
    ours = gradviz("tree", "script.py", cwd=tmp_path)
    assert (ours.returncode, ours.stderr) == (3, plain.stderr)


def test_a_failing_backward_shows_no_frame_of_ours(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import torch
        w = torch.ones(1, requires_grad=True)
        assert (w, "which Python warns of, once")
        y = w * w
        y.backward()
        y.backward()
        """,
    )
    plain = python("script.py", cwd=tmp_path)
    ours = gradviz("tree", "script.py", "--continue", cwd=tmp_path)
    assert "SyntaxWarning" in plain.stderr and "second time" in plain.stderr
    assert ours.stderr == plain.stderr
    assert ours.returncode == 3
    assert "#0  mul" in ours.stdout  # what was captured before is still written


@pytest.mark.long
def test_what_check_puts_around_torch_is_in_no_traceback(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        (w * 2).sum().backward()
        try:
            torch.ones(4) @ w
        except RuntimeError:
            try:
                torch.nn.Parameter("w")
            except AttributeError:
                torch.nn.utils.clip_grad_norm_([3], 1.0)
        """,
    )
    plain = python("script.py", cwd=tmp_path)
    ours = gradviz("check", "script.py", "--continue", cwd=tmp_path)
    assert plain.stderr.count("Traceback") == 3 and ours.stderr == plain.stderr


@pytest.mark.long
def test_spawned_processes_find_the_script(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import multiprocessing, torch
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                factor = pool.map(double, [21])[0]
            y = torch.ones(1, requires_grad=True) * factor
            print("factor", factor)
        """,
    )
    ours = gradviz("tree", "script.py", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert "factor 42" in ours.stderr
    assert "#0  * 42" in ours.stdout


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_calls_backward_undisturbed(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import os, sys, torch
        w = torch.ones(1, requires_grad=True)
        y = w * 3
        child = os.fork()
        if child == 0:
            y.backward()
            print("child", w.grad.item())
            sys.exit(5)
        print("exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        y.backward()
        """,
    )
    ours = gradviz("tree", "script.py", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert "child 3.0" in ours.stderr
    assert "exit code 5" in ours.stderr
    assert ours.stdout.count("* 3") == 1  # written by the parent alone


@pytest.mark.long
def test_a_warning_from_beyond_the_script_names_what_python_names(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import warnings
        import torch

        torch.ones(2, requires_grad=True).sum().backward()
        warnings.warn("two", stacklevel=2)
        """,
    )
    plain = python("script.py", cwd=tmp_path)
    ours = gradviz("tree", "script.py", "--continue", cwd=tmp_path)
    assert "sys:1: UserWarning: two" in plain.stderr and "sys:1: UserWarning: two" in ours.stderr
    assert "gradviz" not in ours.stderr
