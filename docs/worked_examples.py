"""Applies the worked examples of docs/adding-a*.md to a copy of the package, runs them, and fills in what they print.

    python docs/worked_examples.py

A comment above a block says what to do with it: `<!-- write PATH -->`, `<!-- append to PATH -->`, or
`<!-- add to PATH below: LINE -->`, where LINE is one line of that file. A block that begins with `$` is a command and what
it prints.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import gradviz

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("adding-a*.md"))
EDIT = re.compile(
    r"^<!-- (?P<how>write|append to|add to) (?P<path>\S+)(?: below: (?P<line>[^\n]+))? -->\n```\w+\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Outcome(NamedTuple):
    """What the examples came to: the pages as they should be, and the exit code and the output of their tests."""

    pages: dict[str, str]
    code: int
    output: str


def applied(folder: Path) -> list[Path]:
    """Copy the package into a folder, apply every example to the copy, and give the files that they touched."""
    shutil.copytree(
        Path(gradviz.__file__).parent,
        folder / "gradviz",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (folder / "samples").symlink_to(ROOT / "samples")
    touched = []
    for page in PAGES:
        for edit in EDIT.finditer(page.read_text(encoding="utf-8")):
            file = folder / edit["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text(encoding="utf-8") if edit["how"] != "write" else ""
            file.write_text(_edited(before, edit["text"], edit), encoding="utf-8")
            touched.append(file)
    return touched


def _edited(before: str, text: str, edit: re.Match[str]) -> str:
    if edit["how"] == "write":
        return text
    if edit["how"] == "append to":
        return f"{before}\n\n{text}"
    lines = before.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines, 1) if line.strip() == edit["line"]]
    if len(places) != 1:
        raise ValueError(
            f"{edit['path']} has {len(places)} lines {edit['line']!r}, to add something below"
        )
    return "".join([*lines[: places[0]], text, *lines[places[0] :]])


def run(folder: Path) -> Outcome:
    """Run the commands and the tests of the examples, in a process that imports the copy."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, __file__, "inside"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    pages = (
        json.loads((folder / "pages.json").read_text(encoding="utf-8"))
        if not done.returncode
        else {}
    )
    return Outcome(pages, done.returncode, done.stdout + done.stderr)


def inside() -> int:
    """What `run` runs: 1 when a test fails."""
    import pytest

    assert Path(gradviz.__file__).is_relative_to(Path.cwd())
    maker = runpy.run_path(str(ROOT / "docs" / "make_outputs.py"))
    maker["filled"].__globals__["beside_samples"] = (
        nullcontext  # here the commands find what the examples wrote
    )
    pages = {
        page.name: maker["filled"](page.read_text(encoding="utf-8")) for page in PAGES
    }
    Path("pages.json").write_text(json.dumps(pages), encoding="utf-8")
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.cli.conftest",
        "--import-mode=importlib",
        "--rootdir=.",
    ]
    return int(pytest.main([*options, "tests"]))


def main() -> None:
    """Bring the outputs of the pages up to date."""
    with tempfile.TemporaryDirectory() as folder:
        applied(Path(folder))
        outcome = run(Path(folder))
    if outcome.code:
        raise SystemExit(outcome.output)
    for page in PAGES:
        page.write_text(outcome.pages[page.name], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(inside() if sys.argv[1:] == ["inside"] else main())
