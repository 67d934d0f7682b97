"""The user's code and paths in the page's facts."""

from __future__ import annotations

import linecache
import os

import pytest

from gradviz.graph import Graph, Node, SourceLine
from gradviz.graph.folders import without_folders
from gradviz.page.sources import own_code

TEXT = ["a = 1\n", "\n", "b = a + 1\n"]


CHANGED = "the file has changed since"


def graph(*lines: SourceLine) -> Graph:
    return Graph(tuple(Node(i, "AddBackward0", source=line) for i, line in enumerate(lines)))


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(linecache.cache, "/home/ann/train.py", (1, None, TEXT, "/home/ann/train.py"))
    return "/home/ann/train.py"


def test_the_whole_file_where_it_is_the_one_that_ran(train: str) -> None:
    assert own_code(graph(SourceLine(train, 3, text="b = a + 1"))) == [
        (train, [1, 2, 3], ["a = 1", "", "b = a + 1"], "")
    ]


def test_only_the_lines_of_the_graph_where_it_is_another(train: str) -> None:
    assert own_code(graph(SourceLine(train, 3, text="b = a + 2"))) == [(train, [3], ["b = a + 2"], CHANGED)]
    assert own_code(graph(SourceLine(train, 9, text="c = 3"))) == [(train, [9], ["c = 3"], CHANGED)]


def test_no_file_is_read(tmp_path: object) -> None:
    """A graph file may name any file of whoever draws it."""
    file = os.path.join(str(tmp_path), "secret.py")
    with open(file, "w") as stream:
        stream.write("import os\nkey = 1234\n")
    assert own_code(graph(SourceLine(file, 1, text="import os"))) == [
        (file, [1], ["import os"], "a saved graph has no more of the code")
    ]


def test_libraries_are_not_own_code() -> None:
    assert own_code(graph(SourceLine("/lib/site-packages/timm/vit.py", 3, package="timm"))) == []


def test_folders_are_left_out_of_texts() -> None:
    lines = (
        SourceLine("/home/ann/project/train.py", 1),
        SourceLine("/home/ann/project/models/net.py", 2),
        SourceLine("/opt/site-packages/timm/models/vit.py", 3, package="timm"),
    )
    clean = without_folders(graph(*lines))
    assert [clean(line.file) for line in lines] == ["train.py", "models/net.py", "timm/models/vit.py"]
    assert clean("in /home/ann/project/train.py:1 and x") == "in train.py:1 and x"
    assert without_folders(graph(SourceLine("<string>", 1)))("<string>:1") == "<string>:1"
