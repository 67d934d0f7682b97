"""Reads an SVG of gradviz as geometry, knowing nothing of how it was drawn: what is too large, overlaps or sticks out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gradviz.draw.typesetting import text_width
from tests.layout.geometry import overlapping_pairs

WIDEST, TALLEST = 2000, 1600  # px, of a picture that nobody asked to be larger
SLIDE = 2400, 1100  # or of one that runs to the right
UPRIGHT = 1600, 2000  # or of one whose body no page holds otherwise
SLACK = 0.6  # px: places are written with one decimal
SIZE, STRONG = 11.0, 11.0  # px, of plain and of strong text in boxes
HEAD = 7.0  # px, of an arrow, which the line ends before
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_COMMAND = re.compile(r"[MCV][^MCV]*")
_SVG = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    texts: tuple[str, ...] = ()


class Wire(NamedTuple):
    begin: tuple[float, float]
    end: tuple[float, float]


class Drawn(NamedTuple):
    width: float
    height: float
    boxes: tuple[Box, ...]
    frames: tuple[Box, ...]
    wires: tuple[Wire, ...]


def read(svg: str) -> Drawn:
    """The boxes (with the legend's), frames and wires of a picture."""
    root = ElementTree.fromstring(svg)
    parts = {one.get("class"): one for one in root.findall(f"{_SVG}g")}
    boxes, frames = (tuple(_boxes(parts.get(name))) for name in ("gv-b", "gv-f"))
    wires = tuple(_wires(parts.get("gv-e")))
    return Drawn(float(root.get("width", 0)), float(root.get("height", 0)), boxes, frames, wires)


def _boxes(part: ElementTree.Element | None) -> Iterator[Box]:
    for group in part.iter(f"{_SVG}g") if part is not None else ():
        rect = group.find(f"{_SVG}rect")
        if rect is not None:
            x, y, width, height = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
            texts = tuple(text.text or "" for text in group.findall(f"{_SVG}text"))
            yield Box(x, y, x + width, y + height, texts)


def _wires(part: ElementTree.Element | None) -> Iterator[Wire]:
    """Where the paths begin and end. They are made of M, C and V with absolute places."""
    for path in part.findall(f"{_SVG}path") if part is not None else ():
        data = path.get("d", "")
        numbers = [float(one) for one in _NUMBER.findall(data)]
        begin = numbers[0], numbers[1]
        last = _COMMAND.findall(data)[-1]
        yield Wire(begin, (begin[0] if "C" not in data else _last_x(data), float(_NUMBER.findall(last)[-1])))


def _last_x(data: str) -> float:
    """The x of the last curve: what follows it runs straight down or up."""
    curves = [command for command in _COMMAND.findall(data) if command[0] == "C"]
    return float(_NUMBER.findall(curves[-1])[-2])


def too_large(drawn: Drawn) -> str:
    sizes = (WIDEST, TALLEST), SLIDE, UPRIGHT
    if any(drawn.width <= width and drawn.height <= height for width, height in sizes):
        return ""
    return f"{drawn.width:,.0f} x {drawn.height:,.0f} px"


def faults(drawn: Drawn) -> list[str]:
    """Boxes that overlap, that cross a frame's border, or are too narrow for their text, and frames that cross."""
    found = [
        f"{drawn.boxes[a].texts} overlaps {drawn.boxes[b].texts}" for a, b in overlapping_pairs(_shrunk(drawn.boxes))
    ]
    every = (*drawn.boxes, *drawn.frames)
    for i, frame in enumerate(drawn.frames):
        others = (*drawn.boxes, *drawn.frames[:i])
        found += [f"{one.texts or 'a frame'} crosses the border of a frame" for one in others if _cross(frame, one)]
    for one in every:
        if min(one.left, one.top) < 0 or one.right > drawn.width or one.bottom > drawn.height:
            found.append(f"{one.texts or 'a frame'} lies outside the picture")
    found += [f"a wire ends at {end}, away from any box" for end in _loose_ends(drawn)]
    found += [f"{text!r} is wider than its box" for one in drawn.boxes for text in one.texts if _wider(text, one)]
    return found


def _loose_ends(drawn: Drawn) -> Iterator[tuple[float, float]]:
    sides = np.array([box[:4] for box in drawn.boxes]).reshape(-1, 4)
    for wire in drawn.wires:
        for x, y in wire:
            outside = np.maximum(
                np.maximum(sides[:, 0] - x, x - sides[:, 2]), np.maximum(sides[:, 1] - y, y - sides[:, 3])
            )
            if not len(sides) or outside.min() > HEAD:
                yield x, y


def _shrunk(boxes: tuple[Box, ...]) -> np.ndarray:
    sides = np.array([box[:4] for box in boxes]).reshape(-1, 4)
    return sides + np.array([SLACK, SLACK, -SLACK, -SLACK]) / 2


def _cross(one: Box, other: Box) -> bool:
    """Whether two rectangles share some room, and neither lies in the other."""
    apart = (
        one.left > other.right - SLACK
        or other.left > one.right - SLACK
        or one.top > other.bottom - SLACK
        or other.top > one.bottom - SLACK
    )
    return not (apart or _inside(one, other) or _inside(other, one))


def _inside(one: Box, other: Box) -> bool:
    """Whether `one` lies in `other`."""
    sides = (other.left - one.left, other.top - one.top, one.right - other.right, one.bottom - other.bottom)
    return max(sides) <= SLACK


def _wider(text: str, box: Box) -> bool:
    size, bold = (STRONG, True) if text == box.texts[0] else (SIZE, False)
    return text.isascii() and text_width(text, size, bold) > box.right - box.left + 1.0
