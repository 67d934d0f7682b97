"""The chain rule path by path: every way from an output back to a tensor, and what each
contributes to the gradient.

The contribution of a path is a chain of vector-Jacobian products along it; the
contributions of all paths add up to the gradient. There may be astronomically many
paths: they are counted exactly, and only the largest are followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from gradviz.armour.isolation import isolated
from gradviz.errors import GradientError, NoPathError
from gradviz.gradients.flow import size
from gradviz.gradients.live import (
    LiveGraph,
    called_note,
    compiled_functions,
    custom_functions,
    functions,
    once,
    recomputes,
)
from gradviz.gradients.replay import call, replay
from gradviz.graph import Edge, Graph
from gradviz.graph.amounts import tensor_bytes
from gradviz.report.results import displayed
from gradviz.stages import Stage
from gradviz.walker.tensors import grad_fn_of
from gradviz.wording import count_text, plural

Place = tuple[int, int]
"""A node and one of its outputs."""

LIMIT = 1000
"""Up to this many paths are all followed."""

# calls of backward functions that one look may take, or twice the number of functions
# if that is more
_CALLS = 10_000
_BYTES = 2**30  # memory that the gradients on all paths may take


def ways_to(graph: Graph, target: Place) -> dict[int, int]:
    """How many paths lead from each node to the target, going through the node, exactly;
    nodes without any are left out.
    """
    ways: dict[int, int] = {}
    for consumer in reversed(graph.order):
        number = sum(
            ((edge.producer, edge.output) == target) + ways.get(edge.producer, 0)
            for edge in graph.inputs(consumer)
        )
        if number:
            ways[consumer] = number
    return ways


class PathStep(NamedTuple):
    """One step along a path: the edge taken, the norm of the gradient after it, and by
    what it multiplied the gradient.

    `factor` is the local derivative where both ends are single real numbers, else None.
    """

    edge: Edge
    norm: float
    factor: float | None


Way = tuple[PathStep, "Way"] | None
"""The steps of a path, the last one first."""


class GradientPath(NamedTuple):
    """One way from the output to the target: node ids, steps, and its share of the
    gradient (a detached tensor).
    """

    nodes: tuple[int, ...]
    steps: tuple[PathStep, ...]
    contribution: torch.Tensor


@displayed("gradviz.gradients.table:paths_table", top=None)
@dataclass(frozen=True)
class Paths:
    """All paths from an output to the target.

    `count` is exact. `total` is the gradient, from one pass over the graph. `paths` are
    sorted by norm, largest first; when `complete` is False they are those found by
    following the largest gradients, and others exist. A path on which some function
    gives no gradient counts, but is not in `paths`. `target` is the node and output of
    the target.
    """

    graph: Graph
    count: int
    total: torch.Tensor
    paths: tuple[GradientPath, ...]
    complete: bool
    target: Place
    notes: tuple[str, ...]

    def with_target(self, name: str) -> Paths:
        """The same with this name for the target when it has none."""
        nodes, node = [*self.graph.nodes], self.target[0]
        nodes[node] = nodes[node]._replace(names=nodes[node].names or (name,))
        return replace(self, graph=replace(self.graph, nodes=tuple(nodes)))

    def __repr__(self) -> str:
        return f"<Paths: {plural(self.count, 'path')}, {count_text(len(self.paths))} followed>"


def find_paths(
    live: LiveGraph,
    target: torch.Tensor,
    *,
    limit: int = LIMIT,
    run_custom: bool = False,
) -> Paths:
    """Every path from the one output of `live` to `target`: see `gradviz.paths`."""
    # the shares of paths from two outputs would not add up to a gradient of one
    if len(live.starts) > 1:
        raise GradientError(
            "paths begin at one output, and this holds several: name one of them"
        )
    graph, (start,) = live.graph, live.starts
    place = _place(live, target)
    ways = ways_to(graph, place)
    count = ways.get(start.node, 0) + ((start.node, start.output) == place)
    if not count:
        raise NoPathError(
            "no path leads from the output to this tensor, so its gradient is None"
        )
    # each path calls the functions on it again
    if any(recomputes(graph.nodes[node]) for node in ways):
        raise GradientError(
            "a path leads through torch.utils.checkpoint, which would recompute its forward for every path. "
            "Look at the model without checkpoints, or at the gradients with flow."
        )
    if any(node in ways for node in compiled_functions(graph)):
        raise GradientError(
            f"{plural(count, 'path')} from the output to this tensor, through a compiled function, whose backward runs as "
            "one. TORCH_COMPILE_DISABLE=1 in the environment runs the script uncompiled."
        )
    custom = [node for node in custom_functions(graph) if node in ways]
    if custom and not run_custom:
        raise GradientError(
            f"a path leads through {functions(graph, custom)}: calling a custom backward once more may change what it keeps. "
            "--run-custom (run_custom=True) calls it all the same."
        )

    def follow() -> Paths:
        gradient = _gradient(live, place, ways)
        beam = _beam(graph, ways, limit)
        found: list[_Open] = []
        with Stage("follow", "paths", found.__len__):
            is_complete = _follow(live, place, ways, beam, found)

        followed = sorted(
            (path.closed() for path in found),
            key=lambda path: -size(path.contribution).norm,
        )
        notes = (*live.notes, *called_note(graph, custom), *graph.notes)
        return Paths(graph, count, gradient, tuple(followed), is_complete, place, notes)

    return once(graph, follow)


def _place(live: LiveGraph, tensor: torch.Tensor) -> Place:
    """Node and output of the tensor in the graph."""
    with isolated():
        try:
            made_by = grad_fn_of(tensor, asked_for=True)
        except RuntimeError as error:
            raise GradientError(
                f"torch refuses to tell what made this tensor: {str(error).splitlines()[0]}"
            ) from error

    if made_by is not None:
        for node, function in enumerate(live.nodes):
            if function is made_by:
                return node, tensor.output_nr

    for leaf in live.graph.leaves:
        if getattr(live.nodes[leaf.node], "variable", None) is tensor:
            return leaf.node, 0

    if tensor.requires_grad:
        why = "the output does not depend on it"
    else:
        why = "it does not require grad"

    raise NoPathError(f"no path leads from the output to this tensor: {why}")


def _gradient(live: LiveGraph, place: Place, ways: Mapping[int, int]) -> torch.Tensor:
    """The gradient of the target, from one pass over the nodes that lead to it."""
    for step in replay(live, {*ways, place[0]}):
        if (
            step.node == place[0]
            and len(step.incoming) > place[1]
            and (arrived := step.incoming[place[1]]) is not None
        ):
            return arrived.detach()
    raise GradientError(
        "no gradient reaches this tensor: on every path some function gives none"
    )


def _beam(graph: Graph, ways: Mapping[int, int], limit: int) -> int:
    """How many paths go on from each node at most."""
    calls = max(_CALLS, 2 * len(ways)) // max(1, len(ways))
    outputs = [output for node in ways for output in graph.nodes[node].outputs]
    largest = max(
        (tensor_bytes(output) or 0 for output in outputs if output), default=0
    )
    return max(1, min(limit, calls, _BYTES // max(1, largest)))


class _Open(NamedTuple):
    """A path followed as far as one output of one node, and the gradient there."""

    node: int
    output: int
    gradient: torch.Tensor
    way: Way = None

    def closed(self) -> GradientPath:
        """The whole path, output first."""
        steps, way = list[PathStep](), self.way
        while way is not None:
            step, way = way
            steps.append(step)

        steps.reverse()
        begin = steps[0].edge.consumer if steps else self.node
        nodes = (begin, *(step.edge.producer for step in steps))
        return GradientPath(nodes, tuple(steps), self.gradient.detach())


def _follow(
    live: LiveGraph,
    place: Place,
    ways: Mapping[int, int],
    beam: int,
    found: list[_Open],
) -> bool:
    """Add the paths to `found`, node by node from the output. From each node those with
    the largest gradients go on; whether that is all is returned.
    """
    (start,) = live.starts
    begin = _Open(*start)
    arrived = {start.node: [begin]}
    is_complete = True

    for node in live.graph.order:
        open_paths = arrived.pop(node, [])
        if len(open_paths) > beam:
            is_complete = False
            open_paths.sort(key=lambda path: -size(path.gradient).norm)
            del open_paths[beam:]

        for path in open_paths:
            if (node, path.output) == place:
                found.append(path)
            if node in ways:
                for further in _onward(live, path, place, ways):
                    arrived.setdefault(further.node, []).append(further)

    return is_complete


def _onward(
    live: LiveGraph, path: _Open, place: Place, ways: Mapping[int, int]
) -> Iterator[_Open]:
    """The path, one edge longer, along every edge that leads to the target and that a
    gradient takes.
    """
    node = path.node
    incoming: list[torch.Tensor | None] = [None] * max(
        live.outputs(node), path.output + 1
    )
    incoming[path.output] = path.gradient
    outgoing = call(live, node, incoming)

    for edge in live.graph.inputs(node):
        leaving = outgoing[edge.position]
        if leaving is not None and (
            edge.producer in ways or (edge.producer, edge.output) == place
        ):
            step = PathStep(edge, size(leaving).norm, _factor(path.gradient, leaving))
            yield _Open(edge.producer, edge.output, leaving, (step, path.way))


def _factor(before: torch.Tensor, after: torch.Tensor) -> float | None:
    if (
        before.numel() != 1
        or after.numel() != 1
        or before.is_complex()
        or after.is_complex()
    ):
        return None
    first = before.item()
    return after.item() / first if first else None
