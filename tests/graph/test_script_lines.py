"""Whose line is said: the script's own where a library's code called torch."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gradviz.checks.words import title, where
from gradviz.draw.options import Options
from gradviz.graph import Graph, Node, SavedTensor, Scope, SourceLine, Storage, TensorInfo
from gradviz.graph.origins import calls_from, op_text, own_line, telling_lines
from gradviz.memory.saved import Saved, saved
from gradviz.memory.table import saved_table
from tests.drawn import scene

LIBRARY = SourceLine(
    "/venv/lib/python3.12/site-packages/torchvision/models/resnet.py", 92, "forward", "x = f(x)", "torchvision"
)
CALL, OTHER = SourceLine("/me/train.py", 7, "", "loss = net(x)"), SourceLine("/me/train.py", 9, "", "y = loss * 2")
INFO = TensorInfo((2,), "float32", "cpu")


def words(found: Saved) -> str:
    console = Console(file=io.StringIO(), width=300)
    console.print(saved_table(found))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def made(library: int, own: int, *, scope: int | None = 0, calls: tuple[SourceLine, ...] = (CALL,)) -> Graph:
    nodes = []
    for i in range(library + own):
        slot = (SavedTensor("self", INFO, i, "activation", "live", 8),)
        node = Node(i, "ExpBackward0", (INFO,), 100 - i, saved=slot)
        line = calls[i % len(calls)]
        nodes.append(
            node._replace(source=LIBRARY, script_line=line, scope=scope) if i < library else node._replace(source=OTHER)
        )
    storages = tuple(Storage(i, 8, "activation") for i in range(library + own))
    return Graph(tuple(nodes), scopes=(Scope("net", "ResNet", 1, None),), storages=storages, attribution="recorded")


@pytest.mark.parametrize(("library", "own", "line"), [(3, 1, CALL), (1, 3, LIBRARY), (2, 2, LIBRARY)])
def test_rows_are_lines_of_the_script_where_most_would_be_a_librarys(library: int, own: int, line: SourceLine) -> None:
    graph = made(library, own)
    assert {row.source for row in saved(graph, by="line").rows} == {line, OTHER}
    lines = telling_lines(graph.nodes)
    assert {lines.of(node) for node in graph.nodes} == {line, OTHER}
    said = f"lines are the script's own: {library} of {library + own} ops were made in lines of torchvision"
    assert (said in words(saved(graph, by="line"))) == (line is CALL)


def test_a_librarys_line_says_whose_it_is() -> None:
    graph = made(1, 3)
    assert "torchvision: resnet.py:92  x = f(x)" in words(saved(graph, by="line"))


def test_a_finding_names_the_scripts_line_first() -> None:
    graph = made(1, 1)
    assert where(graph, 0) == "net (ResNet), /me/train.py:7, torchvision: resnet.py:92"
    assert title(graph, 0) == "ExpBackward0 (/me/train.py:7)" and own_line(graph.nodes[1]) == OTHER


def test_a_frame_tells_the_line_that_all_inside_come_from() -> None:
    drawn = scene(made(2, 0), Options(details=True))
    assert drawn.frames[0].full == "net ResNet, from train.py:7"
    assert [box.lines[-1] for box in drawn.boxes] == ["train.py:7 → torchvision: resnet.py:92"] * 2


def test_where_no_frame_tells_it_each_box_does() -> None:
    for graph in (made(2, 0, calls=(CALL, OTHER)), made(2, 0, scope=None)):
        assert not calls_from(graph) and all("from" not in frame.full for frame in scene(graph, Options()).frames)
        assert scene(graph, Options(details=True)).boxes[0].lines[-1] == "train.py:7 → torchvision: resnet.py:92"


def test_a_module_that_the_script_wrote_tells_none() -> None:
    scopes = (Scope("net", "Net", 1, None), Scope("net.body", "ResNet", 1, 0))
    own = Node(0, "MulBackward0", (INFO,), 2, 0, OTHER)
    library = Node(1, "ExpBackward0", (INFO,), 1, 1, LIBRARY, script_line=CALL)
    assert calls_from(Graph((own, library), scopes=scopes)) == {1: CALL}


@pytest.mark.parametrize(
    ("op", "line", "attributes", "told"),
    [
        ("MulBackward0", "", {"self": None, "other": 0.5}, "* 0.5"),
        ("DivBackward0", "scores = q @ k.T / math.sqrt(d)", {"other": 2.8284271}, "/ 2.83"),
        ("DivBackward0", "scores = q @ k.T / math.sqrt(d)", {}, "div"),  # freed, and the line does not say
        (
            "AddBackward0",
            "y = f(x) + 1",
            {"alpha": 1},
            "add",
        ),  # no line is guessed from: `Node.written` has what it says
        ("MulBackward0", "y = x * '3'", {}, "mul"),
    ],
)
def test_an_op_on_a_number_is_told_with_it(op: str, line: str, attributes: dict[str, object], told: str) -> None:
    node = Node(0, op, none_inputs=1, attributes=attributes, source=SourceLine("net.py", 3, text=line))
    assert op_text(node) == told
    both = node._replace(none_inputs=0, attributes={})
    assert op_text(both) == op.removesuffix("Backward0").lower()
