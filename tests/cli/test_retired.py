"""A name that gradviz once had answers with one sentence that says what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradviz
import gradviz.retired
from gradviz.cli.main import cli
from gradviz.errors import FormatError, RetiredName
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


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradviz.retired.OPTIONS", _ROWS)
    monkeypatch.setattr("gradviz.retired.CHECKS", {"seeds": "", "sleeps": "wrong-mode"})
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
    assert without_retired_checks(["seeds", "no-graph", "sleeps"], told.append) == ["no-graph"]
    assert told == [
        "seeds is retired: no report of a real program needed it.",
        "sleeps is part of wrong-mode now: gradviz check --explain wrong-mode.",
    ]


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
    ],
)
def test_a_retired_command_says_what_to_use(gradviz: Gradviz, line: str, sentence: str) -> None:
    assert sentence in " ".join(gradviz(*line.split(), code=2).output.split())


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("flow --by term", "gradviz flow train.py:reconstruction --at 1"),
        ("info --format md", "gradviz check train.py --format md"),
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
