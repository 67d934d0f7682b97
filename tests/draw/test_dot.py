"""DOT source: what it says, that Graphviz reads it, and that no text can break out of its quotes."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings

from gradviz.draw.dot import quote, render
from gradviz.draw.options import Options
from gradviz.draw.output import encode
from gradviz.graph import Edge, Graph, Node, Scope
from tests.builders import GRAPHS, diamond
from tests.draw.conftest import Golden
from tests.drawn import scene, sketch
from tests.strategies import graphs, text

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no system Graphviz")


def written(graph: Graph, **options: object) -> str:
    made = Options.of(options)
    return "".join(render(sketch(graph, made), made))


def canonical(source: str) -> str:
    """What Graphviz itself understood of the source; fails when it does not parse."""
    done = subprocess.run(["dot", "-Tcanon"], input=encode(source), capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("name", ["diamond", "everything", "folded", "multi_output", "views"])
def test_golden(name: str, golden: Golden) -> None:
    source = written(GRAPHS[name], saved=True)
    drawn = scene(GRAPHS[name], Options(saved=True))
    assert len(re.findall(r"^ +n\d+ \[", source, re.M)) == len(drawn.boxes)
    assert len(re.findall(r"^  n\d+ -> n\d+", source, re.M)) == len(drawn.links)
    golden(f"{name}.dot", encode(source))


@needs_dot
@pytest.mark.parametrize("name", GRAPHS)
def test_graphviz_finds_every_box_and_link(name: str) -> None:
    drawn = scene(GRAPHS[name], Options(leaves="per-use"))
    plain = subprocess.run(
        ["dot", "-Tplain"], input=encode(written(GRAPHS[name], leaves="per-use")), capture_output=True, timeout=60
    )
    assert plain.returncode == 0 and plain.stderr == b""
    rows = plain.stdout.decode().splitlines()
    assert sum(row.startswith("node n") for row in rows) == len(drawn.boxes)
    assert sum(row.startswith("edge n") for row in rows) == len(drawn.links)


@needs_dot
def test_graphviz_shows_odd_names_as_they_are() -> None:
    done = subprocess.run(["dot", "-Tsvg"], input=encode(written(GRAPHS["odd_names"])), capture_output=True, timeout=60)
    svg = done.stdout.decode()
    for shown in (
        "&lt;lambda&gt;",
        "a:b",
        "x\\",
        "&lt;/script&gt;",
        "say &quot;hi&quot;",
        "\\N\\l",
        "#35;&amp;amp;]]&gt;",
    ):
        assert f">{shown}</text>" in svg or f">{shown} = " in svg, shown


@pytest.mark.slow
@needs_dot
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_no_text_breaks_the_source(graph: Graph) -> None:
    drawn = scene(graph, Options(saved=True))
    understood = canonical(written(graph, saved=True))
    assert set(re.findall(r"^\t+(n\d+)\t", understood, re.M)) == {f"n{box.id}" for box in drawn.boxes}


@given(text)
def test_a_quoted_text_ends_where_it_should(line: str) -> None:
    inside = quote((line,))[1:-1]
    assert not re.search(r'(?<!\\)(\\\\)*"', inside) and not re.search(r"(?<!\\)(\\\\)*\\$", inside)


@needs_dot
def test_data_may_leave_a_module_and_come_back() -> None:
    """Graphviz's own ranking refuses this: node 0 and node 2 in one module, node 1 between them in another."""
    scopes = (Scope("a", "A", 1, None), Scope("b", "B", 1, None))
    nodes = tuple(Node(i, "Op", scope=scope) for i, scope in enumerate((0, 1, 0)))
    canonical(written(Graph(nodes, (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0)), scopes=scopes)))


def test_directions_and_theme() -> None:
    assert "rankdir=TB" in written(diamond()) and "rankdir=LR" in written(diamond(), direction="right")
    assert 'bgcolor="#ffffff"' in written(diamond()) and 'bgcolor="#16181c"' in written(diamond(), theme="dark")
