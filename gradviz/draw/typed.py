"""The options of `Graph.save` and its kin as editors and type checkers see them. A test
compares these fields with those of `Options`; nothing imports this while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict

from gradviz.draw.options import (
    By,
    Color,
    Direction,
    Leaves,
    Links,
    Names,
    Theme,
    Views,
)


class DrawOptions(TypedDict, total=False):
    """What can be said of a picture, page or tree."""

    direction: Direction
    names: Names
    depth: int | Literal["auto", "all"]
    focus: str | None
    expand: str | Sequence[str]
    views: Views
    leaves: Leaves
    title: str | None
    bare: bool
    scale: float | None
    theme: Theme
    links: Links
    color: Color
    by: By
    max_rows: int | None
    columns: str | Sequence[str]
    saved: bool
    details: bool


class SaveOptions(DrawOptions, total=False):
    """And of a file."""

    format: str | None
    force: bool


class ShowOptions(DrawOptions, total=False):
    """And of a page in a notebook."""

    height: int
