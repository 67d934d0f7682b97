"""What ops were given that needs no gradient, as the code says it: of `h + noise[idx]`
the sum has one edge in autograd, and the other operand is `noise[idx]`.

A name that a function was given is followed to what its caller wrote. Reads code only:
nothing is noted while the user's code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from gradviz.graph.origins import op_of
from gradviz.packages import package_of
from gradviz.recording.event_log import ModuleCall, Moment
from gradviz.recording.expressions import ExpressionReader
from gradviz.recording.given import (
    OPTIONAL,
    SLICES,
    Given,
    entries,
    given_to,
    has_argument,
)
from gradviz.recording.moments import UNKNOWN, Callers, Where, is_own_call, runs
from gradviz.recording.numbers import NumberReader
from gradviz.recording.program import ProgramText
from gradviz.recording.whole_calls import (
    Passed,
    arguments,
    arguments_of_module,
    is_list,
    is_new,
    is_untouched,
)
from gradviz.source.bindings import dotted
from gradviz.source.expressions import argument, is_import_called, names_variable
from gradviz.variables.objects import is_a, members
from gradviz.walker.places import BareGraph, GivenToCall, Operand

MASKED = ("add", "baddbmm")
"""Ops that take what attention makes of its masks, beside its own, which has no entry for
it.
"""
_SUMS = ("add", "sub", "rsub")
"""Ops that do not save the number that they were given."""
_IN_ORDER = torch.nn.Sequential.forward.__code__


class Operands(NamedTuple):
    """`named`: the operands of nodes, by node id; `numbers`: of how many entries without
    gradient the code says that they are no tensors, `written`: of a sum, the one with its
    sign; `in_torch`: the nodes that a module
    of torch's made; `inputs`: what the code gave these modules; `leaves`: what leaves are
    called; `calls`: what calls were given.
    """

    named: dict[int, list[Operand]]
    numbers: dict[int, int]
    written: dict[int, str]
    in_torch: set[int]
    inputs: dict[int, Operand]
    leaves: dict[int, str]
    calls: list[GivenToCall]


class OperandReader:
    """Reads the operands of one graph. `code` is what was written, `arguments` are living
    data that modules were called with, by call and parameter, `scopes` those of
    module calls.
    """

    def __init__(
        self,
        bare: BareGraph,
        moments: Sequence[Moment],
        code: ProgramText,
        arguments: Mapping[tuple[ModuleCall, str], torch.Tensor],
        scopes: Mapping[ModuleCall, int],
    ) -> None:
        self._bare, self._moments, self._scopes = bare, moments, scopes
        self._constructs = code.constructs
        self._callers = Callers(code.turns)
        self._numbers = NumberReader(self._callers)
        self._expressions = ExpressionReader(
            self._callers, self._numbers, arguments, scopes, code.functions
        )

    def read(self) -> Operands:
        """The operands of all nodes."""
        taken: dict[int, dict[int, int]] = {}
        none_inputs = self._bare.none_inputs
        for edge in self._bare.edges:
            taken.setdefault(edge.consumer, {})[edge.position] = edge.producer

        found = Operands({}, {}, {}, set(), {}, {}, [])
        for node, moment in enumerate(self._moments):
            site, module, call = moment
            if not runs(call, site):
                continue
            if module is not None and module.site is site:
                self._read_in_torch(node, module, taken.get(node, {}), found)
                continue
            where = self._callers.where(moment, node)
            if where is not None:
                edges = taken.get(node, {})
                count = len(edges) + none_inputs.get(node, 0)
                self._read_node(node, where, count, edges, found)
        for nodes, given in (*self._calls(), *self._module_calls(found.in_torch)):
            self._read_call(nodes, given, taken, found)
        return found

    def _calls(self) -> Iterator[tuple[Sequence[int], Sequence[Passed]]]:
        """The nodes that each call of torch's made, and what it was given."""
        for construct in self._constructs:
            if construct.kind not in ("call", "gradient") or not construct.nodes:
                continue
            first = construct.nodes[0]
            moment = self._moments[first]
            if construct.kind == "gradient" and moment.function is not None:
                # what the engine runs has no code: its caller's asked for it
                moment = moment._replace(function=moment.function.caller)
            where = self._callers.where(moment, first)
            if where is not None:
                yield construct.nodes, arguments(where, self._callers)

    def _module_calls(
        self, nodes: Iterable[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[Passed]]]:
        """The same of modules of torch's."""
        made: dict[ModuleCall, list[int]] = {}
        for node in nodes:
            module = self._moments[node].module
            if module is not None and is_own_call(module):
                made.setdefault(module, []).append(node)
        for call, several in made.items():
            called, where = call.module.ref(), self._callers.where(call.moment, call)
            if called is not None and where is not None:
                yield several, arguments_of_module(where, called)

    def _read_call(
        self,
        nodes: Sequence[int],
        given: Sequence[Passed],
        taken: Mapping[int, Mapping[int, int]],
        found: Operands,
    ) -> None:
        """Add the arguments of a call that no op of it tells, where all edges into it
        bring others.
        """
        told = {one.text for node in nodes for one in found.named.get(node, ())}
        told |= {found.inputs[node].text for node in nodes if node in found.inputs}
        left = {
            operand.text: operand
            for operand in self._without_edge(nodes, given, taken, found)
            if operand.text not in told
        }
        takes = self._bare.none_inputs
        free = {node: takes[node] for node in nodes if node in takes}
        for operand in left.values():
            saves = [n for n in nodes if self._saves(n, operand.slot)]
            if saves:
                found.named.setdefault(saves[0], []).append(operand)
            else:
                found.calls.append((tuple(nodes), free, operand))

    def _without_edge(
        self,
        nodes: Sequence[int],
        given: Sequence[Passed],
        taken: Mapping[int, Mapping[int, int]],
        found: Operands,
    ) -> list[Operand]:
        """The arguments that no edge into a call brings: what has no gradient, where
        one brings what is not known.
        """
        producers = {p for node in nodes for p in taken.get(node, {}).values()}
        entering, brought = producers - {*nodes}, set[int]()
        new, rest = list[Operand](), list[Operand]()
        for parameter, expression, where in given:
            by = {p for p in entering if self._brings(p, expression, where, found)}
            brought |= by
            operand = self._expressions.operand(expression, None, parameter, where)
            if by or operand is None or is_list(expression, where, self._callers):
                continue
            is_doubtful = operand.is_doubtful or self._is_unknown(expression, where)
            rest.append(operand._replace(is_doubtful=is_doubtful))
            if is_new(expression, where, self._callers):
                # what something else may have changed has to be seen
                is_doubtful = not is_untouched(expression, where)
                new.append(operand._replace(is_doubtful=is_doubtful))
        return rest if entering == brought else new

    def _saves(self, node: int, slot: str) -> bool:
        return hasattr(self._bare.kinds[node], f"_saved_{slot}")

    def _is_unknown(self, expression: ast.expr, where: Where) -> bool:
        """Whether nothing says that an argument is not the default, None."""
        expression, where = self._callers.followed(expression, where)
        if isinstance(expression, ast.Attribute):
            return self._callers.attribute_of(expression, where) is UNKNOWN
        bound = self._callers.bound_of(expression, where)
        if bound is None or not bound.binding.is_parameter:
            return False
        return self._callers.passed(bound) is None

    def _brings(
        self, producer: int, expression: ast.expr, where: Where, found: Operands
    ) -> bool:
        """Whether an edge brings what an argument of a call is."""
        leaf = self._bare.variables.get(producer)
        if leaf is not None:
            named, there = self._callers.followed(expression, where)
            return found.leaves.get(producer) == there.spot.file.of(named)
        edges = {0: producer}
        if self._is_edge(expression, edges, where):
            return True
        return self._is_made_in(expression, producer, where)

    def _read_in_torch(
        self, node: int, module: ModuleCall, edges: Mapping[int, int], found: Operands
    ) -> None:
        """Add what the code gave a module of torch's that made a node."""
        found.in_torch.add(node)
        takes_data, op = self._bare.none_inputs.get(node, 0) > 0, self._op(node)
        # what has a gradient is what the module was given first
        is_first = all(
            made in self._bare.variables or self._moments[made].module is module
            for made in edges.values()
        )
        is_asked = takes_data and is_first
        given = self.passed_to(*_outermost(module)) if is_asked else None
        if given is not None:
            found.inputs[node] = given
        if (takes_data and op in MASKED) or op.startswith("scaled_dot_product"):
            found.named[node] = list(self._masks(module))
        for producer in edges.values():
            leaf = self._bare.variables.get(producer)
            if leaf is None or is_a(leaf, Parameter):
                continue
            if name := self._input_name(module):
                found.leaves.setdefault(producer, name)

    def _read_node(
        self,
        node: int,
        where: Where,
        count: int,
        edges: Mapping[int, int],
        found: Operands,
    ) -> None:
        """Add the operands of a node of which some entries of `count` have `edges`."""
        op, spot = self._op(node), where.spot
        if op == SLICES and isinstance(spot.node, ast.AugAssign):
            found.written[node] = spot.function.in_place(spot.node)
        given = given_to(spot, op, count, self._is_first(where, edges))
        if given is None:
            self._read_list(node, where, edges, found)
            return
        self._name_leaves(given, where, edges, found)
        empty = [i for i in range(count) if i not in edges]
        if self._is_reversed(op, empty, edges, given, where):
            found.numbers[node] = 1
            self._write_number(node, given[0], where, found)
            return
        if op == "rsub":  # has no entry for it
            self._write_number(node, given.get(1), where, found)
        # einsum computes with tensors of other shapes
        slots = entries(op, count) if spot.called != "einsum" else ()
        roles: list[int | str] = [*empty]
        for name in given:
            if isinstance(name, str) and name not in slots and has_argument(op, name):
                roles.append(name)
        for role in roles:
            operand = self._role(role, given, slots, edges, where)
            if operand is not None:
                found.named.setdefault(node, []).append(operand)
            elif isinstance(role, int):
                found.numbers[node] = found.numbers.get(node, 0) + 1
                self._write_number(node, given.get(role), where, found)

    def _name_leaves(
        self, given: Given, where: Where, edges: Mapping[int, int], found: Operands
    ) -> None:
        """Add what the code calls leaves that an op took."""
        for position, producer in edges.items():
            expression = given.get(position)
            if producer in self._bare.variables and isinstance(expression, ast.Name):
                named, there = self._callers.followed(expression, where)
                found.leaves.setdefault(producer, there.spot.file.of(named))

    def _write_number(
        self, node: int, number: ast.expr | None, where: Where, found: Operands
    ) -> None:
        """Add what a node is called that is given a number."""
        if number is None or self._op(node) not in _SUMS:
            return
        name = number.id if isinstance(number, ast.Name) else ""
        if name and where.bindings.only(name) is None:
            return  # began as one, as a total does
        if self._numbers.is_number(number, where):
            text = where.spot.function.with_number(where.spot.node, number)
            found.written[node] = text

    def _read_list(
        self, node: int, where: Where, edges: Mapping[int, int], found: Operands
    ) -> None:
        """Add what a list began with that a function then only adds to."""
        joins = self._op(node) in ("cat", "stack")
        given = (
            next(iter(getattr(where.spot.node, "args", ())), None) if joins else None
        )
        bound = self._callers.bound_of(given, where) if given is not None else None
        value = bound.binding.value if bound is not None else None
        if bound is None or not isinstance(value, ast.List):
            return
        there = bound.where
        methods = [
            part.attr
            for part in ast.walk(there.spot.function.root)
            if isinstance(part, ast.Attribute) and dotted(part.value) == bound.name
        ]
        if there.bindings.only(bound.name) is None or {*methods} - {"append"}:
            return
        elements = dict[int | str, ast.expr](enumerate(value.elts))
        began = there.given(bound.binding)
        for role in [place for place in elements if place not in edges]:
            operand = self._role(role, elements, (), edges, began)
            if operand is not None:
                found.named.setdefault(node, []).append(operand)

    def _op(self, node: int) -> str:
        return op_of(getattr(self._bare.kinds[node], "__name__", ""))

    def _masks(self, attention: ModuleCall) -> Iterator[Operand]:
        """The masks that the code gave attention, or a module of torch's around it."""
        layer, outer = attention.parent, attention
        used: tuple[str, ...] = ("mask", "attn_", "key_", "src_")
        while not is_own_call(outer) and outer.parent is not None:
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
        outer, parameter = _outermost(module)
        code, where = outer.module.forward, self._callers.where(outer.moment, outer)
        if where is None or code is None or not is_own_call(outer):
            return ""
        value = argument(where.spot, code, parameter, 1)
        if not isinstance(value, ast.Name):
            return ""
        named, there = self._callers.followed(value, where)
        return there.spot.file.of(named)

    def _is_first(self, where: Where, edges: Mapping[int, int]) -> bool:
        """Whether what an op takes was not made by the same expression."""
        for producer in edges.values():
            site, _, call = self._moments[producer]
            if site is where.site and call is where.call:
                return False
        return True

    def _role(
        self,
        role: int | str,
        given: Given,
        slots: Sequence[str],
        edges: Mapping[int, int],
        where: Where,
    ) -> Operand | None:
        expression = given.get(role)
        if expression is None or self._numbers.is_number(expression, where):
            return None  # a number, or what the function makes itself
        if self._is_edge(expression, edges, where):
            return None
        slot = role if isinstance(role, str) else slots[role] if slots else ""
        position = role if isinstance(role, int) else None
        operand = self._expressions.operand(expression, position, slot, where)
        if operand is not None and role == OPTIONAL:
            return operand._replace(is_doubtful=True)
        return operand

    def _is_reversed(
        self,
        op: str,
        roles: Sequence[int],
        edges: Mapping[int, int],
        given: Given,
        where: Where,
    ) -> bool:
        """Whether torch got `x + 0` of `0 + x`."""
        if op not in ("add", "mul") or roles != [1] or 0 not in given:
            return False
        if isinstance(where.spot.node, ast.Call):
            return False
        if self._numbers.began_as_number(given[0], where):
            return True
        # what an op of its right side made cannot be its left side
        return self._is_made_in(given[1], edges[0], where)

    def _is_edge(
        self, expression: ast.expr, edges: Mapping[int, int], where: Where
    ) -> bool:
        """Whether an edge of the op brings what a variable holds: it has a gradient."""
        expression, where = self._callers.followed(expression, where)
        bound = self._callers.bound_of(expression, where)
        if bound is None or not bound.is_certain:
            return False
        value, there = bound.binding.value, bound.where
        if bound.binding.is_parameter:
            value, there = self._callers.passed(bound) or (None, there)
        return value is not None and any(
            self._is_made_in(value, producer, there) for producer in edges.values()
        )

    def _is_made_in(self, expression: ast.expr, producer: int, where: Where) -> bool:
        """Whether an op was made by what an expression computes, here or in its calls."""
        maker = self._callers.where(self._moments[producer], producer)
        while maker is not None and maker.call is not where.call:
            maker = self._callers.caller(maker)
        return maker is not None and maker.spot.node in ast.walk(expression)

    def passed_to(self, call: ModuleCall, parameter: str) -> Operand | None:
        """What the code gave for a parameter of a module's call."""
        code = call.module.forward
        where = self._callers.where(call.moment, call)
        if where is None or code is None or not is_own_call(call):
            return None
        value = argument(where.spot, code, parameter, 1)
        if value is None or is_import_called(where.spot):
            return None
        is_torchs = package_of(code.co_filename) == "torch"
        # a module of the user's has a name for it, which says more than a long text
        if not is_torchs and not names_variable(value):
            return None
        return self._expressions.operand(value, None, "", where)

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


def _outermost(module: ModuleCall) -> tuple[ModuleCall, str]:
    """The call of the Sequential that a module of torch's is in, else its own, and the
    first parameter of that.
    """
    while module.parent is not None and module.parent.module.forward is _IN_ORDER:
        module = module.parent
    code = module.module.forward
    return module, code.co_varnames[
        1
    ] if code is not None and code.co_argcount > 1 else ""


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
