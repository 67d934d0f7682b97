"""Merges graph files of several ranks, one at a time, so that there may be many. Knows nothing of torch.

A file that says the same as one before, but for the title, the process and the numbers of devices, is not even parsed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gradviz.graph import Process, files as schema
from gradviz.graph.codecs import Bad, Context
from gradviz.graph.columns import paused
from gradviz.graph.files import load
from gradviz.ranks.merging import Staged
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.view import Alike, of_graph
from gradviz.stages import Stage

_RANK = re.compile(r"rank(\d+)")
_DEVICE = re.compile(rb'("[a-z]+):\d+"')
_TITLE, _PROCESS, _TABLES = b',\n"title":', b',\n"process":', b',\n"tensors":['
_NOT_A_GRAPH = (Bad, LookupError, TypeError, ValueError, AttributeError)  # what reading data raises that is none


def merge_files(paths: Iterable[str] | Mapping[int, str]) -> RankDiff:
    """What the graphs in these files have in common. Raises GraphFileError for a file that is broken or of a rank given before.

    The rank is the key of a mapping, else what the file says of itself, else `rank3` in its name, else its place.
    """
    items = [*(paths.items() if isinstance(paths, Mapping) else ((None, path) for path in paths))]
    staged, known, alike = Staged(), dict[object, int](), Alike()
    with paused(), Stage("merge", "ranks", total=len(items)) as reading:
        for place, (key, path) in enumerate(reading.each(items)):
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
                staged.of(process).add(rank, of_graph(load(path), alike))
                known[same] = rank
        return staged.result()


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
            return _process_of(json.loads(b"{" + self._text[self._told + 2 :]))
        except _NOT_A_GRAPH:
            return load(self._path).process  # which says what is wrong, and where


def _process_of(data: dict[str, Any]) -> Process:
    context = Context()
    context.read["tensors"] = [schema.TENSOR_ROW.read(row, context) for row in data["tensors"]]
    context.read["sources"] = [schema.SOURCE_ROW.read(row, context) for row in data["sources"]]
    made: Process = schema.PROCESS.read(data["process"], context)
    return made
