"""Merges ranks that hold other parts of one model, the stages of a pipeline, each with its like. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gradviz.graph import Graph, Process
from gradviz.ranks.merging import Merging
from gradviz.ranks.pipeline import stitched
from gradviz.ranks.rank_diff import RankDiff
from gradviz.ranks.view import of_graph


def merge(graphs: Iterable[Graph] | Mapping[int, Graph]) -> RankDiff:
    """What the graphs of several ranks have in common, and what some have alone.

    The rank is the key of a mapping, else the one that the graph knows of itself (`Graph.process`), else its place. Raises
    GraphFileError for two graphs of one rank, and for none at all.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> both = (Node(0, "SumBackward0"), Node(1, "ExpBackward0"))
    >>> found = merge([Graph(both, (Edge(0, 1, 0, 0),)), Graph(both[:1])])
    >>> found.shared, dict(found.only), found.groups
    ((0,), {0: (1,), 1: ()}, ((0,), (1,)))
    """
    items = graphs.items() if isinstance(graphs, Mapping) else ((None, graph) for graph in graphs)
    staged = Staged()
    for place, (key, graph) in enumerate(items):
        own = graph.process.rank if graph.process is not None else place
        staged.of(graph.process).add(own if key is None else key, of_graph(graph))
    return staged.result()


class Staged:
    """One merging for each stage; a single one where nobody is a stage."""

    def __init__(self) -> None:
        self._mergings: dict[int | None, Merging] = {}

    def of(self, process: Process | None) -> Merging:
        """The merging that a rank belongs to."""
        stage = process.stage if process is not None else None
        return self._mergings.setdefault(stage, Merging())

    def absorb(self, other: Staged) -> None:
        """All that was added to the other."""
        for stage, merging in other._mergings.items():
            self._mergings.setdefault(stage, Merging()).absorb(merging)

    def result(self) -> RankDiff:
        """All ranks as one. Raises GraphFileError when none was added."""
        stages = {stage: merging for stage, merging in self._mergings.items() if stage is not None}
        if len(self._mergings) > 1 and len(stages) == len(self._mergings):
            return stitched({stage: merging.result() for stage, merging in stages.items()})
        (merging,) = self._mergings.values() or (Merging(),)
        return merging.result()
