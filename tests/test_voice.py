"""Sentences for people are idiomatic English: forms that readers stumbled over do not come back, and the README stays short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gradviz.checks.finding import Finding, Findings
from gradviz.checks.output import report
from gradviz.cli.main import COMMANDS, cli
from tests.blocks import PACKAGE, ROOT
from tests.command_line import CliRunner

WORST = {
    r"\bhand(s|ed)? over\b": "pass, add, keep",
    r"\btake[sn]? along\b": "reference, still has",
    r"\bhow many-th\b": "which, the Nth",
    r"\bMend\b": "Fix",
    r"\bis joined to\b": "reaches",
    r"\bthe chain broke\b": "its input still has a graph",
    r"\bwhat (it|they) holds? leads? to\b": "references",
    r"\bNothing, (if|unless)\b": "No change needed if",
    r"\bget(s|ting)? along\b": "works",
    r"\bhas to pass\b": "needs a gradient",
    r"\bnumbers? of it\b": "values",
}
"""Forms that do not come back, and what to write instead."""
EVERYWHERE = [*WORST][:9]
UNCLEAR = {
    r"\banew\b": "again",
    r"\bbehind (a|an|it|the|them)\b": "of, after, through",
    r"\blet go\b": "free",
    r"\blooked at\b": "read",
    r"\b(gradient|which|what) (that )?arrives?\b": "incoming gradient",
    r"\b(from|to|with|where) what\b": "name the thing",
    r"\bwhat (was|were|is wanted|is there|(it|they) (had|took|made|holds?|keeps?|gives?|needs?))\b": "name the thing",
    r"\bgoes? for nothing\b": "is covered",
    r"\bwould else\b": "would otherwise",
}
"""More of them, for pages written by hand and for help."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "samples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BY_HAND = [page for page in PAGES if page.name not in ("checks.md", "backward-names.md")]


def sentences(path: Path) -> Iterator[str]:
    """The texts of a module that are sentences: literals with spaces, docstrings among them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def found(text: str, forms: Iterable[str]) -> list[str]:
    better = WORST | UNCLEAR
    return [f"{match[0]!r}: write {better[form]}" for form in forms for match in re.finditer(form, text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_free_of_the_worst_forms(page: Path) -> None:
    assert not found(page.read_text(encoding="utf-8"), WORST)


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: page.name)
def test_pages_written_by_hand_are_plain(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not found(prose, UNCLEAR)
    assert not re.search(r"(^|\. )Of [a-z]", prose, re.MULTILINE)


def test_so_are_the_sentences_of_the_product() -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)}: {one}"
        for path in PACKAGE.rglob("*.py")
        for text in sentences(path)
        for one in found(text, EVERYWHERE)
    }
    assert not wrong


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_fits_a_terminal_and_no_sentence_begins_with_of(command: str) -> None:
    said = CliRunner().invoke(cli, [command, "--help"], terminal_width=80).output
    assert all(len(line) <= 80 for line in said.splitlines())
    assert not re.search(r"(^|\. )Of [a-z]", said) and not found(said, WORST | UNCLEAR)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_a_finding_has_a_frame_of_plain_words() -> None:
    effect = Finding("b", "warning", "w stays", ("w",), "", "", "")
    one = Finding(
        "a", "error", "w is cut", ("w",), "train.py:3", "it is detached", "Remove it.", consequences=(effect,)
    )
    words = [line.split(":")[0].strip() for line, _ in report(Findings((one,), ("a", "b"))) if line.startswith("   ")]
    assert words == ["where", "why", "effect", "fix"]
