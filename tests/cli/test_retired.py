"""A name that gradviz once had answers with one sentence that says what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradviz
import gradviz.retired
from gradviz.cli.main import cli
from gradviz.errors import FormatError, RetiredName
from gradviz.graph import Graph, Node, Root, TensorInfo
from gradviz.retired import (
    ANY,
    RetiredOption,
    without_retired_checks,
    without_retired_flags,
    without_retired_names,
)
from tests.cli.conftest import Gradviz
from tests.command_line import CliRunner

OPTIONS = gradviz.retired.OPTIONS
_ROWS = (
    RetiredOption("--engine", "There is one engine.", ("render",), harmless=("own",)),
    RetiredOption("--engine-timeout", "There is one engine.", harmless=ANY),
    RetiredOption("--by", "Rows by term are gone.", ("flow",), values=("term",)),
    RetiredOption("--clock", "Times are gone.", takes_value=False),
)


_REAL_ROWS = gradviz.retired.OPTIONS


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.retired.OPTIONS", _ROWS)
    monkeypatch.setattr("gradviz.retired.CHECKS", frozenset({"seeds"}))
    monkeypatch.setitem(gradviz.retired.NAMES, "look_on", "Use gradviz.check.")


@pytest.mark.parametrize(
    ("command", "words", "kept", "notes"),
    [
        ("render", "a.py --engine own -o x.svg", "a.py -o x.svg", 1),
        ("render", "a.py --engine=own", "a.py", 1),
        ("tree", "a.py --engine dot", "a.py --engine dot", 0),
        ("tree", "--engine-timeout 3 a.py --engine-timeout=4", "a.py", 2),
        ("render", "a.py -- --engine dot", "a.py -- --engine dot", 0),
        ("flow", "a.py --by leaf", "a.py --by leaf", 0),
        ("flow", "a.py --engine-timeout", "a.py", 1),
    ],
)
def test_what_changes_nothing_is_passed_over_with_a_note(command: str, words: str, kept: str, notes: int) -> None:
    told: list[str] = []
    assert without_retired_flags(command, words.split(), told.append) == kept.split()
    assert told == ["There is one engine."] * notes


@pytest.mark.parametrize("words", ["a.py --engine dot", "--engine=dot a.py", "a.py --clock", "a.py --engine"])
def test_what_would_change_something_is_refused_with_the_sentence(words: str) -> None:
    with pytest.raises(FormatError, match=r"There is one engine|Times are gone"):
        without_retired_flags("render", words.split(), print)


def test_a_retired_value_of_an_option_that_stays() -> None:
    with pytest.raises(FormatError, match="by term"):
        without_retired_flags("flow", ["a.py", "--by", "term"], print)


def test_options_by_name() -> None:
    told: list[str] = []
    given = {"engine": "own", "direction": "right", "engine_timeout": 3}
    assert without_retired_names("render", given, told.append) == {"direction": "right"}
    assert len(told) == 2
    with pytest.raises(FormatError):
        without_retired_names("render", {"engine": "dot"}, told.append)


def test_ids_of_checks() -> None:
    told: list[str] = []
    assert without_retired_checks(["seeds", "no-graph"], told.append) == ["no-graph"]
    assert told == ["seeds is retired: no report of a real program needed it."]


def test_an_attribute_of_the_package_is_not_there_and_says_what_is() -> None:
    assert not hasattr(gradviz, "look_on")
    with pytest.raises(RetiredName, match=r"Use gradviz\.check"):
        gradviz.look_on  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'wlak'"):
        gradviz.wlak  # noqa: B018


# The real tables


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fit train.py --memory 24GiB", "gradviz no longer predicts memory: see `gradviz saved --budget`."),
        (
            "saved train.py --time --budget 1GiB",
            "`gradviz saved` no longer measures time: see `gradviz tree train.py --time`.",
        ),
    ],
)
def test_a_retired_command_or_option_says_what_to_use(
    gradviz: Gradviz, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    monkeypatch.setattr("gradviz.retired.OPTIONS", _REAL_ROWS)
    assert sentence in " ".join(gradviz(*line.split(), code=2).output.split())


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("flow --by term", "gradviz flow train.py:reconstruction --at 1"),
        ("info --format md", "gradviz check train.py --format md"),
        ("check --try", "run gradviz check again"),
    ],
)
def test_a_command_line_with_a_retired_option_ends_with_what_to_use(
    words: str, instead: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gradviz.retired.OPTIONS", OPTIONS)
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it ran')")

    told = CliRunner().invoke(cli, [*words.split(), str(script)])

    assert told.exit_code == 2
    assert instead in " ".join(told.stderr.split())


@pytest.mark.parametrize("value", ["layered", "auto"])
def test_the_only_layout_may_still_be_asked_for(value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gradviz.retired.OPTIONS", OPTIONS)
    graph = tmp_path / "g.json"
    nodes = (Node(0, "ExpBackward0"),)
    Graph(nodes, roots=(Root(0, 0, "y", TensorInfo((), "float32", "cpu")),)).save(str(graph))
    words = ["render", str(graph), "-o", str(tmp_path / "g.svg"), "--layout", value, "--layout-timeout=3"]
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 0 and "one layout" in told.stderr
    with pytest.warns(UserWarning, match="one layout"):
        gradviz.load(str(graph)).save(str(tmp_path / "g.svg"), layout=value)
    assert CliRunner().invoke(cli, ["render", str(graph), "--layout", "dot"]).exit_code == 2
    with pytest.raises(FormatError, match="one layout"):
        gradviz.load(str(graph)).save(str(tmp_path / "g.svg"), layout="dot")
    ("name", "sentence"), [("apply_checkpoints", r"call torch\.utils\.checkpoint\.checkpoint\(module, x")]
)
def test_a_retired_attribute_says_what_to_use(name: str, sentence: str) -> None:
    assert not hasattr(gradviz, name)
    with pytest.raises(RetiredName, match=sentence):
        getattr(gradviz, name)
