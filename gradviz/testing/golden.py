"""A graph as a text that a test can keep: equal for two runs of one program.

Owns what stands in it: no ids, no numbers of autograd's, no version of torch. "strict"
has the ops, which differ between releases of torch; "loose" has modules, parameters and
their bytes only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, get_args

from gradviz.errors import FormatError, did_you_mean
from gradviz.graph import Graph
from gradviz.graph.amounts import tensor_bytes, why_not_shown
from gradviz.memory.saved import saved
from gradviz.wording import plural, tensor_line

Level = Literal["strict", "loose"]


def golden_text(graph: Graph, level: Level = "strict") -> str:
    """The text, its modules in the order of the forward pass. Raises FormatError where
    there is no such level.

    >>> import torch, gradviz
    >>> w = torch.ones(2, requires_grad=True)
    >>> print(golden_text(gradviz.walk((w * 3).sum(), params={"w": w}), "loose"), end="")
    graph, loose
    output () float32
    parameters: 0 bytes
      w (2,) float32
    """
    if level not in get_args(Level):
        raise FormatError(
            f"level cannot be {level!r}. {did_you_mean(str(level), get_args(Level), what='levels')}"
        )
    return "".join(f"{line}\n" for line in _lines(graph, level))


def _lines(graph: Graph, level: Level) -> Iterator[str]:
    yield f"graph, {level}"
    for root in graph.roots:
        yield f"output {tensor_line(root.tensor)}"

    if level == "strict":
        leaves = len(graph.leaves)
        functions = plural(len(graph.nodes) - leaves, "backward function")
        yield f"{functions}, {plural(leaves, 'leaf', 'leaves')}"
        # an old torch does not show saved tensors: unknown is not 0
        held = None if why_not_shown(graph) else saved(graph).total.held
        yield f"saved for backward: {'unknown' if held is None else plural(held, 'byte')}"

    parameters = [leaf for leaf in graph.leaves if leaf.kind == "parameter"]
    total = sum(tensor_bytes(leaf.tensor) or 0 for leaf in parameters)
    yield f"parameters: {plural(total, 'byte')}"
    # by name: the order of the walk changes with every op
    for leaf in sorted(graph.leaves, key=lambda leaf: leaf.names):
        yield f"  {' = '.join(leaf.names) or 'no name'} {tensor_line(leaf.tensor)}"

    yield from _calls(graph, level)


def _calls(graph: Graph, level: Level) -> Iterator[str]:
    """Each call of a module, with its ops where they are wanted."""
    inside: dict[int | None, list[str]] = defaultdict(list)
    # a walk starts at the outputs, so its last node ran first
    for node in reversed(graph.nodes if level == "strict" else ()):
        if node.id not in graph.leaf_of:
            outputs = ", ".join(map(tensor_line, node.outputs))
            inside[node.scope].append(f"  {node.op} {outputs}".rstrip())
    yield from inside[None]
    for number, call in enumerate(graph.scopes):
        yield f"{call.path or 'model'} {call.type}{f', call {call.call}' if call.call > 1 else ''}"
        yield from inside[number]
