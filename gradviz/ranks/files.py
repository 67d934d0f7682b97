"""Merges graph files of several ranks, one at a time, so that there may be many. Knows nothing of torch.

A file that says the same as one before, but for the title, the process and the numbers of devices, is not even parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from gradviz.errors import GraphFileError
from gradviz.graph import Process
from gradviz.graph.codecs import Bad
from gradviz.graph.columns import paused
from gradviz.graph.files import load
from gradviz.ranks.pipeline import Staged
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.view import Alike, RankView, of_data, of_graph, process_of
from gradviz.stages import Stage

_RANK = re.compile(r"rank(\d+)")
_DEVICE = re.compile(rb'("[a-z]+):\d+"')
_TITLE, _PROCESS, _TABLES = b',\n"title":', b',\n"process":', b',\n"tensors":['
_NOT_A_GRAPH = (Bad, LookupError, TypeError, ValueError, AttributeError)  # what reading data raises that is none

_MANY, _LARGE = 4, 64 * 2**20  # files, and bytes in all, from which on two processes read them
_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from gradviz.ranks.files import merge_half; merge_half()"
_Item = tuple["int | None", int, str]  # the rank that was given, the place among all, the path


def merge_files(paths: Iterable[str] | Mapping[int, str]) -> RankDiff:
    """What the graphs in these files have in common. Raises GraphFileError for a file that is broken or of a rank given before.

    The rank is the key of a mapping, else what the file says of itself, else `rank3` in its name, else its place. Of many large
    files another process reads a half.
    """
    given = paths.items() if isinstance(paths, Mapping) else ((None, path) for path in paths)
    items = [(key, place, path) for place, (key, path) in enumerate(given)]
    if len(items) < _MANY or sum(os.path.getsize(path) for *_, path in items if os.path.isfile(path)) < _LARGE:
        return _merged(items).result()
    half = (len(items) + 1) // 2
    with _helper(items[half:]) as helper:
        staged = _merged(items[:half])
        try:
            theirs = pickle.load(helper)
        except (EOFError, pickle.UnpicklingError):  # it was killed, or there is no room for it
            theirs = _merged(items[half:])
    if isinstance(theirs, GraphFileError):
        raise theirs
    with paused():
        staged.absorb(theirs)
        return staged.result()


def _merged(items: Sequence[_Item]) -> Staged:
    staged, known, alike = Staged(), dict[object, int](), Alike()
    begun: set[int | None] = set()
    with paused(), Stage("merge", "ranks", total=len(items)) as reading:
        for key, place, path in reading.each(items):
            file = _File(path)
            process = file.process
            stage = process.stage if process is not None else None
            same = stage, file.digest
            named = _RANK.findall(path)
            own = process.rank if process is not None else int(named[-1]) if named else place
            rank = own if key is None else key
            if same in known:
                staged.of(process).add_equal(rank, known[same], process)
            else:
                staged.of(process).add(rank, file.view(alike, first=stage not in begun))
                known[same] = rank
            begun.add(stage)
    return staged


@contextmanager
def _helper(items: Sequence[_Item]) -> Iterator[IO[bytes]]:
    """A process that merges these. What it has made, or the error that it raised, can be read from what this gives."""
    command = [sys.executable, "-c", _START, json.dumps(sys.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError), process.stdin as pipe:
                pickle.dump(items, pipe)
            yield process.stdout
        finally:
            process.kill()


def merge_half() -> None:
    """What the helper does: read which files to merge, and write what came of it."""
    made: Staged | GraphFileError
    try:
        made = _merged(pickle.load(sys.stdin.buffer))
    except GraphFileError as error:
        made = error
    with paused():
        pickle.dump(made, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.flush()


class _File:
    """One graph file. `digest` is the same for files whose graphs are equal but for the numbers of devices."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                self._text = file.read()
        except OSError:
            load(path)  # says why
            raise
        title, tables = self._text.find(_TITLE), self._text.rfind(_TABLES)
        after = self._text.find(b",\n", title + len(_TITLE))
        self._told = self._text.rfind(_PROCESS, 0, tables)
        end = self._told if self._told >= 0 else tables
        made = hashlib.blake2b(digest_size=16)
        if 0 < title < after < end:
            made.update(memoryview(self._text)[after:end])
            made.update(_DEVICE.sub(rb'\1"', self._text[tables:]))
        else:  # not as gradviz writes it: equal to nothing but itself
            made.update(self._text)
        self.digest = made.digest()

    @property
    def process(self) -> Process | None:
        """What the file says of its process, read without the rest."""
        if self._told < 0:
            return None
        try:
            return process_of(json.loads(b"{" + self._text[self._told + 2 :]))
        except _NOT_A_GRAPH:
            return load(self._path).process  # which says what is wrong, and where

    def view(self, alike: Alike, *, first: bool) -> RankView:
        """What merging needs. The first file is read as a whole, since the merged graph begins as its graph."""
        if not first:
            with suppress(*_NOT_A_GRAPH):  # then the full reading says what is wrong, and where
                return of_data(json.loads(self._text), alike)
        return of_graph(load(self._path), alike)
