"""Where the user's code is, where a module keeps what it does not list, and the nodes
and leaves behind outputs. Keeps no frame, and runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from gradviz.checks.call import Home
from gradviz.cuts.classes import made_at
from gradviz.variables.objects import members
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
