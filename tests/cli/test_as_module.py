"""`-m package.module` runs a module as `python -m` does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradviz.graph.files import loads
from tests.cli.conftest import Gradviz
from tests.cli.scripts import GRAPH, gradviz as in_a_process, python, script

pytestmark = pytest.mark.slow

FACTS = """
import json, os, sys, torch
from .net import width
facts = {
    "globals": sorted(globals()),
    "name": __name__, "file": __file__, "doc": __doc__, "package": __package__, "cached": __cached__,
    "spec": [__spec__.name, __spec__.parent, __spec__.origin, __spec__.has_location],
    "loader": [type(__loader__).__name__, __loader__ is __spec__.loader, __loader__.name, __loader__.path],
    "main": sys.modules["__main__"].__dict__ is globals(), "again": "pkg.train" in sys.modules,
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "code": sys._getframe().f_code.co_filename,
}
with open(os.environ.get("FACTS", "facts.json"), "w") as file:
    json.dump(facts, file)
w = torch.ones(width, requires_grad=True)
loss = (w * w).sum()
if __name__ == "__main__":
    loss.backward()
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> None:
    script(tmp_path, "", "pkg/__init__.py")
    script(tmp_path, "width = 3\n", "pkg/net.py")
    script(tmp_path, FACTS, "pkg/train.py")


def test_the_same_facts_as_under_python(tmp_path: Path) -> None:
    expected, found = (
        json.loads((tmp_path / "facts.json").read_text())
        for ran in (
            python("-m", "pkg.train", "--at", "3", cwd=tmp_path),
            in_a_process("tree", "-m", "pkg.train", "--", "--at", "3", cwd=tmp_path),
        )
        if ran.returncode == 0
    )
    assert found == expected
    assert found["package"] == "pkg" and found["argv"][1:] == ["--at", "3"]


def test_a_name_in_it_and_the_main_of_a_package(gradviz: Gradviz, tmp_path: Path) -> None:
    graph = loads(gradviz(*GRAPH, "-m", "pkg.train:loss").stdout)
    assert (graph.title, graph.roots[0].name) == ("pkg.train:loss", "loss")
    script(
        tmp_path,
        "from .net import width\nimport torch\ny = torch.ones(width, requires_grad=True) * 2\n",
        "pkg/__main__.py",
    )
    assert loads(gradviz(*GRAPH, "-m", "pkg").stdout).title == "pkg: y"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-m", "pkg"), "'pkg' is a package without a __main__ module"),
        (("-m", "pkg.trian"), "there is no module 'pkg.trian'"),
        (("-m", "nowhere.train"), "there is no module 'nowhere'"),
        (("-m", "pkg/train.py"), "is not a module's name"),
        (("-m", "pkg.train", "other.py"), "-m pkg.train is the target, so remove 'other.py'"),
        ((), "Missing argument 'TARGET'"),
    ],
)
def test_wrong_use(gradviz: Gradviz, arguments: tuple[str, ...], said: str) -> None:
    assert said in gradviz("tree", *arguments, code=2).stderr


def test_a_script_of_a_package_is_told_how_to_run(gradviz: Gradviz) -> None:
    said = gradviz("tree", "pkg/train.py", code=3).stderr.splitlines()
    assert said[-2] == "ImportError: attempted relative import with no known parent package"
    assert said[-1].endswith("as python -m does: -m PACKAGE.train")


def test_what_fails_while_packages_are_imported_is_shown(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, "1 / 0\n", "pkg/__init__.py")
    said = gradviz("tree", "-m", "pkg.train", code=3).stderr.splitlines()
    assert said[-1] == "ZeroDivisionError: division by zero"
    assert [line for line in said if line.startswith("  File")] == [
        f'  File "{tmp_path}/pkg/__init__.py", line 1, in <module>'
    ]
