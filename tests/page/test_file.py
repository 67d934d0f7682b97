"""The written file: one piece, safe, small, and the same bytes every time."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import get_args

import pytest

from gradviz.draw.output import render
from gradviz.fold.groups import Kind
from gradviz.page.html import asset, script
from tests.builders import GRAPHS
from tests.page.graphs import PAGES, hostile


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(text)
    return parser.found


def page(name: str) -> str:
    made = render({**GRAPHS, **PAGES}[name], "html")
    assert isinstance(made, str)
    return made


def test_the_same_graph_makes_the_same_bytes() -> None:
    assert page("blocks") == page("blocks")


@pytest.mark.parametrize("name", ["empty", "blocks", "odd names"])
def test_nothing_is_loaded_from_anywhere(name: str) -> None:
    text = page(name)
    assert not [tag for tag, given in tags(text) if "src" in given or "href" in given]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|http-equiv", "", text)
    policy = next(str(given["content"]) for tag, given in tags(text) if "http-equiv" in given)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_hostile_names_add_no_tag() -> None:
    made = render(hostile(), "html")
    assert [tag for tag, _ in tags(str(made))] == [tag for tag, _ in tags(page("blocks"))]


def test_no_name_is_declared_twice() -> None:
    """All modules share one scope in the file."""
    names = re.findall(r"^(?:async )?(?:function\*?|class) (\w+)", script(), re.MULTILINE)
    for line in re.findall(r"^(?:const|let) (.*)", script(), re.MULTILINE):
        names += re.findall(r"(?:^|, )(\w+) = ", line)
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


def test_the_panel_has_words_for_every_kind_of_group() -> None:
    (words,) = re.findall(r"GROUP_WORDS = \[(.*?)\];", asset("panel.js"), re.DOTALL)
    assert len(re.findall(r'"[^"]+"', words)) == len(get_args(Kind))
