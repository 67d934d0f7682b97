"""What the code says to be a number, and so no tensor."""

from __future__ import annotations

import ast

from gradviz.recording.moments import UNKNOWN, Callers, Where
from gradviz.source.bindings import bindings_of, dotted
from gradviz.source.expressions import (
    given_attribute,
    is_number_attribute,
    is_number_parameter,
    number_parts,
)


class NumberReader:
    """Of one graph."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def is_number(self, expression: ast.expr, where: Where, depth: int = 0) -> bool:
        """Whether the code says that this is no tensor."""
        if depth > 8:
            return False
        inside = number_parts(expression)
        if inside is not None:
            return all(self.is_number(part, where, depth + 1) for part in inside)
        if isinstance(expression, ast.Attribute):
            if dotted(expression.value) in ("math", "np", "torch"):
                return True
            value = self._callers.attribute_of(expression, where)
            if value is UNKNOWN and dotted(expression.value) == "self":
                return is_number_attribute(where.spot, expression.attr)
            return isinstance(value, (int, float, complex, str))
        if isinstance(expression, ast.Name):
            return self._is_number_name(expression.id, where, depth)
        return False

    def is_doubtful(self, expression: ast.expr, where: Where) -> bool:
        """Whether the code may give a number, or nothing: `x if x is not None else 0`."""
        now = self._callers.attribute_of(expression, where)
        if now is None:
            return True
        if now is UNKNOWN and isinstance(expression, ast.Attribute):
            return self.began_as_number(expression, where)
        bound = self._callers.bound_of(expression, where)
        if bound is not None and not bound.binding.is_parameter:
            uses = bound.where.bindings.reaching(bound.name, bound.where.spot.node)
            values = [one.value for one in uses if one is not None and one.value]
            return any(self._may_be_number(value, bound.where) for value in values)
        return self._may_be_number(expression, where)

    def _may_be_number(self, value: ast.expr, where: Where) -> bool:
        arms = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        return any(self.is_number(arm, where) for arm in arms)

    def _is_number_name(self, name: str, where: Where, depth: int) -> bool:
        bound = self._callers.bound(name, where)
        if bound is None:
            value = self._global(name, where)
            return value is not None and self.is_number(value, where, depth + 1)
        binding, there = bound.binding, bound.where
        if binding.counts:
            return True
        if binding.is_parameter:
            passed = self._callers.passed(bound)
            if passed is not None:
                return self.is_number(*passed, depth + 1)
            return is_number_parameter(there.spot.function.root, name)
        if binding.value is None or not bound.is_certain:
            return False
        return self.is_number(binding.value, there, depth + 1)

    def _global(self, name: str, where: Where) -> ast.expr | None:
        """The one value that a file gives a variable."""
        if name in where.site.code.co_varnames:
            return None
        binding = bindings_of(where.spot.file.outside).only(name)
        return binding.value if binding is not None else None

    def began_as_number(self, expression: ast.expr, where: Where) -> bool:
        """Whether this is a number, or a variable that began as one, as a sum does."""
        if self.is_number(expression, where):
            return True
        values = where.bindings.values(dotted(expression))
        values += given_attribute(where.spot, expression)
        return any(self.is_number(value, where) for value in values)
