"""What depends on what among the children of a group, and which of them one box may
hold: an arrow into a box and one out of it say that the second depends on the first.

Knows nothing of what is open, and of how large that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gradviz.fold.groups import Groups
from gradviz.fold.order import Ints, edges_inside, places
from gradviz.graph.walks import users


class Dependences:
    """Of the groups of a graph. A set of children, and of what enters their group, is
    the bits of a number: children by their place, what enters behind them.
    """

    def __init__(self, groups: Groups) -> None:
        edges = [edges_inside(groups.graph, groups.order), *_outer_edges(groups)]
        self._producers, self._consumers = np.concatenate(edges, axis=1)
        self._known: dict[tuple[int, ...], list[int]] = {}

    def joinable(self, spans: Sequence[tuple[int, int]]) -> Sequence[int]:
        """For each child of a group the later ones, and itself, that may be the last in
        a box that begins with it: all that leaves the box depends on all that enters.
        `spans` are the places in the order that the children take.
        """
        bounds = (*(begin for begin, _ in spans), spans[-1][1])
        if bounds not in self._known:
            self._known[bounds] = self._joinable(bounds)
        return self._known[bounds]

    def _joinable(self, bounds: tuple[int, ...]) -> list[int]:
        inputs, last_user = self._wires(bounds)
        count = len(inputs)
        needs: list[int] = []  # all that each child depends on
        for used in inputs:
            need = used
            for i, of_maker in enumerate(needs):
                if used >> i & 1:
                    need |= of_maker
            needs.append(need)

        found = []
        for first in range(count):
            outside, entering, ends = -1 << count | (1 << first) - 1, 0, 0
            for last in range(first, count):
                entering |= inputs[last] & outside
                inside = range(first, last + 1)
                leaving = (needs[i] for i in inside if last_user[i] > last)
                if all(entering & ~need == 0 for need in leaving):
                    ends |= 1 << last
            found.append(ends)
        return found

    def _wires(self, bounds: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """What each child uses, and the last of the children that uses it; a user
        outside of the group comes behind these.
        """
        count, edges = len(bounds) - 1, (self._producers, self._consumers)
        makes, uses = ((bounds[0] <= ends) & (ends < bounds[-1]) for ends in edges)
        # the child that each end is in, where it is in one
        makers, users = (np.searchsorted(bounds, ends, "right") - 1 for ends in edges)
        inner, entering = makes & uses, uses & ~makes
        _, outer = np.unique(self._producers[entering], return_inverse=True)

        inputs, last_user = [0] * count, [0] * count
        for maker, user in set(zip(makers[inner].tolist(), users[inner].tolist())):
            if maker != user:
                inputs[user] |= 1 << maker
                last_user[maker] = max(last_user[maker], user)
        for source, user in set(zip(outer.tolist(), users[entering].tolist())):
            inputs[user] |= 1 << count + source
        for maker in set(makers[makes & ~uses].tolist()):
            last_user[maker] = count
        return inputs, last_user


def _outer_edges(groups: Groups) -> Iterator[Ints]:
    """From leaves and data, and to the caller: ends with a number of their own, since
    they have no place in the order.
    """
    graph, after = groups.graph, len(groups.order)
    place = places(graph, groups.order)
    used = [users(graph, one.node) for one in graph.leaves]
    used += [list(data.nodes) for data in graph.data]
    inputs = [
        (after + i, place[node]) for i, nodes in enumerate(used) for node in nodes
    ]
    outputs = [(place[node], after) for node in graph.roots_of]
    for pairs in (inputs, outputs):
        edges: Ints = np.array(pairs, np.int64).reshape(-1, 2).T
        yield edges[:, (edges >= 0).all(axis=0)]
