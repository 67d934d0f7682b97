"""Where a run failed: the facts about the exception, while its traceback is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.checks.collect.lines import Variables, leaf_of
from gradviz.checks.run import Raised
from gradviz.checks.words import Names
from gradviz.errors import text_of as message_of
from gradviz.graph import SourceLine
from gradviz.packages import (
    code_line,
    is_foundation,
    package_of,
    with_text,
)
from gradviz.source.code_line import assigned as given, read
from gradviz.source.search import lines_behind, returned_by
from gradviz.source.statements import (
    body_of,
)
from gradviz.variables.objects import tensors_in
from gradviz.variables.scanner import name_of, namespaces, scan
from gradviz.walker.isolation import isolated
from gradviz.walker.walk import live_nodes

_CUSTOM = re.compile(r"[Ff]unction (\w+)Backward returned an")


_Stack = Sequence[tuple[FrameType, int]]


def raised(error: BaseException) -> Raised:
    """The facts about the exception that ended the user's code, while its traceback is
    there.
    """
    stack = list(walk_tb(error.__traceback__))
    own = [
        (frame, line)
        for frame, line in stack
        if not is_foundation(frame.f_code.co_filename)
    ]
    own = [
        (frame, line) for frame, line in own if not package_of(frame.f_code.co_filename)
    ] or own
    text = message_of(error)
    makes = [
        frame.f_locals.get("self")
        for frame, _ in stack
        if frame.f_code.co_name == "__init__"
    ]
    within = next(
        (
            f"{type(one).__name__}.__init__\n"
            for one in makes
            if isinstance(one, torch.nn.Module)
        ),
        "",
    )
    told = Raised(
        type(error).__name__,
        text,
        custom=_custom(text),
        within=within,
    )
    if not own:
        return told

    frame, line = own[-1]
    source = with_text(code_line(frame.f_code, line))
    told = told._replace(source=source)

    # tensors of the user's own classes may refuse anything
    with isolated(), suppress(Exception):
        variables = namespaces(frame)
        told = _called(told, stack, variables)
        if not (told.outputs or told.missing):
            told = told._replace(
                missing=_named(_refused(stack, variables, source), variables)
            )
            made = (
                earlier
                for earlier in lines_behind(source)
                if set(told.missing) & set(given(earlier))
            )
            told = told._replace(made=next(made, None))

    return told


def _refused(
    stack: _Stack, variables: Variables, source: SourceLine
) -> list[torch.Tensor]:
    """The tensor that `deepcopy` stopped at; or the float64 tensors that a line reads,
    which other dtypes do not go with.
    """
    inner = stack[-1][0]
    if inner.f_code.co_name == "__deepcopy__":
        return [
            owner
            for owner in (inner.f_locals.get("self"),)
            if isinstance(owner, torch.Tensor)
        ]

    values = (
        space.get(name) for space in variables for name in dict.fromkeys(read(source))
    )

    return [
        value
        for value in values
        if type(value) is torch.Tensor and value.dtype == torch.float64
    ]


def _called(told: Raised, stack: _Stack, variables: Variables) -> Raised:
    """The same with what backward began at, the inputs that it does not depend on, and
    the shape of the first output.
    """
    functions = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)
    local = next(
        (frame.f_locals for frame, _ in stack if frame.f_code in functions), None
    )
    if local is None:
        return told

    outputs = tensors_in(local.get("tensors", local.get("outputs")))
    inputs = tensors_in(local.get("inputs"))
    reached = set(live_nodes(outputs)) if inputs else set()
    leaves = {id(leaf_of(node)) for node in reached}
    missing = [
        tensor
        for tensor in inputs
        if id(tensor) not in leaves
        and (tensor.grad_fn is None or tensor.grad_fn not in reached)
    ]
    shape = tuple(outputs[0].shape) if outputs else ()
    told = told._replace(
        backward=True,
        shape=shape,
        within=next(
            filter(None, (_parts(one, variables) for one in missing)),
            "",
        ),
    )

    return told._replace(
        outputs=_named(outputs, variables), missing=_named(missing, variables)
    )


def _parts(tensor: torch.Tensor, variables: Variables) -> str:
    """What a tensor is a part of, and all of whose parts have a name: "part of points:
    torch.cat([x, t], dim=1)".
    """
    base = tensor._base
    whole = _named([base], variables) if base is not None else ()
    if base is None or not whole:
        return ""

    known = [
        one
        for one in scan(variables)
        if type(one.value) is torch.Tensor and one.value._base is base
    ]
    parts = {id(one.value): one for one in known if one.value.shape != base.shape}
    ordered = sorted(
        parts.values(),
        key=lambda one: one.value.storage_offset(),
    )

    for dim in range(base.dim()):
        sizes = [
            one.value.shape[dim] for one in ordered if one.value.dim() == base.dim()
        ]
        if sum(sizes) == base.shape[dim] and len(sizes) == len(ordered):
            return f"part of {whole[0]}: torch.cat([{', '.join(one.name for one in ordered)}], dim={dim})\n"

    return f"part of {whole[0]}\n"


def _named(tensors: Sequence[torch.Tensor], variables: Variables) -> Names:
    """What leads to these tensors: a variable, or else an object or a container in one."""
    inside = (
        name_of(tensor, variables)
        or next(
            (known.name for known in scan(variables) if known.value is tensor),
            "",
        )
        for tensor in tensors
    )
    return tuple(filter(None, inside))


def _custom(text: str) -> SourceLine | None:
    """The line of a custom Function that the engine's message is about: where its
    backward() returns, or its forward() begins.
    """
    match, without = (
        _CUSTOM.search(text),
        "You must implement either the backward" in text,
    )
    if match is not None or without:
        waiting: list[Any] = [torch.autograd.Function]
    else:
        waiting = []

    bare: list[SourceLine] = []
    while waiting:
        kind = waiting.pop()
        forward, backward = (
            getattr(
                getattr(vars(kind).get(name), "__func__", None),
                "__code__",
                None,
            )
            for name in ("forward", "backward")
        )
        if match is not None and kind.__name__ == match[1] and backward is not None:
            return returned_by(_begins(backward))
        inherited = (
            kind.backward is not torch.autograd.Function.backward
            or kind.vjp is not torch.autograd.Function.vjp
        )
        if (
            without
            and forward is not None
            and not inherited
            and not package_of(forward.co_filename)
        ):
            bare.append(_begins(forward))
        waiting += kind.__subclasses__()

    return bare[0] if len(bare) == 1 else None


def _begins(code: CodeType) -> SourceLine:
    """The line of `def`, behind the decorators."""
    known = body_of(code).statements
    return with_text(
        code_line(
            code,
            max(code.co_firstlineno, known[0].node.lineno - 1) if known else 0,
        )
    )
