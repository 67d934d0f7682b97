"""Where a module keeps a parameter that it does not list: the plain list, dict or attribute, and the line that makes that."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from gradviz.checks.collect.fate import made_at
from gradviz.checks.context import Home
from gradviz.variables.objects import members

_FIRST = re.compile(r"(\w+)(.*)", re.DOTALL)


def home(names: Sequence[str], models: Sequence[tuple[str, torch.nn.Module]]) -> Home | None:
    """Of a parameter with these names, which begin with the name of a model; None when no model's attribute holds it.

    >>> net = torch.nn.Linear(1, 1)
    >>> home(["net.extra[0].weight"], [("net", net)])
    Home(attribute='self.extra', container='torch.nn.ModuleList', line=None)
    """
    for name in names:
        for prefix, model in models:
            if name.startswith(f"{prefix}."):
                place = _below(name[len(prefix) + 1 :], model)
                if place is not None:
                    return place
    return None


def _below(rest: str, module: torch.nn.Module) -> Home | None:
    while True:
        match = _FIRST.fullmatch(rest)
        if match is None:
            return None
        attribute, tail = match.groups()
        child = dict(members(module, "_modules")).get(attribute)
        if child is None or not tail.startswith("."):
            return Home(f"self.{attribute}", _container(tail), made_at(type(module), attribute))
        module, rest = child, tail[1:]


def _container(tail: str) -> str:
    """What registers the things in a list or dict, by how one of them is named: `[0].weight`, `['a']`; "" for an attribute."""
    match = re.match(r"\[(.*?)\](.*)", tail, re.DOTALL)
    if match is None:
        return ""
    kind = "Module" if match[2] else "Parameter"
    return f"torch.nn.{kind}{'List' if match[1].isdecimal() else 'Dict'}"
