"""`gradviz merge`: files of ranks, of one machine or of several, as a report, as JSON and as a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from gradviz.graph import Graph, Process
from gradviz.ranks.merging import merge, merge_files
from tests.cli.conftest import Gradviz
from tests.ranks.test_merging import chain


def saved(folder: Path, *graphs: Graph) -> list[str]:
    return [graph.save(str(folder / f"net.rank{rank}.json")) for rank, graph in enumerate(graphs)]


def of_rank(ops: str, rank: int, *, world: int = 8) -> Graph:
    """A graph that a rank wrote."""
    return replace(chain(ops, rank=rank), process=Process(rank, world))


def test_equal_ranks(gradviz: Gradviz, tmp_path: Path) -> None:
    result = gradviz("merge", *saved(tmp_path, of_rank("ABC", 0, world=2), of_rank("ABC", 1, world=2)))
    assert "ranks 0-1 alike; 4 nodes shared" in result.stdout
    assert "held for backward: 72 B on ranks 0-1" in result.stdout


def test_ranks_that_differ(gradviz: Gradviz, tmp_path: Path) -> None:
    graphs = of_rank("ABC", 0), of_rank("ABC", 1), of_rank("AXC", 2)
    files = saved(tmp_path, *graphs)
    said = gradviz("merge", *files, "-o", "net.svg", code=1).stdout
    assert "ranks 0-1 alike, 2 differs" in said
    assert "no graph of ranks 3-7" in said
    assert "only some ranks have it" in (tmp_path / "net.svg").read_text()
    data = json.loads(gradviz("merge", *files, "--json", code=1).stdout)
    assert (data["groups"], data["missing"]) == ([[0, 1], [2]], [3, 4, 5, 6, 7])
    assert [(one["op"], one["ranks"]) for one in data["only"]] == [("BBackward0", [0, 1]), ("XBackward0", [2])]
    assert data["bytes_by_rank"] == {"0": 72, "1": 72, "2": 72}
    assert "findings" not in data


def test_a_file_that_is_broken_is_named(gradviz: Gradviz, tmp_path: Path) -> None:
    files = saved(tmp_path, chain("AB"), chain("AXB"))
    text = Path(files[1]).read_text()
    for broken in (text[: len(text) // 2], text.replace('"op"', '"oops"', 1), "{}"):
        Path(files[1]).write_text(broken)
        result = gradviz("merge", *files, code=2)
        assert "net.rank1.json" in result.stderr and "Traceback" not in result.stderr
    assert "net.rank9.json" in gradviz("merge", str(tmp_path / "net.rank9.json"), code=2).stderr


def test_files_are_merged_as_graphs_are(tmp_path: Path) -> None:
    words = ["ABCDE", "ABCDE", "AXCDE", "ABDE", "ABCDE", "AXCDE"]
    graphs = [
        chain(word, rank=rank, device=f"cuda:{rank}", bytes=48 if rank == 4 else 24) for rank, word in enumerate(words)
    ]
    one, other = merge(graphs), merge_files(saved(tmp_path, *graphs))
    assert one == other
    assert one.groups == ((0, 1), (2, 5), (3,), (4,))
