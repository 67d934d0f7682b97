"""Moments of code that ran, and where a name of it got its value: in the function itself,
from its caller, or in an outer function.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import torch

from gradviz.packages import CallSite
from gradviz.recording.event_log import ModuleCall, Moment
from gradviz.recording.program import Turns
from gradviz.recording.running import RESUMED, RunningCall
from gradviz.source.bindings import Binding, Bindings, Reaching, bindings_of, dotted
from gradviz.source.expressions import (
    argument,
    function_name,
    is_import_called,
    names_variable,
)
from gradviz.source.spots import OWN_CODE, Spot, spots_of

MOST_STEPS = 20
"""Calls that a name is followed through."""
UNKNOWN = object()
"""Nobody knows what an attribute holds."""


class Where(NamedTuple):
    """A moment in a call of a function: the site that runs and what is written there,
    the turns of loops, and the innermost call of a module around. `key` is that of no
    other moment.
    """

    call: RunningCall
    site: CallSite
    spot: Spot
    module: ModuleCall | None
    turns: Turns
    key: Hashable

    @property
    def bindings(self) -> Bindings:
        """What gives the names of its function their values."""
        return bindings_of(self.spot.function)

    def given(self, binding: Binding) -> Where:
        """The moment at which a binding gave its name a value."""
        return self.at(binding.node)

    def at(self, node: ast.AST) -> Where:
        """The moment at which something else in its function ran."""
        spots, function = spots_of(self.site.code), self.spot.function
        return self._replace(spot=Spot(spots, function, node, is_exact=True))


class Bound(NamedTuple):
    """What gives a name its value, and the moment at which it does, in the function that
    the name belongs to. Not `is_certain`: something else may have given it one since.
    """

    name: str
    where: Where
    binding: Binding
    is_certain: bool


class Callers:
    """Follows what code says from one function to its caller. `turns` are those of nodes
    and calls.
    """

    def __init__(self, turns: Mapping[int | RunningCall | ModuleCall, Turns]) -> None:
        self._turns = turns

    def where(
        self, moment: Moment, key: int | RunningCall | ModuleCall
    ) -> Where | None:
        """None where the call does not run the site, or nothing tells what stands there."""
        site, module, call = moment
        if call is None or site is None or not runs(call, site):
            return None
        spot = spots_of(site.code).at(site.instruction)
        if spot is None:
            return None
        return Where(call, site, spot, module, self._turns.get(key, {}), key)

    def caller(self, where: Where) -> Where | None:
        """The moment at which the function was called."""
        call, site = where.call.caller, where.site.caller
        module = where.module
        while module is not None and module.function is call:
            inner, module = module, module.parent
            if inner.site is site:
                return self.where(Moment(site, module, call), inner)
        return self.where(Moment(site, module, call), where.call)

    def home(self, name: str, where: Where) -> tuple[Where, Reaching] | None:
        """The moment, in the function that a name belongs to, at which it has its value
        and what gives it. None where that is not known.
        """
        root = name.partition(".")[0]
        for _ in range(MOST_STEPS):
            reaching = where.bindings.before(root, where.spot.node)
            code, binding = where.site.code, reaching.binding
            is_own = code.co_name not in OWN_CODE
            is_found = binding is not None and (is_own or binding.scope is not None)
            is_local = is_own and root not in (*code.co_freevars, *code.co_names)
            if is_found or is_local or code.co_name == "<module>":
                return where, reaching
            outer = self._outer(root, where)
            if outer is None:
                return None
            where = outer
        return None

    def bound(self, name: str, where: Where) -> Bound | None:
        """What gives a name its value, where that is known."""
        home = self.home(name, where)
        if home is None or home[1].binding is None:
            return None
        there, reaching = home
        is_certain = reaching.is_certain
        if reaching.later:
            is_certain = all(_is_first_turn(loop, there) for loop in reaching.later)
        return Bound(name, there, home[1].binding, is_certain)

    def bound_of(self, expression: ast.expr, where: Where) -> Bound | None:
        """What gives its value to an expression that is a name."""
        if not isinstance(expression, ast.Name):
            return None
        return self.bound(expression.id, where)

    def _outer(self, name: str, where: Where) -> Where | None:
        """The moment of the nearest caller that may know a name of an outer function."""
        inner = where.site.code
        for _ in range(MOST_STEPS):
            outer = self.caller(where)
            if outer is None:
                return None
            where, code = outer, outer.site.code
            if code.co_filename != inner.co_filename:
                continue
            if inner.co_name in OWN_CODE or name in code.co_cellvars:
                return where
            if code.co_name == "<module>" and name not in inner.co_freevars:
                return where
        return None

    def followed(self, expression: ast.expr, where: Where) -> tuple[ast.expr, Where]:
        """What the caller wrote for a name that a function was given; of a variable of
        several names the first, where that is still its name.
        """
        found = expression, where
        for _ in range(MOST_STEPS):
            holder, key = expression, ""
            if isinstance(expression, ast.Subscript):
                # `kwargs["mask"]`
                holder = expression.value
                key = getattr(expression.slice, "value", "") or "?"
            bound = self.bound_of(holder, where)
            if bound is None or not bound.is_certain:
                break
            if bound.binding.is_parameter:
                passed = self.passed(bound, key)
                if passed is None or not names_variable(passed[0]):
                    break
                found = expression, where = passed
            elif not key and isinstance(bound.binding.value, ast.Name):
                expression, where = bound.binding.value, bound.where
                if _is_still(bound):
                    found = expression, where
                where = where.given(bound.binding)
            else:
                break
        return found

    def passed(self, bound: Bound, key: str = "") -> tuple[ast.expr, Where] | None:
        """What was passed as a parameter, and where; as `**` of all the argument `key`."""
        name, where, binding, _ = bound
        arguments = getattr(where.spot.function.root, "args", None)
        is_rest = binding.node is getattr(arguments, "kwarg", None)
        found = self._call(bound) if is_rest == bool(key) else None
        if found is None:
            return None
        outer, skip = found
        value = argument(outer.spot, where.site.code, key or name, skip)
        if value is not None:
            return value, outer
        keywords = getattr(outer.spot.node, "keywords", ())
        for rest in [keyword.value for keyword in keywords if keyword.arg is None]:
            handed_on = self.bound_of(rest, outer)
            if handed_on is not None and handed_on.binding.is_parameter:
                return self.passed(handed_on, key or name)
        return None

    def _call(self, bound: Bound) -> tuple[Where, int] | None:
        """The call that gave a function its parameters, and how many it leaves out."""
        _, where, binding, _ = bound
        code = where.call.code
        outer = self.caller(where)
        if code is None or outer is None or code is not where.site.code:
            return None
        module = where.module
        if code.co_name == "forward" and module is not outer.module:
            assert module is not None
            # none by a module of torch's, as by Sequential
            is_known = is_own_call(module) and not is_import_called(outer.spot)
            return (outer, 1) if is_known else None
        if code.co_flags & RESUMED:
            outer = _where_made(outer, code.co_name)
        if outer.spot.called != code.co_name:
            called = self.bound(outer.spot.called, outer) if binding.scope else None
            is_lambda = called is not None and called.binding.value is binding.scope
            return (outer, 0) if is_lambda else None
        return outer, int(code.co_varnames[:1] in (("self",), ("cls",)))

    def attribute_of(self, expression: ast.expr, where: Where) -> object:
        """What a module's attribute holds now, else `UNKNOWN`."""
        if not isinstance(expression, ast.Attribute):
            return UNKNOWN
        if dotted(expression.value) != "self":
            return UNKNOWN
        owner = self._owner(where)
        if owner is None:
            return UNKNOWN
        for table in ("_parameters", "_buffers"):
            found = vars(owner).get(table, {}).get(expression.attr)
            if found is not None:
                return found
        return vars(owner).get(expression.attr, UNKNOWN)

    def _owner(self, where: Where) -> torch.nn.Module | None:
        """The module that `self` is: that of a forward, or of a method it calls."""
        for _ in range(MOST_STEPS):
            code, outer = where.site.code, self.caller(where)
            module = forward_of(where)
            if module is not None:
                found: torch.nn.Module | None = module.module.ref()
                return found
            if outer is None:
                return None
            is_method = function_name(outer.spot) == f"self.{code.co_name}"
            if code.co_name not in OWN_CODE and not is_method:
                return None
            where = outer
        return None


def _where_made(where: Where, name: str) -> Where:
    """The call that makes a generator, if it stands where that is resumed."""
    node = where.spot.node
    loop = where.spot.head_of
    parts = [node] if loop is None else getattr(loop, "generators", [loop])
    made = [
        part
        for one in parts
        for part in ast.walk(getattr(one, "iter", one))
        if isinstance(part, ast.Call) and where.spot.function.called(part) == name
    ]
    return where.at(made[0]) if len(made) == 1 else where


def _is_first_turn(loop: ast.AST, where: Where) -> bool:
    """Whether this is the first turn of a loop: each turn has made something, and none
    may have run without gradients.
    """
    turn = where.turns.get(loop)
    if turn is None or turn.turn > 1 or turn.around is None or not turn.around.sure:
        return False
    return not any(
        isinstance(part, ast.With) or "grad" in getattr(part, "attr", "")
        for part in ast.walk(loop)
    )


def _is_still(bound: Bound) -> bool:
    """Whether a name is another name of a variable that is still the same."""
    name, where, binding, _ = bound
    value = binding.value
    if not isinstance(value, ast.Name) or value.id == name:
        return False
    then = where.bindings.before(value.id, binding.node)
    now = where.bindings.before(value.id, where.spot.node)
    return then.binding == now.binding and now.is_certain


def forward_of(where: Where) -> ModuleCall | None:
    """The call of a module whose forward this is in."""
    module = where.module
    if module is None or module.function is not where.call.caller:
        return None
    return module if where.site.code.co_name == "forward" else None


def runs(call: RunningCall | None, site: CallSite | None) -> bool:
    """Whether a call of a function runs the code of a site itself."""
    return call is not None and site is not None and call.code is site.code


def is_own_call(call: ModuleCall) -> bool:
    """Whether the code called this module itself, and no module of torch's did."""
    parent = call.parent
    return parent is None or parent.site is not call.site
