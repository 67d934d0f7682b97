"""Clicking a box opens its line of code, when asked for."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree

from gradviz.draw.details import source_link
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import (
    Function,
    Graph,
    Node,
    SourceLine,
)

LINE = SourceLine('/code/a "b" & c.py', 12, "forward", "x = x.exp()")
GRAPH = Graph(
    (
        Node(0, "ExpBackward0", source=LINE),
        Node(1, "MineBackward", function=Function("m.Mine", SourceLine("/code/m.py", 3))),
        Node(2, "SinBackward0", source=SourceLine("<stdin>", 1)),
        Node(3, "CosBackward0"),
    )
)


def links(**options: str) -> list[str]:
    root = ElementTree.fromstring(str(render(GRAPH, "svg", Options.of(options))))
    return [element.get("href", "") for element in root.iter("{http://www.w3.org/2000/svg}a")]


def test_links_are_made_only_when_asked_for_and_where_a_file_is_known() -> None:
    assert links() == []
    path = "/code/a%20%22b%22%20%26%20c.py"
    assert links(link_source="vscode") == [f"vscode://file{path}:12", "vscode://file/code/m.py:3"]
    assert links(link_source="file") == [f"file://{path}#L12", "file:///code/m.py#L3"]


def test_a_file_whose_name_is_not_utf_8_has_a_link_too() -> None:
    name = os.fsdecode(b"/code/a\xff.py")
    assert source_link(Node(0, "Op", source=SourceLine(name, 4)), "file") == "file:///code/a%FF.py#L4"
    assert (
        source_link(Node(0, "Op", source=SourceLine("/code/\ud800.py", 4)), "vscode") == "vscode://file/code/%3F.py:4"
    )
