"""The closed boxes of a default picture that hold a large part of all ops, though nothing like them is open, and those that join
modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from gradviz.draw.options import Options
from gradviz.fold.filling import is_layer
from gradviz.fold.groups import Groups, Section
from gradviz.fold.titles import calls_in, is_list, list_of, scopes_in, title
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
    beside = {key for group in is_open for key in _keys(group)}
    return [
        f"{title(group)}, {len(group.nodes):,} of {len(groups.order):,} ops"
        for group in _closed(groups, is_open)
        if len(group.nodes) > most and not group.is_rest and beside.isdisjoint(_held(group))
    ]


def joined_modules(graph: Graph) -> list[str]:
    """Titles of closed stretches that join modules which are neither elements of one list nor a turn of what repeats."""
    opening = shown(graph, Options()).opening
    if opening is None:
        return []
    found = []
    for group in _closed(opening.groups, opening.open):
        paths = list(dict.fromkeys(scope.path for scope in scopes_in(group) if scope.type))
        if group.kind == "segment" and len(paths) > 1 and not is_list(paths):
            found.append(f"{title(group)}: {', '.join(paths)}")
    return found


def _closed(groups: Groups, is_open: Set[Section]) -> Iterator[Section]:
    for group in groups[1:]:
        # a recurrent layer is one box, however many ops it runs, and so is attention
        if group not in is_open and group.parent in is_open and group.op is None and not is_layer(group):
            yield group


def _keys(group: Section) -> set[object]:
    """What calls have in common that show about the same when open: the structure, the module, or the list and the class."""
    if group.scope is None or group.record is None:
        return set()
    path = group.record.path
    keys: set[object] = {group.tree.structure.get(group.scope, ("call", group.scope)), path}
    if list_of(path):
        keys.add((list_of(path), group.record.type))
    return keys


def _held(group: Section) -> set[object]:
    """The same of the call that a group is, else of the calls that most of its ops lie in."""
    if group.scope is not None:
        return _keys(group)
    ops = Counter[object]()
    for call in calls_in(group):
        ops.update(dict.fromkeys(_keys(call), len(call.nodes)))
    return {key for key, count in ops.items() if 2 * count > len(group.nodes)}
