"""The format registry: names, suffixes, and what an unknown one is told."""

from __future__ import annotations

import pytest

from gradviz.draw.output import FORMATS, format_of, get_format
from gradviz.errors import FormatError


def test_no_suffix_belongs_to_two_formats() -> None:
    suffixes = [suffix for row in FORMATS.values() for suffix in row.suffixes]
    assert len(set(suffixes)) == len(suffixes)


@pytest.mark.parametrize(
    ("path", "name"), [("a.SVG", "svg"), ("x/y.tar.Json", "json"), ("g.gv", "dot"), (".x.md", "md")]
)
def test_the_suffix_picks_the_format(path: str, name: str) -> None:
    assert format_of(path).name == name


@pytest.mark.parametrize("path", ["a.jpeg", "a", "svg", ".svg", "a.", "folder.svg/file"])
def test_an_unknown_suffix_lists_the_valid_ones(path: str) -> None:
    with pytest.raises(FormatError) as caught:
        format_of(path)
    assert repr(path) in str(caught.value)
    for row in FORMATS.values():
        assert row.suffixes[0] in str(caught.value)


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(FormatError, match=r"svgg.*svg, png.*Did you mean svg"):
        get_format("svgg")
