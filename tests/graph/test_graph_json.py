"""Graph files: what is written is read back equal, and a broken file says what is wrong and where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gradviz.draw.output import encode
from gradviz.errors import GraphFileError
from gradviz.graph import Construct, Graph, Node, SourceLine, files as schema
from gradviz.graph.files import dump, load, loads
from gradviz.memory.saved import saved
from tests.builders import GRAPHS, chain, everything
from tests.draw.conftest import FOLDER
from tests.strategies import graphs


def text_of(graph: Graph) -> str:
    return "".join(dump(graph))


def data_of(graph: Graph) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text_of(graph))
    return data


@pytest.mark.parametrize("name", GRAPHS)
def test_round_trip(name: str) -> None:
    graph = GRAPHS[name]
    assert repr(loads(text_of(graph))) == repr(graph)  # repr, because nan differs from itself


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_any_graph_is_strict_json_and_read_back(graph: Graph) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = text_of(graph)
    assert repr(loads(text)) == repr(graph)
    data = json.loads(encode(text), parse_constant=refuse)
    assert len(data["nodes"]) == len(graph.nodes) and len(data["edges"]) == len(graph.edges)


def test_golden_file_is_still_written_and_read(request: pytest.FixtureRequest) -> None:
    path = FOLDER / "everything.json"
    if request.config.getoption("--update-golden"):
        path.write_bytes(encode(text_of(everything())))
    assert path.read_bytes() == encode(text_of(everything()))
    assert repr(load(path)) == repr(everything())


def test_the_program_is_kept_and_what_version_1_knew_of_it_is_read() -> None:
    line = SourceLine("train.py", 3, "main")
    program = (
        Construct("function", "main", line),
        Construct("loop", "for x in xs", line, 0, turn=2),
        Construct("turn", "", line, 1, turn=1),
        Construct("statement", "y", line, 2, nodes=(0,), code="x * 2"),
    )
    graph = replace(
        everything(), program=program, scopes=(), nodes=tuple(n._replace(scope=None) for n in everything().nodes)
    )
    assert repr(loads(text_of(graph))) == repr(graph) and loads(text_of(graph)).program == program
    first = text_of(graph).replace('"version":2', '"version":1')
    (call,) = loads(first).program
    assert (call.kind, call.text, call.nodes) == ("function", "main", (0,)) and loads(
        first
    ).functions == graph.functions


def test_files_that_say_packing_and_parts_in_words_alone_give_the_same_bytes() -> None:
    slots = (
        {"slot": "indices", "storage": 1, "kind": "activation", "state": "live", "tensor": 0},
        {"slot": "self", "state": "packed", "note": "unpacked by torch.utils.checkpoint.f from a _Holder"},
        {"slot": "mat", "state": "packed", "tensor": 0, "storage": 1, "note": "unpacked by save_on_cpu.g from a tuple"},
        {"slot": "other", "state": "packed", "note": "unpacked by read from a str"},
    )
    sparse = {**slots[0], "note": "indices in storage 0, values in storage 1"}
    data = data_of(Graph((Node(0, "MmBackward0"),), title="old"))
    data |= {
        "tensors": [[[3], "float32", "cpu"]],
        "storages": [{"nbytes": 48, "kind": "activation"}, {"nbytes": 12, "kind": "activation"}],
    }
    data["nodes"][0]["saved"] = [dict.fromkeys(("tensor", "storage", "kind")) | one for one in (sparse, *slots[1:])]
    graph = loads(json.dumps(data))
    assert graph.nodes[0].saved[0].storages == (1, 0)
    assert [one.packing for one in graph.nodes[0].saved] == ["", "recompute", "offload", ""]
    assert loads(text_of(graph)) == graph
    totals = saved(graph).totals
    assert (totals.held_for_backward, totals.recomputed_slots, totals.packed_unknown) == (60, 1, 1)


def test_numbers_too_big_for_a_json_reader_are_tagged() -> None:
    graph = Graph((Node(0, "Op", attributes={"n": 2**255, "m": -(2**63), "small": 2**62}),))
    assert loads(text_of(graph)) == graph
    assert data_of(graph)["nodes"][0]["attributes"]["small"] == 2**62


def test_what_has_no_json_form_becomes_its_text() -> None:
    graph = Graph((Node(0, "Op", attributes={"dtype": Path("x")}),))
    assert loads(text_of(graph)).nodes[0].attributes == {"dtype": "x"}


def broken(path: str, value: Any) -> dict[str, Any]:
    """The data of `everything()` with one place changed, or taken out when the value is `...`."""
    data = data_of(everything())
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place: Any = data
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "other", ["not a gradviz graph"]),
        ("version", 3, ["version is 3", "reads up to 2", "upgrade gradviz"]),
        ("title", 3, ["title is 3, not text"]),
        ("attribution", "guessed", ["attribution is 'guessed'", "recorded, inferred"]),
        ("edges", {}, ["edges is {}, not an array"]),
        ("nodes/0/op", 1, ["nodes[0].op is 1, not text"]),
        ("nodes/1", 7, ["nodes[1] is 7, not an object"]),
        ("nodes/0/outputs/1", 99, ["nodes[0].outputs[1] is 99", "no index into tensors"]),
        ("nodes/0/scope", 2, ["nodes[0].scope is 2, which is no index into scopes (there are 2)"]),
        ("nodes/0/flags/0", "new", ["nodes[0].flags[0] is 'new', not one of custom, hooks"]),
        ("nodes/0/saved/1/slot", ..., ["nodes[0].saved[1].slot is missing"]),
        ("nodes/0/attributes/alpha", {"float": "big"}, ["nodes[0].attributes['alpha'] is {'float': 'big'}"]),
        ("nodes/0/attributes/alpha", {"dict": [[["list"], 1, 2]]}, ["nodes[0].attributes['alpha']"]),
        ("edges/0/1", 2, ["edges[0][1] is 2, which is no index into nodes (there are 2)"]),
        ("edges/0", [0, 1], ["edges[0] is [0, 1], not an array of consumer, producer, output, position, count"]),
        ("edges/0", [0, 0, 0, 0], ["edges form a cycle"]),
        ("leaves/0/base/tensor", None, ["leaves[0].base.tensor is None"]),
        ("scopes/0/parent", 0, ["scopes[0] is inside itself"]),
        ("sources/0/1", "12", ["sources[0][1] is '12'"]),
    ],
)
def test_a_broken_file_says_what_and_where(path: str, value: Any, words: list[str]) -> None:
    with pytest.raises(GraphFileError) as caught:
        loads(json.dumps(broken(path, value)), name="net.json")
    for word in ("net.json: ", "graph.save", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2, 0, 0], [0, 1, 0, 0]], "edges[1] does not come after"),
        ([[0, 1, 0, 0], [0, 2, 0, 0]], "edges[1] does not come"),
    ],
)
def test_edges_must_be_in_order(rows: list[list[int]], words: str) -> None:
    data = data_of(chain(2)) | {"edges": rows}
    with pytest.raises(GraphFileError) as caught:
        loads(json.dumps(data))
    assert words in str(caught.value)


def test_two_leaves_on_one_node_are_refused() -> None:
    data = data_of(chain(1))
    with pytest.raises(GraphFileError, match=r"leaves\[1\].node is 1, the node of another leaf"):
        loads(json.dumps(data | {"leaves": data["leaves"] * 2}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON: Expecting value at line 1"),
        ("{}", "not a gradviz graph"),
        ("[1]", "not a gradviz graph"),
        ('{"format":"gradviz-graph",\n"version"', "line 2"),
        ('{"format":"gradviz-graph","version":NaN}', "NaN is not a JSON number"),
        ("[" * 200_000, "cannot be read as JSON"),
        ('{"a":' + "9" * 5000 + "}", "cannot be read as JSON"),
    ],
)
def test_a_foreign_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(GraphFileError) as caught:
        loads(text)
    assert words in str(caught.value)


def test_a_cut_file_is_refused_wherever_it_was_cut() -> None:
    text = text_of(everything()).rstrip()
    for end in range(0, len(text), 7):
        with pytest.raises(GraphFileError):
            loads(text[:end])


def test_unknown_keys_are_passed_over() -> None:
    data = data_of(everything())
    data["future"] = 1
    data["nodes"][0]["future"] = {"x": 1}
    assert repr(loads(json.dumps(data))) == repr(everything())


def test_a_missing_file_a_folder_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\xff\xfe")
    for name, words in (("nowhere.json", "No such file"), ("", "directory"), ("picture.json", "not text")):
        with pytest.raises(GraphFileError, match=words):
            load(tmp_path / name)


def test_the_example_in_the_documentation_is_a_graph_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json-format.md").read_text(encoding="utf-8")
    example = page.split("```json\n")[1].split("```")[0]
    graph = loads(example)
    assert graph.leaves[0].names == ("w",) and text_of(graph) == example


def test_the_documentation_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json-format.md").read_text(encoding="utf-8")
    objects = (
        schema.NODE,
        schema.LEAF,
        schema.ROOT,
        schema.SCOPE,
        schema.STORAGE,
        schema.SAVED,
        schema.GROUP,
        schema.BASE,
    )
    for record in objects:
        for field in record.fields:
            assert f"`{field.name}`" in page, field.name
