"""Source lines without torch: a counter stands in for autograd, and `make()` for an operation of a library."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gradviz.capture.lines import UserCode, watcher
from gradviz.capture.steps import Steps
from gradviz.graph import SourceLine

_LIBRARY = """
import sys
def make():
    frame = sys._getframe(1)
    made.append((frame.f_lineno, frame.f_code.co_name))
def back(function):
    make()
    function()
    make()
"""


class Library:
    """Code that is not the user's, numbering what it makes and noting who called it, as an independent fact."""

    def __init__(self) -> None:
        self.made: list[tuple[int, str]] = []
        scope: dict[str, Any] = {"made": self.made}
        exec(compile(_LIBRARY, "/library/code.py", "exec"), scope)
        self.make: Callable[[], None] = scope["make"]
        self.back: Callable[[Callable[[], None]], None] = scope["back"]

    def check(self, steps: Steps[SourceLine]) -> None:
        """Every call must have been attributed to the line that made it."""
        noted = [steps.at(number) for number in range(len(self.made))]
        assert self.made
        assert [(line.line, line.function) if line else None for line in noted] == self.made


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def steps(library: Library) -> Iterator[Steps[SourceLine]]:
    """Watches while the test runs, then compares."""
    steps: Steps[SourceLine] = Steps(0)
    watching = watcher(UserCode(["/library"]), lambda: len(library.made), lambda: steps)
    before = sys.gettrace()
    frame: FrameType = sys._getframe()
    watching.start(frame)
    yield steps
    watching.stop(frame, True)
    assert sys.gettrace() is before
    library.check(steps)


def test_statements_and_calls(library: Library, steps: Steps[SourceLine]) -> None:
    make = library.make

    def inner() -> None:
        make()

    make(), inner(), make()
    (
        make(),
        inner(),
        make(),
    )
    make()


def test_comprehension_and_lambda(library: Library, steps: Steps[SourceLine]) -> None:
    make = library.make
    for _ in [make() for _ in range(2)]:
        make()
    sorted([2, 1], key=lambda value: (make(), value)[1])
    make()


def test_generator_is_resumed_in_the_middle_of_a_line(library: Library, steps: Steps[SourceLine]) -> None:
    make = library.make

    def generator() -> Iterator[int]:
        make()
        _ = (yield 1), make()
        try:
            yield 2
        except ValueError:
            make()
            yield 3

    running = generator()
    next(running), make()
    next(running), make()
    running.throw(ValueError), make()
    running.close()
    make()


def test_exception(library: Library, steps: Steps[SourceLine]) -> None:
    make = library.make

    def fail() -> None:
        make()
        raise KeyError

    try:
        fail()
    except KeyError:
        make()
    make()


def test_two_threads_have_logs_of_their_own(library: Library) -> None:
    logs = threading.local()
    found: dict[str, Steps[SourceLine]] = {}

    def mine() -> Steps[SourceLine]:
        if not hasattr(logs, "steps"):
            logs.steps = found[threading.current_thread().name] = Steps(len(library.made))
        return logs.steps  # type: ignore[no-any-return]

    def work() -> None:
        library.make()

    watching = watcher(UserCode(["/library"]), lambda: len(library.made), mine)
    watching.start(sys._getframe())
    thread = threading.Thread(target=work, name="other")
    thread.start()
    thread.join()
    watching.stop(sys._getframe(), True)
    line = found["other"].at(0)
    assert line is not None and (line.line, line.function) == library.made[0]
    assert threading.gettrace() is None


def test_a_trace_function_of_the_users_is_put_back(library: Library) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("sys.monitoring leaves trace functions alone")
    seen: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        seen.append(event)
        return trace

    frame, before = sys._getframe(), sys.gettrace()
    sys.settrace(trace)
    frame.f_trace = trace
    try:
        steps: Steps[SourceLine] = Steps(0)
        watching = watcher(UserCode(["/library"]), lambda: len(library.made), lambda: steps)
        watching.start(frame)
        library.make()
        del seen[:]
        watching.stop(frame, True)
        assert sys.gettrace() is trace
        assert frame.f_trace is trace
        library.make()
    finally:
        sys.settrace(before)
        frame.f_trace = None
    assert "line" in seen and "call" in seen


def test_who_is_the_user() -> None:
    user = UserCode(["/site-packages/torch"])
    assert user.holds("/home/me/train.py")
    assert user.holds("/site-packages/transformers/model.py")
    assert user.holds("<stdin>")
    assert not user.holds("/site-packages/torch/nn/linear.py")
    assert user.holds("/site-packages/torchvision/models/resnet.py")
    assert not user.holds("<frozen importlib._bootstrap>")
    assert not user.holds("<eval_with_key>.3")
    assert not user.holds(threading.__file__)
    assert user.holds(pytest.__file__)


def test_the_older_half_is_dropped() -> None:
    steps: Steps[int] = Steps(0, limit=4)
    for number in range(1, 6):
        steps.add(number, number)
    assert (steps.dropped, steps.at(1), steps.at(5)) == (2, None, 5)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_other_versions_of_python(version: str) -> None:
    """The same statements under `sys.monitoring`, which the Python that runs the tests may not have."""
    script = Path(__file__).with_name("lines_elsewhere.py")
    root = Path(__file__).parents[2]
    name = f"python{version}"
    try:
        run = subprocess.run([name, str(script), str(root)], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip(f"no {name} here")
    if "command not found" in run.stderr or run.returncode == 127:
        pytest.skip(f"no {name} here")
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["MonitoringWatcher", "17", "right"]
