"""What an exception that ended the user's code tells: the line of the user's, and the tensors of the backward call it left.

Reads frames of the traceback and keeps none of them. Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

import torch

from gradviz.checks.context import Raised
from gradviz.errors import text_of
from gradviz.graph import SourceLine
from gradviz.packages import code_line, is_foundation, package_of, with_text
from gradviz.variables.objects import tensors_in
from gradviz.variables.scanner import name_of, namespaces
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
    return told


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
    missing = [one for one in inputs if (one.grad_fn if one.grad_fn is not None else id(one)) not in reached]
    shape = tuple(outputs[0].shape) if outputs else ()
    return _named(outputs, variables), _named(missing, variables), shape


def _reached(outputs: Sequence[torch.Tensor]) -> set[Any]:
    """Functions, and ids of leaves, that the outputs lead to."""
    waiting = [one.grad_fn for one in outputs if one.grad_fn is not None]
    found: set[Any] = set(waiting)
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        for following, _ in node.next_functions:
            if following is not None and following not in found:
                found.add(following)
                waiting.append(following)
    return found


def _named(tensors: Sequence[torch.Tensor], variables: Any) -> tuple[str, ...]:
    return tuple(name for one in tensors if (name := name_of(one, variables)))


def _custom(text: str) -> SourceLine | None:
    """Where the backward() of the custom Function stands that a message of the engine names."""
    found = _CUSTOM.search(text)
    waiting: list[Any] = [torch.autograd.Function] if found is not None else []
    while waiting:
        kind = waiting.pop()
        code = getattr(vars(kind).get("backward"), "__func__", None)
        if found is not None and kind.__name__ == found[1] and code is not None:
            return with_text(code_line(code.__code__, code.__code__.co_firstlineno))
        waiting += kind.__subclasses__()
    return None
