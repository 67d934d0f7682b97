"""Where a run failed: the facts about the exception, while its traceback is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch

from gradviz.armour.isolation import isolated
from gradviz.checks.collect.behind import Variables, leaf_of
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Raised
from gradviz.checks.words import Names, listed
from gradviz.errors import text_of
from gradviz.explanation import optimized
from gradviz.graph import SourceLine
from gradviz.packages import (
    code_line,
    definition_of,
    is_foundation,
    package_of,
    with_text,
)
from gradviz.source.search import changes, returned_by
from gradviz.source.statements import body_of
from gradviz.variables.objects import is_a, joined, members, submodules, tensors_in
from gradviz.variables.scanner import name_of, namespaces, scan
from gradviz.walker.walk import live_nodes

_CUSTOM = re.compile(
    r"[Ff]unction (\w+)Backward returned an|Output \d+ of (\w+) is a view.*custom Func",
    re.DOTALL,
)
_TRANSFORM = "_functorch"  # the folder of torch's that has vmap and the like
_ENGINE = torch.autograd.backward.__code__, torch.autograd.grad.__code__
FEW = 3
"""Names of parameters that advice spells."""

_Stack = Sequence[tuple[FrameType, int]]


def raised(error: BaseException, recorder: Recorder) -> Raised:
    """The facts about the exception that ended the user's code, while its traceback is
    there.
    """
    stack, text = list(walk_tb(error.__traceback__)), text_of(error)
    failure = Raised(
        type(error).__name__, text, custom=_custom(text), within=_around(stack)
    )
    outside = [entry for entry in stack if not is_foundation(_file(entry))]
    users = [entry for entry in outside if not package_of(_file(entry))]
    if not outside:
        return failure

    # the innermost line that the user can change; else that of the library
    frame, number = (users or outside)[-1]
    failure = failure._replace(source=with_text(code_line(frame.f_code, number)))
    with isolated(), recorder.reading("the failed call"):
        failure = _called(failure, stack, namespaces(frame))
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


def _around(stack: _Stack) -> str:
    """What is known of where it came out of, one fact a line."""
    facts = _constructor(stack)
    if any(_TRANSFORM in _file(entry) for entry in stack):
        facts += "inside a transform\n"
    keys = [
        frame.f_locals.get("key")
        for frame, _ in stack
        if frame.f_code.co_name == "_deepcopy_dict"
    ]
    # tables of torch's own
    names = [key for key in keys if type(key) is str and key != "_modules"]
    return f"{facts}copied: {'.'.join(names)}\n" if names else facts


def _called(failure: Raised, stack: _Stack, variables: Variables) -> Raised:
    """The same with what backward began at, the inputs that it does not depend on, and
    the shape of the first output.
    """
    calls = [frame.f_locals for frame, _ in stack if frame.f_code in _ENGINE]
    if not calls:
        names = _named(_in_two_groups(stack), variables)
        others = " and ".join(f"p is not {name}" for name in names)
        if len(names) > FEW:
            others = "p is in no other group"
        fact = f"shared: {listed(names)}: {others}\n" if names else ""
        return failure._replace(outputs=names, within=failure.within + fact)

    # backward() calls them `tensors`, and grad() calls them `outputs`
    outputs = tensors_in(calls[0].get("tensors", calls[0].get("outputs")))
    inputs = tensors_in(calls[0].get("inputs"))
    reached = set(live_nodes(outputs)) if inputs else set()
    leaves = {id(leaf_of(node)) for node in reached}
    missing = [
        tensor
        for tensor in inputs
        if id(tensor) not in leaves and tensor.grad_fn not in reached
    ]
    return failure._replace(
        backward=True,
        shape=tuple(outputs[0].shape) if outputs else (),
        outputs=_named(outputs, variables),
        missing=_named(missing, variables),
    )


def _in_two_groups(stack: _Stack) -> list[torch.Tensor]:
    """What an optimizer that refuses a group of parameters holds in another one already."""
    frame, _ = stack[-1]
    optimizer = frame.f_locals.get("self")
    if not is_a(optimizer, torch.optim.Optimizer):
        return []
    held = set(map(id, optimized(optimizer)))
    group = frame.f_locals.get("param_group")
    given = tensors_in(group.get("params")) if type(group) is dict else []
    return [tensor for tensor in given if id(tensor) in held]


def _named(tensors: Sequence[torch.Tensor], variables: Variables) -> Names:
    """What leads to these tensors: a variable, or else an object or a container in one."""
    found = [(held.name, held.value) for held in scan(variables)] if tensors else []
    of_modules = []
    for name, value in found:
        for path, module in submodules(value) if is_a(value, torch.nn.Module) else ():
            for own, held in members(module, "_parameters"):
                of_modules.append((joined(joined(name, path), own), held))

    names = []
    for tensor in tensors:
        # a module's own name for it is the better one
        inside = (name for name, held in of_modules + found if held is tensor)
        names.append(name_of(tensor, variables) or next(inside, ""))
    return tuple(filter(None, names))


def _custom(text: str) -> SourceLine | None:
    """The line of the custom Function that the engine's message is about: where its
    backward() returns, or where its forward() changes something in place.
    """
    match, line = _CUSTOM.search(text), None
    kinds: list[Any] = [torch.autograd.Function]
    for kind in kinds:  # grows while it is read
        kinds += kind.__subclasses__()
        # of several, the newest: a cell of a notebook defines it once more
        if match is None or kind.__name__ not in match.groups():
            continue
        if match[1]:
            line = returned_by(definition_of(kind.backward.__code__))
        else:
            changed = changes(body_of(kind.forward.__code__))
            line = next((each.source for each in changed), line)
    return line
