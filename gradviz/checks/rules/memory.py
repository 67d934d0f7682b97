"""Checks on memory: graphs that nothing uses or that keep themselves alive, saved tensors that are large or saved twice."""

from __future__ import annotations

from gradviz.checks.context import CheckContext, Copy
from gradviz.checks.ops import made
from gradviz.checks.record import Unrecorded
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.words import all_names, code, line, listed, nodes_of, title, title_and_code, verb, where as place
from gradviz.graph import Graph
from gradviz.graph.amounts import COUNTED
from gradviz.memory.frozen import frozen_notes
from gradviz.memory.saved import holders
from gradviz.wording import bytes_text, one_line, plural, tensor_line


@check("unused-graph", "warning", "passes in eval() mode record a graph that no backward() uses")
def unused_graph(context: CheckContext) -> Diagnoses:
    """A model in `eval()` mode runs over data with recording on, and no backward call reaches what it records.

    `eval()` switches dropout and batch normalization, and does not switch recording off. So each pass keeps what its
    operations save, until its result is gone: validation then needs several times the memory that it should, and a sum or a
    list of results keeps all passes alive.

    How it is found: Several calls of a model in `eval()` mode, in a row from one line, made nodes, and none of these is in
    the graph of a later backward call.

    What to do: Run the evaluation under `torch.no_grad()`, or `torch.inference_mode()`. A function that training goes through
    as well is never what is advised: the advice is for the innermost one that only such passes go through.

    When to ignore it: When a gradient of these results is computed after the run that was watched.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    model.eval()
    total = 0.0
    for batch in range(4):
        total += model(torch.ones(2, 3)).mean()
    ```
    """
    for evaluation in context.record.evaluations:
        calls, holders = plural(evaluation.calls, "call"), evaluation.holders
        why = f"{calls} in a row from {code(evaluation.source)} made {plural(evaluation.nodes, 'node')}, and no backward call "
        why += "reached any of them: eval() does not switch recording off"
        if holders:
            why += (
                f". {listed(holders)} {verb(holders, 'keeps', 'keep')} the graphs of several calls, with all they saved"
            )
        lines = (line(remedy.call) for remedy in evaluation.remedies)
        yield Diagnosis(
            f"{plural(evaluation.calls, 'pass', 'passes')} of {one_line(evaluation.type)} in eval() mode record a graph that "
            "nothing uses",
            holders,
            why,
            " ".join(map(_fix, evaluation.remedies)) or "Run the evaluation under torch.no_grad().",
            source=evaluation.source,
            where=", called in ".join(dict.fromkeys((line(evaluation.source), *lines))),
        )


def _fix(remedy: Unrecorded) -> str:
    if remedy.function:
        return f"Put @torch.no_grad() above `def {one_line(remedy.function)}`."
    if remedy.block != remedy.call:
        return f"Put the loop of {line(remedy.block)} into a block `with torch.no_grad():`."
    return f"Run {line(remedy.call)} in a block `with torch.no_grad():`."


@check("reference-cycle", "warning", "a graph keeps itself alive, through ctx or a hook")
def reference_cycle(context: CheckContext) -> Diagnoses:
    """A custom Function keeps its own output as an attribute of `ctx`, or a hook keeps the tensor that it is on.

    An output leads to the node that made it, and that node is `ctx`, or holds the hook. So the step's graph is not freed when
    its variables are gone. Python's garbage collector finds a circle through `ctx` sooner or later, after memory has filled up; it
    cannot see through a hook on a tensor: that memory never comes back.

    How it is found: Attributes of `ctx` are compared with the outputs, and the variables that hooks take from the function around
    them are looked up in the graph. A hook made in a loop is left alone: there the next round lets go of the tensor.

    What to do: `ctx.save_for_backward(result)` for outputs and inputs. Give a hook a detached tensor.

    When to ignore it: When it happens once, and not in each step.

    ```python
    import torch


    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.result = x.exp()
            return ctx.result

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.result


    x = torch.ones(3, requires_grad=True)
    loss = Exponential.apply(x).sum()
    loss.backward()
    ```
    """
    for cycle in dict.fromkeys(cycle._replace(node=0) for cycle in context.cycles):
        nodes = tuple(other.node for other in context.cycles if other._replace(node=0) == cycle)
        words = {"attribute": one_line(cycle.attribute), "of": one_line(cycle.of)}
        yield _CYCLES[cycle.kind].told((cycle.of,), cycle.source, **words)._replace(nodes=nodes)


_CYCLES = {
    "function": Row(
        "{of} keeps its own output as ctx.{attribute}, so each graph keeps itself alive",
        "the output leads to its node, and that node is ctx, which has the output as {attribute}. What is behind it is freed only "
        "when the garbage collector runs",
        "Call ctx.save_for_backward(...) for it in place of setting ctx.{attribute}, and read it from ctx.saved_tensors.",
    ),
    "hook": Row(
        "a hook on {of} keeps {attribute}, so each graph keeps itself alive",
        "the graph holds the hook, the hook holds {attribute}, and {attribute} leads to that graph. What is behind it is never "
        "freed: the garbage collector does not see through a hook on a tensor",
        "Make kept = {attribute}.detach() before the hook, and use kept in the hook in place of {attribute}.",
    ),
}
LARGE_SHARE, LARGE_BYTES = 0.25, 16 * 1024 * 1024
"""`large-saved`: one saved tensor is this part of all that is held for backward, and at least so many bytes."""
WORTH_TELLING = 1024
"""Bytes that are kept twice, from which it is said."""


@check("large-saved", "note", "one saved tensor is a large part of the memory held for backward", reads_saved=True)
def large_saved(context: CheckContext) -> Diagnoses:
    """One saved tensor is at least 16 MiB, and at least a quarter of all that is held for backward.

    `gradviz saved` lists all of them. Checkpointing that part, a smaller dtype (autocast), or a fused operation that does not keep
    the intermediate result saves it.

    How it is found: The sizes of all storages that saved tensors hold are compared.

    What to do: Run that part under `torch.utils.checkpoint`, in a smaller dtype, or with a fused operation. `gradviz saved
    --budget` says what is enough.

    When to ignore it: When the memory suffices.

    ```python
    import torch

    x = torch.ones(2048, 2048, requires_grad=True)
    loss = torch.exp(x).sum()
    loss.backward()
    ```
    """
    graph = context.graph
    kept = {i: holder for i, holder in holders(graph).items() if graph.storages[i].kind in COUNTED}
    total = sum(graph.storages[i].nbytes or 0 for i in kept)
    for storage, holder in kept.items():
        nbytes = graph.storages[storage].nbytes or 0
        if nbytes >= LARGE_BYTES and nbytes >= LARGE_SHARE * total:
            yield Diagnosis(
                f"{graph.nodes[holder.node].op} saved {bytes_text(nbytes)}, {100 * nbytes / total:.0f} % of what "
                "backward holds",
                graph.nodes[holder.node].names,
                f"{title_and_code(graph, holder.node)} keeps {holder.slot.slot!r}, {tensor_line(holder.slot.tensor)}; in all "
                f"{bytes_text(total)} are held",
                "If memory is short: torch.utils.checkpoint for this part, autocast, or a fused operation. gradviz "
                "saved lists everything.",
                (holder.node,),
            )


@check("paid-frozen", "note", "frozen layers keep activations for what trains before them", reads_saved=True, once=True)
def paid_frozen(context: CheckContext) -> Diagnoses:
    """Layers are frozen, and backward runs through them all the same, to reach a few parameters that train before them.

    Frozen layers save what backward needs of them as long as anything before them trains: an embedding, a bias, the first norm.

    How it is found: The nodes of frozen modules that lead to at most four trained tensors, and what they alone have saved.

    What to do: Freeze those as well, if they need not be learned.

    When to ignore it: When they are what is to be learned, as a prompt is.

    ```python
    import torch

    embedding, head = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 1)
    body = torch.nn.Linear(64, 64).requires_grad_(False)
    model = torch.nn.Sequential(embedding, body, torch.nn.ReLU(), head)
    optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.1)
    loss = model(torch.arange(100)).square().mean()
    loss.backward()
    optimizer.step()
    ```
    """
    for note in frozen_notes(context.graph):
        yield Diagnosis(
            note,
            (),
            "backward passes through all layers behind the lowest parameter that trains, and needs what they saved",
            "If that need not be learned, freeze it: requires_grad_(False). Else no change is needed.",
        )


@check("duplicate-saved", "note", "one value is saved twice, in two storages", reads_saved=True)
def duplicate_saved(context: CheckContext) -> Diagnoses:
    """The same numbers are saved twice, because a copy was made between two operations that both keep their input.

    `.contiguous()`, `.clone()` and `.reshape()` of a transposed tensor copy. Making the copy before the first use, or using the
    copy in both places, saves one of them. What is reported is found from the graph: a copying node whose input and output
    are both saved.

    How it is found: A node that copies, and whose input and output are both saved, is looked for in the graph.

    What to do: Make the copy before the first use, or use the copy in both places.

    When to ignore it: When the memory suffices.

    ```python
    import torch

    w = torch.ones(64, 64, requires_grad=True)
    x = torch.exp(w).t()
    y = x.contiguous()
    loss = (x.sin() + y.sin()).sum()
    loss.backward()
    ```
    """
    yield from _copies(context, cast=False)


@check("saved-cast", "note", "a value is saved in two dtypes", reads_saved=True)
def saved_cast(context: CheckContext) -> Diagnoses:
    """A tensor and its cast to another dtype are both saved, such as a float32 activation beside its float16 copy.

    Mixed precision does that wherever an operation that runs in float32 meets one that runs in half precision. Parameters
    exist anyway and are not counted: only their casts take extra memory.

    How it is found: A node that casts, and whose input and output are both saved, is looked for in the graph.

    What to do: Let both operations run in one dtype, where the precision allows it.

    When to ignore it: When the memory suffices: mixed precision does this everywhere.

    ```python
    import torch

    w = torch.ones(64, 64, requires_grad=True)
    x = torch.exp(w)
    half = x.to(torch.bfloat16)
    loss = half.sin().float().sum() + x.sin().sum()
    loss.backward()
    ```
    """
    yield from _copies(context, cast=True)


def _casts(graph: Graph, copy: Copy) -> bool:
    edge, after = graph.inputs(copy.node)[:1], made(graph, copy.node)
    before = made(graph, edge[0].producer, edge[0].output) if edge else None
    return after is not None and before is not None and after.dtype != before.dtype


def _copies(context: CheckContext, *, cast: bool) -> Diagnoses:
    """One finding for all of a kind: there are many under mixed precision."""
    graph = context.graph
    copies = [copy for copy in context.copies if _casts(graph, copy) == cast]
    extra = {copy.second: graph.storages[copy.second].nbytes or 0 for copy in copies}
    total, what, fix = sum(extra.values()), "copy", "Make the copy first and use it in both places, or leave it out."
    if total < WORTH_TELLING:
        return
    if cast:
        what, fix = "cast", "Use the cast tensor in both places, or keep the float32 operation away from it."
    first = max(copies, key=lambda copy: extra[copy.second])
    original = f"is saved by {title(graph, first.first_saver)}"
    if first.first_saver in graph.leaf_of:
        original = "is a leaf and exists anyway"
    yield Diagnosis(
        f"{plural(len(copies), 'value')} {verb(copies, 'is', 'are')} kept twice, as a {what}: {bytes_text(total)} more",
        all_names(graph.nodes[copy.node] for copy in copies),
        f"{title_and_code(graph, first.node)} makes a {what} that {title(graph, first.second_saver)} saves, while the original "
        f"{original}; the largest takes {bytes_text(extra[first.second])}",
        fix,
        nodes_of(copies),
        where=place(graph, first.node),
    )
