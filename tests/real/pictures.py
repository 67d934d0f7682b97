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
LABEL, NOTE = 9.0, 10.0  # px, of labels and of titles of frames
NEARER = 1.5  # px by which a label may be nearer to another wire: nobody sees that
STRUCK = 0.5  # px between a text and a wire that touch
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


def strays(svg: str) -> list[str]:
    """Labels that are nearer to another wire than to one that has their words, labels and titles that a wire strikes."""
    root = ElementTree.fromstring(svg)
    wires = [(_title(path), _points(path.get("d", ""))) for path in root.iterfind(f"{_SVG}g[@class='gv-e']/{_SVG}path")]
    found = []
    for text in root.findall(f"{_SVG}text[@class='gv-l']"):
        words = text.text or ""
        apart = [(title == words, _apart(text, points)) for title, points in wires]
        own = min((distance for is_own, distance in apart if is_own), default=0.0)
        other = min((distance for is_own, distance in apart if not is_own), default=np.inf)
        if own > other + NEARER or other < STRUCK:
            found.append(f"{words!r} is {own:.1f} px from its wire, {other:.1f} from another")
    for text in root.findall(f"{_SVG}text[@class='gv-c']"):
        if any(_apart(text, points) < STRUCK for _, points in wires):
            found.append(f"a wire runs through the title {text.text!r}")
    return found


def _title(path: ElementTree.Element) -> str:
    title = path.find(f"{_SVG}title")
    return (title.text or "") if title is not None else ""


def _apart(text: ElementTree.Element, points: np.ndarray) -> float:
    """Pixels between a text and a wire."""
    left, low = float(text.get("x", 0)), float(text.get("y", 0))
    size = LABEL if text.get("class") == "gv-l" else NOTE
    right, top = left + text_width(text.text or "", size), low - 0.7 * size
    beside = np.maximum(left - points[:, 0], points[:, 0] - right).clip(0)
    above = np.maximum(top - points[:, 1], points[:, 1] - low).clip(0)
    return float(np.hypot(beside, above).min())


def _points(data: str) -> np.ndarray:
    """Points of a path, not further apart than a letter is wide."""
    found: list[np.ndarray] = []
    here = np.zeros(2)
    for command in _COMMAND.findall(data):
        numbers = [float(number) for number in _NUMBER.findall(command)]
        if command[0] == "C":
            first, second, last = np.array(numbers).reshape(3, 2)
        else:
            last = np.array(numbers if command[0] == "M" else (here[0], numbers[0]))
            first = second = (here + last) / 2 if command[0] == "V" else last
        start = last if command[0] == "M" else here
        t = np.linspace(0, 1, 2 + int(np.abs(last - start).sum() / 2))[:, None]
        found.append((1 - t) ** 3 * start + 3 * t * (1 - t) ** 2 * first + 3 * t * t * (1 - t) * second + t**3 * last)
        here = last
    return np.concatenate(found)


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
