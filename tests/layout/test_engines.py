"""Who places a drawing, and what the reader is told when it is not who was asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gradviz.errors import FormatError, LayoutError, LayoutTimeout
from gradviz.layout import (
    engines,
    graphviz,
    layered,
)
from tests.layout.drawings import (
    chain,
    check_boxes,
    check_frames,
    check_routes,
    drawing,
    random_dag,
)
from tests.layout.engines import ENGINES, wait_for

pytestmark = pytest.mark.slow


def complete(size):
    return drawing(size, [(i, j) for j in range(size) for i in range(j)])


def failing(error):
    def place(drawn, **_):
        raise error

    return place


@pytest.mark.parametrize("engine", ENGINES)
def test_auto_takes_dot_for_small_drawings(monkeypatch, engine):
    monkeypatch.setenv(graphviz.VARIABLE, engine)
    drawn = random_dag(1)
    assert drawn.frames
    placed = engines.place(replace(drawn, frames=(), frame_of=np.full(drawn.size, -1)))
    assert (placed.engine, placed.notes) == ("dot", ())


@pytest.mark.parametrize("engine", ENGINES)
def test_auto_does_not_let_a_long_stream_drift_to_the_side(monkeypatch, engine):
    monkeypatch.setenv(graphviz.VARIABLE, engine)
    steps = [
        [(i, i + 1), (i, i + 2), (i + 1, i + 2), *((i + 2 + k, i + 2) for k in (1, 2, 3))] for i in range(0, 120, 6)
    ]
    stream = [(6 * (i - 1) + 2, 6 * i) for i in range(1, len(steps))]
    drawn = drawing(120, [*(edge for step in steps for edge in step), *stream])
    forced, chosen = (engines.place(drawn, engine=one) for one in ("dot", "auto"))
    assert (forced.engine, chosen.engine, chosen.notes) == ("dot", "layered", ())
    assert forced.width > engines.WIDE and chosen.width < forced.width / 2


def test_auto_places_frames_with_layered(monkeypatch):
    monkeypatch.setattr(engines, "place_by_dot", failing(AssertionError("dot was started")))
    assert engines.place(random_dag(1)).engine == "layered"


@pytest.mark.parametrize("drawn", [chain(1300), complete(60), random_dag(0, 2000)], ids=["long", "dense", "random"])
def test_auto_never_starts_dot_for_what_is_large_for_it(monkeypatch, drawn):
    monkeypatch.setattr(engines, "place_by_dot", failing(AssertionError("dot was started")))
    placed = engines.place(drawn)
    assert (placed.engine, placed.notes) == ("layered", ())
    assert len(placed.x) == drawn.size


def test_layered_is_taken_when_asked_for(monkeypatch):
    monkeypatch.setattr(engines, "place_by_dot", failing(AssertionError("dot was started")))
    drawn = random_dag(2)
    placed = engines.place(drawn, engine="layered")
    assert (placed.engine, placed.notes) == ("layered", ())
    check_boxes(drawn, placed)
    check_routes(drawn, placed)
    check_frames(drawn, placed)


@pytest.mark.parametrize("engine", ENGINES)
def test_dot_that_runs_out_of_time_gives_way_and_says_so(monkeypatch, engine):
    monkeypatch.setenv(graphviz.VARIABLE, engine)
    drawn = complete(120)
    placed = engines.place(drawn, engine="dot", timeout=0.5)
    assert placed.notes == ("dot did not finish within 0.5 s, so the layered layout was used",)
    assert placed.engine == "layered"
    check_boxes(drawn, placed)


@pytest.mark.parametrize(("given", "limit"), [(20.0, engines.AUTO_LIMIT), (1.0, 1.0)])
def test_auto_waits_little(monkeypatch, given, limit):
    seen = []

    def place(drawn, *, timeout):
        seen.append(timeout)
        raise LayoutTimeout("late")

    monkeypatch.setattr(engines, "place_by_dot", place)
    (note,) = engines.place(chain(3), timeout=given).notes
    assert seen == [limit]
    assert note == f"dot did not finish within {limit:g} s, so the layered layout was used"


@pytest.mark.parametrize("engine", ["auto", "dot"])
def test_no_graphviz(monkeypatch, engine):
    monkeypatch.setenv(graphviz.VARIABLE, "none")
    placed = engines.place(chain(3), engine=engine)
    assert placed.engine == "layered"
    assert placed.notes == ("GRADVIZ_GRAPHVIZ=none forbids Graphviz, so the layered layout was used",)


def test_a_failure_of_dot_is_told_in_its_own_words(monkeypatch):
    monkeypatch.setattr(engines, "place_by_dot", failing(LayoutError("Graphviz dot failed: lost edge.\nmore")))
    placed = engines.place(chain(3), engine="dot")
    assert placed.notes == ("Graphviz dot failed: lost edge, so the layered layout was used",)


def test_when_nobody_can_both_reasons_are_given(monkeypatch):
    monkeypatch.setenv(graphviz.VARIABLE, "none")
    monkeypatch.setattr(layered, "place", failing(ValueError("no room")))
    with pytest.raises(LayoutError, match=r"forbids Graphviz, and the layered layout failed: no room"):
        engines.place(chain(3))


def test_errors_that_are_not_about_layout_are_not_swallowed(monkeypatch):
    for error in (KeyboardInterrupt(), MemoryError()):
        monkeypatch.setattr(engines, "place_by_dot", failing(error))
        with pytest.raises(type(error)):
            engines.place(chain(3))


def test_an_unknown_engine_is_refused():
    with pytest.raises(FormatError, match="Did you mean layered"):
        engines.place(chain(2), engine="layerd")


@pytest.mark.parametrize(
    ("drawn", "boxes", "edges", "passages"),
    [
        (chain(4), 4, 3, 0),
        (drawing(4, [(0, 1), (1, 2), (2, 3), (0, 3)]), 4, 4, 2),
        (drawing(3, [(0, 1), (0, 1), (2, 2)]), 3, 3, 0),
        (drawing(5, [(0, 1), (1, 2), (2, 3), (4, 3)]), 5, 4, 0),  # the second root stands just above its box
        (drawing(3, [(0, 1), (1, 2), (2, 0)]), 3, 3, 0),  # a cycle ends, too
        (drawing(0, []), 0, 0, 0),
    ],
)
def test_the_size_for_dot(drawn, boxes, edges, passages):
    expected = engines.BOX * boxes + engines.EDGE * edges + engines.PASSAGE * passages
    assert engines.size_for_dot(drawn) == expected


def test_a_million_boxes_are_refused_at_sight():
    size = 1_000_000
    edges = np.stack([np.arange(size - 1), np.arange(1, size)], axis=1)
    assert engines.size_for_dot(drawing(size, edges)) == float("inf")


@pytest.mark.skipif(sys.platform == "win32", reason="signals and ps")
@pytest.mark.parametrize("engine", ENGINES)
def test_control_c_is_passed_on(engine):
    script = (
        "import os\n"
        "from gradviz.layout import engines, graphviz, layered\n"
        "layered.place = None\n"  # interrupting that one would prove nothing
        "from tests.layout.test_engines import complete\n"
        "started = graphviz._output\n"
        "def finish(command, *rest):\n"
        "    command.append('-Gcomment=' + str(os.getpid()) + 'x')\n"
        "    return started(command, *rest)\n"
        "graphviz._output = finish\n"
        "print(engines.place(complete(300), engine='dot').engine)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), graphviz.VARIABLE: engine}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    with process:
        marker = f"-Gcomment={process.pid}x"
        assert wait_for(marker, present=True)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=20)
    assert stdout == "" and stderr.rstrip().endswith("KeyboardInterrupt")
    assert wait_for(marker, present=False, seconds=2)
