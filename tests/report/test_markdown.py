"""Markdown to paste: whatever a program calls its things, they stay text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies
from markdown_it import MarkdownIt

from gradviz.report.markdown import block, span
from tests.cli.conftest import Gradviz, gradviz as gradviz, unchanged as unchanged
from tests.cli.scripts import script

HOSTILE = [
    "`",
    "``` \n# head",
    "a`b``c",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](http://a.b/c.png)",
    "a | b",
    "@somebody #12 https://a.b",
    "\n\n- item\n\n# head",
    "</details>",
    " ",
    "",
    "\\`",
    "\u202etxt",
    "&lt;b&gt;",
]
LITERAL = {"code_inline", "text", "softbreak"}


def inside(text: str) -> list[tuple[str, str]]:
    """What a reader of Markdown makes of a text, without the blocks around it."""
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    return [(child.type, child.content) for token in tokens for child in (token.children or [token])]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_literal(name: str) -> None:
    found = inside(f"- {span(name)}: x")
    kinds = {kind for kind, content in found if content}
    assert kinds <= {"code_inline", "text"}
    assert [content for kind, content in found if kind == "text"] == [": x"] or not name.strip()


@given(strategies.text())
def test_any_text_is_one_code_span(text: str) -> None:
    assert [kind for kind, content in inside(f"x {span(text)} y") if content] == ["text", "code_inline", "text"] or (
        not text.strip()
    )
    assert "\n" not in span(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_block_ends_where_it_should(name: str) -> None:
    tokens = MarkdownIt().parse(f"{block([name, 'last'])}\n\nafter")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


FAULTY = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 1))
net.register_module("<script>`x`|@you\\n# no", nn.Linear(1, 1))
net[0](torch.ones(2, 4)).pow(2).mean().backward()
"""


def test_findings_have_names_as_they_are_and_nothing_of_them_means_anything(gradviz: Gradviz, tmp_path: Path) -> None:
    text = gradviz("check", script(tmp_path, FAULTY), "--format", "md", "--fail-on", "never").stdout
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert any("<script>`x`|@you" in child.content for child in inline if child.type == "code_inline")
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "table_open"}
    assert all("@you" not in child.content for child in inline if child.type == "text")
