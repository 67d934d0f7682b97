"""A graph opened for gradients: its live nodes, where gradients begin, what may be
called, and what a reader must know.

Calling some backward functions would change something of the user's: write a `.grad`,
destroy what was saved, or talk to other processes; or it would end the process, because
the memory that it reads has been given back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from gradviz.armour.isolation import isolated
from gradviz.errors import GradientError
from gradviz.gradients.expressions import title
from gradviz.gradients.values import outgrown, tensor_in, why_unreadable
from gradviz.graph import Graph, Node as Record, column
from gradviz.run.outputs import LiveOutputs
from gradviz.walker import private
from gradviz.walker.outputs import as_tensor, flatten
from gradviz.walker.places import Attribution
from gradviz.walker.private import Node
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import Walked, capture
from gradviz.wording import few, plural

Gradient = torch.Tensor | None
T = TypeVar("T")


class Start(NamedTuple):
    """Where gradients begin: a node, which of its outputs, and the gradient there."""

    node: int
    output: int
    gradient: torch.Tensor


class LiveGraph(NamedTuple):
    """A graph together with its live nodes, by id, where gradients start in it, and
    what a reader must know of the starts. `results` are the tensors that the caller
    holds, by the node that made them as its first output.

    Keep it only as long as gradients are computed.
    """

    graph: Graph
    nodes: Sequence[Node]
    starts: tuple[Start, ...]
    notes: tuple[str, ...]
    results: Mapping[int, torch.Tensor] = {}

    def outputs(self, node: int) -> int:
        """How many gradients come into a node."""
        return len(self.nodes[node]._input_metadata)


def open_graph(outputs: object, walked: Walked | None = None) -> LiveGraph:
    """Keep the nodes of `outputs` alive, as they were walked, else without names.
    Gradients start with ones, which gives those of the sum of an output.

    Raises what `capture` raises, and GradientError when every output is a leaf.
    """
    walked = walked or capture(outputs)
    graph = walked.graph
    if not private.HAS_RAW_DATA:  # a call could run hooks and recompute
        raise GradientError(
            f"torch {torch.__version__} does not tell which saved tensors a hook would have to unpack, so no backward "
            "function is called: gradients can be looked at from torch 2.10 on"
        )

    starts, large = list[Start](), list[str]()
    for root, (_, output) in zip(graph.roots, flatten(outputs)):
        # a leaf among the outputs has no function to begin at
        if root.node is None or root.node in graph.leaf_of:
            continue
        tensor = as_tensor(output)
        reason = why_unreadable(tensor)
        if reason:
            raise GradientError(
                f"there are no gradients to measure: {root.name} {reason}"
            )
        with isolated():
            # or the ones would be a part of the user's graph
            ones = _ones(tensor.detach())
        starts.append(Start(root.node, root.output, ones))
        if tensor.numel() != 1:
            large.append(root.name)

    if not starts:
        raise GradientError(
            f"{graph.roots[0].name} is a leaf: no function led to it, so there is nothing to go back through"
        )

    held = [tensor for tensor, _ in walked.names.named()]
    held += [as_tensor(output) for _, output in flatten(outputs)]
    return LiveGraph(
        graph,
        walked.nodes,
        tuple(starts),
        (*_notes(graph, large),),
        _results(walked, held),
    )


def _results(walked: Walked, held: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
    results: dict[int, torch.Tensor] = {}
    with isolated():
        for tensor in held:
            function = grad_fn_of(tensor)
            node = walked.position_of.get(function) if function is not None else None
            if node is not None and tensor.output_nr == 0:
                results[node] = tensor
    return results


def opened(live: LiveOutputs, attribution: Attribution | None = None) -> LiveGraph:
    """The same of outputs that were read, with their names."""
    walked = capture(
        live.outputs,
        variables=live.variables,
        title=live.title,
        attribution=attribution or live.attribution,
    )
    graph = open_graph(live.outputs, walked)
    return graph._replace(graph=graph.graph.with_root_names(live.names))


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout == torch.sparse_coo:
        same = tensor.coalesce()
        return torch.sparse_coo_tensor(
            same.indices(), torch.ones_like(same.values()), same.shape
        )
    return torch.ones_like(tensor)


# -- notes -----------------------------------------------------------------------------


def _notes(graph: Graph, large: Sequence[str]) -> Iterator[str]:
    if large:
        names = ", ".join(large[:3]) + (", ..." if len(large) > 3 else "")
        yield f"{names}: not a single number, so these are the gradients of the sum of all elements"

    # hooks of the user's may count or log, so they are not run a second time
    hooked = [leaf.node for leaf in graph.leaves if leaf.hooks]
    hooked += [node.id for node in graph.nodes if "hooks" in node.flags]
    if hooked:
        names = few([title(graph, node) for node in dict.fromkeys(hooked)])
        yield f"hooks did not run, so what they change is not in these numbers: on {names}"

    if "BackwardHookFunctionBackward" in column(graph.nodes, "op"):
        yield "full backward hooks of modules did not run, so what they change is not in these numbers"


def stopped_note(
    graph: Graph, stops: Sequence[int], unmeasured: Collection[int]
) -> Iterator[str]:
    """That these custom and compiled functions were not called, and what is not known
    for it.
    """
    if not stops:
        return
    leaves = sum(leaf.node in unmeasured for leaf in graph.leaves)
    counts = (
        (len(unmeasured) - leaves, "function", "functions"),
        (leaves, "leaf", "leaves"),
    )
    missing = " and ".join(plural(*count) for count in counts if count[0])
    remark = f"Not measured behind it: {missing or 'nothing'}."

    compiled = set(compiled_functions(graph)).intersection(stops)
    custom = [node for node in stops if node not in compiled]
    if compiled:
        yield (
            f"stopped at {plural(len(compiled), 'compiled function')}, whose backward runs as one. {remark} "
            "TORCH_COMPILE_DISABLE=1 in the environment runs the script uncompiled"
        )
    if custom:
        yield (
            f"stopped at {functions(graph, custom)}: calling a custom backward once more may change what it keeps. "
            f"{'' if compiled else remark + ' '}gradviz flow --run-custom (run_custom=True) goes through"
        )


def called_note(graph: Graph, custom: Sequence[int]) -> Iterator[str]:
    """That the backward of these custom Functions ran, as it does in backward()."""
    if custom:
        yield f"the backward of {functions(graph, custom)} ran once more, with all that it does"


def functions(graph: Graph, nodes: Sequence[int]) -> str:
    """The names of custom Functions, each once."""
    records = (graph.nodes[i] for i in nodes)
    names = [
        node.op if node.function is None else node.function.name.rpartition(".")[2]
        for node in records
    ]
    return few(list(dict.fromkeys(names)))


# -- what may be called ----------------------------------------------------------------

_QUEUES = "_DDPSinkBackward"
_BY_NAME = {
    "CheckpointFunctionBackward": (
        "torch.utils.checkpoint with use_reentrant=True runs backward inside its own node and writes the .grad of the parameters "
        "in it. Use use_reentrant=False to look at gradients"
    ),
    "RegisterPostBackwardFunctionBackward": (
        "fully_shard reduces and frees gradients of all processes in it. Look at the model before fully_shard"
    ),
}
# custom Functions that only hand gradients on
_PASSES_ON = frozenset({"torch.nn.modules._functions.BackwardHookFunction"})
_CLEARS = "clear_saved_tensors_on_access"


def custom_functions(graph: Graph) -> tuple[int, ...]:
    """Ids of the nodes whose backward is Python code that may keep state: calling it
    once more may change the user's run.
    """
    return tuple(
        node.id
        for node in graph.nodes
        # a compiled function is a custom one, too, and is never called
        if {"custom", "compiled"}.intersection(node.flags) == {"custom"}
        and (node.function is None or node.function.name not in _PASSES_ON)
    )


def compiled_functions(graph: Graph) -> tuple[int, ...]:
    """Ids of the nodes that are never called, since that would compile their backward."""
    return tuple(node.id for node in graph.nodes if "compiled" in node.flags)


def refuse(graph: Graph, live: Iterable[tuple[int, Node]]) -> None:
    """Raise GradientError when one of these live nodes, given with their ids, must not
    be called.
    """
    for node, function in live:
        record = graph.nodes[node]
        reason = _BY_NAME.get(record.op, "")
        if "custom" in record.flags and getattr(
            getattr(function, "_forward_cls", None), _CLEARS, False
        ):
            reason = f"it sets {_CLEARS}, so its saved tensors can be read only once, by your own backward()"

        # fully_shard frees the memory of saved tensors without torch's knowing
        reason = reason or _outgrown(record, function)
        if reason:
            raise GradientError(
                f"{record.op} cannot be called just to look at gradients: {reason}."
            )


def _outgrown(record: Record, function: Node) -> str:
    for slot in record.saved:
        if slot.state in ("live", "modified"):
            tensor = tensor_in(function, slot.slot)
            problem = outgrown(tensor) if tensor is not None else ""
            if problem:
                return f"what it saved as {slot.slot} {problem}, as fully_shard does. Look at the model before fully_shard"
    return ""


# -- a run of the engine ---------------------------------------------------------------

# Checkpoints recompute their forward once per run of the engine and hand each tensor
# out once; outside the engine they would recompute at every read and keep what was not
# read. And a replay that is started from a hook, while backward runs, needs a run of
# its own: functions look up which gradients the current run wants, and must find that
# it is all. It is a run over a graph of one function, which is ours. Source:
# https://docs.pytorch.org/docs/stable/checkpoint.html


def recomputes(node: Record) -> bool:
    """Whether a saved tensor of this node is one that a checkpoint will recompute."""
    return "packed" in node.flags and any(
        slot.packing == "recompute" for slot in node.saved
    )


def once(graph: Graph, action: Callable[[], T]) -> T:
    """What `action` returns, which calls each backward function at most once, so that
    every checkpoint recomputes once.
    """
    recomputed = any(recomputes(node) for node in graph.nodes)
    if not recomputed and torch._C._current_graph_task_id() == -1:
        return action()

    if recomputed and any(node.op == _QUEUES for node in graph.nodes):
        raise GradientError(
            "a checkpoint in a model with DistributedDataParallel cannot be recomputed apart from its own backward. "
            "Look at the model before DistributedDataParallel."
        )

    results: list[T] = []
    with torch.inference_mode(False), torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        # the engine runs this one function, and the functions of the user's graph are
        # called in it
        inside = _Inside.apply(lambda: results.append(action()), start)  # type: ignore[no-untyped-call]
        inside.backward()  # and not `grad`, which wants one gradient
    return results[0]


class _Inside(torch.autograd.Function):
    """Does nothing forward; backward runs an action inside the engine."""

    @staticmethod
    def forward(
        ctx: Any, action: Callable[[], None], start: torch.Tensor
    ) -> torch.Tensor:
        ctx.action = action
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        # the action must not stay alive with this node
        action, ctx.action = ctx.action, None
        action()
        return None, *gradients
