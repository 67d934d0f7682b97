"""Which groups of the tree a folded graph shows open: what the page opens at first."""

from __future__ import annotations

from gradviz.fold.groups import Groups, Stretch
from gradviz.fold.titles import title
from gradviz.graph import Graph
from gradviz.graph.origins import around, common


def opened(groups: Groups, shown: Graph) -> list[bool]:
    """Whether each group is open in `shown`, a graph folded from that of the groups. Its windows become segments, closed ones."""
    if shown.original is None:
        return [True] * len(groups)
    closed = {_closed(groups, node.group.title, node.group.nodes) for node in shown.nodes if node.group is not None}
    is_open = [False] * len(groups)
    waiting = [0]
    for at in waiting:  # grows while it is read
        if at not in closed:
            is_open[at] = True
            waiting += [~child for child in groups[at].children if child < 0]
    return is_open


def _closed(groups: Groups, name: str, nodes: tuple[int, ...]) -> int | None:
    """The group that a box stands for, or a new segment for one that is a part of a group; None for a box of leaves."""
    homes = [groups.home[node] for node in nodes]
    count = sum(home >= 0 for home in homes)
    inside = common(groups, {home for home in homes if home >= 0}) if count else None
    if inside is None:
        return None
    same = [at for at in around(groups, inside) if _size(groups, at, count) == count]
    if same:
        return next((at for at in same if title(groups, at) == name), same[-1])
    children, members = groups[inside].children, set(nodes)
    places = [i for i, child in enumerate(children) if next(groups.leaves_of(child)) in members]
    first, after = places[0], places[-1] + 1
    is_rest = groups[inside].is_rest
    piece = Stretch(inside, "run", turns=after - first, is_rest=True) if is_rest else Stretch(inside, "segment")
    (made,) = groups.enclose(inside, [(first, after, piece)])
    return made


def _size(groups: Groups, at: int, most: int) -> int:
    """Nodes in a group, counted up to one more than `most`."""
    return sum(1 for _, _ in zip(groups.leaves_of(~at), range(most + 1)))
