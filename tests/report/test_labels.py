"""Wording: one table per kind of text."""

from __future__ import annotations

import re
import unicodedata
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from gradviz import wording
from gradviz.draw.typesetting import FRAME_NAME, frame_title, shorten
from gradviz.graph import (
    Edge,
    Function,
    Graph,
    Group,
    Leaf,
    Node,
    NodeFlag,
    Root,
    SavedTensor,
    Scope,
    SourceLine,
    TensorInfo,
)
from gradviz.graph.files import dump, loads
from gradviz.report import labels
from gradviz.wording import visible

FLOAT = TensorInfo((3, 4), "float32", "cpu")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (None, "? B"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1572864, "1.5 MiB"),
        (1024**2 - 1, "1.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5 * 1024**4, "5.0 TiB"),
        (2000 * 1024**5, "2,000.0 PiB"),
    ],
)
def test_bytes(nbytes: int | None, text: str) -> None:
    assert wording.bytes_text(nbytes) == text


@pytest.mark.parametrize(
    ("shape", "text"),
    [((3, 4), "(3, 4)"), ((3,), "(3,)"), ((), "()"), (None, "(?)"), (("s93", 4), "(s93, 4)"), ((2, "j1"), "(2, j1)")],
)
def test_shapes(shape: tuple[int | str, ...] | None, text: str) -> None:
    assert wording.shape_text(shape) == text


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (FLOAT, "(3, 4) float32"),
        (TensorInfo((), "int64", "cuda:0"), "() int64 cuda:0"),
        (TensorInfo(None, "float32", "cpu", "nested"), "(?) float32 nested"),
        (None, "unknown tensor"),
    ],
)
def test_tensor_lines(tensor: TensorInfo | None, text: str) -> None:
    assert wording.tensor_line(tensor) == text


def test_several_outputs_are_counted_not_listed_without_end() -> None:
    other = TensorInfo((2,), "float32", "cpu")
    assert labels.outputs_line(()) == ""
    assert labels.outputs_line((FLOAT, None)) == "(3, 4) float32, unknown tensor"
    assert labels.outputs_line((FLOAT,) * 12) == "12 × (3, 4) float32"
    assert labels.outputs_line((other, *(FLOAT,) * 9)).endswith(", +7 more")


def test_counts_and_plurals() -> None:
    assert wording.plural(1, "leaf", "leaves") == "1 leaf"
    assert wording.plural(1234567, "leaf", "leaves") == "1,234,567 leaves"
    assert wording.plural(0, "node") == "0 nodes"
    assert (labels.again(12), labels.alike(12), labels.more(40)) == ("×12", "12 alike", "+40 more")


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (Group("module", "net.fc", (1,)), "net.fc"),
        (Group("repeat", "cell", (1,), 12), "cell ×12"),
        (Group("alike", "block", (1,), 12), "block, 12 alike"),
        (Group("chain", "MulBackward0", (1,), 40), "MulBackward0, 40 in a row"),
    ],
)
def test_group_titles(group: Group, text: str) -> None:
    assert labels.group_title(group) == text
    assert labels.op_title(Graph(), Node(0, "ignored", group=group)) == (text, "")


def test_what_is_inside_a_group() -> None:
    assert labels.group_line(Group("module", "fc", (1,), 1, 12, 1024, 4096)) == "12 ops, 1,024 parameters, 4.0 KiB"
    assert labels.group_line(Group("module", "fc", (1,), 1, 1)) == "1 op"


def test_names() -> None:
    assert labels.names_text(("a", "b")) == "a = b"
    assert labels.leaf_title(Leaf(0, (), FLOAT, "parameter")) == "unnamed parameter"
    assert labels.root_title(Root(0, 0, "", FLOAT)) == "output"
    assert labels.names_text(("", "b", " ")) == "b"
    assert labels.op_title(Graph(), Node(0, "")).name == "unnamed"


TITLED = Graph(
    (
        Node(0, "NllLossBackward0", names=("loss",), assigned="loss"),
        Node(1, "SqueezeBackward1", scope=0, names=("logits", "seen"), assigned="out"),
        Node(2, "MmBackward0", scope=1),
        Node(3, "TBackward0", scope=1),
        Node(4, "SliceBackward0", names=("model.memory",), attributes={"dim": 0, "start": 1, "end": 5, "step": 1}),
        Node(5, "DivBackward0"),
    ),
    tuple(Edge(i, i + 1, 0, 0) for i in range(5)),
    roots=(Root(0, 0, "loss", FLOAT),),
    scopes=(Scope("model", "Net", 1, None), Scope("model.blocks.0", "Linear", 1, 0)),
)


@pytest.mark.parametrize(
    ("node", "names", "title"),
    [
        (0, "variable", ("nll_loss", "")),  # the output's own box has the name
        (1, "variable", ("out", "squeeze")),
        (2, "variable", ("blocks.0", "matmul")),  # what the module returns
        (3, "variable", ("t", "")),  # used inside the module only
        (4, "variable", ("model.memory", "[1:5]")),
        (5, "variable", ("div", "")),
        (1, "forward", ("squeeze", "")),
        (2, "forward", ("matmul", "")),
        (1, "backward", ("SqueezeBackward1", "")),
    ],
)
def test_what_an_op_is_called(node: int, names: labels.OpNames, title: tuple[str, str]) -> None:
    assert labels.op_title(TITLED, TITLED.nodes[node], names=names) == title


def test_inside_its_frame_an_op_is_not_called_by_the_module() -> None:
    assert labels.op_title(TITLED, TITLED.nodes[2], "model.blocks.0") == ("matmul", "")
    assert labels.op_title(TITLED, TITLED.nodes[4], "model") == ("memory", "[1:5]")


def test_every_flag_has_words() -> None:
    flags = get_args(NodeFlag)
    assert list(labels.flag_words(Graph(), Node(0, "ExpBackward0", flags=flags))) == list(flags)


def test_what_a_saved_tensor_is() -> None:
    assert labels.kind_text(SavedTensor("weight", FLOAT, 0, "parameter", "live")) == "parameter"
    assert labels.kind_text(SavedTensor("weight", FLOAT, 0, "parameter", "live", view=True)) == "view of parameter"
    assert labels.kind_text(SavedTensor("self", None, None, None, "freed")) == ""


@pytest.mark.parametrize("file", ["/home/me/train.py", r"C:\me\train.py", "train.py"])
def test_where_is_short(file: str) -> None:
    function = Function("Clamp", SourceLine(file, 12))
    assert labels.function_line(function) == "Clamp at train.py:12"


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    line = wording.one_line(text)
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in line)
    line.encode("utf-8")


@pytest.mark.parametrize("text", ["<lambda>", "a:b", "x\\", "</script>", '"', "{}|", "👩‍🔬", "שלום"])
def test_ordinary_text_stays(text: str) -> None:
    assert wording.one_line(text) == text


def test_marks_that_reorder_text_are_shown_not_obeyed() -> None:
    assert wording.one_line("a\u202eb\n") == r"a\u202eb\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x9bm", r"a\x9bm"),
        ("pass\u200bword", r"pass\u200bword"),
        ("\ufeffx\u2060", r"\ufeffx\u2060"),
        ("x\U000e0041", r"x\U000e0041"),
        ("x\U000e0100\u3164", r"x\U000e0100\u3164"),
        ("a\u200db", r"a\u200db"),
        ("\u200d", r"\u200d"),
        ("❤\ufe0f \u0646", "❤\ufe0f \u0646"),
    ],
)
def test_what_cannot_be_seen_is_shown(text: str, shown: str) -> None:
    assert wording.one_line(text) == shown


@given(st.text(st.characters(categories=("Cc", "Cf", "Lu", "So", "Mn"))))
def test_a_saved_graph_holds_nothing_hidden_and_reads_back(text: str) -> None:
    graph = Graph(title=text)
    written = "".join(dump(graph))
    assert visible(written, keep="\n") == written
    assert loads(written).title == text


@given(st.text(), st.integers(1, 80))
def test_clip_keeps_the_limit(text: str, limit: int) -> None:
    assert len(wording.clip(text, limit)) <= limit


@pytest.mark.parametrize(
    ("text", "around", "shown"),
    [
        ("net.fc.weight", "net", "fc.weight"),
        ("net.fc.weight = net.head.weight", "net", "fc.weight = head.weight"),
        ("net.layer.1 … net.layer.2 Block, 2 alike", "net", "layer.1 … layer.2 Block, 2 alike"),
        ("subnet.fc", "net", "subnet.fc"),
        ("a.net.fc", "net", "a.net.fc"),
        ("net", "net", "net"),
        ("agent.policy", "", "agent.policy"),
    ],
)
def test_names_inside_a_module(text: str, around: str, shown: str) -> None:
    assert labels.relative(text, around) == shown


@given(st.text("ab.,19 ", max_size=40), st.integers(1, 40))
def test_shortening_leaves_no_part_of_a_number(text: str, limit: int) -> None:
    short = shorten(text, limit)
    whole = set(re.findall(r"\d(?:[\d,.]*\d)?", text))
    assert set(re.findall(r"\d(?:[\d,.]*\d)?", short)) <= whole and len(short) <= max(limit, 1)


def test_a_frame_shortens_the_name_and_keeps_the_numbers() -> None:
    title = frame_title(
        "encoder.layers.0.a_very_long_name_of_a_module_in_a_module LongNameOfAClass, 109,483,778 parameters, (2, 3) float32"
    )
    path, name, *facts = title.lines
    assert facts == ["109,483,778 parameters", "(2, 3) float32"]
    assert (
        path == "…0.a_very_long_name_of_a_module_in_a_module" and name == "LongNameOfAClass" and len(path) <= FRAME_NAME
    )


@pytest.mark.parametrize(
    ("title", "lines"),
    [
        ("line 27", ("line 27",)),
        ("fc Linear, (8, 5) float32", ("fc Linear, (8, 5) float32",)),
        ("a_module_that_is_named_at_length Linear", ("a_module_that_is_named_at_length Linear",)),
        ("fc1 Sequential, 55 parameters, (8, 5) float32", ("fc1 Sequential", "55 parameters", "(8, 5) float32")),
        ("net Net, call 2, from train.py:7, () float32", ("net Net", "call 2, from train.py:7", "() float32")),
    ],
)
def test_a_long_title_of_a_frame_is_broken_between_its_facts(title: str, lines: tuple[str, ...]) -> None:
    assert frame_title(title).lines == lines
