"""A graph as an outline: modules, and what the program wrote, in the order they ran.

Plain rows with numbers, without text of any format. Rows of modules include what their
inner modules hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from gradviz.fold.grouping import grouped
from gradviz.fold.titles import ends, list_of, together
from gradviz.graph import Graph, Node, TensorInfo
from gradviz.graph.amounts import forward_order, known_elements, parameter_elements
from gradviz.graph.origins import ScopeTree, op_text, outer_paths
from gradviz.graph.written import code_of

LEAST = 3
"""How many alike modules are worth joining: two are easier to read one by one."""


class OutlineRow(NamedTuple):
    """One module, one backward function, or ops that lie in no module of the rows
    beside.

    `depth` is the indentation, `around` the path of the module whose row it is indented
    under. `path` and `type` name a module; both are empty for what lies outside. Of
    what the program wrote, `path` is its text, and `turns` how often a loop went round.
    The row is the sum of `alike` modules of one structure, elements of a numbered list,
    and rows below it are sums over all of them. `parameters` counts elements, `nbytes` the
    bytes held for backward.
    """

    depth: int
    around: str = ""
    node: Node | None = None  # a row of a single backward function
    path: str = ""
    type: str = ""
    calls: int = 1
    alike: int = 1
    ops: int = 0
    # the ops that carry the work of what a module does outside the modules in it
    beside: str = ""
    parameters: int = 0
    # parameters that the module has, in the graph or not; 0 where that is not known
    registered: int = 0
    frozen: int = 0  # of these, those that require no gradient
    output: TensorInfo | None = None
    nbytes: int = 0
    flops: int = 0  # where they were counted
    turns: int = 0
    closed: bool = False  # without rows below it, as one above is built alike


def modules(
    graph: Graph,
    *,
    every: bool = False,
    ops: bool = False,
    flops: Mapping[int, int] = {},
) -> Iterator[OutlineRow]:
    """Module calls in the order they ran, calls of one module as one row.

    Unless `every` one is wanted, three or more alike modules of a numbered list are one
    row, and one that is built like a module above it, in other sizes, is closed. With
    `ops`, modules that were called once list the backward functions outside their inner
    modules too. `flops` are operations by node.
    """
    return _Outline(graph, every, ops, flops).rows()


def with_absent(graph: Graph, rows: Sequence[OutlineRow]) -> list[OutlineRow]:
    """The rows, and below the last of the module around it one for each module that has
    parameters, of which none gets a gradient.
    """
    paths = (outer_paths(scope.path) for scope in graph.scopes)
    known = {*chain.from_iterable(paths)}
    sizes: Counter[tuple[str, str, str]] = Counter()
    for absent in graph.absent:
        around = ""
        module = absent.names[0].rpartition(".")[0]
        for path in outer_paths(module):
            if path not in known:
                sizes[around, path, absent.reason] += known_elements(absent.tensor)
                break
            around = path

    joined = list(rows)
    for (around, path, reason), count in sizes.items():
        above = [row.path for row in joined]
        if not around or around not in above:
            continue  # of another model, or of a module whose row is left out
        place = above.index(around) + 1
        depth = joined[place - 1].depth + 1
        while place < len(joined) and joined[place].depth >= depth:
            place += 1
        row = OutlineRow(depth, around, path=path, type=reason, registered=count)
        joined.insert(place, row)
    return joined


def builds(graph: Graph, tree: ScopeTree) -> dict[int, int]:
    """A number for each call of a module with several in it, equal for those of one
    class that run the same ops and modules, of whatever sizes.
    """
    own_ops: dict[int | None, list[str]] = {}
    for node in forward_order(graph):
        own_ops.setdefault(graph.nodes[node].scope, []).append(graph.nodes[node].op)

    numbers: dict[object, int] = {}
    build, inner = [0] * len(tree.scopes), [0] * len(tree.scopes)
    for scope in reversed(tree.top_down):
        record, inside = tree.scopes[scope], tree.children[scope]
        parts = tuple(build[one] for one in inside)
        key = record.kind, record.type, tuple(own_ops.get(scope, ())), parts
        build[scope] = numbers.setdefault(key, len(numbers))
        modules = sum(tree.scopes[one].kind == "module" for one in inside)
        inner[scope] = modules + sum(inner[one] for one in inside)
    return {
        scope: build[scope]
        for scope, count in enumerate(inner)
        if count >= LEAST and tree.scopes[scope].kind == "module"
    }


class _Group(NamedTuple):
    # calls of one module, or of all elements of a list that are alike, in each of some
    # calls around them
    scopes: list[int]
    alike: int = 1


class _Beside(NamedTuple):
    # ops of some calls of a module that lie in none of the modules inside
    nodes: list[int]


_Item = _Group | _Beside | int
_Name = tuple[str, object]
"""A path in the module around, and the place of what the program wrote there."""


class _Outline:
    """Of one graph: `named` has scopes for the program, too, and `loose_in` the ops right
    in each scope.
    """

    def __init__(
        self, graph: Graph, every: bool, ops: bool, flops: Mapping[int, int]
    ) -> None:
        groups = grouped(graph, runs=not every)
        self.graph, self.every, self.ops, self.flops = graph, every, ops, flops
        self.named, self.structure = groups.graph, groups.structure
        self.tree = ScopeTree(self.named)
        self.constructs = groups.constructs
        self.elements = parameter_elements(graph)
        self.loose_in: dict[int | None, list[int]] = {}
        for node in forward_order(graph):
            if node not in graph.leaf_of:
                scope = self.named.nodes[node].scope
                self.loose_in.setdefault(scope, []).append(node)

    def rows(self) -> Iterator[OutlineRow]:
        build_of, open_builds = builds(self.named, self.tree), set[int]()
        stack: list[tuple[int, str, _Item]] = []
        stack += [(0, "", group) for group in reversed(self.groups([None]))]
        while stack:
            depth, around, item = stack.pop()
            row = self.row(item, depth)._replace(around=around)
            build = build_of.get(item.scopes[0]) if isinstance(item, _Group) else None
            if build in open_builds and not self.every:
                yield row._replace(closed=True)
                continue
            yield row
            if build is not None:
                open_builds.add(build)
            if isinstance(item, _Group):
                path = self.tree.module_path(item.scopes[0])
                stack += [(depth + 1, path, one) for one in reversed(self.inside(item))]

        outside = self.loose_in.get(None, [])
        if outside:
            yield OutlineRow(0, **self.sums(outside))
        if self.ops:
            yield from (self.row(node, 1) for node in outside)

    def inside(self, group: _Group) -> list[_Item]:
        """What the calls of a group ran, in order."""
        tree, scopes = self.tree, list[int]()
        for scope in group.scopes:  # of a loop its turns
            inner = tree.children[scope]
            turns = [one for one in inner if tree.scopes[one].kind == "turn"]
            scopes += turns or [scope]

        items: list[tuple[int, _Item]] = []
        items += [(tree.place[one.scopes[0]], one) for one in self.groups(scopes)]
        loose = (self.loose_in.get(scope, ()) for scope in scopes)
        nodes = [*chain.from_iterable(loose)]
        if self.ops and len(scopes) == 1:
            items += [(tree.position[node], node) for node in nodes]
        elif items and nodes:
            items.append((tree.position[nodes[0]], _Beside(nodes)))
        return [item for _, item in sorted(items, key=itemgetter(0))]

    def row(self, item: _Item, depth: int) -> OutlineRow:
        """The row of a module, of the ops beside its modules, or of one op."""
        if isinstance(item, _Group):
            return self.module_row(item, depth)
        if isinstance(item, _Beside):
            nodes = [self.graph.nodes[node] for node in item.nodes]
            words = ends((node.op, op_text(node)) for node in nodes)
            return OutlineRow(depth, beside=words, **self.sums(item.nodes))
        record = self.graph.nodes[item]
        output = next(iter(record.outputs), None)
        row = OutlineRow(depth, node=record, output=output, **self.sums([item]))
        return row._replace(parameters=0)

    def module_row(self, group: _Group, depth: int) -> OutlineRow:
        tree, scopes = self.tree, group.scopes
        calls = [tree.scopes[scope] for scope in scopes]
        calls_of, first = {call.path: call for call in calls}, calls[0]
        path = together([*calls_of][: group.alike])
        if first.kind == "statement":
            code = code_of(self.constructs[scopes[0]])
            if code not in ("", path):
                path += f" {code}" if "= " in code[:4] else f" = {code}"
        return OutlineRow(
            depth,
            path=path,
            type=first.type,
            calls=len(scopes) // len(calls_of),
            alike=group.alike,
            output=calls[-1].output,
            registered=sum(call.parameters or 0 for call in calls_of.values()),
            frozen=sum(call.frozen for call in calls_of.values()),
            turns=first.turns if len({call.turns for call in calls}) == 1 else 0,
            **self.sums([node for scope in scopes for node in tree.members[scope]]),
        )

    def sums(self, nodes: Sequence[int]) -> dict[str, Any]:
        """What nodes hold and use together."""
        used = {edge.producer for node in nodes for edge in self.graph.inputs(node)}
        return {
            "ops": len(nodes),
            "parameters": sum(self.elements.get(leaf, 0) for leaf in used),
            "nbytes": sum(self.graph.held[node] for node in nodes),
            "flops": sum(self.flops.get(node, 0) for node in nodes),
        }

    def groups(self, callers: Sequence[int | None]) -> list[_Group]:
        """The modules called directly inside some calls, in the order they first ran.

        Calls of one module, or of modules with one structure, have the same modules
        inside, by the path that these have there.
        """
        tree = self.tree
        calls: dict[_Name, list[int]] = {}
        head_of: dict[str, str] = {}
        inside = {caller: self.called(caller) for caller in callers}
        first = callers[0]
        is_turn = first is not None and tree.scopes[first].kind == "turn"
        # turns call one element each; all other calls have the same lists
        siblings = [*chain(*inside.values())] if is_turn else inside[first]
        around = self.around(first)
        for paths in self.alike(siblings):
            head_of |= {path.removeprefix(around): paths[0] for path in paths}
        for caller, siblings in inside.items():
            around = self.around(caller)
            for scope in siblings:
                path = tree.scopes[scope].path.removeprefix(around)
                name = head_of.get(path, path), self.written_at(scope)
                calls.setdefault(name, []).append(scope)

        sizes = Counter(head_of.values())
        groups = [
            _Group(sorted(scopes, key=tree.place.__getitem__), sizes[path] or 1)
            for (path, _), scopes in calls.items()
        ]
        return sorted(groups, key=lambda group: tree.place[group.scopes[0]])

    def called(self, caller: int | None) -> list[int]:
        """What a call calls directly that made something."""
        tree = self.tree
        siblings = tree.outermost if caller is None else tree.children[caller]
        return [scope for scope in siblings if tree.members[scope]]

    def around(self, caller: int | None) -> str:
        """How paths inside a call begin."""
        return "" if caller is None else f"{self.tree.scopes[caller].path}."

    def written_at(self, scope: int) -> object:
        """Where a loop or a statement stands; None of what is told by its name."""
        construct = self.constructs.get(scope)
        if construct is None or construct.kind in ("function", "gradient", "call"):
            return None
        code = code_of(construct) if construct.kind == "statement" else ""
        return construct.kind, construct.source, code

    def alike(self, siblings: Sequence[int]) -> list[list[str]]:
        """The paths of at least `LEAST` elements of one list of which all calls are alike."""
        calls: dict[str, list[int | None]] = {}
        for scope in siblings:
            record = self.tree.scopes[scope]
            if record.kind == "module":
                structure = self.structure.get(scope)
                calls.setdefault(record.path, []).append(structure)

        same: dict[tuple[str, int | None, int], list[str]] = {}
        for path, structures in calls.items():
            if list_of(path) and None not in structures and len({*structures}) == 1:
                key = list_of(path), structures[0], len(structures)
                same.setdefault(key, []).append(path)
        return [paths for paths in same.values() if len(paths) >= LEAST]
