"""Writes a scene as a Mermaid flowchart in a Markdown page, as GitHub, GitLab and
notebooks show it.

Mermaid refuses more than 500 edges and 50,000 characters, and so does this module, with
advice. It decides nothing about what is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradviz.draw.frames import nested
from gradviz.draw.palette import HEAT, MEANING, palette
from gradviz.draw.scene import Box, Link, Scene
from gradviz.errors import FormatError
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.draw.picture import Sketch

MAX_LINKS = 500
MAX_CHARACTERS = 50_000
_DIRECTION = {"auto": "TD", "down": "TD", "right": "LR"}
_ARROW = {"data": "-->", "saved": "---", "cut": "-.->"}
# all but letters, digits, and what neither Mermaid nor Markdown reads as markup
_MARKDOWN = re.compile(r"[^\w ,()/=\x80-\U0010ffff]|_")
# what Mermaid takes as it is, except where a line begins
_MERMAID = re.compile(r"[^\w ,()/=.:+'\[\]\x80-\U0010ffff-]|^[.:_+'\[\]-]")
# some versions of Mermaid refuse a label that looks like a list
_LIST_MARK = re.compile(r"^(\d+)\.")


def render(sketch: Sketch, options: Options) -> Iterator[str]:
    """A Markdown page with one flowchart, in pieces."""
    return page(sketch.scene, options)


def page(drawn: Scene, options: Options) -> Iterator[str]:
    """A Markdown page of a scene: title, flowchart, footer. Raises FormatError when it
    is too large for Mermaid.
    """
    chart = "".join(_chart(drawn, options))
    if len(drawn.links) > MAX_LINKS or len(chart) > MAX_CHARACTERS:
        raise FormatError(
            f"the picture is too large for Mermaid: {len(drawn.links):,} edges and {len(chart):,} characters, "
            f"and Mermaid draws at most {MAX_LINKS} and {MAX_CHARACTERS:,}. "
            "Write SVG, which has no limit, or fold the graph to fewer boxes."
        )

    if drawn.title.strip():
        yield f"**{escape(drawn.title.strip(), '&')}**\n\n"
    yield f"```mermaid\n%% gradviz\n{chart}```\n\n"
    for line in filter(None, (drawn.dtype, *drawn.footer)):
        yield f"- {escape(line, '&')}\n"


def _chart(drawn: Scene, options: Options) -> Iterator[str]:
    """The flowchart: the boxes of a module inside its subgraph, links, colours."""
    yield f"flowchart {_DIRECTION[options.direction]}\n"
    for item, _ in nested(drawn.boxes, drawn.frames):
        if item is None:
            yield "  end\n"
        elif isinstance(item, int):
            yield f'  subgraph f{item}["{escape(drawn.frames[item].title)}"]\n'
        else:
            yield _box(item)

    yield from map(_link, drawn.links)
    colors = palette(options.theme)
    drawn_kinds = {box.kind for box in drawn.boxes}
    for kind in filter(drawn_kinds.__contains__, (*MEANING, *HEAT)):
        dashed = ",stroke-dasharray:4" if kind == "ghost" else ""
        yield f"  classDef {kind} fill:{colors.fills[kind]},stroke:{colors.border},color:{colors.text}{dashed}\n"


def escape(text: str, lead: str = "") -> str:
    """One line of text with all that could be markup as numbered entities: Mermaid's,
    or Markdown's with `&` as lead.

    >>> escape('<b>"x"')
    '#60;b#62;#34;x#34;'
    >>> escape("out['y'][0]: 1.5"), escape("1. a"), escape("- a")
    ("out['y'][0]: 1.5", '1#46; a', '#45; a')
    """
    markup = _MARKDOWN if lead else _MERMAID
    line = markup.sub(lambda found: f"{lead}#{ord(found[0])};", one_line(text))
    return line if lead else _LIST_MARK.sub(r"\1#46;", line)


def _box(box: Box) -> str:
    label = "<br/>".join(map(escape, (*box.lines, *box.flags)))
    return f'  n{box.id}["{label}"]:::{box.kind}\n'


def _link(link: Link) -> str:
    label = f'|"{escape(link.label)}"|' if link.label else ""
    return f"  n{link.source} {_ARROW[link.style]}{label} n{link.target}\n"
