"""The colours, and what each of them means: those of torchviz, once for light and once for dark pages.

Light blue is a leaf, grey a backward function, orange a saved tensor, green an output and dark green the base of a
view. This module knows colours and their meaning, not how any format writes them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

BoxKind = Literal["op", "leaf", "output", "base", "saved", "group"]

MEANING: dict[BoxKind, str] = {
    "leaf": "leaf: its .grad is filled by backward()",
    "op": "backward function",
    "group": "several backward functions, folded",
    "saved": "tensor saved for backward",
    "output": "output",
    "base": "base of a view, on a dotted line",
}
"""What the legend says, in the order it says it."""


class Palette(NamedTuple):
    """Colours of one theme, as `#rrggbb`. The first six are fills, one per kind of box."""

    op: str
    leaf: str
    output: str
    base: str
    saved: str
    group: str
    background: str
    text: str
    muted: str  # second lines, footers, scope titles
    line: str  # edges
    border: str  # boxes and frames
    warning: str  # flags: freed, modified in place, hidden

    def fill(self, kind: BoxKind) -> str:
        """The fill of one kind of box."""
        color: str = getattr(self, kind)
        return color


LIGHT = Palette(
    op="#d3d3d3",
    leaf="#add8e6",
    output="#caff70",
    base="#a2cd5a",
    saved="#ffa500",
    group="#e8e8f2",
    background="#ffffff",
    text="#000000",
    muted="#555555",
    line="#555555",
    border="#777777",
    warning="#b00020",
)
DARK = Palette(
    op="#3d4147",
    leaf="#1d4e63",
    output="#37570f",
    base="#2c4a1e",
    saved="#784400",
    group="#333552",
    background="#16181c",
    text="#f2f2f2",
    muted="#b0b4ba",
    line="#9aa0a6",
    border="#7d838a",
    warning="#ffada6",
)
PALETTES: dict[Literal["light", "dark"], Palette] = {"light": LIGHT, "dark": DARK}
