"""Frozen layers that still save activations, because a parameter trains before them.
Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradviz.graph import Graph
from gradviz.graph.amounts import ONLY_GRAPH, forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.memory.series import series
from gradviz.wording import bytes_text, few, one_line, plural, verb

FEW = 4
"""More tensors than this that train before frozen layers do so on purpose."""


def frozen_notes(graph: Graph) -> Iterator[str]:
    """One sentence where freezing the lowest trainable parameters would free what
    frozen layers save.
    """
    tree = ScopeTree(graph)
    layers = _frozen_layers(graph, tree)
    if not layers:
        return

    place = {node: i for i, node in enumerate(forward_order(graph))}
    causes = _leaves_before(
        graph,
        min(
            (node for nodes in layers.values() for node in nodes), key=place.__getitem__
        ),
    )
    others = _trained_otherwise(graph, causes)
    kept = {path: nodes for path, nodes in layers.items() if others.isdisjoint(nodes)}
    nbytes = _saved_by_no_other(graph, others)

    if nbytes and kept and len(causes) <= FEW:
        names = [
            one_line(graph.leaf_of[leaf].names[0])
            for leaf in sorted(causes, reverse=True)
            if graph.leaf_of[leaf].names
        ]
        alike = [layer.title or "the model" for layer in series([*kept], str, len)]
        yield (
            f"{plural(len(kept), 'frozen layer')} ({few(alike, 3)}) {verb(kept, 'is', 'are')} kept for backward only because "
            f"{few(names, 3) or 'an input'} {verb(causes, 'trains', 'train')} before {verb(kept, 'it', 'them')}: "
            f"freezing {verb(causes, 'it', 'them')} would free {bytes_text(nbytes)}"
        )


def _saved_by_no_other(graph: Graph, others: set[int]) -> int:
    """Bytes of the storages that only nodes outside these saved."""
    storages = {i for node in graph.nodes for slot in node.saved for i in slot.storages}
    stay = {
        i for node in others for slot in graph.nodes[node].saved for i in slot.storages
    }
    records = (graph.storages[i] for i in storages - stay)
    return sum(record.nbytes or 0 for record in records if record.kind in ONLY_GRAPH)


def _frozen_layers(
    graph: Graph,
    tree: ScopeTree,
) -> Mapping[str, list[int]]:
    """The nodes of the outermost modules that saved a parameter which does not train,
    and have none that does.
    """
    trained = {leaf.storage for leaf in graph.leaves}
    mixed: set[int] = set()
    frozen: set[int] = set()

    for node in graph.nodes:
        scopes = tree.around(node.scope) if node.scope is not None else ()
        if node.id in graph.leaf_of:
            mixed.update(scopes)
        kinds = {
            graph.storages[i].kind
            for slot in node.saved
            for i in slot.storages
            if i not in trained
        }
        if "parameter" in kinds:
            frozen.update(scopes)

    frozen -= mixed
    layers: dict[str, list[int]] = {}
    for scope in tree.top_down:
        if (
            scope in frozen
            and graph.scopes[scope].parent not in frozen
            and tree.members[scope]
        ):
            layers.setdefault(
                graph.scopes[scope].path,
                [],
            ).extend(tree.members[scope])

    return layers


def _leaves_before(graph: Graph, node: int) -> set[int]:
    """The leaves that a node sends a gradient to."""
    reached, waiting = {node}, [node]
    while waiting:
        new = {edge.producer for edge in graph.inputs(waiting.pop())} - reached
        reached |= new
        waiting.extend(new)
    return reached & graph.leaf_of.keys()


def _trained_otherwise(
    graph: Graph,
    causes: set[int],
) -> set[int]:
    """The nodes that send a gradient to other leaves than these."""
    others = graph.leaf_of.keys() - causes
    for node in reversed(graph.order):
        if any(edge.producer in others for edge in graph.inputs(node)):
            others.add(node)
    return others
