"""A disk that fills up at any byte, folders that vanish, names that cannot be: an OutputError, and no part of a file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from gradviz.errors import OutputError
from tests.attack.budget import SEED, report
from tests.builders import everything, random_dag

pytestmark = pytest.mark.slow

resource = pytest.importorskip("resource")
FORMATS = ("svg", "dot", "txt", "md", "json", "png")


@contextmanager
def _disk_of(nbytes: int) -> Iterator[None]:
    """Inside, writing to a file fails when it has so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    random, count = Random(SEED), 0
    for suffix in FORMATS:
        graph, path = random_dag(random.randrange(99), 15), tmp_path / f"graph.{suffix}"
        size = os.path.getsize(graph.save(str(path)))
        path.write_text("old")
        for nbytes in (0, 1, size - 1, *(random.randrange(size) for _ in range(2))):
            with _disk_of(nbytes), pytest.raises(OutputError) as caught:
                graph.save(str(path))
            assert "\n" not in str(caught.value)
            assert [one.name for one in tmp_path.iterdir()] == [path.name], f"{suffix} at {nbytes} of {size} bytes"
            assert path.read_text() == "old"
            count += 1
        path.unlink()
    report(request, "full disks", count)


def _folder(place: Path) -> Path:
    (place / "graph.svg").mkdir()
    return place / "graph.svg"


def _below_a_file(place: Path) -> Path:
    (place / "file").write_text("")
    return place / "file" / "graph.svg"


def _vanished(place: Path) -> Path:
    (place / "gone").mkdir()
    (place / "gone").rmdir()
    return place / "gone" / "graph.svg"


def _loop(place: Path) -> Path:
    (place / "a").symlink_to(place / "b")
    (place / "b").symlink_to(place / "a")
    return place / "a" / "graph.svg"


@pytest.mark.parametrize(
    "make",
    [
        _folder,
        _below_a_file,
        _vanished,
        _loop,
        lambda place: place / ("n" * 300 + ".svg"),
        lambda place: Path("/dev/full/graph.svg"),
        lambda place: Path("/proc/graph.svg"),
    ],
)
def test_a_place_where_nothing_can_be_written(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    before = sorted(one.name for one in tmp_path.iterdir())
    with pytest.raises(OutputError) as caught:
        everything().save(str(path))
    assert "\n" not in str(caught.value)
    assert sorted(one.name for one in tmp_path.iterdir()) == before
