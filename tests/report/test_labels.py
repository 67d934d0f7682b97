"""Wording: one table per kind of text."""

from __future__ import annotations

import re
import unicodedata
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from gradviz import wording
from gradviz.draw.typesetting import FRAME_NAME, frame_titles, shorten
from gradviz.graph import Edge, Graph, Node, NodeFlag, Root, Scope, TensorInfo
from gradviz.graph.files import dump, loads
from gradviz.report import labels
from gradviz.wording import visible

FLOAT = TensorInfo((3, 4), "float32", "cpu")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(None, "? B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1024**2 - 1, "1.0 MiB"), (2000 * 1024**5, "2,000.0 PiB")],
)
def test_bytes(nbytes: int | None, text: str) -> None:
    assert wording.bytes_text(nbytes) == text


def test_several_outputs_are_counted_not_listed_without_end() -> None:
    other = TensorInfo((2,), "float32", "cpu")
    assert labels.outputs_line(()) == ""
    assert labels.outputs_line((FLOAT, None)) == "(3, 4) float32, unknown tensor"
    assert labels.outputs_line((FLOAT,) * 12) == "12 × (3, 4) float32"
    assert labels.outputs_line((other, *(FLOAT,) * 9)).endswith(", +7 more")


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
        (1, "forward", ("squeeze", "")),
        (1, "backward", ("SqueezeBackward1", "")),
    ],
)
def test_what_an_op_is_called(node: int, names: labels.OpNames, title: tuple[str, str]) -> None:
    assert labels.op_title(TITLED, TITLED.nodes[node], names=names) == title


def test_inside_its_frame_an_op_is_not_called_by_the_module() -> None:
    assert labels.op_title(TITLED, TITLED.nodes[2], "model.blocks.0", names="variable") == ("matmul", "")
    assert labels.op_title(TITLED, TITLED.nodes[4], "model", names="variable") == ("memory", "[1:5]")


def test_every_flag_has_words() -> None:
    flags = get_args(NodeFlag)
    assert list(labels.flag_words(Node(0, "ExpBackward0", flags=flags))) == list(flags)


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
        ("x\U000e0100\u3164", r"x\U000e0100\u3164"),
        ("a\u200db", r"a\u200db"),
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
        ("a.net.fc", "net", "a.net.fc"),
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
    text = "encoder.layers.0.a_very_long_name_of_a_module_in_a_module LongNameOfAClass, 109,483,778 parameters, (2, 3) float32"
    whole, title, name = frame_titles(text)
    assert whole == text and title == f"{name}, 109,483,778 parameters, (2, 3) float32"
    assert name.startswith("…") and len(name) <= FRAME_NAME
