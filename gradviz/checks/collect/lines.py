"""The lines of the user's code where a part of a class is made, used and kept.

Reads text, attributes and frames, of which it keeps none. Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.checks.call import Home
from gradviz.graph import SourceLine
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.source.statements import assigned, body_of
from gradviz.variables.objects import class_attribute, members
from gradviz.variables.scanner import Namespace
from gradviz.walker.outputs import flatten
from gradviz.walker.private import Node
from gradviz.walker.walk import live_nodes

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors that answer like any tensor."""
Models = Sequence[tuple[str, torch.nn.Module]]
"""The models of a run, by name."""
Variables = Sequence[Namespace]
"""The variables of the user's code, of the innermost function first."""


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that runs code outside torch, gradviz and Python's own library:
    this one, or one around it.
    """
    while frame is not None and is_foundation(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def assignment_in(code: CodeType | None, attribute: str) -> SourceLine | None:
    """The line of a method that assigns an attribute of its first argument."""
    # its text is read where the code has the name at all
    if code is None or not code.co_varnames or attribute not in code.co_names:
        return None
    body, name = body_of(code), f"{code.co_varnames[0]}.{attribute}"
    for node in body.statements:
        if name in assigned(node)[0]:
            return body.source(node)
    return None


def made_at(kind: type, attribute: str) -> SourceLine | None:
    """The line of a class, or of a base of it past torch's own, that assigns an
    attribute of `self`.
    """
    for base in filter(_is_users, kind.__mro__):
        # any method may assign it, not only __init__()
        for value in vars(base).values():
            line = assignment_in(getattr(value, "__code__", None), attribute)
            if line is not None:
                return line
    return None


def forward_of(kind: type) -> SourceLine | None:
    """The line where the forward() of a class begins, if that is the user's own."""
    code = getattr(class_attribute(kind, "forward"), "__code__", None)
    if code is None or package_of(code.co_filename):
        return None
    return definition_of(code)


def _is_users(kind: type) -> bool:
    return not kind.__module__.startswith(("torch.", "builtins"))


def class_around(
    modules: Mapping[str, torch.nn.Module], path: str
) -> tuple[type, str] | None:
    """The nearest class of the user's around the parameter with this path, and the
    attribute of it that leads there.
    """
    while path:
        path, _, attribute = path.rpartition(".")
        kind = next(filter(_is_users, type(modules[path]).__mro__), None)
        if kind is not None:
            return kind, attribute
    return None


# `extra`, or `extra[0]`, and what comes behind
_FIRST = re.compile(r"(\w+)(?:\[(.*?)\])?(.*)", re.DOTALL)


def home(names: Sequence[str], models: Models) -> Home | None:
    """Of a parameter with these names, which begin with the name of a model; None when
    no model's attribute holds it.

    >>> net = torch.nn.Linear(1, 1)
    >>> home(["net.extra[0].weight"], [("net", net)])
    Home(attribute='self.extra', container='torch.nn.ModuleList', line=None)
    """
    for name in names:
        for prefix, model in models:
            if name.startswith(f"{prefix}."):
                found = _below(name[len(prefix) + 1 :], model)
                if found is not None:
                    return found
    return None


def _below(rest: str, module: torch.nn.Module) -> Home | None:
    while match := _FIRST.fullmatch(rest):
        attribute, key, tail = match.groups()
        child = dict(members(module, "_modules")).get(attribute)
        if child is not None and key is None:
            module, rest = child, tail[1:]
            continue

        # not a registered module: this attribute is what hides the parameter
        container = ""
        if key is not None:
            kind = "Module" if tail else "Parameter"
            container = f"torch.nn.{kind}{'List' if key.isdecimal() else 'Dict'}"
        return Home(f"self.{attribute}", container, made_at(type(module), attribute))
    return None


def nodes_behind(outputs: Sequence[Any]) -> list[Node]:
    """The nodes of the graph that a backward call runs through."""
    return live_nodes([output for _, output in flatten(list(outputs))])


def names_behind(outputs: Sequence[Any]) -> dict[int, str]:
    """The names of these nodes, by their number; leaves have none."""
    nodes = nodes_behind(outputs)
    return {node._sequence_nr(): node.name() for node in nodes if leaf_of(node) is None}


def leaf_of(node: Node) -> object:
    """The leaf of an AccumulateGrad; None for other nodes."""
    if type(node).__name__ == "AccumulateGrad":
        return getattr(node, "variable", None)
    return None
