"""Writing files: all or nothing, and a refusal says what to do."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options, option_fields
from gradviz.draw.output import FORMATS, encode, render, write
from gradviz.errors import FormatError, OutputError
from gradviz.graph import Edge, Graph, Node, Scope
from tests.builders import chain
from tests.drawn import scene


def breaks(error: BaseException) -> Iterator[bytes]:
    yield b"half"
    raise error


def test_a_file_is_written_and_nothing_else_stays(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", [b"one", b"two"])
    assert (tmp_path / "a.txt").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug"), OSError("from a renderer")])
def test_an_error_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(type(error)) as caught:
        write(tmp_path / "a.txt", breaks(error), force=True)
    assert caught.value is error  # also an OSError of a renderer's own is not called a refusal to write
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no folder .*nowhere.*Create it"):
        write(tmp_path / "nowhere" / "a.txt", [b""])


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"it is a folder.*graph\.svg"):
        write(tmp_path, [b""])


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX rights")
def test_rights_are_those_of_the_old_file_or_of_any_new_one(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write(tmp_path / "new", [b""])
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    write(tmp_path / "new", [b"x"])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", [b"new"], force=True)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_a_full_disk_says_so_and_a_device_is_not_replaced() -> None:
    with pytest.raises(OutputError, match="disk is full"):
        write("/dev/full", [b"x"])
    write(os.devnull, [b"x"])
    assert not os.path.isfile(os.devnull)


def test_half_a_surrogate_pair_can_be_written() -> None:
    assert encode("a\udc80é") == b"a\\udc80\xc3\xa9"


def test_a_graph_that_was_folded_is_drawn_as_it_is() -> None:
    """A small graph is drawn whole by default, but not when the caller has folded it."""
    scopes = (Scope("net", "Net", 1, None),)
    nodes = tuple(Node(i, f"Op{i}", sequence=9 - i, scope=0) for i in range(3))
    graph = Graph(nodes, (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0)), scopes=scopes)
    assert "Op1" in str(render(graph, "dot"))
    folded = graph.fold(depth=1)
    assert "net Net" in str(render(folded, "dot")) and "Op1" not in str(render(folded, "dot"))
    assert "Op1" in str(render(folded, "dot", Options(depth="all")))  # asked for


def test_save_replaces_what_gradviz_wrote_and_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(nodes=(Node(0, "AddBackward0"),))
    for name in ("imported.py", "other.py", "figure.svg"):
        (tmp_path / name).write_text("MINE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("imported")
    for options in ({}, {"force": True}):
        with pytest.raises(OutputError, match="this program runs it"):
            graph.save(str(tmp_path / "imported.py"), format="svg", **options)
    for name in ("other.py", "figure.svg"):
        with pytest.raises(OutputError, match=r"in Python force=True"):
            graph.save(str(tmp_path / name), format="svg")
        graph.save(str(tmp_path / name), format="svg", force=True)
    graph.save(str(tmp_path / "figure.svg"))
    assert (tmp_path / "imported.py").read_text() == "MINE = 1\n"


def test_a_title_of_ones_own_and_a_bare_picture() -> None:
    graph = replace(chain(3), title="net.py: loss.backward()")
    for name in ("svg", "dot", "md"):
        titled = str(render(graph, name, Options(title="Figure 1 & 2")))
        assert "Figure 1" in titled and "net.py" not in titled
    folded = graph.fold()
    assert "Figure 1" in str(render(folded, "dot", Options(title="Figure 1")))
    full = scene(graph, Options(color="memory"))
    bare = scene(graph, Options(color="memory", bare=True))
    assert full.title and full.legend and full.footer
    assert (bare.title, bare.legend, bare.footer, bare.dtype) == ("", (), (), "")
    assert bare.boxes == full.boxes and bare.links == full.links
    colors = re.findall("classDef .*", str(render(graph, "md")))
    assert colors and re.findall("classDef .*", str(render(graph, "md", Options(bare=True)))) == colors


ASKED: dict[str, Any] = {
    "direction": "down",
    "names": "backward",
    "depth": 1,
    "focus": "net.0",
    "expand": ("net.0",),
    "views": "show",
    "leaves": "hidden",
    "title": "Figure 1",
    "bare": True,
    "scale": 3.0,
    "theme": "dark",
    "links": "vscode",
    "color": "memory",
    "by": "node",
    "max_rows": 3,
    "columns": ("output",),
    "saved": True,
    "details": True,
}


@pytest.fixture(scope="module")
def layers() -> Graph:
    """Blocks enough for a picture to merge views."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh()) for _ in range(6)))
    with gradviz.record() as recording:
        loss = (net(torch.ones(2, 4)).t().exp() * 2).view(4, 2).mean()
        return recording.graph(loss)


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("png", "pdf")])
def test_an_option_changes_a_format_or_is_refused(format: str, layers: Graph) -> None:
    assert {*ASKED} == {item.name for item in option_fields()}
    for name, value in ASKED.items():
        if name == "color" and format in ("json", "graphml"):
            continue  # tests/cli/test_gradients.py: gradients that a command measures for it stand in the file
        if format == "json" and name not in FORMATS[format].options:
            assert render(layers, format, Options(**{name: value})) == render(layers, format), name
            continue
        if name not in FORMATS[format].options:
            with pytest.raises(FormatError, match=f"{name} changes nothing in {format}, only in "):
                render(layers, format, Options(**{name: value}))
            continue
        beside: dict[str, Any] = {"expand": {"depth": 1}}.get(name, {})
        if format == "txt" and name in ("names", "leaves", "saved"):
            beside = {"by": "node"}
        before = render(layers, format, Options(**beside))
        assert render(layers, format, Options(**beside | {name: value})) != before, name


def test_what_is_painted_follows_the_options_of_an_svg() -> None:
    assert FORMATS["pdf"].options == FORMATS["svg"].options == FORMATS["png"].options - {"scale"}
