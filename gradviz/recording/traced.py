"""The modules that each line of a traced module's code was traced from.

What `torch.export` and `torch.fx` make runs code that they generated, which calls none
of the modules inside, or only the smallest: no hook runs for the others. A node of its
graph knows those that it was traced in, and a line of the code begins with the name of
its node.

Source: https://docs.pytorch.org/docs/stable/fx.html
"""

from __future__ import annotations

import linecache
import re
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from gradviz.packages import frames_from
from gradviz.variables.objects import is_a, submodules

_ROOT = re.compile(r"L\['\w+'\]\.?")  # which is `self` for the compiler
_ASSIGNED = re.compile(r"\s*(\w+)\s*[:=]\s")


class TracedCall(NamedTuple):
    """A call of a module that was traced: `name` is what the module around it calls it,
    `key` its own.

    `module` is the one of this path in the traced module, where that has one.
    """

    key: str
    path: str
    name: str
    type: str
    module: torch.nn.Module | None


class Trace:
    """What the lines of a traced module say. `type` is that of the module that was
    traced; "" where no line says it.
    """

    def __init__(self, module: torch.nn.Module, code: CodeType, graph: Any) -> None:
        self.type = ""
        self._code = code
        self._modules = dict(submodules(module))
        self._calls: dict[int, list[TracedCall]] = {}

        nodes = {node.name: node for node in graph.nodes}
        for number, line in enumerate(linecache.getlines(code.co_filename), 1):
            assigned = _ASSIGNED.match(line)
            node = nodes.get(assigned[1]) if assigned is not None else None
            if node is not None and "nn_module_stack" in node.meta:
                self._calls[number] = self._stack(node.meta["nn_module_stack"])

    def calls(self, frame: FrameType | None, until: CodeType) -> list[TracedCall]:
        """The calls around what the generated code does in this frame, the outermost
        first; `until` is the code that called it.
        """
        for caller in frames_from(frame, until):
            if caller.f_code is self._code:
                return self._calls.get(caller.f_lineno, [])
        return []

    def _stack(self, stack: dict[str, tuple[str, Any]]) -> list[TracedCall]:
        calls = []
        outer = ""
        for key, (traced_path, kind) in stack.items():
            path = _ROOT.sub("", traced_path)
            # a class, or its full name
            full_name = getattr(kind, "__name__", str(kind))
            kind_name = full_name.rpartition(".")[2]
            if not path:
                self.type = kind_name
                continue
            name = path.removeprefix(f"{outer}.")
            calls.append(
                TracedCall(key, path, name, kind_name, self._modules.get(path))
            )
            outer = path
        return calls


def trace_of(module: torch.nn.Module) -> Trace | None:
    """What the code of a traced module says; None of any other module."""
    if not is_a(module, torch.fx.GraphModule):
        return None
    try:
        code = type(module).forward.__code__
        # a forward that somebody wrote has no lines of the graph's nodes
        if not code.co_filename.startswith("<eval_with_key>"):
            return None
        return Trace(module, code, module.graph)
    except (AttributeError, TypeError, ValueError):
        return None  # one that somebody made in another way, which runs all the same
