"""Opens a graph for gradients: its model and its live nodes, with the same ids, and the gradients that begin at its outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from gradviz.errors import GradientError
from gradviz.gradients.calling import refuse_blind_calls
from gradviz.gradients.program import programs
from gradviz.gradients.replay import LiveGraph, Start
from gradviz.graph import (
    Graph,
    Leaf,
    Root,
    column,
)
from gradviz.variables.scanner import Namespace
from gradviz.walker.description import Attribution, Walked
from gradviz.walker.outputs import as_tensor, flatten
from gradviz.walker.private import without_subclasses
from gradviz.walker.values import why_unreadable
from gradviz.walker.walk import capture
from gradviz.wording import few, plural


def open_graph(
    outputs: object,
    gradient: Any = None,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
    attribution: Attribution | None = None,
) -> LiveGraph:
    """Walk `outputs` and keep the nodes alive. `gradient` is for each output; without it, ones.

    Raises what `capture` raises, and GradientError when every output is a leaf, or when `gradient` does not fit.
    """
    walks: list[Walked] = []
    graph = capture(
        outputs,
        model=model,
        params=params,
        variables=variables,
        title=title,
        attribution=attribution,
        inspect=walks.append,
    )
    flat = (output for _, output in flatten(outputs))
    computed = [
        (root, as_tensor(output))
        for root, output in zip(graph.roots, flat)
        if root.node is not None and root.node not in graph.leaf_of
    ]
    if not computed:
        raise GradientError(
            f"{graph.roots[0].name} is a leaf: no function led to it, so there is nothing to go back through"
        )
    for root, tensor in computed:
        reason = why_unreadable(tensor)
        if reason:
            raise GradientError(f"there are no gradients to measure: {root.name} {reason}")
    refuse_blind_calls()
    with without_subclasses():
        starts = tuple(
            Start(root.node, root.output, _seed(root, tensor.detach(), gradient))
            for root, tensor in computed
            if root.node is not None
        )
    large = [root.name for root, tensor in computed if tensor.numel() != 1] if gradient is None else []
    (walked,) = walks
    inside = programs(graph, walked.nodes, walked.parts)
    return LiveGraph(graph, walked.nodes, starts, (*_notes(graph, large),), inside.steps, inside.closed)


def _notes(graph: Graph, large: Sequence[str]) -> Iterator[str]:
    if large:
        names = ", ".join(large[:3]) + (", ..." if len(large) > 3 else "")
        yield f"{names}: not a single number, so these are the gradients of the sum of all elements"
    hooked = [leaf_name(leaf) for leaf in graph.leaves if leaf.hooks]
    hooked += [
        " = ".join(node.names) or f"the result of {node.op}"
        for node in graph.nodes
        if "hooks" in node.flags and node.id not in graph.leaf_of
    ]
    if hooked:
        yield f"hooks did not run, so what they change is not in these numbers: on {few(hooked)}"
    if "BackwardHookFunctionBackward" in column(graph.nodes, "op"):
        yield "full backward hooks of modules did not run, so what they change is not in these numbers"


def stopped_note(
    graph: Graph, stops: Sequence[int], unmeasured: Collection[int], closed: Mapping[int, str]
) -> Iterator[str]:
    """That these custom and compiled functions were not called, and what is not known for it."""
    if stops:
        leaves = sum(leaf.node in unmeasured for leaf in graph.leaves)
        counts = ((len(unmeasured) - leaves, "function", "functions"), (leaves, "leaf", "leaves"))
        missing = " and ".join(plural(*count) for count in counts if count[0])
        behind = f"Not measured behind it: {missing or 'nothing'}."
        custom = [node for node in stops if node not in closed]
        reasons = dict.fromkeys(closed[node] for node in stops if node in closed)
        if reasons:
            yield (
                f"stopped at {plural(len(stops) - len(custom), 'compiled function')}, which cannot be run operation by operation: "
                f"{few(list(reasons))}. {'' if custom else behind}".rstrip()
            )
        if custom:
            yield (
                f"stopped at {functions(graph, custom)}: calling a custom backward once more may change what it keeps. "
                f"{behind} --run-custom (run_custom=True) goes through"
            )


def inside_note(live: LiveGraph, unmeasured: Collection[int]) -> Iterator[str]:
    """That numbers inside compiled functions are those of their program, which the compiled code may round otherwise."""
    if any(node not in unmeasured for node in live.steps):
        yield "compiled functions ran operation by operation, uncompiled: what is compiled may round differently"


def called_note(graph: Graph, custom: Sequence[int]) -> Iterator[str]:
    """That the backward of these custom Functions ran, as it does in backward()."""
    if custom:
        yield f"the backward of {functions(graph, custom)} ran once more, with all that it does"


def functions(graph: Graph, nodes: Sequence[int]) -> str:
    """The names of custom Functions, each once."""
    records = (graph.nodes[i] for i in nodes)
    names = [node.op if node.function is None else node.function.name.rpartition(".")[2] for node in records]
    return few(list(dict.fromkeys(names)))


def leaf_name(leaf: Leaf) -> str:
    """What the user calls a leaf."""
    return " = ".join(leaf.names) or f"an unnamed {leaf.kind}"


def _seed(root: Root, tensor: torch.Tensor, gradient: Any) -> torch.Tensor:
    """The gradient that starts at an output: the one given, else ones, which means the gradient of its sum."""
    if gradient is None:
        return _ones(tensor)
    given = torch.as_tensor(gradient, dtype=tensor.dtype, device=tensor.device)
    try:
        return given.detach().expand_as(tensor)
    except RuntimeError:
        raise GradientError(
            f"the gradient has shape {tuple(given.shape)}, which does not fit {root.name} of shape {tuple(tensor.shape)}"
        ) from None


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout == torch.sparse_coo:
        same = tensor.coalesce()
        return torch.sparse_coo_tensor(same.indices(), torch.ones_like(same.values()), same.shape)
    return torch.ones_like(tensor)
