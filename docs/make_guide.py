"""Fills in every output and draws every picture of the guide: `python docs/make_guide.py`, in an environment with gradviz.

A page is written by hand. Below a line `<!-- output: COMMAND -->` stands a fenced block, which this script replaces by what
the command prints. `<!-- picture: COMMAND -->` runs a command that writes a picture. Commands run in the repository's root.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "guide"
OUTPUT = re.compile(r"(<!-- output: (.+?) -->\n)```\n.*?```\n", re.DOTALL)
PICTURE = re.compile(r"<!-- picture: (.+?) -->")


def run(command: str) -> str:
    """What a command prints to standard output, or its error message when it ends with one."""
    program, *words = shlex.split(command)
    start = {"python": [sys.executable], "gradviz": [sys.executable, "-m", "gradviz"]}[program]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*start, *words], cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        if not errors:
            raise RuntimeError(f"{command} failed:\n{done.stderr}")
        return "\n".join(errors) + "\n"
    return done.stdout


def filled(page: str) -> str:
    """The page with the output of every command in it."""
    return OUTPUT.sub(lambda found: f"{found[1]}```\n$ {found[2]}\n{run(found[2]).rstrip()}\n```\n", page)


def main() -> None:
    """Bring every page and every picture up to date."""
    for path in sorted(GUIDE.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page), encoding="utf-8")
        for command in PICTURE.findall(page):
            run(command)
    for picture in GUIDE.glob("pictures/*.svg"):  # tooltips name files relative to the repository
        picture.write_text(picture.read_text(encoding="utf-8").replace(f"{ROOT}{os.sep}", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
