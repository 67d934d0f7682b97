"""What ops were given that needs no gradient, as the code says it: of `h + noise[idx]`
the sum has one edge in autograd, and the other operand is `noise[idx]`.

A name that a function was given is followed to what its caller wrote. Reads code only:
nothing is noted while the user's code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from gradviz.graph.origins import op_of
from gradviz.packages import CallSite, package_of
from gradviz.recording.event_log import ModuleCall, Moment
from gradviz.recording.given import Given, entries, given_to, has_argument
from gradviz.recording.program import Turns
from gradviz.recording.running import RunningCall
from gradviz.source.bindings import Binding, Bindings, Reaching, bindings_of, dotted
from gradviz.source.expressions import (
    argument,
    function_name,
    is_comparison,
    is_import_called,
    is_number_attribute,
    is_number_parameter,
    names,
    names_variable,
    number_parts,
    variables,
)
from gradviz.source.spots import OWN_CODE, Spot, spots_of
from gradviz.variables.objects import is_a, members
from gradviz.walker.places import BareGraph, Operand

MASKED = ("add", "baddbmm", "scaled_dot_product")
"""Ops that take what attention makes of its masks; the last one has no entry for it."""
MOST_STEPS = 20
"""Calls that a name is followed through."""


_IN_ORDER = torch.nn.Sequential.forward.__code__


class Where(NamedTuple):
    """A moment in a call of a function: the site that runs and what is written there,
    the turns of loops, and the innermost call of a module around. `moment` is no other
    one's.
    """

    call: RunningCall
    site: CallSite
    spot: Spot
    module: ModuleCall | None
    turns: Turns
    moment: Hashable

    @property
    def bindings(self) -> Bindings:
        """What gives the names of its function their values."""
        return bindings_of(self.spot.function)


class Bound(NamedTuple):
    """What gives a name its value, and the moment at which it does, in the function that
    the name belongs to. Not `is_certain`: something else may have given it one since.
    """

    where: Where
    binding: Binding
    is_certain: bool


class Operands(NamedTuple):
    """`named`: the operands of nodes, by node id; `numbers`: of how many entries without
    gradient the code says that they are no tensors; `in_torch`: the nodes that a module
    of torch's made; `leaves`: what leaves are called.
    """

    named: dict[int, list[Operand]]
    numbers: dict[int, int]
    in_torch: set[int]
    leaves: dict[int, str]


class OperandReader:
    """Reads the operands of one graph. `turns` are those of nodes and calls, `arguments`
    living data that modules were called with, by call and parameter, `scopes` those of
    module calls.
    """

    def __init__(
        self,
        bare: BareGraph,
        moments: Sequence[Moment],
        turns: Mapping[int | RunningCall | ModuleCall, Turns],
        arguments: Mapping[tuple[ModuleCall, str], torch.Tensor],
        scopes: Mapping[ModuleCall, int],
    ) -> None:
        self._bare, self._moments, self._turns = bare, moments, turns
        self._arguments, self._scopes = arguments, scopes

    def read(self) -> Operands:
        """The operands of all nodes."""
        taken: dict[int, dict[int, int]] = {}
        none_inputs = self._bare.none_inputs
        for edge in self._bare.edges:
            taken.setdefault(edge.consumer, {})[edge.position] = edge.producer

        found = Operands({}, {}, set(), {})
        for node, moment in enumerate(self._moments):
            site, module, call = moment
            if not _runs(call, site):
                continue
            if module is not None and module.site is site:
                found.in_torch.add(node)
                if self._op(node).startswith(
                    MASKED if none_inputs.get(node) else MASKED[-1]
                ):
                    found.named[node] = list(self._masks(module))
                for producer in taken.get(node, {}).values():
                    leaf = self._bare.variables.get(producer)
                    if leaf is None or is_a(leaf, Parameter):
                        continue
                    if name := self._input_name(module):
                        found.leaves.setdefault(producer, name)
                continue
            where = self._where(moment, node)
            if where is not None:
                edges = taken.get(node, {})
                count = len(edges) + none_inputs.get(node, 0)
                self._read_node(node, where, count, edges, found)
        return found

    def _read_node(
        self,
        node: int,
        where: Where,
        count: int,
        edges: Mapping[int, int],
        found: Operands,
    ) -> None:
        """Add the operands of a node of which some entries of `count` have `edges`."""
        op = self._op(node)
        given = given_to(where.spot, op, count, self._is_first(where, edges))
        if given is None:
            return
        for position, producer in edges.items():
            expression = given.get(position)
            if producer in self._bare.variables and isinstance(expression, ast.Name):
                named, there = self._followed(expression, where)
                found.leaves.setdefault(producer, there.spot.file.of(named))
        empty = [i for i in range(count) if i not in edges]
        if self._is_reversed(op, empty, given, where):
            found.numbers[node] = 1
            return
        # einsum computes with tensors of other shapes
        slots = entries(op, count) if where.spot.called != "einsum" else ()
        roles: list[int | str] = [*empty]
        for name in given:
            if isinstance(name, str) and name not in slots and has_argument(op, name):
                roles.append(name)
        for role in roles:
            operand = self._role(role, given, slots, where)
            if operand is not None:
                found.named.setdefault(node, []).append(operand)
            elif isinstance(role, int):
                found.numbers[node] = found.numbers.get(node, 0) + 1

    def _op(self, node: int) -> str:
        return op_of(getattr(self._bare.kinds[node], "__name__", ""))

    def _masks(self, attention: ModuleCall) -> Iterator[Operand]:
        """The masks that the code gave attention, or a module of torch's around it."""
        layer, outer = attention.parent, attention
        used: tuple[str, ...] = ("mask", "attn_", "key_", "src_")
        while not _is_own_call(outer) and outer.parent is not None:
            outer = outer.parent
        code = outer.module.forward
        inside = layer.module.forward if layer is not None else None
        if outer is not attention and inside and "memory" in inside.co_varnames:
            path = attention.tree.paths.get(attention.module, "")
            used = ("memory_",) if path.endswith("multihead_attn") else ("tgt_",)
        for name in code.co_varnames[: code.co_argcount] if code is not None else ():
            if name.endswith("mask") and name.startswith(used):
                operand = self.passed_to(outer, name)
                if operand is not None:
                    yield operand

    def _input_name(self, module: ModuleCall) -> str:
        """What the code calls the input of a module of torch's, or of a Sequential around
        it; "" where that is no name.
        """
        outer = module
        while outer.parent is not None and outer.parent.module.forward is _IN_ORDER:
            outer = outer.parent
        code, where = outer.module.forward, self._where(outer.moment, outer)
        if where is None or code is None or not _is_own_call(outer):
            return ""
        first = next(iter(code.co_varnames[1:]), "")
        value = argument(where.spot, code, first, 1)
        if not isinstance(value, ast.Name):
            return ""
        named, there = self._followed(value, where)
        return there.spot.file.of(named)

    def _is_first(self, where: Where, edges: Mapping[int, int]) -> bool:
        """Whether what an op takes was not made by the same expression."""
        for producer in edges.values():
            site, _, call = self._moments[producer]
            if site is where.site and call is where.call:
                return False
        return True

    def _role(
        self, role: int | str, given: Given, slots: Sequence[str], where: Where
    ) -> Operand | None:
        expression = given.get(role)
        if expression is None or self._is_number(expression, where):
            return None  # a number, or what the function makes itself
        slot = role if isinstance(role, str) else slots[role] if slots else ""
        position = role if isinstance(role, int) else None
        return self._operand(expression, position, slot, where)

    def _is_reversed(
        self, op: str, roles: Sequence[int | str], given: Given, where: Where
    ) -> bool:
        """Whether torch got `x + 0` of `0 + x`."""
        if op not in ("add", "mul") or roles != [1] or 0 not in given:
            return False
        if isinstance(where.spot.node, ast.Call):
            return False
        return self._began_as_number(given[0], where)

    def passed_to(self, call: ModuleCall, parameter: str) -> Operand | None:
        """What the code gave for a parameter of a module's call."""
        code = call.module.forward
        where = self._where(call.moment, call)
        if where is None or code is None or not _is_own_call(call):
            return None
        value = argument(where.spot, code, parameter, 1)
        if value is None or is_import_called(where.spot):
            return None
        is_torchs = package_of(code.co_filename) == "torch"
        # a module of the user's has a name for it, which says more than a long text
        if not is_torchs and not names_variable(value):
            return None
        return self._operand(value, None, "", where)

    def computed(
        self, maker: ModuleCall, user: ModuleCall, given: Operand | None, value: Any
    ) -> Operand | None:
        """What modules of a Sequential make, without gradient, of what it is given."""
        outer = user.parent
        if given is None or outer is None or maker.parent is not outer:
            return None
        if outer.module.forward is not _IN_ORDER:
            return None
        between = _modules_between(outer, maker, user)
        if not between:
            return None
        text = given.text
        for module in between:
            text = f"{type(module).__name__}({text})"
        source, scope = given._replace(value=value), self._scopes.get(outer, -1)
        return Operand(text, key=user, of=(source,), inner=True, scope=scope)

    # -- moments -----------------------------------------------------------------------

    def _where(
        self, moment: Moment, key: int | RunningCall | ModuleCall
    ) -> Where | None:
        """None where the call does not run the site, or nothing tells what stands there."""
        site, module, call = moment
        if call is None or site is None or not _runs(call, site):
            return None
        spot = spots_of(site.code).at(site.instruction)
        if spot is None:
            return None
        return Where(call, site, spot, module, self._turns.get(key, {}), key)

    def _caller(self, where: Where) -> Where | None:
        """The moment at which the function was called."""
        call, site = where.call.caller, where.site.caller
        module = where.module
        while module is not None and module.function is call:
            inner, module = module, module.parent
            if inner.site is site:
                return self._where(Moment(site, module, call), inner)
        return self._where(Moment(site, module, call), where.call)

    def _home(self, name: str, where: Where) -> tuple[Where, Reaching] | None:
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

    def _bound(self, name: str, where: Where) -> Bound | None:
        home = self._home(name, where)
        if home is None or home[1].binding is None:
            return None
        there, reaching = home
        return Bound(there, home[1].binding, reaching.is_certain)

    def _outer(self, name: str, where: Where) -> Where | None:
        """The moment of the nearest caller that may know a name of an outer function."""
        inner = where.site.code
        for _ in range(MOST_STEPS):
            outer = self._caller(where)
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

    # -- what an expression is ---------------------------------------------------------

    def _operand(
        self, expression: ast.expr, position: int | None, slot: str, where: Where
    ) -> Operand | None:
        expression, where = self._followed(expression, where)
        if self._is_number(expression, where):
            return None
        in_library = bool(package_of(where.site.code.co_filename))
        if in_library and self._is_called_by_script(where):
            return None
        text = where.spot.file.of(expression)
        value = self._held(expression, where)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return None
        return Operand(
            text,
            position,
            slot,
            self._key(expression, text, where),
            tuple(self._sources(expression, where)),
            value if isinstance(value, torch.Tensor) else None,
            where.site.code.co_name != "<module>",
            self._stays(expression, where),
            self._scopes.get(where.module, -1) if where.module is not None else -1,
            self._is_mask(expression, where),
        )

    def _is_called_by_script(self, where: Where) -> bool:
        """Whether the script called a library's function, no module, that this is in."""
        module = where.module
        outer: Where | None = where
        while outer is not None and outer.module is module:
            if not package_of(outer.site.code.co_filename):
                return True
            outer = self._caller(outer)
        return False

    def _followed(self, expression: ast.expr, where: Where) -> tuple[ast.expr, Where]:
        """What the caller wrote for a name that a function was given."""
        for _ in range(MOST_STEPS):
            if not isinstance(expression, ast.Name):
                break
            bound = self._bound(expression.id, where)
            if bound is None:
                break
            there, binding, is_certain = bound
            if binding.is_parameter:
                passed = self._passed(binding, expression.id, there)
                if passed is None or not names_variable(passed[0]):
                    break
                expression, where = passed
            elif is_certain and self._is_copy(binding, expression.id, there):
                assert binding.value is not None
                expression, where = binding.value, there
            else:
                break
        return expression, where

    def _is_copy(self, binding: Binding, name: str, where: Where) -> bool:
        """Whether a name is another name of a variable that is still the same."""
        value = binding.value
        if not isinstance(value, ast.Name):
            return False
        then = where.bindings.before(value.id, binding.node)
        now = where.bindings.before(value.id, where.spot.node)
        return value.id != name and then.binding == now.binding and now.is_certain

    def _passed(
        self, binding: Binding, name: str, where: Where
    ) -> tuple[ast.expr, Where] | None:
        """What was passed as a parameter, and where."""
        code = where.call.code
        outer = self._caller(where)
        if code is None or outer is None or code is not where.site.code:
            return None
        module = where.module
        is_forward = code.co_name == "forward" and module is not outer.module
        skip = 0
        if is_forward:
            assert module is not None
            if not _is_own_call(module) or is_import_called(outer.spot):
                return None  # by a module of torch's, as by Sequential
            skip = 1
        elif outer.spot.called != code.co_name:
            called = self._bound(outer.spot.called, outer) if binding.scope else None
            if called is None or called.binding.value is not binding.scope:
                return None  # no lambda of that name
        elif code.co_varnames[:1] in (("self",), ("cls",)):
            skip = 1
        value = argument(outer.spot, code, name, skip)
        return (value, outer) if value is not None else None

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
        home = self._home(name, where)
        if home is None:
            return where.moment, name
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
        return tuple(where.turns.get(loop, where.moment) for loop in loops)

    def _sources(self, expression: ast.expr, where: Where) -> Iterator[Operand]:
        """The variables in an expression, but for attributes of `self`; of a variable of
        a function, those in what gives it its value.
        """
        if isinstance(expression, ast.Name):
            bound = self._bound(expression.id, where)
            if bound is None:
                return
            where, binding, is_certain = bound
            if where.site.code.co_name == "<module>" or not is_certain:
                return
            if binding.value is None:
                return
            expression, spots = binding.value, spots_of(where.site.code)
            spot = Spot(spots, where.spot.function, binding.node, is_exact=True)
            where = where._replace(spot=spot)
        for node in variables(expression):
            # what a module holds is said by the text: `self.mask[:T]`
            if node is expression or dotted(node).startswith("self."):
                continue
            if not self._is_number(node, where):
                source = self._operand(node, None, "", where)
                if source is not None:
                    yield source

    def _stays(self, expression: ast.expr, where: Where) -> bool:
        """Whether a variable of the script is given its value once, before this."""
        if where.site.code.co_name != "<module>":
            return False
        if not isinstance(expression, ast.Name):
            return False
        binding = where.bindings.only(expression.id)
        return binding is not None and not where.bindings.loops_of(binding.node)

    def _is_mask(self, expression: ast.expr, where: Where) -> bool:
        """Whether it compares, or is made of what does alone."""
        if isinstance(expression, ast.Name):
            bound = self._bound(expression.id, where)
            if bound is None or not bound.is_certain:
                return False
            value = bound.binding.value
            return value is not None and is_comparison(value)
        return is_comparison(expression)

    # -- numbers -----------------------------------------------------------------------

    def _is_number(self, expression: ast.expr, where: Where, depth: int = 0) -> bool:
        """Whether the code says that this is no tensor."""
        if depth > 8:
            return False
        inside = number_parts(expression)
        if inside is not None:
            return all(self._is_number(part, where, depth + 1) for part in inside)
        if isinstance(expression, ast.Attribute):
            if dotted(expression.value) in ("math", "np", "torch"):
                return True
            value = self._attribute_of(expression, where)
            if value is None and dotted(expression.value) == "self":
                return is_number_attribute(where.spot, expression.attr)
            return isinstance(value, (int, float, complex, str))
        if isinstance(expression, ast.Name):
            return self._is_number_name(expression.id, where, depth)
        return False

    def _is_number_name(self, name: str, where: Where, depth: int) -> bool:
        bound = self._bound(name, where)
        if bound is None:
            value = self._global(name, where)
            return value is not None and self._is_number(value, where, depth + 1)
        there, binding, is_certain = bound
        if binding.counts:
            return True
        if binding.is_parameter:
            passed = self._passed(binding, name, there)
            if passed is not None:
                return self._is_number(*passed, depth + 1)
            return is_number_parameter(there.spot.function.root, name)
        if binding.value is None or not is_certain:
            return False
        return self._is_number(binding.value, there, depth + 1)

    def _global(self, name: str, where: Where) -> ast.expr | None:
        """The one value that a file gives a variable."""
        if name in where.site.code.co_varnames:
            return None
        binding = bindings_of(where.spot.file.outside).only(name)
        return binding.value if binding is not None else None

    def _began_as_number(self, expression: ast.expr, where: Where) -> bool:
        """Whether this is a number, or a variable that began as one, as a sum does."""
        if self._is_number(expression, where):
            return True
        name = dotted(expression)
        values = where.bindings.values(name)
        return any(self._is_number(value, where) for value in values)

    def _held(self, expression: ast.expr, where: Where) -> object:
        """What a parameter of a module's forward, or its attribute, holds."""
        if not isinstance(expression, ast.Name):
            return self._attribute_of(expression, where)
        bound = self._bound(expression.id, where)
        if bound is None or not bound.binding.is_parameter:
            return None
        module = _forward_of(bound.where)
        if module is None:
            return None
        return self._arguments.get((module, expression.id))

    def _attribute_of(self, expression: ast.expr, where: Where) -> object:
        """What a module's attribute holds now."""
        if not isinstance(expression, ast.Attribute):
            return None
        if dotted(expression.value) != "self":
            return None
        owner = self._owner(where)
        if owner is None:
            return None
        for table in ("_parameters", "_buffers"):
            found = vars(owner).get(table, {}).get(expression.attr)
            if found is not None:
                return found
        return vars(owner).get(expression.attr)

    def _owner(self, where: Where) -> torch.nn.Module | None:
        """The module that `self` is: that of a forward, or of a method it calls."""
        for _ in range(MOST_STEPS):
            code, outer = where.site.code, self._caller(where)
            module = _forward_of(where)
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


def _forward_of(where: Where) -> ModuleCall | None:
    """The call of a module whose forward this is in."""
    module = where.module
    if module is None or module.function is not where.call.caller:
        return None
    return module if where.site.code.co_name == "forward" else None


def _modules_between(
    sequence: ModuleCall, first: ModuleCall, after: ModuleCall
) -> list[torch.nn.Module]:
    """Of a Sequential, one module and those after it, up to another one; none where one
    stands there twice.
    """
    outer = sequence.module.ref()
    modules = (
        [one for _, one in members(outer, "_modules")] if outer is not None else []
    )
    ends = id(first.module.ref()), id(after.module.ref())
    places = [i for i, module in enumerate(modules) if id(module) in ends]
    return modules[places[0] : places[1]] if len(places) == 2 else []


def _runs(call: RunningCall | None, site: CallSite | None) -> bool:
    """Whether a call of a function runs the code of a site itself."""
    return call is not None and site is not None and call.code is site.code


def _is_own_call(call: ModuleCall) -> bool:
    """Whether the code called this module itself, and no module of torch's did."""
    parent = call.parent
    return parent is None or parent.site is not call.site
