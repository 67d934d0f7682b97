"""Whatever is open of the tree of groups: no cycle, every node once, and what stands together is one box."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from gradviz.draw.options import Options
from gradviz.fold.export import exported
from gradviz.fold.folding import folded
from gradviz.fold.grouping import grouped
from gradviz.fold.groups import Groups, Section
from gradviz.fold.opening import Opening
from gradviz.graph import Graph
from gradviz.run.reading import read_graph
from gradviz.run.run import Run
from gradviz.run.target import parse_target
from tests.blocks import ROOT
from tests.drawn import shown

PROGRAMS = ("ppo_cleanrl", "moe_router", "realnvp_moons", "seq2seq_attention", "maml_sinusoid")


def recorded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.chdir(tmp_path)
    captured: Any = Run(parse_target(str(ROOT / "tests/real/programs" / f"{name}.py")), read_graph).captured()
    graph: Graph = captured.result
    return graph


def some_open(groups: Groups, rng: random.Random) -> set[Section]:
    is_open = {groups[0]}
    for group in groups.top_down()[1:]:
        if group.parent in is_open and rng.random() < 0.6:
            is_open.add(group)
    return is_open


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_cut_has_no_cycle_and_holds_each_node_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = recorded(name, tmp_path, monkeypatch)
    rng = random.Random(name)
    for _ in range(12):
        opening = Opening(grouped(graph))
        opening.open = some_open(opening.groups, rng)
        made = folded(opening)
        graph_of_boxes = exported(made)
        assert len(graph_of_boxes.order) == made.size  # raises where there is a cycle
        members = sorted(node for inside in made.inside for node in inside)
        assert members == list(range(len(graph.nodes)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_ran_at_one_time_is_one_box(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each construct whose nodes no other op of the graph interrupts stands in one group: in no parts."""
    groups = grouped(recorded(name, tmp_path, monkeypatch))
    place = {node: i for i, node in enumerate(groups.order)}
    for group in groups:
        if group.scope in groups.constructs:
            places = sorted(place[node] for node in group.nodes)
            assert places == list(range(places[0], places[-1] + 1))
            assert not group.part, groups.constructs[group.scope]


@pytest.mark.parametrize("name", [*PROGRAMS, "multitask_uncertainty"])
def test_all_that_leaves_a_statement_depends_on_all_that_enters(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = Opening(grouped(recorded(name, tmp_path, monkeypatch)))
    for group in opening.groups:
        if group.record is not None and group.record.kind == "statement":
            ends = opening.dependences.joinable(list(map(opening.sizes.span, group.children)))
            assert ends[0] >> len(group.children) - 1, group.record.path


def opened(graph: Graph) -> list[str]:
    """The paths of modules that the first view opens."""
    opening = shown(graph, Options()).opening
    assert opening is not None
    return sorted(group.record.path for group in opening.open if group.record is not None)


def test_a_module_opens_in_the_turn_that_is_shown_though_an_earlier_turn_ran_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "func" in opened(recorded("neural_ode_rk4", tmp_path, monkeypatch))


def test_heads_beside_each_other_are_in_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = recorded("gcn_no_library", tmp_path, monkeypatch)
    heads = [path for path in opened(graph) if "attention_" in path]
    assert len(heads) in (0, 3)
    opening = shown(graph, Options()).opening
    assert opening is not None
    windows = [window.scope_around for window in opening.windows]
    assert not any("attention_" in opening.groups.graph.scopes[scope].path for scope in windows if scope is not None)


def test_one_turn_is_open_of_a_loop_whose_turns_no_page_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "policy" in opened(recorded("reinforce", tmp_path, monkeypatch))


def test_a_folded_graph_is_read_where_users_hand_it_in_and_nowhere_else() -> None:
    """All else reads a folding, of which nothing has to be asked whether something is closed."""
    readers = {
        path.relative_to(ROOT / "gradviz").as_posix()
        for path in (ROOT / "gradviz").rglob("*.py")
        if re.search(r"\bgraph\.folding\b", path.read_text("utf-8"))
    }
    assert readers == {"draw/output.py", "fold/folding.py"}
