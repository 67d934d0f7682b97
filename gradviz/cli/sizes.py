"""Sizes of memory as people write them on a command line: `40GiB`, `512 MB`, `1e9`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[int]  # later versions of click have it generic
else:
    _ParamType = click.ParamType

_SIZE = re.compile(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


class Size(_ParamType):
    """A number of bytes, with a unit if wanted. `GiB` is 1024³ bytes, `GB` 1000³."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_size(str(value))
        if found is None:
            self.fail(f"{value!r} is no size. Write a number and a unit, such as 40GiB, 512MB or 1e9.", param, ctx)
        return found


def parse_size(text: str) -> int | None:
    """Bytes of a size in words, None when it is no size or not above 0.

    >>> [parse_size(text) for text in ("40GiB", "512 mb", "1e3", "1.5K", "ten")]
    [42949672960, 512000000, 1000, 1500, None]
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    try:
        number = float(found[1]) * (1024 if found[3] else 1000) ** _POWER[found[2].lower()]
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 1 else None
