"""The core knows no feature: what is listed works with the folder of one deleted, and its tests pass with all deleted."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradviz import features
from gradviz.cli.main import MODULE_OF, NEEDS
from gradviz.draw.output import FORMATS
from tests.blocks import PACKAGE, ROOT
from tests.forks import Forks, ended

FEATURES: tuple[str, ...] = runpy.run_path(str(ROOT / "docs" / "structure.py"))["FEATURES"]
TESTED = [
    *("graph/test_hostile_files", "walker/test_walker", "walker/test_saved", "walker/test_naming"),
    *("walker/test_node_kinds", "recording/test_recorder", "recording/test_node_made"),
    *("run/test_run_target", "fold/test_closing", "report/test_labels", "draw/test_svg"),
]
"""Quick tests of the core, which run without all features; without one of them, its commands do."""

DELETED = [*(pytest.param((name,), marks=pytest.mark.long) for name in FEATURES), FEATURES]
"""Each alone by -m long, and always all together."""

TESTS = """
import os, sys
import gradviz, pytest
assert gradviz.__file__.startswith(os.getcwd())
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not million and not long", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    known = ("torch._dynamo", "torch.testing", "pytest", "hypothesis", "numpy", "networkx", "pygraphviz")
    with Forks(*known, "click", "rich.table", "rich.syntax") as found:
        yield found


def _without(folder: Path, *deleted: str) -> Path:
    """A copy of the package without the folders of these features, beside what is run with it."""
    shutil.copytree(PACKAGE, folder / "gradviz")  # with what is compiled
    for feature in deleted:
        shutil.rmtree(folder / "gradviz" / feature)
    (folder / "tests.py").write_text(TESTS)
    shutil.copy(ROOT / "tests" / "every_command.py", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("deleted", DELETED, ids="-".join)
def test_without_a_feature_all_that_is_listed_works(deleted: tuple[str, ...], forks: Forks, tmp_path: Path) -> None:
    folder = _without(tmp_path, *deleted)
    files = [str(ROOT / "tests" / f"{name}.py") for name in TESTED]
    asked = [
        ["every_command.py"],
        *([["tests.py", *files]] if deleted == FEATURES else []),
    ]  # which none has to do with any more
    codes = ended(forks.start(folder, [(words, {}) for words in asked]), 300)
    assert not any(codes), (folder / "out").read_text()[-3000:] + (folder / "err").read_text()[-3000:]
    assert "<svg" in (folder / "g.svg").read_text()
    listed = (folder / "listed").read_text().split()
    gone = {*deleted}
    while more := {name for name, needs in features.NEEDS.items() if {*needs} & gone} - gone:
        gone |= more
    commands = [
        name
        for name, module in MODULE_OF.items()
        if gone.isdisjoint(needed.split(".")[1] for needed in (module, *NEEDS.get(name, ())))
    ]
    formats = [name for name, row in FORMATS.items() if row.target.split(".")[1] not in gone]
    assert listed == [*commands, *formats]
