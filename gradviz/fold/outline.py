"""A graph as an outline: modules in the order they ran, or lines of code with the ops
that each made.

Plain rows with numbers, without text of any format. Rows of modules include what their
inner modules hold; rows of lines add up to the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from gradviz.fold.grouping import grouped
from gradviz.fold.titles import work
from gradviz.graph import (
    Graph,
    Node,
    SourceLine,
    TensorInfo,
)
from gradviz.graph.amounts import forward_order, held_bytes, parameter_elements
from gradviz.graph.origins import ScopeTree, op_line

LEAST = 3
"""How many alike modules are worth joining in an outline: two are easier to read one
after the other.
"""


class OutlineRow(NamedTuple):
    """One module, one backward function, one line of code, or ops that lie in no module
    of the rows beside.

    `depth` is the indentation, `around` the path of the module whose row it is indented
    under. `path` and `type` name a module, `line` a line of code; both are empty for
    what lies outside. `alike` modules of one structure are in this row, of which only
    the first was opened. `parameters` counts elements, `nbytes` the bytes held for
    backward.
    """

    depth: int
    around: str = ""
    node: Node | None = None  # a row of a single backward function
    path: str = ""
    type: str = ""
    line: SourceLine | None = None
    calls: int = 1
    alike: int = 1
    ops: int = 0
    # the backward functions that a line made, in order, each once
    made: tuple[str, ...] = ()
    # the ops that carry the work of what a module does outside the modules in it
    beside: str = ""
    parameters: int = 0
    # parameters that the module has, in the graph or not; 0 where that is not known
    registered: int = 0
    output: TensorInfo | None = None
    nbytes: int = 0
    forward: float | None = None  # seconds of the modules, where they were measured
    backward: float | None = None


def modules(
    graph: Graph, *, every: bool = False, ops: bool = False
) -> Iterator[OutlineRow]:
    """Module calls in the order they ran, calls of one module as one row.

    Of three or more alike siblings the first is opened and the others are one row,
    unless `every` one is wanted. With `ops`, modules that were called once list the
    backward functions of their own too.
    """
    tree, sums = ScopeTree(graph), _Sums(graph)
    structure = grouped(graph).structure if not every else {}
    loose_ops: dict[int | None, list[int]] = {}
    for node in forward_order(graph):
        if node not in graph.leaf_of:
            loose_ops.setdefault(
                graph.nodes[node].scope,
                [],
            ).append(node)

    def inside(scopes: list[int]) -> list[_Item]:
        """What some calls of one module ran, in order."""
        items: list[_Item] = list(
            _groups(tree, [tree.children[scope] for scope in scopes], structure)
        )
        loose = [node for scope in scopes for node in loose_ops.get(scope, [])]
        if ops and len(scopes) == 1:
            items += loose
        elif items and loose:
            items.append(_Beside(loose))
        return sorted(items, key=lambda item: _place(item, tree))

    stack: list[tuple[int, str, _Item]] = []
    stack += [
        (0, "", group) for group in reversed(_groups(tree, [tree.outermost], structure))
    ]
    while stack:
        depth, outer_path, item = stack.pop()
        yield _row(item, tree, sums, depth)._replace(around=outer_path)
        if isinstance(item, _Group) and item.alike == 1:
            path = tree.scopes[item.scopes[0]].path
            stack.extend(
                (depth + 1, path, inner) for inner in reversed(inside(item.scopes))
            )

    outside = loose_ops.get(None, [])
    if outside:
        yield OutlineRow(0, **sums.of(outside))
    if ops:
        yield from (_op_row(graph, node, 1, sums) for node in outside)


class _Beside(NamedTuple):
    # ops of some calls of a module that lie in none of the modules inside
    nodes: list[int]


_Item = Union["_Group", _Beside, int]


def _row(
    item: _Item,
    tree: ScopeTree,
    sums: _Sums,
    depth: int,
) -> OutlineRow:
    """The row of a module, of the ops beside its modules, or of one op."""
    if isinstance(item, int):
        return _op_row(sums.graph, item, depth, sums)
    if isinstance(item, _Beside):
        words = work(sums.graph.nodes[node] for node in item.nodes)
        return OutlineRow(depth, beside=words, **sums.of(item.nodes))
    return _module_row(tree, item, depth, sums)


def _place(item: _Item, tree: ScopeTree) -> int:
    """Where it begins among all nodes."""
    if isinstance(item, int):
        return tree.position[item]
    if isinstance(item, _Beside):
        return tree.position[item.nodes[0]]
    return tree.place[item.scopes[0]]


class _Sums:
    """Adds up what nodes hold and use."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nbytes = graph, held_bytes(graph)
        self.elements = parameter_elements(graph)

    def of(
        self,
        nodes: Sequence[int],
    ) -> dict[str, Any]:
        """The sums of an OutlineRow."""
        used = {edge.producer for node in nodes for edge in self.graph.inputs(node)}
        parameters = sum(self.elements.get(leaf, 0) for leaf in used)
        return {
            "ops": len(nodes),
            "parameters": parameters,
            "nbytes": sum(self.nbytes[node] for node in nodes),
        }


def _op_row(
    graph: Graph,
    node: int,
    depth: int,
    sums: _Sums,
) -> OutlineRow:
    record = graph.nodes[node]
    output = record.outputs[0] if record.outputs else None
    return OutlineRow(
        depth,
        "",
        record,
        ops=1,
        output=output,
        nbytes=sums.nbytes[node],
    )


class _Group(NamedTuple):
    # calls of one module, or one call of each of several alike modules
    scopes: list[int]
    alike: int


def _groups(
    tree: ScopeTree,
    families: list[list[int]],
    structure: Mapping[int, int],
) -> list[_Group]:
    """The modules called directly inside some calls of one module, in the order they
    first ran.
    """
    siblings = [scope for family in families for scope in family if tree.members[scope]]
    alike = _alike(tree, families[0], structure) if len(families) == 1 else []
    later = {scope: family for family in alike for scope in family[1:]}
    calls: dict[str, list[int]] = {}

    for scope in sorted(
        siblings,
        key=lambda scope: tree.place[scope],
    ):
        if scope not in later:
            calls.setdefault(
                tree.scopes[scope].path,
                [],
            ).append(scope)

    groups = [_Group(scopes, 1) for scopes in calls.values()]
    groups += [_Group(family[1:], len(family) - 1) for family in alike]
    return sorted(
        groups,
        key=lambda group: tree.place[group.scopes[0]],
    )


def _alike(
    tree: ScopeTree, siblings: list[int], structure: Mapping[int, int]
) -> list[list[int]]:
    """Sets of at least `LEAST` calls among siblings that are alike and of different
    modules.
    """
    same: dict[int, list[int]] = {}
    for scope in siblings:
        if scope in structure and tree.members[scope]:
            same.setdefault(structure[scope], []).append(scope)

    def modules(calls: list[int]) -> int:
        return len({tree.scopes[scope].path for scope in calls})

    return [calls for calls in same.values() if modules(calls) >= LEAST]


def _module_row(
    tree: ScopeTree,
    group: _Group,
    depth: int,
    sums: _Sums,
) -> OutlineRow:
    first, last = tree.scopes[group.scopes[0]], tree.scopes[group.scopes[-1]]
    return OutlineRow(
        depth,
        path=first.path if group.alike == 1 else f"{first.path} … {last.path}",
        type=first.type,
        calls=len(group.scopes) if group.alike == 1 else 1,
        alike=group.alike,
        output=last.output,
        registered=sum(
            {
                tree.scopes[scope].path: tree.scopes[scope].parameters or 0
                for scope in group.scopes
            }.values()
        ),
        forward=_seconds([tree.scopes[scope].forward for scope in group.scopes]),
        backward=_seconds([tree.scopes[scope].backward for scope in group.scopes]),
        **sums.of([node for scope in group.scopes for node in tree.members[scope]]),
    )


def _seconds(of_calls: list[float | None]) -> float | None:
    measured = [seconds for seconds in of_calls if seconds is not None]
    return sum(measured) if measured else None


def lines(
    graph: Graph, line_of: Callable[[Node], SourceLine | None] = op_line
) -> Iterator[OutlineRow]:
    """Lines of the user's code in the order they first ran, each with the ops it made;
    ops without a line come last.
    """
    sums = _Sums(graph)
    nodes_of: dict[tuple[str, int] | None, list[int]] = {}

    for node in forward_order(graph):
        record = graph.nodes[node]
        if node not in graph.leaf_of:
            source = line_of(record)
            nodes_of.setdefault(
                (source.file, source.line) if source is not None else None, []
            ).append(node)

    for place in sorted(nodes_of, key=lambda place: place is None):
        nodes = nodes_of[place]
        outputs = graph.nodes[nodes[-1]].outputs
        yield OutlineRow(
            0,
            line=line_of(graph.nodes[nodes[0]]),
            made=tuple(dict.fromkeys(graph.nodes[node].op for node in nodes)),
            output=outputs[0] if outputs else None,
            **sums.of(nodes),
        )
