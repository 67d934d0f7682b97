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
from gradviz.cuts.ran import RanCode
from gradviz.graph import SourceLine
from gradviz.source.bindings import dotted
from gradviz.source.statements import called
from gradviz.variables.objects import is_a
from gradviz.wording import clip

_CALLED = ("step", "zero_grad", "backward", "train", "eval")
"""Methods that are called for what they do."""
_OF_TENSORS = re.compile(r"parameters\(\)|buffers\(\)|state_dict\(\)|\bparams\b")
Said = tuple[str, str, str]
"""The code of a line, what is said of it, and what to do."""


def without_effect(
    ran: RanCode, reads: LeafReads
) -> Iterator[tuple[SourceLine, str, str, str]]:
    """The lines of this step that drop what they compute."""
    for code in ran.files.values():
        for value in code.values:
            statement, said = code.parents.get(value), None
            if isinstance(statement, ast.Expr) and ran.ran(value):
                said = _dropped(value, reads)
            elif isinstance(statement, ast.Assign):
                # where recording is off, nothing says that it ran
                said = _rebound(code, statement)
            if said is not None:
                yield ran.line(value), *said


def _dropped(node: Any, reads: LeafReads) -> Said | None:
    """Of `x.detach()` and `optimizer.step` alone."""
    text, method = ast.unparse(node), called(node)
    if isinstance(node, ast.Attribute) and node.attr in _CALLED:
        return text, "names it, and does not call it", f"call it: {text}()"
    owner = getattr(getattr(node, "func", None), "value", None)
    if owner is None or not hasattr(torch.Tensor, method):
        return None
    # of another method, one that works in place may be meant
    is_meant = _has_twin(method) and is_a(reads.value(owner), torch.Tensor)
    if method != "detach" and not is_meant:
        return None
    held = ast.unparse(owner)
    said = f"returns another tensor, and leaves {held} as it is"
    return text, said, f"assign the result: {held} = {text}"


def _has_twin(method: str) -> bool:
    """Whether another method does the same in place, as `clamp_` does for `clamp`."""
    return hasattr(torch.Tensor, f"{method}_")


def _rebound(code: CodeFile, node: ast.Assign) -> Said | None:
    """Of `for p in net.parameters(): p = 0.9 * p`."""
    loop: AST | None = node
    while loop is not None and not isinstance(loop, ast.For):
        loop = code.parents.get(loop)
    if loop is None or not _OF_TENSORS.search(ast.unparse(loop.iter)):
        return None
    calls = [part for part in ast.walk(node.value) if isinstance(part, ast.Call)]
    if not all(_has_twin(called(call)) for call in calls):
        return None  # such as p.requires_grad_(False), or whatever a function does
    name, own = dotted(node.targets[0]), set[ast.Name]()
    for part in ast.walk(loop):
        if isinstance(part, ast.Name) and part.id == name:
            own.add(part)
    later = {each for each in own if each.lineno >= node.lineno}
    read = {each for each in later if isinstance(each.ctx, ast.Load)}
    if own.isdisjoint(ast.walk(loop.target)) or read.difference(ast.walk(node)):
        return None
    said = f"gives the name {name} to another tensor, and leaves the one that the loop took as it is"
    value = clip(ast.unparse(node.value), 60)
    return ast.unparse(node), said, f"change it in place: {name}.data.copy_({value})"
