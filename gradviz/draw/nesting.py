"""Walks boxes frame by frame, for formats that write a module's boxes between an opening and a closing line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from gradviz.draw.frames import Frame
from gradviz.draw.scene import Box

T = TypeVar("T")


def nested(
    boxes: Iterable[Box],
    frames: Sequence[Frame],
    *,
    write: Callable[[Box, int], T],
    begin: Callable[[int, int], T],
    end: Callable[[int], T],
) -> Iterator[T]:
    """What `write(box, level)`, `begin(frame, level)` and `end(level)` make, in nested order. Empty frames are left out."""
    inside: dict[int | None, list[Box]] = {}
    for box in boxes:
        inside.setdefault(box.frame, []).append(box)
    children = _children(frames, inside)
    stack: list[tuple[int | None, int, bool]] = [(None, 0, False)]
    while stack:
        frame, level, closing = stack.pop()
        if closing:
            yield end(level)
            continue
        if frame is not None:
            yield begin(frame, level)
            stack.append((frame, level, True))
            level += 1
        for box in inside.get(frame, ()):
            yield write(box, level)
        stack.extend((child, level, False) for child in reversed(children.get(frame, [])))


def _children(frames: Sequence[Frame], inside: dict[int | None, list[Box]]) -> dict[int | None, list[int]]:
    """Frames by the frame around them, only those with a box somewhere inside. Parents come before their children."""
    used = {frame for frame in inside if frame is not None}
    for i in reversed(range(len(frames))):
        parent = frames[i].parent
        if i in used and parent is not None:
            used.add(parent)
    children: dict[int | None, list[int]] = {}
    for i in sorted(used):
        children.setdefault(frames[i].parent, []).append(i)
    return children
