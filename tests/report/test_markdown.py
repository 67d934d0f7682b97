"""Markdown to paste: whatever a program calls its things, they stay text; and it has a largest size."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies
from markdown_it import MarkdownIt

from gradviz.report.markdown import Section, block, page, span

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


def test_a_page_is_never_larger_than_asked() -> None:
    rows = [(f"a{'b' * 100}{i}", "é" * 500) for i in range(50)]
    sections = [Section(f"Title {i}", rows) for i in range(8)]
    text = page(["title", "x" * 500], sections, 3000, 12)
    assert len(text.encode()) <= 3000 and text.count("**Title") == 8 and "more" in text
    small = page(["title"], [Section("One", [("a", "b")])], 3000, 12)
    assert small == "### `title`\n\n\n**One**\n\n- `a`: `b`\n"
