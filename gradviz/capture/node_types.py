"""What all nodes of one type share: the name of the op, its flags, and the class of a custom Function."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch

from gradviz.capture import private
from gradviz.capture.packages import code_line
from gradviz.columns import TypeFacts
from gradviz.graph import Function, NodeFlag

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
