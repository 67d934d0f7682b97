"""A graph that was walked can be deleted, however deep it is, and nothing lives longer than it would have."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

import gradviz
from gradviz.armour.keepers import BAND, KEY, SMALL, _Keeper, _Queue
from gradviz.walker.private import HAS_RAW_DATA, LAST, wrappers_are_preserved
from gradviz.walker.walk import traverse
from tests.armour.deletion_cases import CASES, IN_MAIN_THREAD
from tests.forks import Done, Forks
from tests.rows import every_other
from tests.walker.graphs import chain, leaf

pytestmark = pytest.mark.slow

_SCRIPT = Path(__file__).with_name("deletion_cases.py")
_CONTROL = "unprotected"


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a case in a process of its own."""
    folder = tmp_path_factory.mktemp("runs")
    with Forks("gradviz.api", freed=True) as forks:
        yield lambda *arguments: forks.run(folder, _SCRIPT, *arguments)


@pytest.mark.parametrize("case", every_other([name for name in (*CASES, *IN_MAIN_THREAD) if name != _CONTROL]))
def test_the_process_survives(case: str, run: Run) -> None:
    if case == "views_written_in_place" and not wrappers_are_preserved():
        pytest.skip("an older torch crashes here by itself, also when nobody walked the graph")
    done = run(case)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


@pytest.mark.skipif(not wrappers_are_preserved(), reason="this torch lets go of wrappers, so nothing crashes")
def test_without_keepers_the_process_dies(run: Run) -> None:
    assert run(_CONTROL).returncode not in (0, 1)  # 1 would be an ordinary exception


class _Numbered:
    """A node of which only the number and the child are known."""

    def __init__(self, number: int, child: _Numbered | None = None) -> None:
        self.number, self.metadata = number, dict[str, object]()
        self.next_functions = ((child, 0),) if child is not None else ()

    def _sequence_nr(self) -> int:
        return self.number


def _kept(numbers: Sequence[int]) -> list[bool]:
    """Which steps of a path through nodes with these numbers have a keeper, in a graph that is too large to go without."""
    path = [_Numbered(numbers[-1])]
    for number in reversed(numbers[:-1]):
        path.append(_Numbered(number, path[-1]))
    traverse([*reversed(path), *(_Numbered(0) for _ in range(SMALL))])
    return [KEY in node.metadata for node in reversed(path[1:])]


@pytest.mark.skipif(not wrappers_are_preserved(), reason="this torch needs no keepers")
def test_what_must_be_kept() -> None:
    assert not any(_kept([BAND + 5, BAND + 4]))  # inside one band, downwards
    assert all(_kept([BAND, BAND - 1]))  # across bands
    assert all(_kept([5, 5]) + _kept([5, 6]))  # upwards: a view's regenerated grad_fn, or another thread's node
    assert not any(_kept([5, LAST]))  # AccumulateGrad has no children


@pytest.mark.skipif(not wrappers_are_preserved(), reason="this torch needs no keepers")
def test_a_path_without_keepers_is_short() -> None:
    """Whatever the numbers are, on any path at most BAND steps in a row go without a keeper."""
    random.seed(0)
    for _ in range(50):
        numbers = [random.randrange(400) for _ in range(2_000)]
        for i in range(1, len(numbers)):  # mostly downwards, as autograd numbers nodes
            if random.random() < 0.9:
                numbers[i] = max(0, numbers[i - 1] - random.randrange(1, 4))
        longest = steps = 0
        for kept in _kept(numbers):
            steps = 0 if kept else steps + 1
            longest = max(longest, steps)
        assert 0 < longest <= BAND


def _keepers_after_walking(y: torch.Tensor) -> int:
    gradviz.walk(y)
    nodes = [y.grad_fn]
    seen = set(nodes)
    for node in nodes:
        assert node is not None
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    return sum(KEY in node.metadata for node in nodes if node is not None)


@pytest.mark.skipif(not wrappers_are_preserved(), reason="this torch needs no keepers")
def test_small_graphs_pay_nothing_and_deep_ones_little() -> None:
    assert _keepers_after_walking(chain(SMALL - 1)) == 0
    assert 49 <= _keepers_after_walking(chain(50 * BAND)) <= 51


@pytest.mark.skipif(not HAS_RAW_DATA, reason="this torch does not show what is saved")
def test_nothing_lives_longer_than_it_would_have() -> None:
    """The intermediate results that die with each deletion are the same with and without a walk."""

    def deaths(look: bool) -> list[frozenset[int]]:
        random.seed(4)
        held = [leaf()]
        dead: set[int] = set()
        for i in range(300):
            y = torch.tanh(random.choice(held[-40:]) + random.choice(held[-40:]))
            held.append(y)
            node = y.grad_fn
            assert node is not None
            saved = node._raw_saved_result.data  # type: ignore[attr-defined]
            weakref.finalize(saved.untyped_storage(), dead.add, i)
            del node, saved, y
        if look:
            gradviz.walk(held[-20:])
        seen = []
        while held:
            held.pop(random.randrange(len(held)))
            seen.append(frozenset(dead))
        return seen

    assert deaths(True) == deaths(False)
    assert len(deaths(True)[-1]) == 300


class _Interrupted(list[list[object]]):
    """A queue during whose first emptying Ctrl-C comes."""

    times = 0

    def pop(self, *arguments: object) -> list[object]:
        self.times += 1
        if self.times == 1:
            raise KeyboardInterrupt
        return super().pop()


def test_an_interrupt_of_deleting_comes_after_it() -> None:
    queue = _Queue()
    queue.waiting = _Interrupted()
    with pytest.raises(KeyboardInterrupt):
        _Keeper([leaf().grad_fn]).__del__(queue)
        assert (len(queue.waiting), queue.waiting.times, queue.draining) == (0, 2, False)
        for _ in range(200):
            time.sleep(0.01)
    _Keeper.__new__(_Keeper).__del__()  # interrupted while it was made: nothing to delete
