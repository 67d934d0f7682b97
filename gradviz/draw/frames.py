"""The frames of a drawing: one border for each open module call that something visible
lies in.

This module decides which frames there are, what is written on them, and in which order
boxes lie in them; it knows no coordinates and no format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gradviz.fold.folding import Folding
from gradviz.fold.titles import LONGEST, titled
from gradviz.graph import Data, Graph, Scope
from gradviz.graph.amounts import parameter_elements
from gradviz.graph.origins import ScopeTree, around, calls_from
from gradviz.graph.walks import users
from gradviz.report import labels
from gradviz.wording import clip, count_text, one_line, plural

if TYPE_CHECKING:
    from gradviz.draw.scene import Box


class Frame(NamedTuple):
    """A border around boxes: one call of one module. `parent` is the index of the frame
    around it.

    `title` leaves out what the frame around it says already; `full` does not, and is
    for tooltips.
    """

    title: str
    parent: int | None
    scope: int
    full: str = ""


class Frames:
    """Numbers frames as boxes ask for them; `drawn` are those asked for, a frame's
    parent always before it.
    """

    def __init__(self, folding: Folding) -> None:
        graph = self._graph = folding.graph
        self._boxes = folding.boxes
        self._tree = ScopeTree(graph)
        self._calls_from = graph.fact(calls_from)
        self._used = graph.fact(_used)
        self._number: dict[int, int] = {}
        self.drawn: list[Frame] = []

    def of(self, scope: int | None) -> int | None:
        """The frame of a box that lies in `scope`: that scope's own."""
        if scope is None or scope in self._number:
            return None if scope is None else self._number[scope]

        # the outermost first, since a frame needs the number of its parent
        for inner in reversed(list(self._tree.around(scope))):
            if inner not in self._number:
                record, parent = self._graph.scopes[inner], None
                outer_path = self._tree.module_path(record.parent)
                if record.parent is not None:
                    parent = self._number[record.parent]
                if record.kind == "turn" and parent is not None:
                    self._number[inner] = parent  # the loop's frame is around it
                    continue

                self._number[inner] = len(self.drawn)
                used = self._used[inner]
                title = frame_title(record, used, outer_path)
                full = frame_title(record, used)
                line = self._calls_from.get(inner)
                if line is not None:
                    full += f", from {labels.source_text(line)}"
                self.drawn.append(Frame(title, parent, inner, full))

        return self._number[scope]

    def around(self, boxes: Sequence[int]) -> int | None:
        """The innermost scope that holds all of these boxes, None when there is none."""
        return self._tree.common({self._boxes[box].scope for box in boxes})

    def is_within(self, scope: int | None, outer: int) -> bool:
        """Whether a scope is another one, or inside it."""
        return outer in self._tree.around(scope)

    def where_written(self, scope: int | None, data: Data) -> int | None:
        """The innermost scope around this one in which data was written."""
        return self._tree.where_written(scope, data)


def _used(graph: Graph) -> Counter[int]:
    """How many elements of parameters the ops in each module call use."""
    used = Counter[int]()
    for leaf, elements in graph.fact(parameter_elements).items():
        scopes = {graph.nodes[user].scope for user in users(graph, leaf)}
        ways = (around(graph.scopes, scope) for scope in scopes)
        used.update(dict.fromkeys(chain.from_iterable(ways), elements))
    return used


def frame_title(scope: Scope, used: int, module: str = "") -> str:
    """Path, class, which call when it is a later one, and parameters:
    `fc Linear, 12 parameters`.

    The path is given relative to the module `module`. `used`: elements of its
    parameters that are in the graph.
    """
    path = scope.path.removeprefix(f"{module}.") if module else scope.path
    words = [clip(one_line(titled(path, scope.type)), LONGEST)]
    if scope.turns:
        words[0] += f" {labels.again(scope.turns)}"
    if scope.call > 1:
        words.append(f"call {count_text(scope.call)}")

    if scope.parameters and used and used != scope.parameters:
        words.append(f"{count_text(used)} of {plural(scope.parameters, 'parameter')}")
    elif scope.parameters:
        words.append(plural(scope.parameters, "parameter"))
    if scope.is_frozen:
        words.append("frozen")

    return ", ".join(words)


def nested(
    boxes: Iterable[Box], frames: Sequence[Frame]
) -> Iterator[tuple[Box | int | None, int]]:
    """The boxes in nested order, between the index of the frame that begins and None
    where it ends, each with its level.
    """
    # the frames around what lies in a frame, from the outermost in
    way: dict[int | None, tuple[int, ...]] = {None: ()}
    for i, frame in enumerate(frames):
        way[i] = (*way[frame.parent], i)

    opened: tuple[int, ...] = ()
    for box in sorted(boxes, key=lambda box: way[box.frame]):
        inside = way[box.frame]
        while opened != inside[: len(opened)]:
            opened = opened[:-1]
            yield None, len(opened)
        for index in inside[len(opened) :]:
            yield index, len(opened)
            opened = (*opened, index)
        yield box, len(opened)

    for level in reversed(range(len(opened))):
        yield None, level
