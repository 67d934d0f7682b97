"""The style sheet of an SVG picture: a few rules for each theme, scoped so that pictures on one page stay apart.

Inlined in a page, the rules of an SVG hold for the whole page. So every rule begins with a class that only this picture
has. This module knows colours and fonts, no geometry.
"""

from __future__ import annotations

from typing import get_args

from gradviz.render.metrics import FONTS
from gradviz.render.options import Theme
from gradviz.render.page import NOTE_SIZE, TITLE_SIZE
from gradviz.render.palette import DARK, LIGHT, PALETTES, BoxKind, Palette
from gradviz.render.shades import DIM, border, ground
from gradviz.render.sizing import PLAIN_SIZE, STRONG_SIZE
from gradviz.render.wire_labels import SIZE as LABEL_SIZE

KINDS: tuple[BoxKind, ...] = get_args(BoxKind)


def style_sheet(scope: str, theme: Theme) -> str:
    """All rules for one picture whose root has the class `scope`."""
    rules = [*_shape_rules(), *_color_rules(PALETTES.get(theme, LIGHT) if theme != "auto" else LIGHT)]
    sheet = _scoped(scope, rules)
    if theme != "auto":
        return sheet
    return f"{sheet}\n@media (prefers-color-scheme:dark){{\n{_scoped(scope, _color_rules(DARK))}\n}}"


def _scoped(scope: str, rules: list[tuple[str, str]]) -> str:
    return "\n".join(
        ",".join(f".{scope} {part}".rstrip() for part in names.split(",")) + f"{{{what}}}" for names, what in rules
    )


def _shape_rules() -> list[tuple[str, str]]:
    """What is the same in every theme.

    Boxes are b, marked ones m; in them s is strong, v the name of a value, w a warning. Edges are e, their heads h, their
    labels l; frames f, their titles c; t is the title, n a note. Labels and frame titles stand in front of edges, with a
    rim of the background that keeps both apart.
    """
    fonts = ",".join(f'"{font}"' if " " in font else font for font in FONTS)
    return [
        ("text", f"font:{PLAIN_SIZE:g}px {fonts};white-space:pre"),
        (".gv-b text", "text-anchor:middle"),
        (".gv-b .gv-s", f"font-size:{STRONG_SIZE:g}px;font-weight:700"),
        (".gv-b .gv-v,.gv-b .gv-w", "font-weight:700"),
        (".gv-b .gv-m rect", "stroke-width:1.5;stroke-dasharray:4 2"),
        (".gv-n", f"font-size:{NOTE_SIZE:g}px"),
        (".gv-l", f"font-size:{LABEL_SIZE:g}px"),
        (".gv-c", f"font-size:{NOTE_SIZE:g}px"),
        (".gv-l,.gv-c", "paint-order:stroke;stroke-width:3px;stroke-linejoin:round"),
        (".gv-t", f"font-size:{TITLE_SIZE:g}px;font-weight:700"),
        (".gv-e path", "fill:none;stroke-width:1.2"),
        (".gv-e .gv-saved", "stroke-dasharray:5 3"),
        (".gv-e .gv-same", "stroke-dasharray:8 4"),
        (".gv-e .gv-view", "stroke-dasharray:1.5 3"),
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
        (".gv-f rect", f"fill:{colors.muted};fill-opacity:.06;stroke:{colors.border};stroke-opacity:.6"),
        (".gv-b text", f"fill:{colors.text};fill-opacity:{DIM:g}"),
        (".gv-b .gv-s,.gv-b .gv-v", "fill-opacity:1"),
        (".gv-b .gv-w", f"fill:{colors.warning};fill-opacity:1"),
    ]
    kinds = [(f".gv-b .gv-{kind} rect", f"fill:{colors.fill(kind)};stroke:{border(colors, kind)}") for kind in KINDS]
    return [*rules, *kinds, (".gv-b .gv-m rect", f"stroke:{colors.warning}")]
