"""Merges graph files of several ranks, one at a time, so that there may be many. Knows
nothing of torch.

A file that says the same as one before, but for the title, the process and the numbers
of devices, is not even parsed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from gradviz.graph import Process, files as schema
from gradviz.graph.codecs import Bad, Context
from gradviz.graph.columns import paused
from gradviz.graph.files import load
from gradviz.ranks.merging import RankMerging
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.view import Alike, of_graph
from gradviz.stages import Stage

_RANK = re.compile(r"rank(\d+)")
_OWN = re.compile(rb',\n"(?:title|process)":.*')
_PROCESS = re.compile(rb',\n"process":(.*)')
_TABLES = b',\n"tensors":['
_DEVICE = re.compile(rb'("[a-z]+):\d+"')


def merge_files(paths: Sequence[str]) -> RankDiff:
    """What the graphs in these files have in common.

    The rank is what the file says of itself, else `rank3` in its name, else its place.
    Raises GraphFileError for a file that is broken, and for a second one of the same
    rank.
    """
    merging = RankMerging()
    alike = Alike()
    rank_of: dict[bytes, int] = {}  # the first one with such a graph
    with (
        paused(),
        Stage("merge", "ranks", total=len(paths)) as reading,
    ):
        for place, path in enumerate(reading.each(paths)):
            digest, process = _digest(path)
            in_name = _RANK.findall(path)
            if process is not None:
                rank = process.rank
            else:
                rank = int(in_name[-1]) if in_name else place

            if digest in rank_of:
                merging.add_equal(rank, rank_of[digest], process)
            else:
                merging.add(rank, of_graph(load(path), alike))
                rank_of[digest] = rank
        return merging.result()


def _digest(path: str) -> tuple[bytes, Process | None]:
    """What files have in common whose graphs are equal but for the numbers of devices;
    and the process, read by itself.
    """
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        load(path)  # says why
        raise

    graph, _, tables = text.rpartition(_TABLES)
    digest = hashlib.blake2b(_OWN.sub(b"", graph), digest_size=16)
    digest.update(_DEVICE.sub(rb'\1"', tables))

    match = _PROCESS.search(graph)
    try:
        if match:
            process: Process | None = schema.PROCESS.read(
                json.loads(match[1]),
                Context(),
            )
        else:
            process = None
    except (Bad, ValueError):
        process = load(path).process  # says what is wrong, and where
    return digest.digest(), process
