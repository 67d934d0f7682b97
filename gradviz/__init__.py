"""gradviz shows, explains and checks what PyTorch's autograd recorded.

    import gradviz
    graph = gradviz.walk(loss)         # any tensor, or any nesting of tensors
    graph.save("loss.svg")             # .html is an interactive page

    gradviz.check(loss, model=net)     # what is wrong, where, and the fix
    gradviz.why(loss, w)               # why w gets a gradient, or none
    gradviz.summary(net, x)            # modules: shapes, parameters, FLOPs, memory
    gradviz.saved(loss)                # memory held for backward
    gradviz.flow(loss)                 # gradients: where they vanish or explode
    gradviz.paths(loss, w)             # the chain rule, path by path
    gradviz.diff(before, after)        # what changed
    gradviz.show(loss)                 # the page, in a notebook
    gradviz.record()                   # a context in which lines and modules are noted

`saved`, `show`, `diff` and `summary` take a graph or tensors.

Every public name is imported only when it is first used, so `import gradviz` costs next
to nothing and a saved graph can be drawn without torch.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradviz.api import (
        flow as flow,
        paths as paths,
        summary as summary,
        walk as walk,
        why as why,
    )
    from gradviz.checks.check import check as check
    from gradviz.comparison.diff import diff as diff
    from gradviz.errors import GradvizError as GradvizError
    from gradviz.graph import Graph as Graph
    from gradviz.graph.files import load as load
    from gradviz.memory.checkpoint import checkpoint_plan as checkpoint_plan
    from gradviz.memory.oom import explain_oom as explain_oom
    from gradviz.memory.saved import saved as saved
    from gradviz.notebook import show as show
    from gradviz.ranks.merging import merge as merge
    from gradviz.recording.record import Recording as Recording, record as record
    from gradviz.torchviz import make_dot as make_dot

__version__ = "0.1.0"

_HOME = {
    "check": "gradviz.checks.check",
    "walk": "gradviz.api",
    "record": "gradviz.recording.record",
    "Recording": "gradviz.recording.record",
    "load": "gradviz.graph.files",
    "saved": "gradviz.memory.saved",
    "checkpoint_plan": "gradviz.memory.checkpoint",
    "explain_oom": "gradviz.memory.oom",
    "flow": "gradviz.api",
    "diff": "gradviz.comparison.diff",
    "merge": "gradviz.ranks.merging",
    "paths": "gradviz.api",
    "why": "gradviz.api",
    "summary": "gradviz.api",
    "show": "gradviz.notebook",
    "make_dot": "gradviz.torchviz",
    "Graph": "gradviz.graph",
    "GradvizError": "gradviz.errors",
}
__all__ = [*_HOME, "__version__"]


def _is_there(name: str) -> bool:
    return name in _HOME and importlib.import_module("gradviz.features").is_there(
        _HOME[name]
    )


def __getattr__(name: str) -> Any:
    # An import makes many objects that stay. Counted one by one they would have Python
    # look through all of torch's once more, in the user's first forward.
    collecting = gc.isenabled()
    gc.disable()
    try:
        if not _is_there(name):
            raise importlib.import_module("gradviz.errors").missing_attribute(name)
        return getattr(importlib.import_module(_HOME[name]), name)
    finally:
        if collecting:
            gc.enable()


def load_ipython_extension(shell: Any) -> None:
    """Add `%gradviz` and `%%gradviz`. IPython calls this for `%load_ext gradviz`."""
    importlib.import_module("gradviz.ipython").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take them away. IPython calls this for `%unload_ext gradviz`."""
    importlib.import_module("gradviz.ipython").unload(shell)


def __dir__() -> list[str]:
    return sorted([*filter(_is_there, _HOME), "__version__"])
