"""The page of a graph from a running notebook names the cells, not the kernel's files."""

from __future__ import annotations

import pytest

from gradviz import wording
from gradviz.graph import Graph, Node, SourceLine
from gradviz.page.sources import own_code
from gradviz.report.labels import source_text


def test_code_of_a_cell_is_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    line = SourceLine("/tmp/ipykernel_12/3456.py", 2, "forward", "return x * 2")
    graph = Graph((Node(0, "MulBackward0", source=line),))
    assert [code[0] for code in own_code(graph)] == ["/tmp/ipykernel_12/3456.py"]
    monkeypatch.setitem(wording.CELLS, "3456.py", 7)
    assert [code[0] for code in own_code(graph)] == ["cell 7"]
    source_text.cache_clear()
    assert source_text(line) == "cell 7, line 2"
