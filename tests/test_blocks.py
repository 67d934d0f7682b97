"""Every code block of the README and the pages runs, and says what happens.

Python blocks of a page run one after the other in one namespace, commands one by one beside a `train.py`, all of them in this
process. Blocks that show an output or a file are compared with it: those that begin with `$`, `# samples/` or `# docs/` in
`tests/test_pages.py`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import shlex
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gradviz
from gradviz.cli.main import cli
from gradviz.graph.files import loads
from tests.blocks import PAGES, ROOT, Block, blocks
from tests.command_line import CliRunner

BLOCKS = {path.relative_to(ROOT).as_posix(): blocks(path.read_text(encoding="utf-8")) for path in PAGES}
STAND_IN = Path(__file__).parent / "stand_in.py"
SHOWN = ("$ ", "# samples/", "# docs/")
LANGUAGES = {"python", "bash", "json"}
NOT_RUN = 17  # how many blocks may say that they are not run: lower it when one does, and think twice before raising it


def having(language: str) -> list[str]:
    """Pages with a block of that language to run."""
    return [page for page, found in BLOCKS.items() if any(one.language == language for one in to_run(page))]


def to_run(page: str) -> list[Block]:
    return [one for one in BLOCKS[page] if not one.why_not and not one.text.startswith(SHOWN)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder of somebody who reads the pages."""
    for name in ("train.py", "old.py", "new.py"):
        shutil.copy(STAND_IN, tmp_path / name)
    (tmp_path / "package").mkdir()
    shutil.copy(STAND_IN, tmp_path / "package" / "module.py")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield tmp_path


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_is_of_a_kind_that_runs_or_says_why_it_does_not(page: str) -> None:
    assert {one.language for one in to_run(page)} <= LANGUAGES


def test_few_blocks_are_not_run() -> None:
    left_out = [f"{page}:{one.line}: {one.why_not}" for page, found in BLOCKS.items() for one in found if one.why_not]
    assert len(left_out) <= NOT_RUN, left_out


@pytest.mark.parametrize("page", having("python"))
def test_python(page: str, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__page__", "torch": torch, "gradviz": gradviz}
    for block in to_run(page):
        if block.language == "python":
            file = folder / f"line_{block.line}.py"
            file.write_text(block.text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                names[Claims.NAME] = compared = Comparison(printed)
                exec(compile(Claims(block.text).of(), str(file), "exec"), names)
            assert compared.wrong == [], f"{page}:{block.line}"


class Claims(ast.NodeTransformer):
    """Gives each `expression  # comment` of a block to a function, together with the comment."""

    NAME = "_says"

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, [line.encode() for line in text.splitlines()]

    def of(self) -> ast.Module:
        return ast.fix_missing_locations(self.visit(ast.parse(self.text)))  # type: ignore[no-any-return]

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        comment = self.lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].decode().partition("#")[2].strip()
        if comment:
            called = ast.Name(self.NAME, ast.Load())
            node.value = ast.copy_location(ast.Call(called, [node.value, ast.Constant(comment)], []), node.value)
        return node


class Comparison:
    """Compares what a comment says with what was printed, or with the value."""

    def __init__(self, printed: io.StringIO) -> None:
        self.printed, self.seen, self.wrong = printed, 0, list[str]()

    def __call__(self, value: object, comment: str) -> None:
        new = self.printed.getvalue()[self.seen :]
        self.seen += len(new)
        got = new.strip() if new else re.sub(r" at 0x\w+", "", repr(value))
        if (new or is_value(comment)) and got != comment and "\n" not in got:  # a comment is one line
            self.wrong.append(f"{comment} is {got}")


def is_value(comment: str) -> bool:
    """Whether a comment is a result, as Python writes it, and not words.

    >>> [is_value(one) for one in ("2", "<AddBackward0 object>", "tensor(5.)", "in a notebook: the picture")]
    [True, True, True, False]
    """
    if re.fullmatch(r"[(\[<].*[)\]>]|tensor\(.*\)", comment):
        return True
    try:
        ast.literal_eval(comment)
    except (SyntaxError, ValueError):
        return False
    return True


@pytest.mark.parametrize(("comment", "right"), [("2", True), ("3", False), ("what it is", True)])
def test_a_value_that_is_not_what_its_comment_says_is_seen(comment: str, right: bool) -> None:
    for text in (f"1 + 1  # {comment}\n", f"if True:\n    print(1 + 1)  # {comment}\n"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            compared = Comparison(printed)
            exec(compile(Claims(text).of(), "<page>", "exec"), {Claims.NAME: compared})
        assert (not compared.wrong) == (right and not ("print" in text and comment != "2"))


@pytest.mark.slow
@pytest.mark.parametrize("page", having("bash"))
def test_commands(page: str, folder: Path) -> None:
    CliRunner().invoke(cli, ["render", "old.py", "-o", "old.json"])
    for block in to_run(page):
        for line in block.text.splitlines() if block.language == "bash" else ():
            run_command(line)


def run_command(line: str) -> None:
    """Run a command of gradviz or a script; that a check or a difference finds something is no failure."""
    program, *words = shlex.split(line, comments=True)
    if program == "python":
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(words[0], run_name="__main__")
        return
    assert program == "gradviz", f"the tests cannot run {line!r}: say why above the block"
    done = CliRunner().invoke(cli, words, prog_name="gradviz")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in ((0, 1) if words[0] in ("check", "diff") else (0,)), f"{line}\n{done.output}"


@pytest.mark.parametrize("page", having("json"))
def test_graph_files(page: str) -> None:
    for block in to_run(page):
        if block.language == "json":
            assert loads(block.text, name=page).nodes
