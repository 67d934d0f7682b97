"""The closed boxes of a default picture that hold a large part of all ops, though nothing like them is open, and those that join
modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from gradviz.draw.options import Options
from gradviz.fold.filling import LAYER
from gradviz.fold.groups import Groups
from gradviz.fold.titles import calls_in, is_list, list_of, title
from gradviz.fold.windows import SHARE
from gradviz.graph import Graph
from tests.drawn import shown


def closed_bodies(graph: Graph) -> list[str]:
    """Titles of calls, runs and segments with over 40 % of the ops that are closed, beside no open call or turn like them."""
    opening = shown(graph, Options()).opening
    if opening is None:
        return []
    groups, is_open = opening.groups, opening.open
    most = SHARE * len(groups.order)
    beside = {key for at in is_open if groups[at].scope is not None for key in _keys(groups, at)}
    return [
        f"{title(groups, at)}, {len(groups.members(at)):,} of {len(groups.order):,} ops"
        for at in _closed(groups, is_open)
        if len(groups.members(at)) > most and not groups[at].is_rest and beside.isdisjoint(_held(groups, at))
    ]


def joined_modules(graph: Graph) -> list[str]:
    """Titles of closed stretches that join modules which are neither elements of one list nor a turn of what repeats."""
    opening = shown(graph, Options()).opening
    if opening is None:
        return []
    groups = opening.groups
    found = []
    for at in _closed(groups, opening.open):
        paths = list(dict.fromkeys(scope.path for scope in calls_in(groups, at).values() if scope.type))
        if groups[at].kind == "segment" and len(paths) > 1 and not is_list(paths):
            found.append(f"{title(groups, at)}: {', '.join(paths)}")
    return found


def _closed(groups: Groups, is_open: Set[int]) -> Iterator[int]:
    for at, group in enumerate(groups):
        # a recurrent layer is one box, however many ops it runs
        is_layer = group.scope is not None and LAYER.search(groups.graph.scopes[group.scope].type)
        shut = at and at not in is_open and (group.parent or 0) in is_open
        if shut and group.op is None and not is_layer:
            yield at


def _keys(groups: Groups, at: int) -> set[object]:
    """What calls have in common that show about the same when open: the structure, the module, or the list and the class."""
    scope = groups[at].scope or 0
    path = groups.graph.scopes[scope].path
    keys: set[object] = {groups.structure.get(scope, ("call", scope)), path}
    if list_of(path):
        keys.add((list_of(path), groups.graph.scopes[scope].type))
    return keys


def _held(groups: Groups, at: int) -> set[object]:
    """The same of the call that a group is, else of the calls that most of its ops lie in."""
    if groups[at].scope is not None:
        return _keys(groups, at)
    ops = Counter[object]()
    for call in calls_in(groups, at):
        ops.update(dict.fromkeys(_keys(groups, call), len(groups.members(call))))
    return {key for key, count in ops.items() if 2 * count > len(groups.members(at))}
