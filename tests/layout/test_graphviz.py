"""Starting Graphviz: both engines give the same kinds of output, and no child outlives the call."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid

import pytest

from gradviz.errors import FormatError, GraphvizNotFound, LayoutError, LayoutTimeout
from gradviz.layout import graphviz
from tests.layout.engines import ENGINES, endless, running, wait_for

pytestmark = pytest.mark.slow

UNIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and ps")
TEXT = "héllo 😀 日本 <lambda> עברית"
LABELS = f'digraph {{ a [label="{TEXT}"]; a -> b; subgraph cluster_0 {{ label="frame"; b }} }}'


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setenv(graphviz.VARIABLE, request.param)
    return request.param


@pytest.mark.parametrize(
    ("format", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF-"), ("json", b"{")]
)
def test_every_format_of_both_engines(engine, format, start):
    assert graphviz.run(LABELS, format=format).startswith(start)


def test_text_of_any_script_arrives_whole(engine):
    drawn = json.loads(graphviz.run(LABELS, format="json"))
    labels = {item["name"]: item["label"] for item in drawn["objects"]}
    assert labels == {"cluster_0": "frame", "a": TEXT, "b": "\\N"}


def test_large_input_and_output_pass(engine):
    label = "x" * 1000
    source = "digraph {" + "".join(f'n{i} [label="{label}{i}"];' for i in range(2000)) + "}"
    drawn = graphviz.run(source, program="osage", format="svg")
    assert len(source) > 2_000_000 and len(drawn) > 2_000_000
    assert drawn.count(label.encode()) == 2000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"source": "digraph { a -> "}, "syntax error in line 1"),
        ({"source": "graph {}", "format": "bogus"}, '"bogus" not recognized'),
    ],
)
def test_failures_carry_the_words_of_graphviz(engine, call, words):
    with pytest.raises(LayoutError, match=re.escape(words)) as caught:
        graphviz.run(**call)
    assert "Traceback" not in str(caught.value) and "Fontconfig" not in str(caught.value)


def test_the_version_is_a_number(engine):
    assert graphviz.which() == engine
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", graphviz.version())


@UNIX
def test_a_time_out_ends_the_child(engine):
    marker = uuid.uuid4().hex
    with pytest.raises(LayoutTimeout, match=r"did not finish within 0\.5 s"):
        graphviz.run(endless(), environment={"CHILD": marker}, timeout=0.5)
    assert running(marker) == []


def start_endless(marker: str) -> subprocess.Popen[str]:
    """A Python process that is inside `run`. Only the child that draws has CHILD in its environment."""
    script = (
        "import os\n"
        "from gradviz.layout import graphviz\n"
        "from tests.layout.engines import endless\n"
        "graphviz.run(endless(), environment={'CHILD': os.environ['MARKER']}, timeout=60)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MARKER": marker}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env=environment)
    if not wait_for(marker, present=True):
        process.kill()
        pytest.fail(f"no child appeared: {process.communicate()[1]}")
    return process


@UNIX
def test_control_c_passes_on_and_ends_the_child(engine):
    marker = uuid.uuid4().hex
    with start_endless(marker) as process:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert running(marker) == []


def test_nothing_of_the_users_can_hide_a_module(engine, tmp_path, monkeypatch):
    for name in ("signal", "os", "re", "pygraphviz", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert graphviz.run("digraph { a }", format="plain").startswith(b"graph")


def test_none_forbids_graphviz(monkeypatch):
    monkeypatch.setenv(graphviz.VARIABLE, "none")
    assert graphviz.which() is None
    with pytest.raises(GraphvizNotFound, match="Unset GRADVIZ_GRAPHVIZ, or write an SVG"):
        graphviz.run("graph {}")
    with pytest.raises(GraphvizNotFound):
        graphviz.version()


def test_without_any_graphviz_the_message_says_what_to_do(monkeypatch):
    monkeypatch.delenv(graphviz.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(graphviz, "find_spec", lambda name: None)
    with pytest.raises(GraphvizNotFound, match="pip install pygraphviz"):
        graphviz.run("graph {}")


@pytest.mark.parametrize("forced", ["Bundled", "yes"])
def test_an_unknown_choice_is_refused(monkeypatch, forced):
    monkeypatch.setenv(graphviz.VARIABLE, forced)
    with pytest.raises(FormatError, match="bundled"):
        graphviz.which()


@UNIX
@pytest.mark.parametrize("broken", ["#!/bin/sh\necho no layout engine support >&2\nexit 1\n", "#!/no/such/file\n"])
def test_the_bundled_engine_steps_in_for_a_broken_dot(monkeypatch, tmp_path, broken):
    pytest.importorskip("pygraphviz")
    program = tmp_path / "dot"
    program.write_text(broken)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(graphviz.VARIABLE, raising=False)
    assert graphviz.which() == "system"
    assert graphviz.run("digraph { a }", format="plain").startswith(b"graph")
    monkeypatch.setenv(graphviz.VARIABLE, "system")
    with pytest.raises(LayoutError, match=r"no layout engine support|No such file"):
        graphviz.run("digraph { a }")
