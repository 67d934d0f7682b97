"""Writes a scene as a Mermaid flowchart in a Markdown page, as GitHub, GitLab and
notebooks show it.

Mermaid refuses more than 500 edges and 50,000 characters. Above that the drawing is
cut, from the outputs on, and both the drawing and the page say so. This module decides
nothing else about what is drawn.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gradviz.draw.frames import nested
from gradviz.draw.palette import palette
from gradviz.draw.scene import Box, Link, Scene, scene
from gradviz.report.labels import more
from gradviz.wording import count_text, one_line, plural

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.graph import Graph

MAX_LINKS = 500
END = "  end\n"
# of Mermaid's 50,000; the rest is for the frame around the boxes
MAX_CHARACTERS = 49_000
_DIRECTION = {
    "auto": "TD",
    "down": "TD",
    "up": "BT",
    "right": "LR",
    "left": "RL",
}
_ARROW = {
    "data": "-->",
    "view": "-.->",
    "saved": "---",
    "same": "-.-",
    "cut": "-.->",
}
# besides letters and digits, what neither Mermaid nor Markdown reads as markup
_PLAIN = frozenset(" ,()/=")
# what Mermaid takes as it is, except where a line begins
_PLAIN_INSIDE = frozenset(".:_+-'[]")
# some versions of Mermaid refuse a label that looks like a list
_LIST_MARK = re.compile(r"\d+[.)]")


def render(graph: Graph, options: Options) -> Iterator[str]:
    """A Markdown page with one flowchart, in pieces."""
    return page(scene(graph, options), options)


def page(drawn: Scene, options: Options) -> Iterator[str]:
    """A Markdown page of a scene: title, flowchart, footer."""
    part = cut(drawn)
    if drawn.title.strip():
        yield f"**{escape(drawn.title.strip(), '&')}**\n\n"

    yield f"```mermaid\nflowchart {_DIRECTION[options.direction]}\n"
    yield from _boxes(drawn, part)
    for link in part.links:
        yield _link(link)

    left = len(drawn.boxes) - len(part.boxes)
    if left:
        yield f'  more["{escape(more(left) + " boxes")}"]\n'

    yield from _colors(drawn, options)
    yield "```\n\n"
    for line in filter(None, (drawn.dtype, *_cut_lines(drawn, part), *drawn.footer)):
        yield f"- {escape(line, '&')}\n"


def escape(text: str, lead: str = "") -> str:
    """One line of text with all that could be markup as numbered entities: Mermaid's,
    or Markdown's with `&` as lead.

    >>> escape('<b>"x"')
    '#60;b#62;#34;x#34;'
    >>> escape("out['y'][0]: 1.5"), escape("1. a"), escape("- a")
    ("out['y'][0]: 1.5", '1#46; a', '#45; a')
    """
    line = one_line(text)
    begins = _LIST_MARK.match(line)
    first = begins.end() if begins else 1
    return "".join(
        c if _is_plain(c, not lead and i >= first) else f"{lead}#{ord(c)};"
        for i, c in enumerate(line)
    )


def _is_plain(c: str, inside: bool) -> bool:
    return c.isalnum() or c in _PLAIN or ord(c) > 127 or (inside and c in _PLAIN_INSIDE)


class DrawnPart(NamedTuple):
    """What of a scene is drawn."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]


def cut(drawn: Scene) -> DrawnPart:
    """As much of a scene as Mermaid draws: the boxes nearest to the outputs, and the
    links between them.
    """
    if len(drawn.links) <= MAX_LINKS:
        borders = sum(_frame_characters(drawn, i) for i in range(len(drawn.frames)))
        if _characters(drawn.boxes, drawn.links) + borders <= MAX_CHARACTERS:
            return DrawnPart(drawn.boxes, drawn.links)

    touching: dict[int, list[Link]] = {}
    for link in drawn.links:
        touching.setdefault(link.source, []).append(link)
        touching.setdefault(link.target, []).append(link)

    boxes: dict[int, Box] = {}
    links: list[Link] = []
    framed: set[int] = set()
    room = MAX_CHARACTERS

    for box in _nearest_first(drawn, touching):
        boxes[box.id] = box
        its_links = [
            link
            for link in touching.get(box.id, ())
            if link.source in boxes and link.target in boxes
        ]
        frame = box.frame
        while frame is not None and frame not in framed:
            framed.add(frame)
            room -= _frame_characters(drawn, frame)
            frame = drawn.frames[frame].parent
        room -= _characters([box], its_links)
        # ends here: smaller boxes further away would leave holes
        if room < 0 or len(links) + len(its_links) > MAX_LINKS:
            del boxes[box.id]
            break
        links += its_links

    return DrawnPart(tuple(boxes.values()), tuple(links))


def _nearest_first(
    drawn: Scene,
    touching: dict[int, list[Link]],
) -> Iterator[Box]:
    """Boxes by their distance from the outputs; those that no output leads to come
    last.
    """
    starts = [box.id for box in drawn.boxes if box.kind == "output"]
    seen = set(starts)
    waiting = deque(starts)
    rest = iter(drawn.boxes)

    while True:
        while waiting:
            box_id = waiting.popleft()
            yield drawn.boxes[box_id]
            for link in touching.get(box_id, ()):
                if link.target == box_id and link.source not in seen:
                    seen.add(link.source)
                    waiting.append(link.source)
        unreached = next(
            (box for box in rest if box.id not in seen),
            None,
        )
        if unreached is None:
            return
        seen.add(unreached.id)
        waiting.append(unreached.id)


def _characters(
    boxes: Iterable[Box],
    links: Iterable[Link],
) -> int:
    return sum(len(_box(box)) for box in boxes) + sum(
        len(_link(link)) for link in links
    )


def _boxes(drawn: Scene, part: DrawnPart) -> Iterator[str]:
    """The boxes of a part, those of a module inside its subgraph."""
    for item, _ in nested(part.boxes, drawn.frames):
        if item is None:
            yield END
        elif isinstance(item, int):
            yield _begin(drawn, item)
        else:
            yield _box(item)


def _begin(drawn: Scene, frame: int) -> str:
    return f'  subgraph f{frame}["{escape(drawn.frames[frame].title)}"]\n'


def _frame_characters(drawn: Scene, frame: int) -> int:
    return len(_begin(drawn, frame)) + len(END)


def _cut_lines(drawn: Scene, part: DrawnPart) -> Iterator[str]:
    if len(part.boxes) < len(drawn.boxes):
        boxes = f"{count_text(len(part.boxes))} of {plural(len(drawn.boxes), 'box', 'boxes')}"
        links = f"{count_text(len(part.links))} of {plural(len(drawn.links), 'link')}"
        yield f"cut: {boxes} and {links} are drawn, as Mermaid draws no more; fold the graph or save it as svg to see all"


def _box(box: Box) -> str:
    label = "<br/>".join(map(escape, (*box.lines, *box.flags)))
    return f'  n{box.id}["{label}"]:::{box.kind}\n'


def _link(link: Link) -> str:
    label = f'|"{escape(link.label)}"|' if link.label else ""
    return f"  n{link.source} {_ARROW[link.style]}{label} n{link.target}\n"


def _colors(drawn: Scene, options: Options) -> Iterator[str]:
    colors = palette(options.theme)
    for entry in drawn.legend:
        dashed = ",stroke-dasharray:4" if entry.kind == "ghost" else ""
        yield f"  classDef {entry.kind} fill:{colors.fills[entry.kind]},stroke:{colors.border},color:{colors.text}{dashed}\n"
