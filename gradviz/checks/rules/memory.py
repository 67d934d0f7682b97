"""Checks on memory: graphs that nothing uses, or that keep themselves alive."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.words import code, line, listed, verb
from gradviz.wording import one_line, plural


@check("unused-graph", "warning", "passes in eval() mode record a graph that no backward() uses")
def unused_graph(context: CheckContext) -> Diagnoses:
    """A model in `eval()` mode runs over data with recording on, and no backward call reaches what it records.

    `eval()` switches dropout and batch normalization, and does not switch recording off. So each pass keeps what its
    operations save, until its result is gone: validation then needs several times the memory that it should, and a sum or a
    list of results keeps all passes alive.

    How it is found: Several calls of a model in `eval()` mode, in a row from one line, made nodes, and none of these is in
    the graph of a later backward call.

    What to do: Run the evaluation under `torch.no_grad()`, or `torch.inference_mode()`.

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
        yield Diagnosis(
            f"{plural(evaluation.calls, 'pass', 'passes')} of {one_line(evaluation.type)} in eval() mode record a graph that "
            "nothing uses",
            holders,
            why,
            f"Run the evaluation that leads to {line(evaluation.source)} under torch.no_grad(): `with torch.no_grad():` around its "
            "loop, or @torch.no_grad() above its function.",
            source=evaluation.source,
        )


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
