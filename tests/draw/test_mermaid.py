"""Mermaid: what is drawn, what is too large, and that no text leaves its quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

from gradviz.draw.mermaid import escape, render
from gradviz.draw.options import Options
from gradviz.draw.output import encode
from gradviz.draw.palette import BoxKind
from gradviz.errors import FormatError
from gradviz.graph import Graph
from tests.builders import GRAPHS, chain, random_dag
from tests.draw.conftest import Golden
from tests.drawn import scene, sketch
from tests.strategies import graphs, text

KINDS = "|".join(get_args(BoxKind))
BOX = re.compile(r'^  n\d+\["(?:[^"`<>]|<br/>)+"\]:::(?:' + KINDS + ")$")
LINK = re.compile(r'^  n(\d+) (?:-->|-\.->|-\.-|---)(?:\|"[^"]+"\|)? n(\d+)$')
OTHER = re.compile(
    r'^(?:  subgraph f\d+\["[^"`<>]*"\]|  end|flowchart (?:TD|LR)'
    r"|  classDef \w+ [\w:#,-]+|%% gradviz)$"
)


def written(graph: Graph, **options: object) -> str:
    made = Options.of(options)
    return "".join(render(sketch(graph, made), made))


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


@pytest.mark.parametrize("made", [lambda: chain(3000), lambda: random_dag(2, 1500)], ids=["chain", "random"])
def test_what_mermaid_cannot_draw_is_refused_with_advice(made: Callable[[], Graph]) -> None:
    with pytest.raises(FormatError, match=r"too large for Mermaid: .*Write SVG, .*fold the graph"):
        written(made())
