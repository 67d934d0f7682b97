"""What an exception that ended the user's code tells: the line of the user's, and the tensors of the backward call it left.

Reads frames of the traceback and keeps none of them. Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from gradviz.checks.context import Raised
from gradviz.errors import text_of
from gradviz.graph import SourceLine
from gradviz.packages import code_line, is_foundation, package_of, with_text
from gradviz.source.code_line import assigned, read
from gradviz.source.search import lines_behind
from gradviz.source.statements import body_of
from gradviz.variables.objects import tensors_in
from gradviz.variables.scanner import Namespace, name_of, namespaces, scan
from gradviz.walker.private import without_subclasses

_CUSTOM = re.compile(r"[Ff]unction (\w+)Backward returned an")


def raised(error: BaseException) -> Raised:
    """The facts about an exception, while its traceback is there."""
    stack = list(_frames(error.__traceback__))
    own = [(frame, line) for frame, line in stack if not is_foundation(frame.f_code.co_filename)]
    own = [(frame, line) for frame, line in own if not package_of(frame.f_code.co_filename)] or own
    source, text = None, text_of(error)
    if own:
        frame, line = own[-1]
        source = with_text(code_line(frame.f_code, line))
    told = Raised(type(error).__name__, text, source, custom=_custom(text))
    with without_subclasses(), suppress(Exception):  # tensors of the user's own classes may refuse anything
        outputs, missing, shape = _call(stack, own)
        told = told._replace(outputs=outputs, missing=missing, shape=shape)
        if own and source is not None and not (outputs or missing):
            refused = _refused(stack, own[-1][0], source)
            told = told._replace(missing=_named(refused, namespaces(own[-1][0])))
            made = (earlier for earlier in lines_behind(source) if set(told.missing) & set(assigned(earlier)))
            told = told._replace(made=next(made, None))
    return told


def _refused(stack: Sequence[tuple[FrameType, int]], frame: FrameType, source: SourceLine) -> list[torch.Tensor]:
    """The tensor that `deepcopy` stopped at; or the float64 tensors that a line reads, which other dtypes do not go with."""
    inner = stack[-1][0]
    if inner.f_code.co_name == "__deepcopy__":
        return [owner for owner in (inner.f_locals.get("self"),) if isinstance(owner, torch.Tensor)]
    values = (space.get(name) for space in namespaces(frame) for name in dict.fromkeys(read(source)))
    return [value for value in values if type(value) is torch.Tensor and value.dtype == torch.float64]


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _call(
    stack: Sequence[tuple[FrameType, int]], own: Sequence[tuple[FrameType, int]]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """Names of what backward began at, names of the inputs that it does not depend on, and the shape of the first output."""
    functions = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)
    called = next((frame.f_locals for frame, _ in stack if frame.f_code in functions), None)
    if called is None or not own:
        return (), (), ()
    outputs = tensors_in(called.get("tensors", called.get("outputs")))
    inputs = tensors_in(called.get("inputs"))
    variables = namespaces(own[-1][0])
    reached = _reached(outputs) if inputs else set()
    missing = [
        tensor for tensor in inputs if (tensor.grad_fn if tensor.grad_fn is not None else id(tensor)) not in reached
    ]
    shape = tuple(outputs[0].shape) if outputs else ()
    return _named(outputs, variables), _named(missing, variables), shape


def _reached(outputs: Sequence[torch.Tensor]) -> set[Any]:
    """Functions, and ids of leaves, that the outputs lead to."""
    waiting = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    reached: set[Any] = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            reached.add(id(leaf))
        for following, _ in node.next_functions:
            if following is not None and following not in reached:
                reached.add(following)
                waiting.append(following)
    return reached


def _named(tensors: Sequence[torch.Tensor], variables: Any) -> tuple[str, ...]:
    names = (name_of(tensor, variables) or _inside(tensor, variables) for tensor in tensors)
    return tuple(filter(None, names))


def _inside(tensor: torch.Tensor, variables: Sequence[Namespace]) -> str:
    """What leads to a tensor that is in an object or a container."""
    return next((variable.name for variable in scan(variables) if variable.value is tensor), "")


def _custom(text: str) -> SourceLine | None:
    """The line of a custom Function that the engine's message is about: where its backward() returns, or its forward() begins."""
    match, without = _CUSTOM.search(text), "You must implement either the backward" in text
    waiting: list[Any] = [torch.autograd.Function] if match is not None or without else []
    bare: list[SourceLine] = []
    while waiting:
        kind = waiting.pop()
        written = {name: getattr(vars(kind).get(name), "__func__", None) for name in ("forward", "backward")}
        backward, forward = written["backward"], written["forward"]
        if match is not None and kind.__name__ == match[1] and backward is not None:
            return _returns(backward.__code__)
        inherited = kind.backward is not torch.autograd.Function.backward or kind.vjp is not torch.autograd.Function.vjp
        if without and forward is not None and not inherited and not package_of(forward.__code__.co_filename):
            bare.append(with_text(code_line(forward.__code__, _first_line(forward.__code__))))
        waiting += kind.__subclasses__()
    return bare[0] if len(bare) == 1 else None


def _returns(code: CodeType) -> SourceLine:
    """Where a function returns, if at one place only; else where it begins."""
    body = body_of(code)
    if body is not None and len(body.returns) == 1:
        return body.source(body.returns[0])
    return with_text(code_line(code, _first_line(code)))


def _first_line(code: CodeType) -> int:
    """The line of `def`, behind the decorators."""
    body = body_of(code)
    return max(code.co_firstlineno, body.statements[0].node.lineno - 1) if body is not None and body.statements else 0
