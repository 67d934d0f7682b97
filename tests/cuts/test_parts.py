"""What was cut off, drawn beside the graph: the same nodes that a walk of the cut tensor finds, and nothing kept alive."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.graph import Graph
from gradviz.graph.ready_queue import engine_order
from gradviz.run.outputs import LiveOutputs
from gradviz.run.reading import read_graph
from tests.cli.conftest import Gradviz, gradviz as run_gradviz, unchanged as unchanged
from tests.cli.scripts import environment, script

gradviz_command = run_gradviz


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.middle, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.relu(self.middle(torch.relu(self.encoder(x))))
        self.kept.append(z)
        return self.head(z.detach())


LINE = Net.forward.__code__.co_firstlineno + 3


def with_cuts(compute: Any, **variables: Any) -> tuple[Graph, Graph, Any]:
    """The graph with what was cut off, the one without, and the loss."""
    with gradviz.record() as recording:
        loss = compute()
        live = LiveOutputs(loss, [{"loss": loss, **variables}], "", frame=sys._getframe(), recording=recording)
        graph = read_graph(live, cuts=True)
    return graph, gradviz.walk(loss) if loss.requires_grad else Graph(), loss


def ops(graph: Graph, cut: bool) -> Counter[str]:
    return Counter(node.op for node in graph.nodes if ("cut" in node.flags) == cut)


def scissors(graph: Graph) -> dict[str, tuple[int, list[str], list[str]]]:
    """By what cuts: the line, the ops that it cuts off, and those that go on with what it gave."""
    return {
        node.op: (
            node.source.line if node.source is not None else 0,
            [graph.nodes[edge.producer].op for edge in graph.inputs(node.id)],
            [graph.nodes[edge.consumer].op for edge in graph.consumers(node.id)],
        )
        for node in graph.nodes
        if node.op.startswith("✂")
    }


def test_the_leaves_behind_detach_are_drawn_where_nobody_holds_more() -> None:
    net = Net()
    whole, alone, _ = with_cuts(lambda: net(torch.ones(3, 4)).sum(), net=net)
    assert ops(whole, cut=True) == Counter({"AccumulateGrad": 4, "✂ detach": 1})
    assert ops(whole, cut=False) == Counter(node.op for node in alone.nodes)
    ((name, (line, behind, users)),) = scissors(whole).items()
    assert (name, line, behind) == ("✂ detach", LINE, ["AccumulateGrad"] * 4)
    assert "AddmmBackward0" in users
    assert whole.notes[-1] == "dashed: what is cut off at ✂, so no gradient passes"
    assert {leaf.names[0] for leaf in whole.leaves} == {name for name, _ in Net().named_parameters(prefix="net")}


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="pytest rewrites this function, whose columns Python does not tell"
)
def test_the_part_behind_a_variable_is_what_a_walk_of_it_finds() -> None:
    w = torch.ones(3, requires_grad=True)
    hidden = (w * 2).exp()
    with gradviz.record() as recording:
        hidden = (w * 2).exp()
        loss = (hidden.detach() * w).sum()
        variables = {"loss": loss, "hidden": hidden, "w": w}
        live = LiveOutputs(loss, [variables], "", frame=sys._getframe(), recording=recording)
        whole = read_graph(live, cuts=True)
    behind = Counter(node.op for node in gradviz.walk(hidden).nodes) - Counter({"AccumulateGrad": 1})
    assert ops(whole, cut=True) == behind + Counter({"✂ detach": 1})  # w is in the graph itself
    assert scissors(whole)["✂ detach"][1:] == (["ExpBackward0"], ["MulBackward0"])


def test_what_backward_runs_is_as_without() -> None:
    net = Net()
    whole, alone, loss = with_cuts(lambda: net(torch.ones(3, 4)).sum(), net=net)
    assert [whole.nodes[node].op for node in engine_order(whole)] == [
        alone.nodes[node].op for node in engine_order(alone)
    ]
    loss.backward()
    assert {leaf.names[0].split(".")[1] for leaf in whole.leaves if "cut" in whole.nodes[leaf.node].flags} == {
        "encoder",
        "middle",
    }
    assert net.encoder.weight.grad is None and net.head.weight.grad is not None


def test_each_kind_of_cut_and_where_it_comes_back() -> None:
    a, b, d, w = (torch.ones(3, requires_grad=True) for _ in range(4))

    def compute() -> torch.Tensor:
        number = (a * 2).sum().item()
        index = b.exp().argmax()
        new = torch.tensor((d * 3).tolist())
        return (w * number * new)[index] * 1.0

    whole, _, _ = with_cuts(compute, a=a, b=b, d=d, w=w)
    found = scissors(whole)
    assert {op: parts[1] for op, parts in found.items()} == {
        "✂ item": ["AccumulateGrad"],
        "✂ argmax": ["AccumulateGrad"],
        "✂ tolist": ["AccumulateGrad"],
    }
    assert "MulBackward0" in found["✂ item"][2]
    assert {leaf.names for leaf in whole.leaves if "cut" in whole.nodes[leaf.node].flags} == {("a",), ("b",), ("d",)}


def test_a_loss_without_a_graph_shows_where_it_was_lost() -> None:
    w = torch.ones(3, requires_grad=True)
    whole, _, _ = with_cuts(lambda: (w * 2).detach().sum(), w=w)
    (root,) = whole.roots
    assert root.node is not None and whole.nodes[root.node].op == "✂ detach"
    assert engine_order(whole) == []


def test_numbers_that_are_only_printed_add_nothing() -> None:
    w, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def compute() -> torch.Tensor:
        loss = (w * 2).sum()
        assert loss.item() == 6.0
        assert unused.numel() == len(unused.tolist()) == 3
        return loss

    whole, alone, _ = with_cuts(compute, w=w, unused=unused)
    assert not ops(whole, cut=True) and ops(whole, cut=False) == Counter(node.op for node in alone.nodes)


LOOP = """
import gc, torch
w = torch.ones(500_000, requires_grad=True)
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
def step():
    loss = (w * 2).exp().sum()
    total = loss.item() + (w * 3).mean().item()
    loss.backward()
    return total
for _ in range(40):
    step()
open("/proc/self/clear_refs", "w").write("5")
for i in range(1000):
    step()
print(peak())
(w * w).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.fresh
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_loop_of_1000_steps_has_the_peak_of_plain_python(tmp_path: Path) -> None:
    """What the loop adds to the peak: a graph of one step that stays alive would add 2 %.

    Each tensor is mapped by itself, so that the peak does not depend on the pieces that the allocator keeps.
    """
    path = script(tmp_path, LOOP.replace("for i in range(1000)", "print(peak())\nfor i in range(1000)"))
    added = []
    for command in ([], ["-m", "gradviz", "render", "-o", "graph.svg", "--cut", "--at", "1041"]):
        run = subprocess.run(
            [sys.executable, *command, str(path)],
            cwd=tmp_path,
            env={**environment(), "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        before, after = map(int, re.findall(r"^\d+$", run.stdout + run.stderr, re.MULTILINE))
        added.append(after - before)
    assert abs(added[1] - added[0]) < 0.01 * after


SMALL = """
import torch
w = torch.ones(3, requires_grad=True)
loss = (w.exp().detach() * w).sum()
loss.backward()
"""


def test_the_command_draws_it_dashed(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, SMALL)
    for name, dashed in (("a.svg", "gv-ghost"), ("a.dot", 'style="filled,dashed"'), ("a.md", ":::ghost")):
        gradviz_command("render", path, "--cut", "-o", name)
        text = Path(name).read_text()
        assert "✂ detach" in text and dashed in text
        gradviz_command("render", path, "-o", name)
        assert "✂" not in Path(name).read_text()
    assert "--cut" in gradviz_command("render", path, "--cut", "-o", "a.json", code=2).stderr
    assert "--cut" in gradviz_command("render", path, "--cut", "--color", "grad", code=2).stderr


def test_what_a_cut_gave_has_no_other_box(gradviz_command: Gradviz, tmp_path: Path) -> None:
    text = """
import torch
w, goal = torch.rand(3, requires_grad=True), torch.rand(3)
v = w * 2
frozen = goal - v.detach()
loss = (w.exp() * frozen).sum() + (v - goal).sum() + ((v.exp() - frozen) ** 2).mean()
loss.backward()
"""
    gradviz_command("render", "--cut", script(tmp_path, text), "-o", "cut.dot")
    dot = Path("cut.dot").read_text()
    titles = dict(re.findall(r'^\s*(n\d+) \[label="([^"\\]*)', dot, re.MULTILINE))
    arrows = [(titles[source], titles[target]) for source, target in re.findall(r"(n\d+) -> (n\d+)", dot)]
    assert sorted(target for source, target in arrows if source == "✂ detach") == ["mul", "sub"]
    assert "frozen" not in titles.values() and ("goal", "sub") in arrows and "not drawn" not in dot


@pytest.mark.slow
def test_the_first_node_after_the_first_cut_of_a_process_has_its_line(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch
        teacher, net = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        target = teacher(torch.ones(1, 2)).detach()
        net(target).sum().backward()
        """,
    )
    command = [sys.executable, "-m", "gradviz", "render", str(path), "--cut", "-o", str(tmp_path / "a.dot")]
    subprocess.run(command, env=environment(), cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "a.dot").read_text()
    assert "✂ detach" in text and "no source line" not in text


@pytest.mark.parametrize("more", [(), ("--at", 2)])
def test_check_draws_it_by_itself(gradviz_command: Gradviz, tmp_path: Path, more: tuple[object, ...]) -> None:
    """And finds the same as without: the rules look at the graph alone."""
    path = script(tmp_path, SMALL + "loss = (w.exp().detach() * w).sum()\nloss.backward()\n")
    gradviz_command("render", path, "--check", "-o", "a.dot", *more)
    assert Path("a.dot").read_text().count("✂ detach") == 1


def test_a_lost_graph_is_drawn_under_its_finding(gradviz_command: Gradviz, tmp_path: Path) -> None:
    gradviz_command(
        "render", script(tmp_path, SMALL.replace(" * w).sum()", ").sum()")), "--check", "-o", "a.dot", code=3
    )
    text = Path("a.dot").read_text()
    assert "✂ detach" in text and "1. no-graph" in text
