"""Values that nothing goes on with: follows the user's code forwards, from where it
reads a tensor to the last value on each way.
"""

from __future__ import annotations

import ast
from ast import AST, Call
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from gradviz.cuts.flow import Flow, Visit, calls_inside
from gradviz.cuts.operations import Inflow
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph import SourceLine
from gradviz.graph.walks import spread
from gradviz.source.bindings import dotted
from gradviz.source.statements import called


class DeadEnds:
    """Of one moment of a program."""

    def __init__(self, recorded: RecordedCode, flow: Flow) -> None:
        self._recorded, self._flow = recorded, flow

    def after(self, reads: Iterable[AST]) -> list[AST]:
        """The last values on every way from some on, but for what is only given to a
        call that takes nothing of it into a result, as an optimizer or `print`.
        """

        def onward(visit: Visit) -> Iterator[Visit]:
            value, calls = visit
            for user, inflow in self._users.get(value, ()):
                # the other way round: from what goes in to what it goes into
                turned = inflow._replace(
                    argument_of=inflow.result_of, result_of=inflow.argument_of
                )
                inside = calls_inside(calls, turned)
                if inside is not None:
                    yield user, inside

        starts: list[Visit] = [(value, ()) for value in reads]
        visits = spread(starts, onward)
        ends = [visit[0] for visit in visits if not any(onward(visit))]
        return [value for value in ends if not self._is_aside(value)]

    @cached_property
    def _users(self) -> Mapping[AST, Sequence[tuple[AST, Inflow]]]:
        """What each value goes into."""
        users = defaultdict(list)
        for file in list(self._recorded.files.values()):
            for user in (*file.values, *file.parameters):
                for inflow in self._flow.inflows(user):
                    users[inflow.value].append((user, inflow))
        return users

    def _is_aside(self, value: AST) -> bool:
        parents = self._recorded.file_of(value).parents
        parent = parents.get(value)
        while isinstance(parent, (ast.expr, ast.keyword, ast.comprehension)):
            if isinstance(parent, Call):
                return called(parent) != "backward"
            parent = parents.get(parent)
        return False

    def line_and_words(self, value: AST) -> tuple[SourceLine, str] | None:
        """What is said of a dead end, with its line; None where it may be none."""
        file, line_of = self._recorded.file_of(value), self._recorded.line_of
        if isinstance(value, ast.arg):
            function = file.function_with(value)
            words = f"{function.title}() never reads its argument {value.arg}"
            return line_of(function.node), words

        statement = file.statement(value)
        if isinstance(statement, ast.Expr) and statement.value is value:
            # another call may change what it is given
            if isinstance(value, Call) and value not in self._recorded.computed:
                return None
            return line_of(value), "computes with it, and nothing uses the result"

        if isinstance(statement, ast.Assign):
            names = [dotted(target) for target in _targets(statement)]
            # `x[i] = ...` writes into what something else may read
            unread = [name for name in names if name and not file.reads(name)]
            if unread and all(names):
                listed = " and ".join(unread)
                return line_of(value), f"assigns {listed}, which nothing reads"
        return None


def _targets(assignment: ast.Assign) -> Iterator[ast.expr]:
    """`a` and `b` of `a, b = ...`."""
    for target in assignment.targets:
        yield from getattr(target, "elts", [target])
