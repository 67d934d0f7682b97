"""The core knows no feature: its commands work with the folder of one deleted, and its tests pass with all deleted."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradviz import features
from gradviz.cli.main import MODULE_OF, NEEDS
from tests.blocks import PACKAGE, ROOT
from tests.forks import Forks, ended

FEATURES: tuple[str, ...] = runpy.run_path(str(ROOT / "docs" / "structure.py"))["FEATURES"]
TESTED = [
    *(
        "graph/test_columns",
        "graph/test_hostile_files",
        "walker/test_walker",
        "walker/test_saved",
        "walker/test_naming",
    ),
    *("walker/test_node_kinds", "walker/test_checkpointed", "recording/test_recorder", "recording/test_node_made"),
    *("run/test_run_target", "fold/test_closing", "fold/test_fold", "report/test_labels"),
    *("layout/test_layered_networks", "draw/test_svg", "draw/test_source_links", "draw/test_dot"),
]
"""Quick tests of the core, which run without all features; without one of them, its commands do."""

TESTS = """
import os, sys
import gradviz, pytest
assert gradviz.__file__.startswith(os.getcwd())
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not million and not long", *sys.argv[1:]]))
"""
COMMANDS = """
import sys
from gradviz.__main__ import main
open("train.py", "w").write("import torch\\nw = torch.ones(3, requires_grad=True)\\n(w * w).sum().backward()\\n")
for words in ("render train.py -o g.json", "render g.json", "tree g.json", "--help"):
    sys.stdout, sys.argv = open("told", "w"), ["gradviz", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("torch", "torch.testing", "pytest", "hypothesis", "numpy", "rich.console", "networkx") as found:
        yield found


def _without(folder: Path, *deleted: str) -> Path:
    """A copy of the package without the folders of these features, beside what is run with it."""
    shutil.copytree(PACKAGE, folder / "gradviz")  # with what is compiled
    for feature in deleted:
        shutil.rmtree(folder / "gradviz" / feature)
    (folder / "tests.py").write_text(TESTS)
    (folder / "commands.py").write_text(COMMANDS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [*((feature,) for feature in FEATURES), FEATURES], ids="-".join)
def test_without_a_feature_the_core_works(deleted: tuple[str, ...], forks: Forks, tmp_path: Path) -> None:
    folder = _without(tmp_path, *deleted)
    files = [str(ROOT / "tests" / f"{name}.py") for name in TESTED]
    asked = [
        ["commands.py"],
        *([["tests.py", *files]] if deleted == FEATURES else []),
    ]  # which none has to do with any more
    codes = ended(forks.start(folder, [(words, {}) for words in asked]), 300)
    assert not any(codes), (folder / "out").read_text()[-3000:] + (folder / "err").read_text()[-3000:]
    assert "<svg" in (folder / "g.svg").read_text()
    lines = (folder / "told").read_text().partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    listed = {line.split()[0] for line in lines if line[2:3].strip()}
    gone = {*deleted}
    while more := {name for name, needs in features.NEEDS.items() if {*needs} & gone} - gone:
        gone |= more
    assert listed == {name for name in MODULE_OF if not {*NEEDS.get(name, ())} & gone}
