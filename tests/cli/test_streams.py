"""Process-level truths: streams, exit codes, Ctrl-C. Each needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradviz.graph.files import loads
from tests.cli.scripts import GRAPH, environment, gradviz, script
from tests.rows import every_other

pytestmark = pytest.mark.slow

NOISY = """
import atexit, ctypes, os, sys
import torch
atexit.register(print, "late")
print("python")
os.system("echo child")
if os.name == "posix":
    ctypes.CDLL(None).printf(b"from C\\n")
w = torch.ones(1, requires_grad=True)
y = w * 2
"""


def test_the_result_has_standard_output_for_itself(tmp_path: Path) -> None:
    result = gradviz(*GRAPH, script(tmp_path, NOISY), cwd=tmp_path)
    assert [node.op for node in loads(result.stdout).nodes] == ["MulBackward0", "AccumulateGrad"]
    assert sorted(result.stderr.split()) == sorted(["python", "child", "from", "C", "late"])


def test_a_script_prints_as_always_when_the_result_goes_to_a_file(tmp_path: Path) -> None:
    result = gradviz("render", script(tmp_path, NOISY), "-o", "net.json", cwd=tmp_path)
    assert set(result.stdout.splitlines()) == {"python", "child", "from C", "net.json", "late"}
    assert result.stderr == ""


def test_output_to_standard_output_is_the_file_byte_for_byte(tmp_path: Path) -> None:
    script(tmp_path, NOISY)
    for target in (["-o", "net.dot"], ["-o", "-", "--format", "dot"]):
        result = gradviz("render", "script.py", *target, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert result.stdout.encode() == (tmp_path / "net.dot").read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(
    ("tail", "codes", "said"),
    every_other(
        [("| true", "141 0", ""), ("2>&- | grep -cF '* 2'", "0 0", "1"), (">&-", "2", "standard output is closed")]
    ),
)
def test_odd_streams(tmp_path: Path, tail: str, codes: str, said: str) -> None:
    script(tmp_path, "import torch\ny = torch.ones(1, requires_grad=True) * 2\n")
    line = f'"{sys.executable}" -m gradviz tree script.py {tail}; echo codes "${{PIPESTATUS[@]}}"'
    result = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert f"codes {codes}" in result.stdout
    assert said in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("tree", "--help"), 0),
        (("--version",), 0),
        (("tree", "graph.json"), 0),
        (("tree", "nowhere.py"), 2),
        (("render", "graph.json", "-o", "graph.dot"), 0),
    ],
)
def test_what_needs_no_torch_does_not_import_it(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    from gradviz.draw.output import save
    from tests.builders import chain

    save(chain(3), tmp_path / "graph.json")
    program = (
        "import sys\nfrom gradviz.cli.main import main\nsys.modules['torch'] = None  # importing it raises\nmain()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
