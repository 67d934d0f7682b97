"""Writes a picture as SVG, in pieces, and small: shared style rules, short numbers, one
element for each thing.

Every text passes through `escape`. This module knows geometry and SVG, nothing of
graphs or layouts.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import get_args

import numpy as np

from gradviz.draw.options import Options, Theme
from gradviz.draw.palette import DARK, DIM, BoxKind, Palette, border, ground, palette
from gradviz.draw.picture import Picture, Sketch
from gradviz.draw.scene import Link
from gradviz.draw.typesetting import (
    FONTS,
    SIZES,
    Block,
    FrameBlock,
    Tone,
    Words,
    is_measured,
)
from gradviz.draw.wire_labels import SIZE as LABEL_SIZE
from gradviz.layout import Floats
from gradviz.report import notebook_theme
from gradviz.stages import Stage
from gradviz.wording import visible

# The style sheet of an SVG picture: a few rules for each theme, scoped so that pictures
# on one page stay apart. Inlined in a page, the rules of an SVG hold for the whole
# page. So every rule begins with a class that only this picture has.

KINDS: tuple[BoxKind, ...] = get_args(BoxKind)


def style_sheet(scope: str, theme: Theme, *, notebook: bool = False) -> str:
    """All rules for one picture whose root has the class `scope`. In a `notebook`
    "auto" is its theme, then the reader's.
    """
    rules = [*_shape_rules(), *_color_rules(palette(theme))]
    sheet = _scoped(scope, rules)
    if theme != "auto":
        return sheet
    reader = f"{scope}:not({notebook_theme.LIGHT} *)" if notebook else scope
    sheet += f"\n@media (prefers-color-scheme:dark){{\n{_scoped(reader, _color_rules(DARK))}\n}}"
    if notebook:
        return f"{sheet}\n{_scoped(f'{scope}:is({notebook_theme.DARK} *)', _color_rules(DARK))}"
    return sheet


def _scoped(scope: str, rules: list[tuple[str, str]]) -> str:
    lines = []
    for names, rule in rules:
        selectors = [f".{scope} {part}".rstrip() for part in names.split(",")]
        lines.append(f"{','.join(selectors)}{{{rule}}}")

    return "\n".join(lines)


def _shape_rules() -> list[tuple[str, str]]:
    """What is the same in every theme.

    Boxes are b, marked ones m; in them s is strong, v the name of a value, w a warning.
    Edges are e, their heads h, their labels l; frames f, their titles c; t is the
    title, n a note. Labels and frame titles stand in front of edges, with a rim of the
    background that keeps both apart.
    """
    listed = ",".join(f'"{font}"' if " " in font else font for font in FONTS)
    return [
        ("text", f"font:{SIZES['plain']:g}px {listed};white-space:pre"),
        (".gv-b text", "text-anchor:middle"),
        (".gv-b .gv-s", f"font-size:{SIZES['strong']:g}px;font-weight:700"),
        (".gv-b .gv-v,.gv-b .gv-w", "font-weight:700"),
        (".gv-b .gv-m rect", "stroke-width:1.5;stroke-dasharray:4 2"),
        (".gv-b .gv-ghost rect", "stroke-dasharray:4 3"),
        (".gv-n", f"font-size:{SIZES['dim']:g}px"),
        (".gv-l", f"font-size:{LABEL_SIZE:g}px"),
        (".gv-c", f"font-size:{SIZES['dim']:g}px"),
        (".gv-l,.gv-c", "paint-order:stroke;stroke-width:3px;stroke-linejoin:round"),
        (".gv-c", "stroke-width:6px"),
        (".gv-t", f"font-size:{SIZES['title']:g}px;font-weight:700"),
        (".gv-e path", "fill:none;stroke-width:1.2"),
        (".gv-e .gv-saved", "stroke-dasharray:5 3"),
        (".gv-e .gv-cut", "stroke-dasharray:4 3"),
    ]


def _color_rules(colors: Palette) -> list[tuple[str, str]]:
    rules = [
        ("", f"background:{colors.background}"),
        (".gv-bg", f"fill:{colors.background}"),
        ("text", f"fill:{colors.muted}"),
        (".gv-t", f"fill:{colors.text}"),
        (".gv-l,.gv-c", f"stroke:{ground(colors, 0)}"),
        (".gv-e path", f"stroke:{colors.line}"),
        (".gv-h", f"fill:{colors.line}"),
        (
            ".gv-f rect",
            f"fill:{colors.muted};fill-opacity:.06;stroke:{colors.border};stroke-opacity:.6",
        ),
        (".gv-b text", f"fill:{colors.text};fill-opacity:{DIM:g}"),
        (".gv-b .gv-s,.gv-b .gv-v", "fill-opacity:1"),
        (".gv-b .gv-w", f"fill:{colors.warning};fill-opacity:1"),
    ]
    kinds = [
        (
            f".gv-b .gv-{kind} rect",
            f"fill:{colors.fills[kind]};stroke:{border(colors, kind)}",
        )
        for kind in KINDS
    ]
    return [*rules, *kinds, (".gv-b .gv-m rect", f"stroke:{colors.warning}")]


AT_ONCE = 1000  # elements in one piece
TONE_CLASS: dict[Tone, str] = {
    "title": "gv-t",
    "strong": "gv-s",
    "name": "gv-v",
    "plain": "",
    "dim": "gv-n",
    "warning": "gv-w",
}


def render(sketch: Sketch, options: Options) -> Iterator[str]:
    """The graph as an SVG file, in pieces."""
    return write(sketch.picture(), options.theme)


def escape(text: str) -> str:
    """Text for an SVG element or attribute; what XML cannot hold and what cannot be
    seen shows as its escape.

    >>> print(escape("<lambda> & \\x00"))
    &lt;lambda&gt; &amp; \\x00
    """
    return html.escape(visible(text, keep="\n"), quote=False).replace('"', "&quot;")


def write(image: Picture, theme: Theme, *, fit: bool = False) -> Iterator[str]:
    """A picture as SVG in pieces. With `fit` it shrinks to the width of the page that
    it stands in.
    """
    scope = _scope(image, theme)
    width, height = number(image.width), number(image.height)
    fitting = ' style="max-width:100%;height:auto"' if fit else ""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' class="{scope}"{fitting} role="img" aria-labelledby="{scope}-t {scope}-d">\n'
        f'<title id="{scope}-t">{escape(image.title)}</title>\n<desc id="{scope}-d">{escape(image.description)}</desc>\n'
        f"<style>\n{style_sheet(scope, theme, notebook=fit)}\n</style>\n"
        f'<rect class="gv-bg" width="{width}" height="{height}"/>\n'
    )
    yield from _group("gv-f", (_frame(frame) for frame in image.frames))
    with Stage("write", "edges", total=len(image.wires)) as writing:
        yield from _group("gv-e", writing.each(_wires(image)))

    yield from _heads(image)
    with Stage("write", "boxes", total=len(image.blocks)) as writing:
        yield from _group(
            "gv-b", map(_block, chain(image.swatches, writing.each(image.blocks)))
        )

    yield from _joined(_words(words) for words in image.words)
    yield from _joined(_words(words, "gv-l") for words in image.wire_words)
    yield from _joined(
        _words(words, "gv-c") for frame in image.frames for words in frame.words
    )
    yield "</svg>\n"


def _scope(image: Picture, theme: Theme) -> str:
    """A class that other pictures on the same page do not have, the same at every run."""
    identity = (
        theme,
        image.width,
        image.height,
        image.title,
        image.description,
        len(image.blocks),
        len(image.wires),
    )
    return "gv-" + hashlib.sha256(repr(identity).encode()).hexdigest()[:8]


# -- pieces ----------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def number(value: float) -> str:
    """A length with at most one decimal.

    >>> number(3.0), number(0.25), number(-0.04)
    ('3', '0.2', '0')
    """
    if value == (integer := int(value)):  # nearly always, and rounding is slow
        return str(integer)
    # adding turns a negative zero into zero
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def numbers(values: Floats) -> list[str]:
    """`number` of many values at once, which takes a tenth of the time.

    >>> numbers(np.array([[3.0, 0.25], [-0.04, 1e7]]))
    ['3', '0.2', '0', '10000000']
    """
    flat = (values.round(1) + 0.0).ravel().tolist()
    return ("%.1f " * len(flat) % tuple(flat)).replace(".0 ", " ").split()


def _joined(elements: Iterable[str]) -> Iterator[str]:
    """The elements, many in one piece."""
    elements = iter(elements)
    while piece := "".join(islice(elements, AT_ONCE)):
        yield piece


def _group(name: str, elements: Iterable[str]) -> Iterator[str]:
    """The elements inside a `g`; nothing when there are none."""
    opened = False
    for piece in _joined(elements):
        yield piece if opened else f'<g class="{name}">\n{piece}'
        opened = True
    if opened:
        yield "</g>\n"


# -- elements --------------------------------------------------------------------------


def _block(block: Block) -> str:
    name = f"gv-{block.kind} gv-m" if block.marked else f"gv-{block.kind}"
    tip = f"<title>{escape(block.tooltip)}</title>" if block.tooltip else ""
    x, y, width, height = map(number, block.rect)
    rounding = 5 if block.words else 2
    rect = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{rounding}"/>'
    lines = "".join(map(_words, block.words))
    return f'<g class="{name}">{tip}{rect}{lines}</g>\n'


def _words(words: Words, name: str | None = None) -> str:
    x, y, text, tone, width, centred = words
    return f'<text x="{number(x)}" y="{number(y)}"{_text(text, TONE_CLASS[tone] if name is None else name, width, centred)}'


@lru_cache(maxsize=65536)
def _text(text: str, name: str, width: float, centred: bool) -> str:
    """What follows the place of a text. Thousands of boxes read the same."""
    style = f' class="{name}"' if name else ""
    # a font that we did not measure draws it: make it keep to its room
    if not is_measured(text):
        style += f' textLength="{number(width)}" lengthAdjust="spacingAndGlyphs"'
    end = "" if centred else "\n"
    return f"{style}>{escape(text)}</text>{end}"


def _frame(frame: FrameBlock) -> str:
    x, y, width, height = (number(side) for side in frame.rect)
    tip = f"<title>{escape(frame.tooltip)}</title>"
    rect = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    return f"<g>{tip}{rect}</g>\n"


def _wires(image: Picture) -> Iterator[str]:
    """One path for each wire that is drawn. Numbers become text for many wires at a
    time.
    """
    starts = image.curves.starts.tolist()
    for first in range(0, len(image.wires), AT_ONCE):
        wires = range(first, min(first + AT_ONCE, len(image.wires)))
        begin = starts[first]
        texts = numbers(image.curves.points[begin : starts[wires.stop]])

        for i in wires:
            if starts[i] < starts[i + 1]:
                yield _wire(
                    image.wires[i],
                    path_data(
                        texts[2 * (starts[i] - begin) : 2 * (starts[i + 1] - begin)]
                    ),
                )


def _wire(link: Link, path: str) -> str:
    name = "" if link.style == "data" else f' class="gv-{link.style}"'
    if link.label:
        return f'<path{name} d="{path}"><title>{escape(link.label)}</title></path>\n'
    return f'<path{name} d="{path}"/>\n'


def path_data(texts: Sequence[str]) -> str:
    """Control points, as x and y in turn, as path data; pieces that run straight down
    or up become lines.

    >>> path_data(["1", "0", "1", "3", "1", "6", "1", "9"]), path_data(["1", "0", "1", "3", "4", "6", "4", "9"])
    ('M1 0V9', 'M1 0C1 3 4 6 4 9')
    """
    x = texts[0]
    parts = [f"M{x} {texts[1]}"]
    for i in range(2, len(texts) - 5, 6):
        x1, y1, x2, y2, x3, y3 = texts[i : i + 6]
        parts.append(
            f"V{y3}" if x == x1 == x2 == x3 else f"C{x1} {y1} {x2} {y2} {x3} {y3}"
        )
        x = x3
    return "".join(parts)


def _heads(image: Picture) -> Iterator[str]:
    """All arrowheads, many in one path."""
    heads = image.curves.heads
    for first in range(0, len(heads), AT_ONCE):
        some = heads[first : first + AT_ONCE]
        some = some[~np.isnan(some[:, 0, 0])]
        if len(some):
            path = "M%s %sL%s %s %s %sz" * len(some) % tuple(numbers(some))
            yield f'<path class="gv-h" d="{path}"/>\n'
