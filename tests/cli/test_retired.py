"""A name that gradviz once had answers with one sentence that says what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradviz
import gradviz.retired
from gradviz.cli.main import cli
from gradviz.errors import FormatError, RetiredName
from gradviz.graph import Graph, Node, Root, TensorInfo
from gradviz.retired import ANY, RetiredOption, without_retired_checks, without_retired_flags, without_retired_names
from tests.command_line import CliRunner

_ROWS = (
    RetiredOption("--engine", "There is one engine.", ("render",), harmless=("own",)),
    RetiredOption("--engine-timeout", "There is one engine.", harmless=ANY),
    RetiredOption("--by", "Rows by term are gone.", ("flow",), values=("term",)),
    RetiredOption("--clock", "Times are gone.", takes_value=False),
    RetiredOption("--onward", "That is --on now.", takes_value=False, becomes="--on"),
    RetiredOption("--rows", "Rows are of a tree.", ("render",), python=False),
)


@pytest.fixture
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
@pytest.mark.usefixtures("rows")
def test_what_changes_nothing_is_passed_over_with_a_note(command: str, words: str, kept: str, notes: int) -> None:
    told: list[str] = []
    assert without_retired_flags(command, words.split(), told.append) == kept.split()
    assert told == ["There is one engine."] * notes


@pytest.mark.usefixtures("rows")
def test_another_name_of_an_option() -> None:
    told: list[str] = []
    assert without_retired_flags("tree", ["--onward", "a.py"], told.append) == ["--on", "a.py"]
    assert told == ["That is --on now."]


@pytest.mark.parametrize("words", ["a.py --engine dot", "--engine=dot a.py", "a.py --clock", "a.py --engine"])
@pytest.mark.usefixtures("rows")
def test_what_would_change_something_is_refused_with_the_sentence(words: str) -> None:
    with pytest.raises(FormatError, match=r"There is one engine|Times are gone"):
        without_retired_flags("render", words.split(), print)


@pytest.mark.usefixtures("rows")
def test_a_retired_value_of_an_option_that_stays() -> None:
    with pytest.raises(FormatError, match="by term"):
        without_retired_flags("flow", ["a.py", "--by", "term"], print)


@pytest.mark.usefixtures("rows")
def test_options_by_name() -> None:
    told: list[str] = []
    given = {"engine": "own", "rows": 9, "engine_timeout": 3}
    assert without_retired_names("render", given, told.append) == {"rows": 9}
    assert len(told) == 2
    with pytest.raises(FormatError):
        without_retired_names("render", {"engine": "dot"}, told.append)


@pytest.mark.usefixtures("rows")
def test_ids_of_checks() -> None:
    told: list[str] = []
    assert without_retired_checks(["seeds", "no-graph", "sleeps"], told.append) == ["no-graph"]
    assert told == [
        "seeds is retired: no report of a real program needed it.",
        "sleeps is part of wrong-mode now: gradviz check --explain wrong-mode.",
    ]


@pytest.mark.usefixtures("rows")
def test_an_attribute_of_the_package_is_not_there_and_says_what_is() -> None:
    assert not hasattr(gradviz, "look_on")
    with pytest.raises(RetiredName, match=r"Use gradviz\.check"):
        gradviz.look_on  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'wlak'"):
        gradviz.wlak  # noqa: B018


# -- what was really retired -------------------------------------------------------------------------------------------

ENDS = {
    "fit train.py --memory 24GiB": "see `gradviz saved --budget`",
    "saved train.py --time": "see `gradviz tree train.py --time`",
    "flow train.py --by term": "gradviz flow train.py:reconstruction --at 1",
    "flow train.py --format csv": "--json has every row with exact numbers",
    "info train.py --format md": "gradviz check train.py --verbose",
    "check train.py --format md": "gradviz check train.py --verbose",
    "check train.py --try": "run gradviz check again",
    "tree train.py --ranks merged": "compare them with gradviz merge net.rank*.json.",
    "render train.py --layout dot": "gradviz render train.py -o net.dot",
    "merge net.json -o net.svg --details": "gradviz render all.json --details",
}
GOES_ON = {
    "--link-source none": "the interactive page shows that of each box",
    "--layout layered": "gradviz has one layout",
    "--layout=auto": "gradviz has one layout",
    "--ranks each": "compare them with gradviz merge",
    "--ranks-wait 3": "No rank waits for another",
    "--layout-timeout 3": "no longer waits for Graphviz",
    "--no-record": "call gradviz.walk(loss) in the script",
    "--no-saved": "That is the default",
    "--by line": "gradviz tree train.py --by node > tree.txt",
}
OTHERWISE = {
    "info g.json --format json": ("info g.json --json", "JSON with --json"),
    "info g.json --format text": ("info g.json", "That is the default"),
    "tree g.json --color memory": ("tree g.json", "the bytes of each row"),
    "tree g.json --max-depth 2": ("tree g.json --depth 2", "--depth says how deep"),
}
ATTRIBUTES = {
    "apply_checkpoints": r"call torch\.utils\.checkpoint\.checkpoint\(module, x",
    "watch": r"gradviz\.check\(loss, model=model\) inside the loop",
    "integrations": r"gradviz\.check\(loss, model=model\) inside the loop",
}


@pytest.mark.parametrize("line", ENDS)
def test_a_command_line_ends_with_what_to_use_and_runs_nothing(line: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it ran')")
    told = CliRunner().invoke(cli, line.replace("train.py", str(script), 1).split())
    assert told.exit_code == 2
    assert ENDS[line] in " ".join(told.stderr.split())


@pytest.mark.parametrize("words", GOES_ON)
def test_a_command_line_goes_on_with_a_note(words: str, tmp_path: Path) -> None:
    graph = saved(tmp_path)
    told = CliRunner().invoke(cli, ["render", graph, "-o", str(tmp_path / "g.svg"), *words.split()])
    assert told.exit_code == 0 and (tmp_path / "g.svg").exists()
    assert told.stderr.count(GOES_ON[words]) == 1


@pytest.mark.parametrize("line", OTHERWISE)
def test_a_command_line_does_what_its_successor_does(line: str, tmp_path: Path) -> None:
    graph = saved(tmp_path)
    successor, sentence = OTHERWISE[line]
    retired, present = (CliRunner().invoke(cli, words.replace("g.json", graph).split()) for words in (line, successor))
    assert retired.exit_code == 0 and retired.stdout == present.stdout
    assert retired.stderr.count(sentence) == 1


def test_so_does_saving_from_python(tmp_path: Path) -> None:
    graph = gradviz.load(saved(tmp_path))
    with pytest.warns(UserWarning, match="one layout"):
        graph.save(str(tmp_path / "g.svg"), layout="layered")
    with pytest.raises(FormatError, match="one layout"):
        graph.save(str(tmp_path / "g.svg"), layout="dot")


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_says_what_to_use(name: str) -> None:
    assert not hasattr(gradviz, name)
    with pytest.raises(RetiredName, match=ATTRIBUTES[name]):
        getattr(gradviz, name)


def saved(folder: Path) -> str:
    root = Root(0, 0, "y", TensorInfo((), "float32", "cpu"))
    return Graph((Node(0, "ExpBackward0"),), roots=(root,)).save(str(folder / "g.json"))
