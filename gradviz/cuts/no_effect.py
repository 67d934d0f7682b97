"""Lines that drop what they compute, as the text of a step says that ran. Runs nothing."""

from __future__ import annotations

import ast
import re
from ast import AST
from collections.abc import Iterator
from typing import Any

import torch

from gradviz.cuts.dataflow import CodeFile
from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.recorded import RecordedCode
from gradviz.graph import SourceLine
from gradviz.source.bindings import dotted
from gradviz.source.statements import called
from gradviz.source.syntax import LOOPS
from gradviz.variables.objects import is_a
from gradviz.wording import clip

_CALLED = ("step", "zero_grad", "backward", "train", "eval")
"""Methods that are called for what they do."""
_OF_TENSORS = re.compile(r"parameters\(\)|buffers\(\)|state_dict\(\)|\bparams\b")
Advice = tuple[str, str, str]
"""The code of a line, what is said of it, and what to do."""


def without_effect(
    recorded: RecordedCode, reads: LeafReads
) -> Iterator[tuple[SourceLine, str, str, str]]:
    """The lines of this step that drop what they compute."""
    yield from _used_up(recorded, reads)
    for file in recorded.files.values():
        for value in file.values:
            statement, advice = file.parents.get(value), None
            if isinstance(statement, ast.Expr) and recorded.has_run(value):
                advice = _dropped(value, reads)
            elif isinstance(statement, ast.Assign):
                # where recording is off, nothing says that it ran
                advice = _rebound(file, statement)
            if advice is not None:
                yield recorded.line_of(statement), *advice


def _used_up(
    recorded: RecordedCode, reads: LeafReads
) -> Iterator[tuple[SourceLine, str, str, str]]:
    """Of an iterator of parameters that is read in each turn of a loop."""
    for file, value, name in reads.used_up():
        parent = file.parents.get(value)
        # what is clipped has a check of its own
        is_clipped = isinstance(parent, ast.Call) and called(parent).startswith("clip_")
        function, whole = file.function_of(value), value
        calls = recorded.calls.get(function, [])
        again = [call for call in (value, *calls) if _in_a_loop(recorded, call, name)]
        if is_clipped or not again:
            continue
        while parent is not None and not isinstance(parent, ast.stmt):
            whole, parent = parent, file.parents.get(parent)
        text = ast.unparse(parent if whole is value and parent else whole)
        made = [v for each in file.functions for v in each.bindings.values(name)]
        yield (
            recorded.line_of(value),
            clip(text.partition("\n")[0], 60),
            f"goes through {name}, an iterator that has been gone through before and has nothing more to give",
            f"go through a list, which is made once: {name} = list({ast.unparse(made[0]) if made else '...'})",
        )


def _in_a_loop(recorded: RecordedCode, value: AST, name: str) -> bool:
    """Whether a loop runs a value again and again, and gives the name no other one."""
    function = recorded.function_around(value)
    loops = function.bindings.loops_of(value)
    binding = function.bindings.before(name, value).binding
    own = function.bindings.loops_of(binding.place) if binding is not None else []
    return any(isinstance(loop, LOOPS) and loop not in own for loop in loops)


def _dropped(value: Any, reads: LeafReads) -> Advice | None:
    """Of `x.detach()` and `optimizer.step` alone."""
    text, method = ast.unparse(value), called(value)
    if isinstance(value, ast.Attribute) and value.attr in _CALLED:
        return text, "names it, and does not call it", f"call it: {text}()"

    owner = getattr(getattr(value, "func", None), "value", None)
    if owner is None or not hasattr(torch.Tensor, method):
        return None
    # of another method, one that works in place may be meant
    is_meant = _has_twin(method) and is_a(reads.object_at(owner), torch.Tensor)
    if method != "detach" and not is_meant:
        return None

    held = ast.unparse(owner)
    why = f"returns another tensor, and leaves {held} as it is"
    return text, why, f"assign the result: {held} = {text}"


def _has_twin(method: str) -> bool:
    """Whether another method does the same in place, as `clamp_` does for `clamp`."""
    return hasattr(torch.Tensor, f"{method}_")


def _uses(node: AST, name: str) -> list[ast.Name]:
    """Where a piece of code has a name."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return [each for each in names if each.id == name]


def _goes_on(file: CodeFile, loop: ast.For, assignment: ast.Assign) -> bool:
    """Whether a turn of a loop computes from an element, which began as zeros, what the
    element is to be in the next step: `v = 0.9 * v + p.grad`.
    """
    name, value = dotted(assignment.targets[0]), assignment.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    if not re.search(rf"\b{name} \*|\* {name}\b", ast.unparse(value)):
        return False
    if re.search(rf"\] = {name}\b|append\({name}\)", ast.unparse(loop)):
        return False
    parts = zip(getattr(loop.iter, "args", ()), getattr(loop.target, "elts", ()))
    held = [dotted(given) for given, target in parts if dotted(target) == name]
    made = [
        ast.unparse(each)
        for function in file.functions
        for one in held
        for each in function.bindings.values(one)
    ]
    return any("zeros" in text for text in made)


def _rebound(file: CodeFile, assignment: ast.Assign) -> Advice | None:
    """Of `for p in net.parameters(): p = 0.9 * p`."""
    loop: AST | None = assignment
    while loop is not None and not isinstance(loop, ast.For):
        loop = file.parents.get(loop)
    if loop is None or not _OF_TENSORS.search(ast.unparse(loop.iter)):
        return None
    calls = [part for part in ast.walk(assignment.value) if isinstance(part, ast.Call)]
    if not all(_has_twin(called(call)) for call in calls):
        return None  # such as p.requires_grad_(False), or whatever a function does

    name, inside = dotted(assignment.targets[0]), set(ast.walk(assignment))
    uses = _uses(loop, name)
    if set(uses).isdisjoint(ast.walk(loop.target)):
        return None
    is_used = any(
        isinstance(use.ctx, ast.Load) and use.lineno >= assignment.lineno
        for use in uses
        if use not in inside
    )
    if is_used and not _goes_on(file, loop, assignment):
        return None

    why = f"gives the name {name} to another tensor, and leaves the one that the loop took as it is"
    if is_used:
        why += ", so that the next step begins with that again"
    value = clip(ast.unparse(assignment.value), 60)
    return (
        ast.unparse(assignment),
        why,
        f"change it in place: {name}.data.copy_({value})",
    )
