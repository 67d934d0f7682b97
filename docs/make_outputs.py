"""Fills in every output of the pages and draws the guide's pictures: `python docs/make_outputs.py`, in an environment with gradviz.

A page is written by hand. A fenced block whose first line is `$ COMMAND` is replaced by what the command prints; a block with
a line `...` shows only parts of that, which must be there; A block whose first
line is `# samples/FILE` or `# docs/FILE` is replaced by that file, without the docstring if it has one. `<!-- picture: COMMAND -->`
runs a command that writes a picture.
Commands that print run in this process, as if in the repository's root, and what they write stays out of it; pictures are made
by processes of their own.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from gradviz.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = (
    "checks",
    "gallery.md",
    "adding-a",
)  # make_checks.py, make_gallery.py and worked_examples.py write those
DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    *sorted(
        path
        for path in DOCS.rglob("*.md")
        if not path.relative_to(DOCS).as_posix().startswith(ELSEWHERE)
    ),
)
OUTPUT = re.compile(r"^```(\w*)\n\$ ([^\n]+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
FILE = re.compile(
    r"^```(\w+)\n# ((?:samples|docs)/\S+?)(?:, from line \d+)?\n.*?^```\n",
    re.DOTALL | re.MULTILINE,
)
PICTURE = re.compile(r"<!-- picture: (.+?) -->")
CUT = "..."


def run(command: str) -> str:
    """What a command prints to standard output, or its error message when it ends with one."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from tests.command_line import CliRunner

    program, *words = shlex.split(command)
    with beside_samples(), torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if program == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                runpy.run_path(words[0], run_name="__main__")
            return printed.getvalue()
        done = CliRunner(env={"COLUMNS": "100"}).invoke(cli, words, prog_name=program)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return "\n".join(errors) + "\n" if errors else done.stdout


@contextlib.contextmanager
def beside_samples() -> Iterator[None]:
    """The working folder is an empty one, but for a link to the samples."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "samples").symlink_to(ROOT / "samples")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def filled(page: str) -> str:
    """The page with the output of every command in it. Raises ValueError for a part that is not in the output any more."""
    return OUTPUT.sub(_block, FILE.sub(_file, page))


def _file(found: re.Match[str]) -> str:
    language, name = found.groups()
    text = (ROOT / name).read_text(encoding="utf-8")
    docstring = re.match('"""(?s:.*?)"""\n*', text)
    first = docstring[0].count("\n") + 1 if docstring else 1
    place = f"{name}, from line {first}" if docstring else name
    return (
        f"```{language}\n# {place}\n{text[docstring.end() if docstring else 0 :]}```\n"
    )


def _block(found: re.Match[str]) -> str:
    language, command, shown = found.groups()
    printed = run(command).rstrip() + "\n"
    if CUT in shown.splitlines():
        _refuse_if_absent(command, shown, printed)
        return found[0]
    return f"```{language}\n$ {command}\n{printed}```\n"


def _refuse_if_absent(command: str, shown: str, printed: str) -> None:
    """The lines between the cuts must follow one another in what was printed."""
    rest = printed
    for part in re.split(rf"^{re.escape(CUT)}\n", shown, flags=re.MULTILINE):
        where = rest.find(part)
        if where < 0:
            raise ValueError(
                f"`{command}` no longer prints these lines, edit them by hand:\n{part}It prints:\n{rest}"
            )
        rest = rest[where + len(part) :]


def main() -> None:
    """Bring every page and every picture up to date."""
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        path.write_text(filled(page), encoding="utf-8")
        for command in PICTURE.findall(page):
            subprocess.run(
                [sys.executable, "-m", *shlex.split(command)], cwd=ROOT, check=True
            )


if __name__ == "__main__":
    main()
