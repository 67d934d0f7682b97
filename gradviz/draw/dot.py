"""Writes a scene as DOT source, for people who have their own Graphviz.

Ids are opaque (`n17`); every text passes `quote`. Colours are those of the palette.
This module decides nothing about what is drawn, and runs no Graphviz.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gradviz.draw.frames import nested
from gradviz.draw.palette import Palette, palette
from gradviz.draw.scene import Box, Link, Scene
from gradviz.stages import Stage
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.draw.picture import Sketch

RANKDIR = {"auto": "TB", "down": "TB", "right": "LR"}
_STYLE = {"data": (), "saved": ("dir=none",), "cut": ("style=dashed",)}
# Graphviz reads HTML entities in plain labels too
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def render(sketch: Sketch, options: Options) -> Iterator[str]:
    """DOT source in pieces, one statement each. A leaf's box stands for its
    AccumulateGrad node too.
    """
    return dot(sketch.scene, options)


def dot(drawn: Scene, options: Options) -> Iterator[str]:
    """DOT source of a scene, statement by statement."""
    colors = palette(options.theme)
    yield "digraph gradviz {\n"
    yield from _defaults(drawn, options, colors)
    with Stage("write", "boxes", total=len(drawn.boxes)) as writing:
        yield from writing.each(_boxes(drawn, colors))
    with Stage("write", "edges", total=len(drawn.links)) as writing:
        for link in writing.each(drawn.links):
            yield _link(link)
    yield from _legend(drawn, colors)
    yield "}\n"


def quote(lines: Iterable[str], *, left: bool = False) -> str:
    r"""A quoted DOT string of one or more lines, centred unless `left`.

    >>> print(quote(['say "hi"', 'C:\\x']))
    "say \"hi\"\nC:\\x"
    """
    escaped = [one_line(line).translate(_ESCAPES) for line in lines]
    text = "".join(f"{line}\\l" for line in escaped) if left else "\\n".join(escaped)
    return f'"{text}"'


def _defaults(drawn: Scene, options: Options, colors: Palette) -> Iterator[str]:
    font = f'fontname="Helvetica,Arial,sans-serif", fontcolor="{colors.text}"'
    below = [text for text in (drawn.title, drawn.dtype) if text]
    # without it, data that leaves a module and comes back is refused
    ranks = ", newrank=true" if drawn.frames else ""
    yield f'  graph [rankdir={RANKDIR[options.direction]}{ranks}, bgcolor="{colors.background}", {font}, fontsize=9,\n'
    yield f"    labelloc=b, labeljust=l, label={quote((*below, *drawn.footer), left=True)}];\n"
    yield f'  node [shape=box, style="filled,rounded", fillcolor="{colors.fills["op"]}", color="{colors.border}", {font},\n'
    yield '    fontsize=10, height=0.2, margin="0.11,0.05"];\n'
    yield f'  edge [color="{colors.line}", {font}, fontsize=9, arrowsize=0.7];\n'


def _boxes(drawn: Scene, colors: Palette) -> Iterator[str]:
    """All boxes, those of a module inside its cluster."""
    for part, level in nested(drawn.boxes, drawn.frames):
        indent = "  " * (level + 1)
        if part is None:
            yield f"{indent}}}\n"
        elif isinstance(part, int):
            yield _cluster(part, drawn, colors, indent)
        else:
            yield _box(part, colors, indent)


def _cluster(frame: int, drawn: Scene, colors: Palette, indent: str) -> str:
    title = quote((drawn.frames[frame].title,))
    look = f'labelloc=t; labeljust=l; style=rounded; color="{colors.border}";'
    return f"{indent}subgraph cluster_{frame} {{\n{indent}  label={title}; {look}\n"


def _box(box: Box, colors: Palette, indent: str) -> str:
    words = [f"label={quote((*box.lines, *box.flags))}"]
    if box.kind != "op":
        words.append(f'fillcolor="{colors.fills[box.kind]}"')
    if box.kind == "ghost":
        words.append('style="filled,dashed"')
    if box.flags:
        words.append(f'color="{colors.warning}"')
    return f"{indent}n{box.id} [{', '.join(words)}];\n"


def _link(link: Link) -> str:
    words = list(_STYLE[link.style])
    if link.label:
        words.append(f"label={quote((link.label,))}")
    attributes = f" [{', '.join(words)}]" if words else ""
    return f"  n{link.source} -> n{link.target}{attributes};\n"


def _legend(drawn: Scene, colors: Palette) -> Iterator[str]:
    if not drawn.legend:
        return
    yield '  subgraph cluster_legend {\n    label="legend"; labelloc=t; labeljust=l; style=dashed;\n'
    yield f'    color="{colors.border}"; node [fontsize=8];\n'
    for i, entry in enumerate(drawn.legend):
        yield f'    legend{i} [label={quote((entry.text,))}, fillcolor="{colors.fills[entry.kind]}"];\n'
    yield "  }\n"
