"""Notes forward passes in eval() mode whose graphs no backward call of the run reaches, and which variables hold them.

Looks at the graph of a backward call only where several such passes came before it. Concludes nothing; keeps no tensor.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import Any

from gradviz.checks.context import Unused
from gradviz.graph import SourceLine
from gradviz.packages import is_foundation, with_text
from gradviz.recording.event_log import Evaluation
from gradviz.recording.session import running
from gradviz.source.statements import around, body_around
from gradviz.variables.scanner import Namespace, namespaces, scan
from gradviz.walker.outputs import flatten
from gradviz.walker.private import Node, without_subclasses
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import live_nodes

_UNREACHED = 3  # backward calls after which what none of them has reached is taken for unused
_LOOKS = 30  # graphs of backward calls that are looked at
_MOST_TENSORS = 1000  # variables that are asked whether they hold such a graph
_INDEX = re.compile(r"(\[[^\]]*\])+$")
_Row = list[Evaluation]


class EvaluationWatch:
    """Of one run, in the thread that calls backward. `quiet` is around what it does itself."""

    def __init__(self, quiet: Callable[[], AbstractContextManager[None]]) -> None:
        self._quiet = quiet
        self._waiting: list[
            tuple[_Row, int]
        ] = []  # passes in a row from one line, and the calls that have not reached them
        self._found: dict[object, Unused] = {}  # by line
        self._left = _LOOKS

    def backward(self, outputs: Sequence[Any], frame: FrameType) -> None:
        """A backward call is about to run."""
        self._take()
        if not self._waiting or not self._left:
            return
        self._left -= 1
        with self._quiet(), suppress(Exception):  # tensors of the user's own classes may refuse anything
            reached = _numbers(live_nodes([output for _, output in flatten(list(outputs))]))
            aged = [
                (row, calls + 1)
                for row, calls in self._waiting
                if not any(_is_in(evaluation, reached) for evaluation in row)
            ]
            self._waiting = [(row, calls) for row, calls in aged if calls < _UNREACHED]
            over = [row for row, calls in aged if calls >= _UNREACHED]
            self._add(over, _variables(frame) if over else ())

    def ended(self, variables: Sequence[Namespace]) -> None:
        """The script has come to its end: nothing will reach what is waiting."""
        self._take()
        rows, self._waiting = [row for row, _ in self._waiting], []
        with self._quiet():
            self._add(rows, variables)

    def told(self) -> tuple[Unused, ...]:
        """All that was found, one for each line."""
        return tuple(self._found.values())

    def _take(self) -> None:
        """What has run since the last backward call: several passes from one line are a pass over data."""
        session = running()
        noted = session.event_log().evaluations if session is not None else None
        rows: dict[int, _Row] = {}
        while noted:
            evaluation = noted.popleft()
            if evaluation.place is not None:
                rows.setdefault(id(evaluation.place), []).append(evaluation)  # places are made once for each line
        self._waiting += [(row, 0) for row in rows.values() if len(row) > 1]

    def _add(self, rows: Sequence[_Row], variables: Sequence[Namespace]) -> None:
        for row in rows:
            place = row[0].place
            assert place is not None
            source = with_text(place.script_line or place.source)
            known = self._found.get((source.file, source.line))
            if known is None or len(row) > known.calls:
                holders: tuple[str, ...] = ()
                with suppress(Exception):
                    holders = _holders(row, variables)
                self._found[source.file, source.line] = _unused(row, source, holders)


def _unused(row: _Row, source: SourceLine, holders: tuple[str, ...]) -> Unused:
    body, loops = body_around(source.file, source.line), around(source.file, source.line).loops
    separate = source.function not in ("", "<module>") and body is not None and not _differentiates(body.statements)
    loop = body.line(loops[-1]) if body is not None and loops else None
    nodes = sum(evaluation.ended - evaluation.began for evaluation in row)
    return Unused(source, row[0].type, len(row), nodes, loop, separate, holders)


def _differentiates(statements: Iterable[Any]) -> bool:
    """Whether a function calls backward() or grad(), or yields to code that may."""
    calls = (part for statement in statements for part in ast.walk(statement.node))
    return any(getattr(part, "attr", "") in ("backward", "grad") or isinstance(part, ast.Yield) for part in calls)


def _variables(frame: FrameType | None) -> Sequence[Namespace]:
    while frame is not None and is_foundation(frame.f_code.co_filename):
        frame = frame.f_back
    return namespaces(frame)


def _holders(row: _Row, variables: Sequence[Namespace]) -> tuple[str, ...]:
    """The variables through which the graphs of several of these calls live, a list as one."""
    kept: dict[str, set[Evaluation]] = {}
    with without_subclasses():
        tensors = (
            [variable for variable in scan(variables) if variable.kind == "tensor"][:_MOST_TENSORS] if variables else []
        )
        for variable in tensors:
            if variable.value.requires_grad and grad_fn_of(variable.value) is not None:
                numbers = _numbers(live_nodes([variable.value]))
                kept.setdefault(_INDEX.sub("", variable.name), set()).update(
                    evaluation for evaluation in row if _is_in(evaluation, numbers)
                )
    return tuple(name for name, calls in kept.items() if len(calls) > 1)


def _numbers(nodes: Iterable[Node]) -> set[int]:
    return {node._sequence_nr() for node in nodes}


def _is_in(evaluation: Evaluation, numbers: set[int]) -> bool:
    return any(number in numbers for number in range(evaluation.began, evaluation.ended))
