"""What an expression that an op was given is: its text, the tensor that it stands for,
and what is equal for the same value.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Mapping, Sequence

import torch

from gradviz.packages import package_of
from gradviz.recording.event_log import ModuleCall
from gradviz.recording.moments import Callers, Where, forward_of
from gradviz.recording.numbers import NumberReader
from gradviz.recording.running import RunningCall
from gradviz.source.bindings import dotted, unpacked
from gradviz.source.expressions import is_comparison, is_given_anew, names, variables
from gradviz.source.results import is_computed
from gradviz.variables.objects import is_a
from gradviz.walker.places import Operand


class ExpressionReader:
    """Of one graph. `arguments` are living data that modules were called with, by call
    and parameter, `scopes` those of module calls, `functions` calls of functions in the
    program.
    """

    def __init__(
        self,
        callers: Callers,
        numbers: NumberReader,
        arguments: Mapping[tuple[ModuleCall, str], torch.Tensor],
        scopes: Mapping[ModuleCall, int],
        functions: Mapping[RunningCall, int],
    ) -> None:
        self._callers, self._numbers = callers, numbers
        self._arguments, self._scopes = arguments, scopes
        self._functions = functions

    def operand(
        self,
        expression: ast.expr,
        position: int | None,
        slot: str,
        where: Where,
        *,
        is_inner: bool = False,
        asked: Where | None = None,
    ) -> Operand | None:
        """The operand that an expression is; None for a number, and for what has a
        gradient. `asked`: where an op took it, or what is computed from it.
        """
        asked = asked or where
        expression, where = self._callers.followed(expression, where)
        if self._numbers.is_number(expression, where):
            return None
        in_library = bool(package_of(where.site.code.co_filename))
        if in_library and self._is_called_by_script(where):
            return None
        text = where.spot.file.of(expression)
        value, now = self._held(expression, where)
        has_gradient = isinstance(now, torch.Tensor) and now.requires_grad
        if has_gradient and position is None:
            return None
        if has_gradient and self._numbers.began_as_number(expression, where):
            return None
        sources, is_all = self._sources(expression, where, is_inner, asked)
        return Operand(
            text,
            position,
            slot,
            self._key(expression, text, where),
            tuple(sources),
            value,
            where.site.code.co_name != "<module>",
            self._stays(expression, where, asked),
            self._scopes.get(where.module, -1) if where.module is not None else -1,
            self._is_mask(expression, where),
            self._numbers.is_doubtful(expression, where),
            self._functions.get(where.call) if is_all else None,
            self._is_result(expression, where),
        )

    def _is_called_by_script(self, where: Where) -> bool:
        """Whether the script called a library's function, no module, that this is in."""
        module = where.module
        outer: Where | None = where
        while outer is not None and outer.module is module:
            if not package_of(outer.site.code.co_filename):
                return True
            outer = self._callers.caller(outer)
        return False

    def _key(self, expression: ast.expr, text: str, where: Where) -> Hashable:
        """Equal for what is the same value: the call of the function, what is written,
        and what gave its names their values, in which turn.
        """
        parts: list[Hashable] = []
        is_name = isinstance(expression, ast.Name)
        for name in dict.fromkeys(names(expression)):
            parts.append(self._version(name, where, not is_name))
        if any(isinstance(part, ast.Call) for part in ast.walk(expression)):
            # each time that it is computed it is another tensor
            turn = self._turn(where.spot.loops, where)
            parts += [where.call, id(expression), turn]
        return (text, *parts)

    def _version(self, name: str, where: Where, with_changes: bool) -> Hashable:
        home = self._callers.home(name, where)
        if home is None:
            return where.key, name
        there = home[0]
        own: list[Hashable] = [there.call]
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            some = there.bindings.before(part, there.spot.node, with_changes)
            own += [
                id(some.binding.node) if some.binding is not None else None,
                self._turn(some.loops, there),
            ]
        return name, *own

    def _turn(self, loops: Sequence[ast.AST], where: Where) -> Hashable:
        """Equal for the same turn of all of these loops."""
        return tuple(where.turns.get(loop, where.key) for loop in loops)

    def _sources(
        self, expression: ast.expr, where: Where, is_inner: bool, asked: Where
    ) -> tuple[Sequence[Operand], bool]:
        """The variables in an expression, but for attributes of `self`; of a variable of
        a function, those in what gives it its value. Of one that is `is_inner`, which
        nobody may hold, all that it is computed from, or none. And whether they are all.
        """
        given = self._given(expression, where, is_inner)
        if given is None:
            return (), False
        value, where = given
        found: list[Operand | None] = []
        imported = where.spot.file.imported
        for node in variables(value):
            name, _, attribute = dotted(node).partition(".")
            # a method's object is no data, nor is a module
            if name in imported or (name == "self" and not attribute):
                continue
            # what a module holds is said by the text: `self.mask[:T]`
            if node is expression or name == "self":
                found.append(None)
            elif not self._numbers.is_number(node, where):
                source = self.operand(node, None, "", where, is_inner=True, asked=asked)
                found.append(source)
        is_all = None not in found
        sources = [source for source in found if source is not None]
        return sources if is_all or not is_inner else (), is_all

    def _given(
        self, expression: ast.expr, where: Where, is_inner: bool
    ) -> tuple[ast.expr, Where] | None:
        """What gives a variable of a function its value; an expression itself."""
        bound = self._callers.bound_of(expression, where)
        if bound is None:
            return expression, where
        where, binding = bound.where, bound.binding
        value = binding.value or unpacked(binding)
        is_known = bound.is_certain and where.site.code.co_name != "<module>"
        if value is None or not is_known:
            return None
        # of several results of a function each may come from another argument
        if not _is_plain(value) and (is_inner or binding.value is None):
            return None
        return self._callers.followed(value, where.given(binding))

    def _stays(self, expression: ast.expr, where: Where, asked: Where) -> bool:
        """Whether a variable of the script is given its value once, before this, and no
        function between has another one of its name.
        """
        name, inner = dotted(expression), asked
        while inner.call is not where.call:
            if name in inner.site.code.co_varnames:
                return False
            outer = self._callers.caller(inner)
            if outer is None:
                break
            inner = outer
        home = None
        if isinstance(expression, ast.Name):
            home = self._callers.home(expression.id, where)
        if home is None or home[0].site.code.co_name != "<module>":
            return False
        bindings = home[0].bindings
        binding = bindings.only(expression.id)  # type: ignore[attr-defined]
        return binding is not None and not bindings.loops_of(binding.node)

    def _is_mask(self, expression: ast.expr, where: Where) -> bool:
        """Whether it compares, or is made of what does alone."""
        bound = self._callers.bound_of(expression, where)
        if bound is None:
            return is_comparison(expression)
        value = bound.binding.value
        return bound.is_certain and value is not None and is_comparison(value)

    def _is_result(self, expression: ast.expr, where: Where) -> bool:
        """Whether it is a variable of a function, which computes it."""
        bound = self._callers.bound_of(expression, where)
        if bound is None or bound.where.site.code.co_name == "<module>":
            return False
        value = bound.binding.value or unpacked(bound.binding)
        return value is not None and is_computed(value)

    def _held(
        self, expression: ast.expr, where: Where
    ) -> tuple[torch.Tensor | None, object]:
        """The tensor that a parameter of a module's forward, or its attribute, held, if it
        still is the same; and what it holds now.
        """
        bound = self._callers.bound_of(expression, where)
        if bound is None:
            now = self._callers.attribute_of(expression, where)
            is_other = is_given_anew(where.spot, getattr(expression, "attr", ""))
        else:
            module = forward_of(bound.where)
            if module is None or not bound.binding.is_parameter:
                return None, None
            now = self._arguments.get((module, bound.name))
            is_other = False
        if is_other or not isinstance(now, torch.Tensor):
            return None, now
        # what has a gradient by now was changed in place
        is_same = not now.requires_grad or is_a(now, torch.nn.Parameter)
        return (now if is_same else None), now


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression calls methods of tensors and functions of torch's alone."""
    for part in ast.walk(value):
        if isinstance(part, ast.Call):
            name = getattr(part.func, "attr", "")
            is_own = dotted(part.func).startswith("self.")
            if is_own or not (hasattr(torch.Tensor, name) or hasattr(torch, name)):
                return False
    return True
