"""Lines are noted only while no other thread can make nodes: so no thread ever waits for another one because of a recording."""

from __future__ import annotations

import _thread
import asyncio
import inspect
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
import torch

import gradviz
from gradviz.graph import Graph
from gradviz.recording.other_threads import OtherThreads
from gradviz.walker.private import peek_sequence

OPERATIONS = Path(__file__).parents[1] / "attack" / "thread_operations.py"


def watched() -> bool:
    """Whether torch tells of nodes now."""
    return torch._C.is_anomaly_enabled()


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds within a few seconds: a thread has ended a moment after it is joined."""
    for _ in range(500):
        if holds():
            return True
        time.sleep(0.01)
    return False


def lines(graph: Graph) -> list[str]:
    return [node.source.text if node.source else "" for node in graph.nodes if node.sequence is not None]


# -- off before a thread runs, on when it has ended --------------------------------------------------------------------


def by_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def by_executor(work: Callable[[], object]) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(work).result()


def by_asyncio(work: Callable[[], object]) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)

    around = asyncio._get_running_loop()  # that of a browser, where its tests ran before in this process
    asyncio._set_running_loop(None)
    try:
        asyncio.run(main())
    finally:
        asyncio._set_running_loop(around)


def by_number(work: Callable[[], object]) -> None:
    done = threading.Event()
    _thread.start_new_thread(lambda: (work(), done.set()), ())
    done.wait(10)


@pytest.mark.parametrize("begin", [by_thread, by_executor, by_asyncio, by_number])
def test_off_while_it_runs(begin: Callable[[Callable[[], object]], None]) -> None:
    seen: list[bool] = []
    with gradviz.record():
        assert watched()
        begin(lambda: seen.append(watched()))
        assert seen == [False]
        assert soon(watched)
    assert not watched()


def test_a_thread_that_outlives_the_recording_switches_nothing_on() -> None:
    stay = threading.Event()
    with gradviz.record():
        thread = threading.Thread(target=stay.wait)
        thread.start()
    stay.set()
    thread.join()
    time.sleep(0.05)
    assert not watched()


def test_a_thread_that_cannot_begin_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, name, fail)
    with gradviz.record():
        with pytest.raises(RuntimeError, match="can't start"):
            threading.Thread(target=print).start()
        assert watched()


# -- threads that were there before ------------------------------------------------------------------------------------


@contextmanager
def running() -> Iterator[None]:
    """A thread in the middle of a function of the user's."""
    go_on = threading.Event()

    def users() -> None:
        go_on.wait(10)

    thread = threading.Thread(target=users, name="older")
    thread.start()
    try:
        yield
    finally:
        go_on.set()
        thread.join()


def test_off_from_the_start_beside_an_older_thread_and_said() -> None:
    x = torch.ones(2, requires_grad=True)
    with running(), gradviz.record() as recording:
        assert not watched()
        y = x.exp()
    graph = recording.graph(y)
    assert lines(graph) == [""]
    assert graph.notes[-1:] == (
        "1 operation has no source line: another thread (older) ran part of the time, and lines are recorded only while no "
        "other thread can build a graph, because the two could wait for each other forever",
    )


def test_on_again_after_an_older_thread_has_ended() -> None:
    x = torch.ones(2, requires_grad=True)
    with ExitStack() as stack:
        with running():
            recording = stack.enter_context(gradviz.record())
        x.sum().backward()  # type: ignore[no-untyped-call]
        y = x.exp()  # seen
    assert lines(recording.graph(y)) == ["y = x.exp()  # seen"]


def test_a_worker_of_an_executor_counts_while_it_runs_code_of_the_users() -> None:
    begun, go_on = threading.Event(), threading.Event()
    compiles = written_in("torch._inductor.compile_worker")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with gradviz.record():
            assert watched()
            pool.submit(compiles).result()
            assert watched()
            assert pool.submit(watched).result() is False
            pool.submit(lambda: (begun.set(), go_on.wait(10)))
            begun.wait(10)
            assert not watched()
            go_on.set()
            assert soon(watched)


def test_an_idle_worker_of_a_pool_whose_work_nobody_sees_counts() -> None:
    with ThreadPool(1) as pool:
        pool.apply(int)
        with gradviz.record():
            assert not watched()


def test_what_an_older_worker_makes_never_gets_the_line_of_another() -> None:
    x, made = torch.ones(1, requires_grad=True), []
    own = peek_sequence()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [x.exp() for _ in range(own + 30)]).result()
        with gradviz.record() as recording:
            for _ in range(60):
                made.append(x.sin())
            pool.submit(lambda: made.append(x.cos())).result()
            for _ in range(60):
                made.append(x.tan())
        found = {node.op: node.source.text if node.source else None for node in recording.graph(made[60:62]).nodes}
    assert found["CosBackward0"] is None
    assert found["TanBackward0"] == "made.append(x.tan())"


def test_an_older_thread_of_a_library_does_not_count() -> None:
    stay = threading.Event()
    thread = threading.Thread(target=stay.wait)  # no code of the user's
    thread.start()
    with gradviz.record():
        assert watched()
    stay.set()
    thread.join()


# -- what a thread shares with the others ------------------------------------------------------------------------------


def test_module_calls_are_seen_and_lines_are_not() -> None:
    net, made = torch.nn.Linear(2, 2), []
    with gradviz.record() as recording:
        by_thread(lambda: made.append(net(torch.ones(1, 2))))
    graph = recording.graph(made[0], model=net)
    (linear,) = [node for node in graph.nodes if node.op == "AddmmBackward0"]
    assert linear.source is None and linear.scope is not None
    assert "another thread (Thread-" in graph.notes[-1]


def test_a_running_thread_takes_nothing_from_modules_of_this_one() -> None:
    net = torch.nn.Linear(2, 2)
    stay = threading.Event()
    with gradviz.record() as recording:
        thread = threading.Thread(target=stay.wait)
        thread.start()
        y = net(torch.ones(1, 2))
        graph = recording.graph(y, model=net)
        stay.set()
        thread.join()
    assert [node.scope is not None for node in graph.nodes if node.op == "AddmmBackward0"] == [True]


def test_a_number_that_a_running_thread_may_have_given_out_has_no_place() -> None:
    """It calls no module, so nobody saw how many nodes it made."""
    x, made = torch.ones(2, requires_grad=True), []
    stay, ready = threading.Event(), threading.Event()

    def work() -> None:
        made.append(x.tan())
        ready.set()
        stay.wait(10)

    with gradviz.record() as recording:
        for _ in range(100):
            x.exp()  # line of the first 100 numbers
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait(10)
        assert lines(recording.graph(made)) == [""]
        stay.set()
        thread.join()
    assert soon(lambda: not recording._session.others)  # type: ignore[union-attr]
    assert lines(recording.graph(made)) == [""]


# -- nothing of it is to be seen ---------------------------------------------------------------------------------------


def test_what_begins_threads_looks_as_before() -> None:
    def look() -> list[object]:
        begin = _thread.start_new_thread
        try:
            signature: object = str(inspect.signature(begin))
        except ValueError as error:
            signature = str(error).partition("<")[0]
        pickled = pickle.loads(pickle.dumps(begin)) is begin
        return [begin.__module__, begin.__name__, begin.__qualname__, begin.__doc__, signature, pickled]

    plain = look()
    with gradviz.record():
        assert look() == plain


def test_no_frame_of_ours_is_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[str] = []
    failed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)

    def fail() -> None:
        raise ValueError

    with gradviz.record():
        by_thread(lambda: files.extend(frame.filename for frame in traceback.extract_stack()))
        _thread.start_new_thread(fail, ())
        assert soon(lambda: bool(failed))
    assert files and not any("gradviz" in Path(file).parts[-3:] for file in files)
    assert repr(fail) in f"{failed[0].err_msg} {failed[0].object!r}"  # from Python 3.13 on in the message
    assert [frame.name for frame in traceback.extract_tb(failed[0].exc_traceback)] == ["fail"]


# -- threads that make no nodes ----------------------------------------------------------------------------------------


def written_in(module: str) -> Callable[[], None]:
    def work() -> None:
        pass

    work.__module__ = module
    return work


@pytest.mark.parametrize(
    ("module", "on"),
    [
        ("tqdm._monitor", True),
        ("torch.utils.data._utils.pin_memory", True),
        ("tensorboard.summary.writer.event_file_writer", True),
        ("ipykernel.iostream", True),
        ("ipykernel.subshell", False),  # it runs cells
        ("tqdm_of_mine", False),
        ("torch.nn.parallel.parallel_apply", False),
        ("__main__", False),
    ],
)
def test_whose_thread_it_is(module: str, on: bool) -> None:
    others = OtherThreads(lambda: None, lambda: None)
    others.start()
    try:
        stay = threading.Event()
        work = written_in(module)
        thread = threading.Thread(target=work)
        thread.run = lambda: stay.wait(10)  # type: ignore[method-assign, assignment, return-value]
        thread.run.__module__ = module  # type: ignore[attr-defined]
        thread.start()
        assert bool(others._begun) != on
        stay.set()
        thread.join()
    finally:
        others.stop()


def all_lines(run: Callable[[], object]) -> bool:
    """Whether lines are noted before, after and while `run` runs."""
    x, on = torch.ones(2, requires_grad=True), []
    with gradviz.record() as recording:
        before = x.exp()
        run()
        on.append(watched())
        after = x.sin()
    return on == [True] and all(lines(recording.graph([before, after])))


def test_tqdm_keeps_all_lines() -> None:
    tqdm = pytest.importorskip("tqdm")

    def run() -> None:
        for _ in tqdm.tqdm(range(3), file=open("/dev/null", "w")):  # noqa: SIM115
            assert watched()
        assert tqdm.tqdm.monitor is None or tqdm.tqdm.monitor.is_alive()

    assert all_lines(run)


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> int:
        return number


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_loader_keeps_all_lines() -> None:
    def run() -> None:
        loader = torch.utils.data.DataLoader(Numbers(), num_workers=2)
        assert [int(batch) for batch in loader if watched()] == [0, 1, 2, 3]

    assert all_lines(run)


# -- nobody waits for ever ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        *(
            pytest.param(names, marks=pytest.mark.long)
            for names in (
                ["multiply", "collect"],
                ["function", "index"],
                ["layer", "layer index"],
                ["gradient", "index"],
            )
        ),
        ["multiply", "index"],
        [],
    ],
    ids=lambda names: " and ".join(names) or "all at once",
)
def test_threads_at_one_leaf_never_wait_for_ever(names: list[str]) -> None:
    run = subprocess.run([sys.executable, OPERATIONS, *names], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0 and " operations of " in run.stdout, run.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that send a signal")
def test_a_signal_handler_at_the_leaf_never_waits_for_its_own_thread() -> None:
    script = """
import faulthandler, signal, time, torch, gradviz
faulthandler.dump_traceback_later(60, exit=True)
w = torch.ones(4, requires_grad=True)
held, calls = torch._C.ScriptList([w]), []
signal.signal(signal.SIGALRM, lambda *arguments: calls.append(w[0]) if len(calls) < 10_000 else None)
signal.setitimer(signal.ITIMER_REAL, 2e-3, 2e-3)
with gradviz.record():
    until = time.monotonic() + 3
    while time.monotonic() < until:
        w * 2
        calls.clear()
signal.setitimer(signal.ITIMER_REAL, 0)
print("end")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert run.stdout == "end\n", run.stderr
