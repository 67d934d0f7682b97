"""Graph files that the last version wrote before features were retired (commit 7693942): they load, and retired words go."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradviz
from gradviz.graph.files import VERSION

FILES = sorted((Path(__file__).parent / "files").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_loads_and_every_renderer_takes_it(file: Path, tmp_path: Path) -> None:
    graph = gradviz.load(str(file))
    assert VERSION == 2 and len(graph.nodes) > 5
    assert not {flag for node in graph.nodes for flag in node.flags} & {"in_compiled", "recomputed"}
    assert graph.to_svg().startswith("<svg") and str(graph.tree())
    graph.save(str(tmp_path / "page.html"))
    graph.save(str(tmp_path / "again.json"))
    assert gradviz.load(str(tmp_path / "again.json")) == graph


def test_gradients_are_kept() -> None:
    graphs = {file.stem: gradviz.load(str(file)) for file in FILES}
    assert len(graphs["compiled_with_gradients"].backward) > 10
    assert [share.ranks for share in graphs["pipeline_of_two_ranks"].by_rank] == [(0,), (1,)]
