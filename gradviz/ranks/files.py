"""Merges graph files of several ranks, one at a time. Files that say the same are read once. Knows nothing of torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gradviz.graph_json import load
from gradviz.ranks.merging import Merging
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.view import of_graph

_RANK = re.compile(r"rank(\d+)")


def merge_files(paths: Iterable[str] | Mapping[int, str]) -> RankDiff:
    """What the graphs in these files have in common. Raises GraphFileError for a file that is broken or of a rank given before.

    The rank is the key of a mapping, else what the file says of itself, else `rank3` in its name, else its place.
    """
    items = paths.items() if isinstance(paths, Mapping) else ((None, path) for path in paths)
    merging = Merging()
    for place, (key, path) in enumerate(items):
        view = of_graph(load(path))
        named = _RANK.findall(path)
        own = view.process.rank if view.process is not None else int(named[-1]) if named else place
        merging.add(own if key is None else key, view)
    return merging.result()
