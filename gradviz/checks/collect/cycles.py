"""Finds references that lead in a circle through a graph: a custom Function that keeps its output, a hook that keeps what it is on.

Reads attributes and closures; runs nothing, and asks the garbage collector nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

from gradviz.checks.context import Cycle
from gradviz.graph import Graph, SourceLine
from gradviz.packages import code_line, is_foundation, with_text
from gradviz.source.statements import around, assigned, body_of
from gradviz.variables.objects import class_attribute, own_attributes, tensors_in
from gradviz.walker.description import Walked
from gradviz.walker.private import without_subclasses
from gradviz.walker.tensors import grad_fn_of


def cycles(walked: Walked) -> Iterator[Cycle]:
    """All of a graph. Each keeps the part of the graph behind it alive when nothing else does any more."""
    with without_subclasses():
        yield from _functions(walked)
        yield from _hooks(walked)


def _functions(walked: Walked) -> Iterator[Cycle]:
    """Custom Functions of which an attribute of `ctx` is an output: that leads to the node, which is `ctx`."""
    for i, node in enumerate(walked.nodes):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            for attribute, value in own_attributes(node).items():
                if any(grad_fn_of(tensor) is node for tensor in tensors_in(value)):
                    kind = class_attribute(type(node), "_forward_cls")
                    yield Cycle(
                        "function", attribute, i, type(node).__name__.removesuffix("Backward"), _set(kind, attribute)
                    )


def _set(kind: Any, attribute: str) -> SourceLine | None:
    """Where the forward() of a custom Function sets an attribute of its first argument, or setup_context() does."""
    for method in ("forward", "setup_context"):
        code = getattr(getattr(class_attribute(kind, method), "__func__", None), "__code__", None)
        body = body_of(code) if code is not None else None
        for statement in body.statements if body is not None else ():
            if any(name.endswith(f".{attribute}") for name in assigned(statement.node)[0]):
                assert body is not None
                return body.source(statement.node)
    return None


def _hooks(walked: Walked) -> Iterator[Cycle]:
    """Hooks on results that take with them, from the function around, that result or something that was computed from it."""
    for tensor, names in walked.names.named():
        node = None if tensor.is_leaf else walked.position_of.get(grad_fn_of(tensor))
        hooks = tensor._backward_hooks if node is not None else None
        for hook in list(hooks.values()) if hooks else ():
            function = hook.__func__ if type(hook) is MethodType else hook
            if node is None or type(function) is not FunctionType or _is_made_in_a_loop(function):
                continue
            for variable, tensor in _closed_over(function):
                later = None if tensor.is_leaf else walked.position_of.get(grad_fn_of(tensor))
                if later is not None and _leads_to(walked.graph, later, node):
                    line = code_line(function.__code__, function.__code__.co_firstlineno)
                    yield Cycle("hook", variable, node, names[0], with_text(line))


def _closed_over(function: FunctionType) -> Iterator[tuple[str, torch.Tensor]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            continue
        for tensor in tensors_in(value):
            yield name, tensor


def _is_made_in_a_loop(function: FunctionType) -> bool:
    """Whether the next round gives the variable that the hook takes from its function another value, and lets go of this one."""
    code = function.__code__
    return is_foundation(code.co_filename) or bool(around(code.co_filename, code.co_firstlineno).loops)


def _leads_to(graph: Graph, start: int, end: int) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node == end:
            return True
        inputs = {edge.producer for edge in graph.inputs(node)} - seen
        seen |= inputs
        waiting += inputs
    return False
