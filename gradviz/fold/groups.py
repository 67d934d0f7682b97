"""The one tree of groups of a graph: calls of modules and functions, loops and turns,
statements, ops with their views, runs of what repeats, segments.

Groups are stretches of one topological order. Any division of such an order into
stretches, and of stretches into stretches, is free of cycles, so groups can be open or
closed in any mix. A call that other ops interrupt becomes several groups, its parts.
Picture, page and terminal read this tree; what of it is open is kept in `opening`.
Knows nothing of leaves, text and places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from gradviz.graph import Construct, Graph
from gradviz.graph.origins import around, op_text

Kind = Literal["all", "call", "op", "run", "turn", "segment", "statement"]
"""The whole graph; one call of a module or function, and a loop of which no turns are
known; one op with its views; turns of a loop or alike siblings; one of these that has
several children; a piece of what is too long; a statement, or a call of torch.
"""


NO_CONSTRUCTS: Mapping[int, Construct] = {}


@dataclass(slots=True)
class Section:
    """One group: a section of the order. Its children are in order: ops as ids, groups as ~group."""

    parent: int | None
    kind: Kind
    scope: int | None = None  # of a call
    op: int | None = None  # of an op, the node that its views belong to
    part: int = 0  # 0 for a whole call, else which part of it, from 1
    parts: int = 0
    turns: int = 1  # of a run, and of what is left of one without its first turn
    # whether this is what is left of a run: shown closed beside the first turn
    is_rest: bool = False
    # of a run, whether its turns use what earlier ones made, and the turns that are open
    # where it is
    feeds: bool = False
    shown: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)


class Groups(list[Section]):
    """Group 0 is the whole graph. `home` is the group of each node, -1 for leaves;
    `order` has all other nodes.

    `structure` is equal for calls that are alike, by scope; a call in several parts has
    none. `graph` is the one that was given, `recorded`, with a scope for each of
    `constructs`, of the program as it was written, behind those of modules.
    """

    def __init__(
        self,
        recorded: Graph,
        graph: Graph,
        order: Sequence[int],
        constructs: Mapping[int, Construct] = NO_CONSTRUCTS,
    ) -> None:
        super().__init__([Section(None, "all")])
        self.recorded, self.graph, self.order = recorded, graph, order
        self.constructs = constructs
        self.home = [-1] * len(graph.nodes)
        self.structure: dict[int, int] = {}

    @cached_property
    def ops(self) -> list[tuple[str, str]]:
        """The backward function of each node, and the text of its op."""
        return [(node.op, op_text(node)) for node in self.graph.nodes]

    def add(self, group: Section) -> int:
        """Its number. Whoever calls puts it among the children of its parent."""
        self.append(group)
        return len(self) - 1

    def top_down(self) -> list[int]:
        """All groups, every one after the group around it."""
        order = [0]
        for group_id in order:  # grows while it is read
            order.extend(~child for child in self[group_id].children if child < 0)
        return order

    def enclose(
        self, parent: int, pieces: Iterable[tuple[int, int, Section]]
    ) -> list[int]:
        """Put children of a group, from one place up to another, into new groups there,
        in order. Returns their numbers.
        """
        children, before, done, group_ids = (
            self[parent].children,
            list[int](),
            0,
            list[int](),
        )
        for first, after, group in pieces:
            group_ids.append(self.add(group))
            group.parent, group.children = parent, children[first:after]
            before += [*children[done:first], ~group_ids[-1]]
            done = after
            for child in group.children:
                if child < 0:
                    self[~child].parent = group_ids[-1]
                else:
                    self.home[child] = group_ids[-1]

        self[parent].children = [*before, *children[done:]]
        return group_ids

    def members(self, group_id: int) -> list[int]:
        """All nodes in a group, in order."""
        return list(self.leaves_of(~group_id))

    def leaves_of(self, child: int) -> Iterator[int]:
        """The nodes of a child: itself, or all that is in the group."""
        waiting = [child]
        while waiting:
            item = waiting.pop()
            if item >= 0:
                yield item
            else:
                waiting.extend(reversed(self[~item].children))

    def construct(self, group_id: int) -> Construct | None:
        """What the program wrote there, if it is a group of its own."""
        scope = self[group_id].scope
        return self.constructs.get(scope) if scope is not None else None

    def is_loop(self, group_id: int | None) -> bool:
        """Whether a group is a loop of the program."""
        construct = self.construct(group_id) if group_id is not None else None
        return construct is not None and construct.kind == "loop"

    def scope(self, group_id: int | None) -> int | None:
        """The call that what is in a group lies in."""
        return next(
            (
                self[outer].scope
                for outer in around(self, group_id)
                if self[outer].scope is not None
            ),
            None,
        )
