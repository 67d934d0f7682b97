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
from typing import Literal, Union

from gradviz.graph import Construct, Graph, Scope

Kind = Literal["all", "call", "op", "run", "turn", "segment", "statement"]
"""The whole graph; one call of a module or function, and a loop of which no turns are
known; one op with its views; turns of a loop or alike siblings; one of these that has
several children; a piece of what is too long; a statement, or a call of torch.
"""

Child = Union[int, "Section"]
"""An op, by its node, or a group."""

NO_CONSTRUCTS: Mapping[int, Construct] = {}


@dataclass(slots=True, eq=False)
class Section:
    """One group: a section of the order. A new one comes last in its tree; whoever makes
    it puts it among the children of its parent.
    """

    tree: Groups = field(repr=False)
    parent: Section | None = field(repr=False)
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
    shown: list[Section] = field(default_factory=list, repr=False)
    children: list[Child] = field(default_factory=list, repr=False)  # in order
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = len(self.tree)
        self.tree.append(self)

    def __hash__(self) -> int:
        return self.number  # so that a set has the same order in every process

    @property
    def inner(self) -> list[Section]:
        """The groups among its children."""
        return [child for child in self.children if isinstance(child, Section)]

    def around(self) -> Iterator[Section]:
        """This group and all that it is inside of, inner first."""
        outer: Section | None = self
        while outer is not None:
            yield outer
            outer = outer.parent

    @property
    def record(self) -> Scope | None:
        """The call that it is, or what the program wrote there."""
        return self.tree.graph.scopes[self.scope] if self.scope is not None else None

    @property
    def construct(self) -> Construct | None:
        """What the program wrote there, if it is a group of its own."""
        return self.tree.constructs.get(self.scope) if self.scope is not None else None

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop of the program."""
        return self.record is not None and self.record.kind == "loop"

    @property
    def scope_around(self) -> int | None:
        """The scope that what is in it lies in."""
        scopes = (outer.scope for outer in self.around())
        return next((scope for scope in scopes if scope is not None), None)

    def enclose(self, pieces: Iterable[tuple[int, int, Section]]) -> None:
        """Put children, from one place up to another, into new groups there, in order."""
        before, done = list[Child](), 0
        for first, after, group in pieces:
            group.parent, group.children = self, self.children[first:after]
            before += [*self.children[done:first], group]
            done = after
            group.adopt()

        self.children = [*before, *self.children[done:]]

    def adopt(self) -> None:
        """Tell its children where they are."""
        for child in self.children:
            if isinstance(child, Section):
                child.parent = self
            else:
                self.tree.home[child] = self

    @property
    def nodes(self) -> list[int]:
        """All nodes in it, in order."""
        return list(nodes_of(self))

    @property
    def op_names(self) -> tuple[str, ...]:
        """The backward functions of these."""
        return tuple([self.tree.graph.ops[node] for node in self.nodes])


def nodes_of(child: Child) -> Iterator[int]:
    """The nodes of a child: itself, or all that is in the group."""
    waiting = [child]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Section):
            waiting.extend(reversed(item.children))
        else:
            yield item


def common(groups: Iterable[Section]) -> Section:
    """The innermost group that all of these are, or are inside of."""
    first, *rest = (list(group.around()) for group in groups)
    return next(group for group in first if all(group in outer for outer in rest))


class Groups(list[Section]):
    """Group 0 is the whole graph. `home` is the group of each node, None for leaves;
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
        super().__init__()
        self.recorded, self.graph, self.order = recorded, graph, order
        self.constructs = constructs
        self.home: list[Section | None] = [None] * len(graph.nodes)
        self.structure: dict[int, int] = {}
        Section(self, None, "all")

    def is_written(self, scope: int | None) -> bool:
        """Whether the program has a place in a call of a module, as far as is known:
        others are torch's own.
        """
        return scope in self._written or not self._written

    @cached_property
    def _written(self) -> set[int | None]:
        return {one.scope for one in self.recorded.program}

    def top_down(self) -> list[Section]:
        """All groups, every one after the group around it."""
        order = self[:1]
        for group in order:  # grows while it is read
            order += group.inner
        return order
