"""The scene of a picture for a text or a slide: ops in boxes, tensors on the edges, and what comes in without a gradient.

Nothing is said of backward functions, lines of code and bytes, and there is no footer; a folded box says what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import Box, Drafter, Legend, Link, Scene
from gradviz.graph import Edge, Graph, SavedTensor
from gradviz.report import labels
from gradviz.wording import tensor_line

_MEANING: dict[BoxKind, str] = {
    "leaf": "leaf: receives .grad",
    "op": "op",
    "group": "several ops",
    "output": "output",
    "input": "input without gradient",
}


def paper(graph: Graph, options: Options) -> Scene:
    """The scene of a graph, folded or not."""
    return _PaperDrafter(graph, replace(options, names="forward", attributes=False)).draft()


class _PaperDrafter(Drafter):
    def draft(self) -> Scene:
        drawn = super().draft()
        boxes, links = [self._plain(box) for box in drawn.boxes], list(drawn.links)
        for slot, name, users in self._inputs():
            boxes.append(Box(len(boxes), "input", (name, self.brief(tensor_line(slot.tensor))), None, slot))
            links += [Link(len(boxes) - 1, self.box_of[user]) for user in users]
        kinds = {box.kind for box in boxes}
        legend = [Legend(kind, text) for kind, text in _MEANING.items() if kind in kinds]
        legend += [entry for entry in drawn.legend if entry.kind not in _MEANING]
        made = drawn._replace(boxes=tuple(boxes), links=tuple(links), legend=tuple(legend))
        return made._replace(title="", footer=(), aside=(drawn.title, *drawn.footer))

    def _plain(self, box: Box) -> Box:
        """A box without what stands on its edges; leaves and outputs have their shape in the box."""
        if box.about is not None or box.node is None:
            return box._replace(lines=box.lines[:2])
        group = self.graph.nodes[box.node].group
        same = labels.same_line(group) if group is not None else ""
        return box._replace(lines=(box.lines[0], *filter(None, [same])))

    def _edge_words(self, edge: Edge) -> str:
        """The variable that holds the tensor, and its shape."""
        record = self.graph.nodes[edge.producer]
        if edge.producer in self.graph.leaf_of or edge.output >= len(record.outputs):
            return ""
        title = labels.op_title(self.graph, record, self._path(record.scope))
        name = title.name if title.op and record.group is None else ""
        return f"{name} {self.brief(tensor_line(record.outputs[edge.output]))}".strip()

    def _which(self, node: int, output: int) -> str:
        return ""  # an output's own box has its name and shape

    def _inputs(self) -> Iterator[tuple[SavedTensor, str, list[int]]]:
        """Inputs that need no gradient, as far as some op saved them: a slot, the name, and who uses it."""
        whole = self.graph.original or self.graph
        found: dict[int, tuple[SavedTensor, dict[int, None]]] = {}
        for box, nodes in enumerate(self.graph.inside):
            for slot in (slot for node in nodes for slot in whole.nodes[node].saved):
                if slot.kind == "input" and slot.leaf is None and slot.storage is not None and box in self.box_of:
                    found.setdefault(slot.storage, (slot, {}))[1][box] = None
        for storage, (slot, users) in found.items():
            yield slot, labels.names_text(whole.storages[storage].names) or "input", list(users)
