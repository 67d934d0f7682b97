"""What all nodes of one type share: the name of the op, its flags, and the class of a custom Function."""

from __future__ import annotations

from inspect import unwrap
from typing import NamedTuple

import torch

from gradviz.capture import private
from gradviz.capture.private import Node
from gradviz.graph import Function, NodeFlag, SourceLine

_HIDES: dict[str, NodeFlag] = {"CheckpointFunctionBackward": "checkpoint", "CompiledFunctionBackward": "compiled"}
_OPAQUE = ("CopySlices", "CppFunction")
_Function = torch.autograd.Function


class TypeFacts(NamedTuple):
    """What all nodes of one type share."""

    op: str
    flags: tuple[NodeFlag, ...]
    function: Function | None


def type_facts(node: Node) -> TypeFacts:
    """Name, flags and class of a type of node. The op is "" where the type does not say it and each node must be asked."""
    op = type(node).__name__
    flags: list[NodeFlag] = []
    function = None
    if isinstance(node, private.BackwardCFunction):
        flags.append("custom")
        function = _function(node)
    if op in _HIDES:
        flags.append(_HIDES[op])
    elif op in _OPAQUE:
        flags.append("hidden")
    return TypeFacts("" if op == "CppFunction" else op, tuple(flags), function)


def _function(node: Node) -> Function:
    """The class of a custom Function node, and where its `backward` is defined when Python can tell."""
    cls = getattr(type(node), "_forward_cls", None) or type(node)
    own = cls.vjp if getattr(cls, "vjp", None) is not _Function.vjp else getattr(cls, "backward", None)
    backward = unwrap(own or cls)
    code = getattr(backward, "__code__", None)
    definition = SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None
    return Function(f"{cls.__module__}.{cls.__qualname__}", definition)
