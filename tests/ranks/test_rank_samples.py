"""The samples of several ranks: right they have no finding, and `check` finds each fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gradviz
from tests.ranks.launch import launch

SAMPLES = Path(__file__).parents[2] / "samples"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes and looks for those left in /proc"),
]


@pytest.mark.parametrize(
    ("name", "fault", "ids"),
    [
        ("ddp.py", "branch", {"ranks-differ", "unused-on-some-ranks"}),
        ("fsdp.py", "early", {"nonleaf-parameter"}),
        ("pipeline.py", "unused", {"unused-parameter"}),
    ],
)
def test_check_finds_the_fault(name: str, fault: str, ids: set[str], tmp_path: Path) -> None:
    arguments = ("check", "train.py", "--json", "--ranks-wait", 8, "--", "--fault", fault)
    done = launch(2, tmp_path, *arguments, text=(SAMPLES / name).read_text())
    assert done.code != 0 and done.left == ()
    found = json.loads(done.stdout)["findings"]
    told = {one["id"] for finding in found for one in (finding, *finding["consequences"])}
    assert ids <= told
    assert all(finding["ranks"] for finding in found if finding["id"] == "unused-parameter")


def test_the_stages_of_a_pipeline_are_one_graph(tmp_path: Path) -> None:
    """Four stages, each of which waits for the gradient of the next: every rank goes on until all have read theirs."""
    text = (SAMPLES / "pipeline.py").read_text()
    done = launch(4, tmp_path, "render", "train.py", "-o", "net.json", text=text)
    assert (done.code, done.left, done.stdout) == (0, (), "net.json\n"), done.stderr
    assert [path.name for path in tmp_path.glob("*.json")] == ["net.json"]
    graph = gradviz.load(str(tmp_path / "net.json"))
    received = [node for node in graph.nodes if node.op == "Recv"]
    assert [node.names for node in received] == [(f"from stage {i}, 128 B",) for i in range(3) for _ in range(2)]
    assert [root.name[:19] for root in graph.roots] == ["stage3.microbatch0.", "stage3.microbatch1."]
    assert len(graph.leaves) == 2 * 4  # parameters are shared by the microbatches
    assert "2 microbatches of one step: 0-1 alike" in "\n".join(graph.notes)
    below = {root.node for root in graph.roots}
    for node in graph.order:
        if node in below:
            below.update(edge.producer for edge in graph.inputs(node))
    assert len(below) == len(graph.nodes)  # the losses lead to every leaf of every stage
    second = graph.fold(focus="stage1.microbatch1")

    def shown(microbatch: str) -> int:
        inside = [scope.path.startswith(f"stage1.{microbatch}") for scope in graph.scopes]
        return sum(len(nodes) == 1 and inside[graph.nodes[nodes[0]].scope or 0] for nodes in second.inside)

    assert shown("microbatch1") == 4 > shown("microbatch0")
