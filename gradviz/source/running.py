"""The user's code that runs now: whose it is, at which line, and which variables it sees.

Owns the lines, each made once. Leaves nothing behind in the frames and keeps none of them. Knows nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import NamedTuple, Protocol

from gradviz.graph import SourceLine
from gradviz.packages import code_line, is_foundation, package_of
from gradviz.variables.scanner import Namespace, namespaces


class Place(NamedTuple):
    """Where the user's code is at. `script_line` is None where `source` is the script's own or no script is running."""

    source: SourceLine
    script_line: SourceLine | None = None


class Known(Protocol):
    """A running frame of which the place is known already: everything outside it stands still while it runs."""

    frame: int  # its identity
    code: CodeType
    place: Place | None


class CodeLines(dict[int, "Place | None"]):
    """The lines of one function by instruction, made when they are first asked for: Python reads a table for every line.

    Holds the code object, so that its identity stays its own: hashing one would read all of it.
    """

    __slots__ = ("_by_number", "_code", "is_library")

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._by_number: dict[int, Place] = {}
        self.is_library = bool(code_line(code, 0).package)

    def at(self, frame: FrameType) -> Place | None:
        """The place of a frame that runs this function; None where Python does not tell the line."""
        number, place = frame.f_lineno, None
        if number is not None:
            place = self._by_number.get(number)
            if place is None:
                place = self._by_number[number] = Place(code_line(self._code, number))
        self[frame.f_lasti] = place
        return place


class UserCode:
    """Which code is the user's: all that `is_foundation` does not know, packages of others among it.

    An operation that a library calls was called there. `met` is called with a frame of each code, the first time.
    """

    def __init__(self) -> None:
        self._known: dict[int, CodeLines | None] = {}
        self._others: list[CodeType] = []  # held for the same reason as the user's
        self.met: Callable[[FrameType], None] = _nothing
        self._joined: dict[tuple[int, int], Place] = {}  # by the identities of two lines, which are never dropped

    def holds(self, file: str) -> bool:
        """Whether the user wrote this file, or a library's author."""
        return not is_foundation(file)

    def place(self, frame: FrameType | None, known: Known | None = None) -> Place | None:
        """Where the user's code is at in this frame or the nearest around it, and the script's own line behind a library's.

        The search ends at the frame of `known`, whose answer it takes over. None when no code of the user's is running,
        and where Python does not tell the line.
        """
        codes, inner = self._known, None
        while frame is not None:
            code = frame.f_code
            try:
                lines = codes[id(code)]
            except KeyError:
                lines = self._lines(code)
                self.met(frame)
            if lines is not None:
                try:
                    place = lines[frame.f_lasti]
                except KeyError:
                    place = lines.at(frame)
                if not lines.is_library:
                    return place if inner is None else self._behind(inner, place)
                if inner is None:
                    if place is None:
                        return None
                    inner = place
            elif known is not None and id(frame) == known.frame and code is known.code:
                return known.place if inner is None else self._behind(inner, known.place)
            frame = frame.f_back
        return inner

    def _lines(self, code: CodeType) -> CodeLines | None:
        lines = CodeLines(code) if self.holds(code.co_filename) else None
        if lines is None:
            self._others.append(code)
        self._known[id(code)] = lines
        return lines

    def _behind(self, inner: Place, outer: Place | None) -> Place:
        """The place of a library's line that was called from `outer`."""
        script = None
        if outer is not None:
            script = outer.script_line if outer.source.package else outer.source
        if script is None:
            return inner
        joined = self._joined.get((id(inner), id(script)))
        if joined is None:
            joined = self._joined[id(inner), id(script)] = Place(inner.source, script)
        return joined


def _nothing(frame: FrameType) -> None:
    """For when nobody asks which code is met."""


# -- variables ---------------------------------------------------------------------------------------------------------

_CALLERS = 30  # functions around the one that asks


def variables_at(frame: FrameType | None, main: Namespace, outermost: CodeType) -> list[Namespace]:
    """Local variables of the user's frames from the backward call outwards, their modules' globals, `main`, then models.

    The models are local variables of an installed library's functions, such as a trainer's: they may have no other name.
    Frames of torch, gradviz and Python are left out, and so is everything from the frame of `outermost` on.
    """
    local: list[Namespace] = []
    outer: dict[int, Namespace] = {}
    models: list[Namespace] = []
    while frame is not None and frame.f_code is not outermost:
        file = frame.f_code.co_filename
        if not is_foundation(file):
            inner, *rest = namespaces(frame)
            if package_of(file):
                models.append(_models(inner) if rest else {})
            else:
                if frame.f_globals is not main:
                    outer.setdefault(id(frame.f_globals), rest[0] if rest else inner)
                if rest:
                    local.append(inner)
        frame = frame.f_back
    return [*local, *outer.values(), main, *filter(None, models)]


def callers_variables(frame: FrameType) -> list[Namespace]:
    """Variables of the function that asks, then those of the user's functions around it, each with its module's globals.

    A helper such as `report(loss)` is told the names that its caller has. Installed libraries in between are left out, such as
    a test runner or a trainer.
    """
    variables: list[Namespace] = list(namespaces(frame))
    known = {id(frame.f_globals)}
    outer, left = frame.f_back, _CALLERS
    while outer is not None and left:
        left -= 1
        file = outer.f_code.co_filename
        if not package_of(file) and not is_foundation(file):
            inner, *rest = namespaces(outer)
            if rest:
                variables.append(inner)
            if id(outer.f_globals) not in known:
                known.add(id(outer.f_globals))
                variables.append(rest[0] if rest else inner)
        outer = outer.f_back
    return variables


def _models(variables: Namespace) -> Namespace:
    import torch

    return {name: value for name, value in variables.items() if issubclass(type(value), torch.nn.Module)}
