"""Where a run failed: the facts about the exception, while its traceback is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.checks.collect.lines import Variables, leaf_of
from gradviz.checks.run import Raised
from gradviz.checks.words import Names
from gradviz.errors import text_of
from gradviz.graph import SourceLine
from gradviz.packages import (
    code_line,
    is_foundation,
    package_of,
    with_text,
)
from gradviz.source.code_line import assigned, read
from gradviz.source.search import lines_behind, returned_by
from gradviz.source.statements import body_of
from gradviz.variables.objects import tensors_in
from gradviz.variables.scanner import name_of, namespaces, scan
from gradviz.walker.isolation import isolated
from gradviz.walker.walk import live_nodes

_CUSTOM = re.compile(r"[Ff]unction (\w+)Backward returned an")
_BARE = "You must implement either the backward"
_ENGINE = torch.autograd.backward.__code__, torch.autograd.grad.__code__

_Stack = Sequence[tuple[FrameType, int]]


def raised(error: BaseException) -> Raised:
    """The facts about the exception that ended the user's code, while its traceback is
    there.
    """
    stack, text = list(walk_tb(error.__traceback__)), text_of(error)
    failure = Raised(
        type(error).__name__,
        text,
        custom=_custom(text),
    )
    failure = failure._replace(within=_constructor(stack))

    outside = [entry for entry in stack if not is_foundation(_file(entry))]
    users = [entry for entry in outside if not package_of(_file(entry))]
    if not outside:
        return failure

    # the innermost line that the user can change; else that of the library
    frame, number = (users or outside)[-1]
    failure = failure._replace(source=with_text(code_line(frame.f_code, number)))
    # tensors of the user's own classes may refuse anything
    with isolated(), suppress(Exception):
        variables = namespaces(frame)
        failure = _called(failure, stack, variables)
        if not failure.outputs and not failure.missing:
            failure = _refused(failure, stack, variables)

    return failure


def _file(entry: tuple[FrameType, int]) -> str:
    return entry[0].f_code.co_filename


def _constructor(stack: _Stack) -> str:
    """The outermost constructor of a module that it came out of."""
    for frame, _ in stack:
        module = frame.f_locals.get("self")
        if frame.f_code.co_name == "__init__" and isinstance(module, torch.nn.Module):
            return f"{type(module).__name__}.__init__\n"
    return ""


def _refused(failure: Raised, stack: _Stack, variables: Variables) -> Raised:
    """The same with the tensor that `deepcopy` stopped at; or the float64 tensors that
    a line reads, which other dtypes do not go with. And the line that made them.
    """
    inner, source = stack[-1][0], failure.source
    if inner.f_code.co_name == "__deepcopy__":
        values = [inner.f_locals.get("self")]
    else:
        names = dict.fromkeys(read(source))
        values = [space.get(name) for space in variables for name in names]
        values = [value for value in values if _is_double(value)]

    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    missing = _named(tensors, variables)
    for line in lines_behind(source):
        if set(missing).intersection(assigned(line)):
            return failure._replace(missing=missing, made=line)
    return failure._replace(missing=missing)


def _is_double(value: object) -> bool:
    # what NumPy makes by default, and parameters are not
    return type(value) is torch.Tensor and value.dtype == torch.float64


def _called(failure: Raised, stack: _Stack, variables: Variables) -> Raised:
    """The same with what backward began at, the inputs that it does not depend on, and
    the shape of the first output.
    """
    calls = [frame.f_locals for frame, _ in stack if frame.f_code in _ENGINE]
    if not calls:
        return failure

    # backward() calls them `tensors`, and grad() calls them `outputs`
    outputs = tensors_in(
        calls[0].get(
            "tensors",
            calls[0].get("outputs"),
        )
    )
    inputs = tensors_in(calls[0].get("inputs"))
    reached = set(live_nodes(outputs)) if inputs else set()
    leaves = {id(leaf_of(node)) for node in reached}
    missing = [
        tensor
        for tensor in inputs
        if id(tensor) not in leaves and tensor.grad_fn not in reached
    ]
    parts = (_part(tensor, variables) for tensor in missing)
    return failure._replace(
        backward=True,
        shape=tuple(outputs[0].shape) if outputs else (),
        within=next(filter(None, parts), ""),
        outputs=_named(outputs, variables),
        missing=_named(missing, variables),
    )


def _part(tensor: torch.Tensor, variables: Variables) -> str:
    """What a tensor is a part of, and all of whose parts have a name: "part of points:
    torch.cat([x, t], dim=1)".
    """
    base = tensor._base
    names = _named([base], variables) if base is not None else ()
    if base is None or not names:
        return ""

    views = {
        id(variable.value): variable
        for variable in scan(variables)
        if type(variable.value) is torch.Tensor and variable.value._base is base
    }
    parts = [view for view in views.values() if view.value.shape != base.shape]
    # cat() has to join them in the order in which they lie in the base
    parts.sort(key=lambda part: part.value.storage_offset())
    for dim in range(base.dim()):
        sizes = [p.value.shape[dim] for p in parts if p.value.dim() == base.dim()]
        if sum(sizes) == base.shape[dim] and len(sizes) == len(parts):
            listed = ", ".join(part.name for part in parts)
            return f"part of {names[0]}: torch.cat([{listed}], dim={dim})\n"

    return f"part of {names[0]}\n"


def _named(tensors: Sequence[torch.Tensor], variables: Variables) -> Names:
    """What leads to these tensors: a variable, or else an object or a container in one."""
    names = []
    for tensor in tensors:
        inside = (found.name for found in scan(variables) if found.value is tensor)
        names.append(name_of(tensor, variables) or next(inside, ""))
    return tuple(filter(None, names))


def _custom(text: str) -> SourceLine | None:
    """The line of a custom Function that the engine's message is about: where its
    backward() returns, or its forward() begins.
    """
    match = _CUSTOM.search(text)
    if match is not None:
        for kind in _functions():
            backward = _code(kind, "backward")
            if kind.__name__ == match[1] and backward is not None:
                return returned_by(_begins(backward))

    bare: list[SourceLine] = []
    for kind in _functions() if _BARE in text else ():
        forward = _code(kind, "forward")
        theirs = torch.autograd.Function
        inherits = kind.backward is theirs.backward and kind.vjp is theirs.vjp
        if inherits and forward is not None and not package_of(forward.co_filename):
            bare.append(_begins(forward))
    # the message names no class: of two candidates, neither is certain
    return bare[0] if len(bare) == 1 else None


def _functions() -> Iterator[Any]:
    """All custom Functions."""
    waiting: list[Any] = [torch.autograd.Function]
    for kind in waiting:  # grows while it is read
        yield kind
        waiting += kind.__subclasses__()


def _code(kind: Any, name: str) -> Any:
    method = getattr(vars(kind).get(name), "__func__", None)
    return getattr(method, "__code__", None)


def _begins(code: CodeType) -> SourceLine:
    """The line of `def`, after the decorators."""
    statements = body_of(code).statements
    # co_firstlineno is that of the first decorator
    first = statements[0].lineno - 1 if statements else 0
    return with_text(code_line(code, max(code.co_firstlineno, first)))
