"""Which expressions of the code an op was given, as torch calls its arguments."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from gradviz.graph.origins import op_of
from gradviz.source.bindings import dotted
from gradviz.source.spots import Spot
from gradviz.walker.private import arguments_of

Given = Mapping[int | str, ast.expr]
"""Expressions by the position in `next_functions`, or by the slot that autograd has no
entry for.
"""
SLICES = op_of("CopySlices")
"""An op in place on a view, whichever it is."""
INDICES = ("index", "indices", "target", "mask", "condition")
OPTIONAL = "attn_mask"
"""What an op saves that has no entry, and may be None."""
_PLACES = ("index", "indices", "mask", "condition")


_ORDERS = {
    ("linear", "mm"): ("input", "weight"),
    ("linear", "addmm"): ("bias", "input", "weight"),
    ("scaled_dot_product_attention", "add"): ("", "attn_mask"),
    ("l1_loss", "sub"): ("input", "target"),
    ("pairwise_distance", "sub"): ("x1", "x2"),
    ("margin_ranking_loss", "sub"): ("input1", "input2"),
    ("margin_ranking_loss", "mul"): ("target",),
    ("gaussian_nll_loss", "sub"): ("input", "target"),
    ("gaussian_nll_loss", "div"): ("", "var"),
}
"""Words of a call whose op has others."""
_PRODUCTS = ("mm", "bmm", "mv", "dot", "linalg_vecdot")


def given_to(spot: Spot, op: str, count: int, is_first: bool) -> Given | None:
    """What an expression gave to an op with so many entries; None where it does not
    say. `is_first`: no other op that it made comes before this one.
    """
    node = spot.node
    if isinstance(node, ast.BinOp):
        return _both(node.left, node.right, op, node.op)
    if isinstance(node, ast.AugAssign):
        if op == SLICES:
            target: ast.expr = node.target
            base = target.value if isinstance(target, ast.Subscript) else target
            return {0: base, 1: node.value}
        return _both(node.target, node.value, op, node.op)
    if isinstance(node, ast.Subscript):
        return _subscript(spot, node, op)
    if isinstance(node, ast.Call):
        given = _called(spot, node, op, count, is_first)
        return _placed(given, op) if given is not None else None
    return None


def _placed(given: Given, op: str) -> Given:
    """With the one index that was given as what the op calls its own, as of
    `take_along_dim`, which gathers.
    """
    own = [name for name in INDICES[:3] if has_argument(op, name)]
    others = [name for name in INDICES[:3] if name in given]
    if len(own) == len(others) == 1 and own != others:
        return {own[0] if role in others else role: given[role] for role in given}
    return given


def _both(left: Any, right: ast.expr, op: str, sign: ast.operator) -> Given | None:
    # torch multiplies by what one divides by
    if isinstance(sign, ast.Div) and op == "mul":
        return {1: left}
    if op == "rsub":
        return {0: right, 1: left}
    is_one = op in _OPS.get(type(sign), ())
    return {0: left, 1: right} if is_one else None


_OPS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("add",),
    ast.Sub: ("sub",),
    ast.Mult: ("mul",),
    ast.Div: ("div",),
    ast.Mod: ("remainder", "fmod"),
    ast.Pow: ("pow",),
    ast.MatMult: _PRODUCTS,
}


def _subscript(spot: Spot, node: ast.Subscript, op: str) -> Given | None:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    some = [part for part in parts if not isinstance(part, (ast.Slice, ast.Constant))]
    given: dict[int | str, ast.expr] = {}
    if op in ("index", "index_put"):
        given.update((f"indices[{i}]", part) for i, part in enumerate(some))
    statement = spot.function.parents[node].node
    is_set = op in (SLICES, "copy", "copy_slices", "index_put")
    if is_set and isinstance(statement, ast.Assign) and node in statement.targets:
        given.update({0: node.value, 1: statement.value})
    elif is_set and isinstance(statement, ast.AugAssign) and node is statement.target:
        given[0] = node.value
    return given or None


@lru_cache(maxsize=1024)
def has_argument(op: str, role: int | str) -> bool:
    """Whether an op has an argument of a name, such as an index."""
    names = {name for arguments in arguments_of(op) for name, _ in arguments}
    if role == "target" and "condition" in names:
        return True  # a loss chooses by `target == 1`
    return isinstance(role, int) or role.partition("[")[0] in names


@lru_cache(maxsize=1024)
def entries(op: str, count: int) -> Sequence[str]:
    """What the inputs of an op that autograd has an entry for are called."""
    for skipped in (_PLACES, INDICES, ()):
        for arguments in arguments_of(op):
            tensors = [name for name, is_tensor in arguments if is_tensor]
            names = [name for name in tensors if name not in skipped]
            if len(names) == count:
                return names
    return []


def _called(
    spot: Spot, node: ast.Call, op: str, count: int, is_first: bool
) -> Given | None:
    function = node.func
    is_complete = all(not isinstance(part, ast.Starred) for part in node.args)
    if not is_complete or any(k.arg is None for k in node.keywords):
        return None
    receiver = None
    if isinstance(function, ast.Attribute):
        name = function.attr
        root = dotted(function.value).partition(".")[0]
        if root not in spot.file.imported:
            receiver = function.value
    elif isinstance(function, ast.Name):
        name = function.id
    else:
        return None
    if name == "apply":
        values = [part for part in node.args if not isinstance(part, ast.Constant)]
        return dict(enumerate(values)) if len(values) == count else None
    if receiver is not None and not hasattr(torch.Tensor, name):
        return _of_library(name, node.args, op, is_first)
    name = _METHODS.get(name.removesuffix("_"), name.removesuffix("_"))
    arguments = [receiver] if receiver is not None else []
    values = [*arguments, *node.args]
    return _matched(name, values, node.keywords, op, count, is_first)


def _of_library(
    name: str, values: Sequence[ast.expr], op: str, is_first: bool
) -> Given | None:
    """What a method of a library's was given: `log_prob` begins with the distance of its
    value from the mean, or looks it up.
    """
    is_distance = name == "log_prob" and op == "sub" and is_first
    return {0 if is_distance else "index": values[0]} if len(values) == 1 else None


_METHODS = {"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div"}


def _matched(
    name: str,
    values: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    op: str,
    count: int,
    is_first: bool,
) -> Given | None:
    """What a torch function was given, by what its op calls it."""
    if name == "einsum":
        return dict(_factors(values[1:], op, count))
    bound = bound_to(name, values, keywords)
    if bound is None:  # such as the sizes of a view, one by one
        is_shape = name in ("view", "reshape") and op == "view"
        return {0: values[0]} if is_shape and values else None
    given: dict[int | str, ast.expr] = {}
    roles = (*INDICES, OPTIONAL)
    given.update((role, bound[role]) for role in roles if role in bound)
    if name == "embedding" and "input" in bound:
        given["indices"] = bound["input"]
    if op in ("cat", "stack"):
        # none of which is a number, also where nothing tells which they are
        return dict(_elements(values[:1], count)) or None
    order = _order(name, list(bound), op, count, is_first)
    if not order and not given and len(bound) > count:
        return None  # any of them may be what the op takes
    given.update((i, bound[key]) for i, key in enumerate(order) if key in bound)
    return given


def _order(
    name: str, bound: Sequence[str], op: str, count: int, is_first: bool
) -> Sequence[str]:
    """The parameters of a call in the order of the op's entries; none where the op is
    another one.
    """
    if op == name or op.endswith(f"_{name}") or op.startswith(f"{name}_"):
        return [
            "input" if entry == "self" and "self" not in bound else entry
            for entry in entries(op, count)
        ]
    if (name, op) in _ORDERS:
        return _ORDERS[name, op]
    if op == "convolution":  # of conv2d, conv_transpose1d and so on
        return entries(op, count)
    others = [key for key in bound if key not in _PLACES]
    if name in ("matmul", *_PRODUCTS) and op in _PRODUCTS:
        return others
    return _of_two(others, op, is_first) if len(others) == count == 2 else ()


def _of_two(others: Sequence[str], op: str, is_first: bool) -> Sequence[str]:
    """Two parameters in the order of the entries of an op that a function runs."""
    if op == "mul":  # a target is multiplied from either side
        return ["target"] * 2 if "target" in others else others
    # grid_sample runs grid_sampler_2d; an operator may take them in any order
    return others if is_first and op not in _ANY_ORDER else ()


_ANY_ORDER = ("sub", "div", "pow", "where")


def _elements(values: Sequence[ast.expr], count: int) -> Iterator[tuple[int, ast.expr]]:
    lists = [value for value in values if isinstance(value, (ast.List, ast.Tuple))]
    parts = [part for value in lists for part in value.elts]
    is_complete = not any(isinstance(part, ast.Starred) for part in parts)
    if len(parts) == count and is_complete:
        yield from enumerate(parts)


def _factors(
    values: Sequence[ast.expr], op: str, count: int
) -> Iterator[tuple[int, ast.expr]]:
    """What einsum was given, of two tensors that it multiplies."""
    if len(values) == 1 and isinstance(values[0], (ast.List, ast.Tuple)):
        values = values[0].elts
    if len(values) == count == 2 and op in (*_PRODUCTS, "mul"):
        yield from enumerate(values)


def bound_to(
    name: str, values: Sequence[ast.expr], keywords: Sequence[ast.keyword]
) -> dict[str, ast.expr] | None:
    """The tensors that a torch function was given, by their parameters."""
    for parameters in _parameters(name):
        if len(values) > len(parameters):
            continue
        named: dict[str, ast.expr] = dict(zip(parameters, values))
        for keyword in keywords:
            key = str(keyword.arg)
            named["self" if key == "input" and key not in parameters else key] = (
                keyword.value
            )
        if named.keys() <= parameters.keys():
            return {key: value for key, value in named.items() if parameters[key]}
    return None


@lru_cache(maxsize=1024)
def _parameters(name: str) -> list[dict[str, bool]]:
    """The parameters of each torch function of a name, and whether each is a tensor."""
    found: list[dict[str, bool]] = []
    function = getattr(torch.nn.functional, name, None)
    function = getattr(function, "__wrapped__", function)
    if inspect.isfunction(function):
        of = inspect.signature(function).parameters.values()
        found.append({one.name: "Tensor" in str(one.annotation) for one in of})
    schemas = [dict(schema) for schema in arguments_of(name)]
    # the one with the most tensors first: a number in place of one is seen
    schemas.sort(key=lambda one: -sum(one.values()))
    return found + schemas
