"""Notes which lines switch `requires_grad` of parameters before anything is trained, and which of them were in vain."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from gradviz.checks.context import Thawed
from gradviz.graph import SourceLine
from gradviz.packages import with_text
from gradviz.source.running import Place

MOST = 100_000
"""Switches that are noted."""


class _Switched(NamedTuple):
    ref: weakref.ref[torch.Tensor]
    on: bool
    place: Place


class Switches:
    """Of one run, until its first backward call."""

    def __init__(self) -> None:
        self._noted: list[_Switched] = []

    def note(self, tensor: Any, on: bool, place: Place | None) -> None:
        """A line has set `requires_grad` of a parameter."""
        if type(tensor) is torch.nn.Parameter and place is not None and len(self._noted) < MOST:
            self._noted.append(_Switched(weakref.ref(tensor), on, place))

    def off_at(self, tensor: torch.Tensor) -> SourceLine | None:
        """The last line that froze a parameter."""
        return next(
            (
                _own_line(switched.place)
                for switched in reversed(self._noted)
                if not switched.on and switched.ref() is tensor
            ),
            None,
        )

    def in_vain(self, names: Mapping[int, tuple[str, ...]]) -> Iterator[Thawed]:
        """Lines whose freezing another line has undone as a whole, and with it for more. `names` are by identity."""
        frozen: dict[int, dict[int, int]] = {}  # by line, the parameters and when it froze them
        thawed: dict[int, dict[int, int]] = {}
        places: dict[int, Place] = {}
        last: dict[int, tuple[bool, int]] = {}
        for when, switched in enumerate(self._noted):
            tensor = switched.ref()
            if tensor is not None and id(tensor) in names:
                places[id(switched.place)] = switched.place
                (thawed if switched.on else frozen).setdefault(id(switched.place), {})[id(tensor)] = when
                last[id(tensor)] = switched.on, id(switched.place)
        for line, members in frozen.items():
            undone = {last[key] for key in members}
            if len(undone) != 1:
                continue
            on, other = undone.pop()
            later = thawed.get(other, {})
            if (
                on
                and other != line
                and len(later) > len(members)
                and all(later[key] > when for key, when in members.items())
            ):
                yield Thawed(tuple(names[key][0] for key in members), _own_line(places[line]), _own_line(places[other]))


def _own_line(place: Place) -> SourceLine:
    return with_text(place.script_line or place.source)
