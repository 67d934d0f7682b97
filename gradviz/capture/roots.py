"""The outputs a walk begins at: which node made each, what it is called, and why it has no graph where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from gradviz.capture.naming import Names
from gradviz.capture.outputs import Output
from gradviz.capture.private import Node
from gradviz.capture.tensors import base_of, grad_fn_of, why_no_graph


class FoundRoot(NamedTuple):
    """An output and the node that made it, while both are alive. `tensor` is None where only the node was given."""

    name: str
    tensor: torch.Tensor | None
    node: Node | None
    output: int
    why: str = ""

    @property
    def base(self) -> torch.Tensor | None:
        """The tensor that this one is a view of."""
        return base_of(self.tensor) if self.tensor is not None else None


def find_root(name: str, output: Output) -> FoundRoot:
    """The node that made an output, or why there is none."""
    if not isinstance(output, torch.Tensor):
        return FoundRoot(name, None, output.node, output.output_nr)
    try:
        node = grad_fn_of(output, asked_for=True)
    except RuntimeError as error:  # torch refuses: a view whose base was modified in a way it does not allow
        return FoundRoot(
            name, output, None, 0, f"has a grad_fn that torch refuses to give: {str(error).splitlines()[0]}"
        )
    if node is None:
        return FoundRoot(name, output, None, 0, why_no_graph(output))
    return FoundRoot(name, output, node, output.output_nr)


def root_name(variable: str, path: str, output: Output, names: Names) -> str:
    """The variable's name plus the path inside it: "y", "out['loss']"; "output" where there is no variable.

    What is known by its node only is called as the tensor that the node made.
    """
    if variable:
        return variable + path
    if not isinstance(output, torch.Tensor):
        made = [name for number, name in names.results.get(output.node, ()) if number == output.output_nr]
        return made[0] if made else "output" + path
    known = names.leaf(output)
    return known[0] if known and not path else "output" + path


def no_graph(roots: Sequence[FoundRoot]) -> str:
    """What to tell the user when none of the outputs has a graph."""
    if len(roots) == 1:
        return f"{roots[0].name} has no graph to show: it {roots[0].why}"
    lines = [f"  {root.name} {root.why}" for root in roots[:10]]
    more = [f"  ... and {len(roots) - 10} more"] if len(roots) > 10 else []
    return "\n".join([f"none of the {len(roots)} outputs has a graph to show:", *lines, *more])


def starts(roots: Sequence[FoundRoot], bases: Sequence[torch.Tensor | None]) -> list[Node]:
    """Where a walk begins: the nodes of the roots, then those of the tensors that roots are views of."""
    nodes = [root.node for root in roots if root.node is not None]
    return nodes + [node for base in bases if base is not None and (node := quiet_grad_fn(base)) is not None]


def quiet_grad_fn(tensor: torch.Tensor) -> Node | None:
    """The node that made a tensor; None where there is none or torch refuses to give it."""
    try:
        return grad_fn_of(tensor)
    except RuntimeError:
        return None
