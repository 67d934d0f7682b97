"""Which module a reentrant checkpoint ran: its ops are hidden behind one node, whose function knows the module.

Reads the function that torch keeps, past its class, and calls nothing.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch

from gradviz.capture.objects import own_attributes

_MOST = 20  # functions and cells that are looked at


def modules_behind(node: Any) -> list[torch.nn.Module]:
    """The modules that the function of a checkpoint's node is, is bound to, wraps, closes over or names, in that order.

    >>> from torch.utils.checkpoint import checkpoint
    >>> x, block = torch.ones(1, requires_grad=True), torch.nn.Linear(1, 1)
    >>> y = checkpoint(lambda h: block(h), x, use_reentrant=True)
    >>> modules_behind(y.grad_fn) == [block]
    True
    """
    found: list[torch.nn.Module] = []
    waiting: list[Any] = [own_attributes(node).get("run_function")]
    for value in waiting:
        kind = type(value)
        if len(waiting) > _MOST:
            break
        if issubclass(kind, torch.nn.Module):
            found.append(value)
        elif kind is MethodType:
            waiting.append(value.__self__)
        elif kind is partial:
            waiting.append(value.func)
        elif kind is FunctionType:
            waiting += [_content(cell) for cell in value.__closure__ or ()]
            waiting += value.__defaults__ or ()
            named = [value.__globals__.get(name) for name in value.__code__.co_names]
            waiting += [one for one in named if issubclass(type(one), torch.nn.Module)]
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
