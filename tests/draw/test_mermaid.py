"""Mermaid: what is drawn, what is cut, and that no text leaves its quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

from gradviz.draw.mermaid import (
    MAX_LINKS,
    cut,
    escape,
    render,
)
from gradviz.draw.options import Options
from gradviz.draw.output import encode
from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import scene
from gradviz.graph import Graph, Scope
from tests.builders import (
    GRAPHS,
    chain,
    random_dag,
)
from tests.draw.conftest import Golden
from tests.strategies import graphs, text

KINDS = "|".join(get_args(BoxKind))
BOX = re.compile(r'^  n\d+\["(?:[^"`<>]|<br/>)+"\]:::(?:' + KINDS + ")$")
LINK = re.compile(r'^  n(\d+) (?:-->|-\.->|-\.-|---)(?:\|"[^"]+"\|)? n(\d+)$')
OTHER = re.compile(
    r'^(?:  subgraph f\d+\["[^"`<>]*"\]|  end|flowchart (?:TD|BT|LR|RL)'
    r'|  classDef \w+ [\w:#,-]+|  more\["#43;[\d,]+ more boxes"\])$'
)


def written(graph: Graph, **options: object) -> str:
    return "".join(render(graph, Options.of(options)))


def chart(page: str) -> list[str]:
    """The lines of the flowchart; fails unless the page has exactly one fence."""
    lines = page.split("\n")
    assert [i for i, line in enumerate(lines) if line.startswith("```")] == [
        lines.index("```mermaid"),
        lines.index("```"),
    ]
    return lines[lines.index("```mermaid") + 1 : lines.index("```")]


@pytest.mark.parametrize("name", ["diamond", "everything", "odd_names"])
def test_golden(name: str, golden: Golden) -> None:
    page = written(GRAPHS[name], saved=True)
    assert all(BOX.match(line) or LINK.match(line) or OTHER.match(line) for line in chart(page))
    golden(f"{name}.md", encode(page))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_every_box_and_link_is_one_line_whatever_the_text(graph: Graph) -> None:
    drawn = scene(graph, Options(saved=True))
    lines = chart(written(graph, saved=True))
    assert sum(bool(BOX.match(line)) for line in lines) == len(drawn.boxes)
    assert sum(bool(LINK.match(line)) for line in lines) == len(drawn.links)
    assert all(BOX.match(line) or LINK.match(line) or OTHER.match(line) for line in lines)


@pytest.mark.slow
@given(text)
def test_entities_give_the_text_back(line: str) -> None:
    from gradviz.wording import one_line

    for lead in ("", "&"):
        assert re.sub(lead + r"#(\d+);", lambda found: chr(int(found[1])), escape(line, lead)) == one_line(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [pytest.param(lambda: chain(100_000), marks=pytest.mark.long), lambda: random_dag(2, 3000)],
    ids=["chain", "random"],
)
def test_what_mermaid_cannot_draw_is_cut_and_said(made: Callable[[], Graph]) -> None:
    graph = made()
    drawn = scene(graph, Options())
    part = cut(drawn)
    page = written(graph)
    assert len(part.links) <= MAX_LINKS and len("\n".join(chart(page))) < 50_000
    assert 100 < len(part.boxes) < len(drawn.boxes)
    assert f"#43;{len(drawn.boxes) - len(part.boxes):,} more boxes" in page
    assert f"{len(part.boxes):,} of {len(drawn.boxes):,} boxes and {len(part.links)} of" in page
    ids = {box.id for box in part.boxes}
    assert all(link.source in ids and link.target in ids for link in part.links)


def test_a_cut_keeps_what_is_nearest_to_the_output() -> None:
    kept = {box.node for box in cut(scene(chain(2000), Options())).boxes}
    assert kept == set(range(len(kept)))


def test_frames_count_towards_the_limit_too() -> None:
    scopes = tuple(Scope(f"module{i}" + "x" * 200, "Long", 1, None) for i in range(400))
    graph = chain(399)
    inside = Graph(
        tuple(node._replace(scope=node.id) for node in graph.nodes), graph.edges, roots=graph.roots, scopes=scopes
    )
    page = written(inside)
    assert "more boxes" in page and len("\n".join(chart(page))) < 50_000
