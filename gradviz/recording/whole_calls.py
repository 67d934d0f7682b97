"""What calls of torch were given that none of their ops tells: of
`triplet_margin_loss(anchor, near, far)` each op has one edge, and the code has three
tensors.

Said of what is known to have no gradient: it was made of no other tensor, or the edges
that enter the call are all told apart, each of another argument.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributions

from gradviz.recording.given import bound_to
from gradviz.recording.moments import Callers, Where
from gradviz.source.bindings import dotted, unpacked
from gradviz.walker.private import arguments_of

_USING_ALL = ("log_prob", "rsample", "cdf", "icdf")
"""Methods of a distribution that compute with all that it was made of."""


class Passed(NamedTuple):
    """An argument of a call, and where it is written: a distribution was made before."""

    parameter: str
    expression: ast.expr
    where: Where


def arguments(where: Where, callers: Callers) -> Sequence[Passed]:
    """What a call of a function of torch's, or of a method of a distribution, was given
    that may be a tensor; nothing of other calls.
    """
    call = where.spot.node
    if not isinstance(call, ast.Call) or not _is_plain(call):
        return ()
    name = where.spot.called
    if name == "kl_divergence":
        return [one for part in call.args for one in _made_of(part, where, callers)]
    function = call.func
    root = dotted(function).partition(".")[0]
    if isinstance(function, ast.Attribute) and root not in where.spot.file.imported:
        if name not in _USING_ALL:
            return ()
        made = _made_of(function.value, where, callers)
        values = [Passed("value", part, where) for part in call.args[:1]]
        return [*made, *values] if made else ()
    if name == "grad":
        bound = _bound(torch.autograd.grad, call.args, call.keywords)
        # it is computed from that, and from the graph
        begins = bound.get("grad_outputs")
        return [Passed("grad_outputs", begins, where)] if begins is not None else ()
    bound = bound_to(name, call.args, call.keywords) or {}
    return [Passed(key, part, where) for key, part in bound.items()]


def arguments_of_module(where: Where, module: torch.nn.Module) -> Sequence[Passed]:
    """The same of a call of one of torch's modules."""
    call = where.spot.node
    if not isinstance(call, ast.Call) or not _is_plain(call):
        return ()
    bound = _bound(type(module).forward, [ast.Name("self"), *call.args], call.keywords)
    bound.pop("self", None)
    return [
        Passed(key, part, where)
        for key, several in bound.items()
        # such as the state `(h0, c0)`
        for part in (several.elts if isinstance(several, ast.Tuple) else [several])
    ]


def is_list(expression: ast.expr, where: Where, callers: Callers) -> bool:
    """Whether this is no tensor: `[6] * 3`."""
    value, _ = _value(expression, where, callers)
    sides = (value.left, value.right) if isinstance(value, ast.BinOp) else (value,)
    return any(isinstance(side, (ast.List, ast.ListComp, ast.Tuple)) for side in sides)


def is_new(expression: ast.expr, where: Where, callers: Callers) -> bool:
    """Whether this is a tensor that was made of no other, such as `torch.ones(3) * 2`:
    it has no gradient, unless what was made since was written into it.
    """
    value, there = _value(expression, where, callers)
    if isinstance(value, ast.BinOp):
        sides = (value.left, value.right)
        return any(is_new(side, there, callers) for side in sides) and all(
            isinstance(side, ast.Constant) or is_new(side, there, callers)
            for side in sides
        )
    if not isinstance(value, ast.Call) or not _is_plain(value):
        return False
    if any(one.arg == "requires_grad" for one in value.keywords):
        return False
    root, _, name = dotted(value.func).rpartition(".")
    return root == "torch" and _makes_new(name)


def is_untouched(expression: ast.expr, where: Where) -> bool:
    """Whether nothing but this call can have seen what an expression gives: it stands
    here, or in a variable of a function that is read here alone.
    """
    if isinstance(expression, ast.BinOp):
        sides = (expression.left, expression.right)
        return all(
            isinstance(side, ast.Constant) or is_untouched(side, where)
            for side in sides
        )
    if not isinstance(expression, ast.Name):
        return isinstance(expression, ast.Call)
    root = where.spot.function.root
    uses = [part for part in ast.walk(root) if isinstance(part, ast.Name)]
    read = sum(part.id == expression.id for part in uses)
    return where.site.code.co_name != "<module>" and read == 2  # and written once


@cache
def _makes_new(name: str) -> bool:
    """Whether a function of torch's takes no tensor, or only its shape."""
    overloads = arguments_of(name)
    takes = any(is_tensor for one in overloads for _, is_tensor in one)
    return name.endswith("_like") or (bool(overloads) and not takes)


def _value(
    expression: ast.expr, where: Where, callers: Callers
) -> tuple[ast.expr, Where]:
    """What gives a name its value, where that is certain; else the expression."""
    expression, where = callers.followed(expression, where)
    bound = callers.bound_of(expression, where)
    value = (
        bound.binding.value or unpacked(bound.binding) if bound is not None else None
    )
    if bound is not None and bound.is_certain and value is not None:
        return value, bound.where.given(bound.binding)
    return expression, where


def _made_of(expression: ast.expr, where: Where, callers: Callers) -> Sequence[Passed]:
    """What a distribution of torch's was made of, where that is known for certain."""
    expression, where = _value(expression, where, callers)
    if not isinstance(expression, ast.Call) or not _is_plain(expression):
        return ()
    made = dotted(expression.func)
    kind = getattr(torch.distributions, made.rpartition(".")[2], None)
    is_imported = made.partition(".")[0] in where.spot.file.imported
    if not is_imported or not isinstance(kind, type):
        return ()
    start: Any = vars(kind).get("__init__", lambda self: None)
    bound = _bound(start, [ast.Name("self"), *expression.args], expression.keywords)
    return [Passed(key, part, where) for key, part in bound.items() if key != "self"]


def _bound(
    function: Any, values: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> dict[str, ast.expr]:
    """Expressions by the parameters of a function that may be tensors."""
    named = {str(one.arg): one.value for one in keywords}
    signature = inspect.signature(function)
    try:
        given = signature.bind(*values, **named).arguments
    except TypeError:
        return {}
    return dict(_tensors(signature, given))


def _tensors(
    signature: inspect.Signature, given: Mapping[str, Any]
) -> Iterator[tuple[str, ast.expr]]:
    for name, value in given.items():
        annotation = signature.parameters[name].annotation
        may_be = annotation is inspect.Parameter.empty or "Tensor" in str(annotation)
        if may_be and isinstance(value, ast.expr):
            yield name, value


def _is_plain(call: ast.Call) -> bool:
    starred = any(isinstance(part, ast.Starred) for part in call.args)
    return not starred and all(one.arg is not None for one in call.keywords)
