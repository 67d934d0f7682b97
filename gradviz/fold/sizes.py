"""How many boxes a tree of groups shows, and what a picture may take. How large it
really is, is measured by whoever draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import NamedTuple

from gradviz.fold.groups import Groups


class Size(NamedTuple):
    """Pixels."""

    width: float
    height: float


PAGE = Size(2000.0, 1600.0)
"""What a first picture may fill."""


class Sizes:
    """Numbers of boxes of open and closed groups, with the leaves beside them, and with
    borders around open modules.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        consumers = groups.graph.consumers
        self._leaves = Counter[int]()
        for leaf in groups.graph.leaves:
            self._leaves.update({edge.consumer for edge in consumers(leaf.node)})
        self._ops: dict[int, int] = {}
        for group_id in reversed(groups.top_down()):
            self.ops(group_id)
        self._open: dict[int, int] = {}
        self.update(0, {0})

    @property
    def boxes(self) -> int:
        """Boxes that are shown, with leaves."""
        return self.of(~0)

    def ops(self, group_id: int) -> int:
        """Ops in a group."""
        if group_id not in self._ops:
            self._ops[group_id] = sum(
                self.ops(~child) if child < 0 else 1
                for child in self._groups[group_id].children
            )
        return self._ops[group_id]

    def of(self, child: int) -> int:
        """Boxes that are shown of a child. A closed group draws its leaves inside,
        unless it is an op with its views.
        """
        if child >= 0:
            return 1 + self._leaves[child]
        if ~child in self._open:
            return self._open[~child]
        if self._groups[~child].op is None:
            return 1
        return 1 + sum(self._leaves[node] for node in self._groups.leaves_of(child))

    def forget(self, group_id: int) -> None:
        """A group that was taken away."""
        self._ops.pop(group_id, None)

    def update(self, group_id: int, is_open: Set[int]) -> None:
        """Count the boxes of a group, and of all around it, anew."""
        outer: int | None = group_id
        while outer is not None:
            if outer in is_open:
                group = self._groups[outer]
                # a border with a title takes as much room as a box
                border = group.kind == "call"
                self._open[outer] = sum(map(self.of, group.children)) + border
            else:
                self._open.pop(outer, None)
            outer = self._groups[outer].parent
