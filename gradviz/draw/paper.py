"""The scene of a picture for a text or a slide: ops in boxes, tensors on the edges, and what comes in without a gradient.

Nothing is said of backward functions, lines of code and bytes, and there is no footer; a folded box says what is in it.
"""

from __future__ import annotations

from dataclasses import replace

from gradviz.draw.options import Options
from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import Box, Drafter, Legend, Scene
from gradviz.graph import Edge, Graph
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
        boxes = [self._plain(box) for box in drawn.boxes]
        kinds = {box.kind for box in boxes}
        legend = [Legend(kind, text) for kind, text in _MEANING.items() if kind in kinds]
        legend += [entry for entry in drawn.legend if entry.kind not in _MEANING]
        made = drawn._replace(boxes=tuple(boxes), legend=tuple(legend))
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
