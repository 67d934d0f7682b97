"""What all nodes of one type share: the name of the op, its flags, and the class of a custom Function."""

from __future__ import annotations

from functools import partial
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import torch

from gradviz.graph import Function, NodeFlag
from gradviz.graph.columns import TypeFacts
from gradviz.packages import code_line
from gradviz.variables.objects import own_attributes
from gradviz.walker import private

# Which module a reentrant checkpoint ran: its ops are hidden behind one node, whose function knows the module. Reads
# the function that torch keeps, past its class, and calls nothing.

_MOST = 20  # functions and cells that are looked at


def modules_behind(node: Any) -> list[torch.nn.Module]:
    """The modules that the function of a checkpoint's node is, is bound to, wraps, closes over or names, in that order.

    >>> from torch.utils.checkpoint import checkpoint
    >>> x, block = torch.ones(1, requires_grad=True), torch.nn.Linear(1, 1)
    >>> y = checkpoint(lambda h: block(h), x, use_reentrant=True)
    >>> modules_behind(y.grad_fn) == [block]
    True
    """
    found: list[torch.nn.Module] = []
    waiting: list[Any] = [own_attributes(node).get("run_function")]
    for value in waiting:
        kind = type(value)
        if len(waiting) > _MOST:
            break
        if issubclass(kind, torch.nn.Module):
            found.append(value)
        elif kind is MethodType:
            waiting.append(value.__self__)
        elif kind is partial:
            waiting.append(value.func)
        elif kind is FunctionType:
            waiting += [_content(cell) for cell in value.__closure__ or ()]
            waiting += value.__defaults__ or ()
            named = [value.__globals__.get(name) for name in value.__code__.co_names]
            waiting += [one for one in named if issubclass(type(one), torch.nn.Module)]
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


_HIDES: dict[str, NodeFlag] = {"CheckpointFunctionBackward": "checkpoint", "CompiledFunctionBackward": "compiled"}
_OPAQUE = ("CopySlices", "CppFunction")
_Function = torch.autograd.Function


class TypeTable(dict[type, TypeFacts]):
    """Facts by the type of a node, worked out when a type is first asked for."""

    def __missing__(self, type: type) -> TypeFacts:
        facts = self[type] = _facts(type)
        return facts


def _facts(type: type) -> TypeFacts:
    """Name, flags and class of a type of node. The op is "" where the type does not say it and each node must be asked."""
    op = type.__name__
    flags: list[NodeFlag] = []
    function = None
    if issubclass(type, private.BackwardCFunction):
        flags.append("custom")
        function = _function(type)
    if op in _HIDES:
        flags.append(_HIDES[op])
    elif op in _OPAQUE:
        flags.append("hidden")
    return TypeFacts("" if op == "CppFunction" else op, tuple(flags), function)


def _function(type: Any) -> Function:
    """The class of a custom Function's node, and where its `backward` is defined when Python can tell."""
    cls = getattr(type, "_forward_cls", None) or type
    own = cls.vjp if getattr(cls, "vjp", None) is not _Function.vjp else getattr(cls, "backward", None)
    backward = unwrap(own or cls)
    code = getattr(backward, "__code__", None)
    definition = code_line(code, code.co_firstlineno) if code is not None else None
    return Function(f"{cls.__module__}.{cls.__qualname__}", definition)
