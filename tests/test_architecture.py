"""ARCHITECTURE.md has a line for every package, none for one that is gone, and is one page."""

from __future__ import annotations

import re
import runpy

from tests.blocks import PACKAGE, ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
HOMES = (ROOT, PACKAGE, PACKAGE.parent)
MAKER = runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))


def test_its_table_is_what_the_packages_say() -> None:
    assert MAKER["filled"](PAGE) == PAGE, "run: python docs/make_architecture.py"


def test_every_package_has_its_line_and_no_line_names_one_that_is_gone() -> None:
    named = re.findall(r"^\| `([\w./]+)` \|", PAGE, re.MULTILINE)
    there = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in named if name.endswith("/")} == there
    assert len(named) == len(set(named)) and all((PACKAGE / name).exists() for name in named)


def test_files_and_folders_that_it_names_are_there() -> None:
    named = re.findall(r"`([\w]+/[\w/.]*)`", PAGE)
    assert len(named) > 30 and [name for name in named if not any((home / name).exists() for home in HOMES)] == []


def test_it_is_one_page() -> None:
    assert len(PAGE.splitlines()) < 130
