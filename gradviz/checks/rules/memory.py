"""Checks on memory: graphs that nothing uses, that are kept for nobody, or that keep
themselves alive.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check, told
from gradviz.checks.run import Kind
from gradviz.wording import one_line

# two passes at least: one alone is a step
_UNUSED = Row(
    "{times} passes of {0} in eval() mode record a graph that nothing uses",
    "{times} calls in a row from {code} made a graph, and no backward call reached any of it: eval() does not switch recording "
    "off",
    "Run the evaluation that leads to {line} under torch.no_grad(): `with torch.no_grad():` around its loop, or @torch.no_grad() "
    "above its function.",
)
_CYCLE = Row(
    "{names} keeps its own output as ctx.{name}, so each graph keeps itself alive",
    "the output leads to its node, and that node is ctx, which has the output as {name}. What is behind it is freed only when the "
    "garbage collector runs",
    "Call ctx.save_for_backward(...) for it in place of setting ctx.{name}, and read it from ctx.saved_tensors.",
)
_RETAINED = Row(
    "retain_graph=True is not needed: nothing runs through this graph again",
    "{code} retained the graphs of {times} calls, and no later call met any of them",
    "Leave out retain_graph=True.",
)


@check(
    "unused-graph",
    "warning",
    "passes in eval() mode record a graph that no backward() uses",
    whole_run=True,
)
def unused_graph(context: BackwardCall) -> Diagnoses:
    """A model in `eval()` mode runs over data with recording on, and no backward call
    reaches what it records.

    `eval()` switches dropout and batch normalization, and does not switch recording
    off. So each pass keeps what its operations save, until its result is gone:
    validation then needs several times the memory that it should, and a sum or a list
    of results keeps all passes alive.

    How it is found: Several calls of a model in `eval()` mode, in a row from one line,
    made nodes, and none of these is in the graph of a later backward call.

    What to do: Run the evaluation under `torch.no_grad()`, or `torch.inference_mode()`.

    When to ignore it: When a gradient of these results is computed after the run that
    was watched.

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
    for diagnosis in told(context, {Kind.UNUSED: _UNUSED}):
        yield diagnosis._replace(names=())


@check("reference-cycle", "warning", "a graph keeps itself alive, through ctx")
def reference_cycle(context: BackwardCall) -> Diagnoses:
    """A custom Function keeps its own output as an attribute of `ctx`.

    An output leads to the node that made it, and that node is `ctx`. So the step's
    graph is not freed when its variables are gone: Python's garbage collector finds
    the circle sooner or later, after memory has filled up.

    How it is found: Attributes of `ctx` are compared with the outputs.

    What to do: `ctx.save_for_backward(result)` for outputs and inputs.

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
    # one finding for each attribute of a class, however many nodes it made
    for cycle, nodes in context.cycles.items():
        yield _CYCLE.filled(
            (cycle.of,),
            cycle.source,
            name=one_line(cycle.attribute),
            nodes=tuple(nodes),
        )


@check(
    "retained-graph",
    "note",
    "retain_graph=True keeps a graph that nothing uses again",
    whole_run=True,
)
def retained_graph(context: BackwardCall) -> Diagnoses:
    """A line calls `backward(retain_graph=True)`, and no later call of backward meets
    any part of its graph.

    What was saved for backward then stays until the loss is assigned anew: in a loop,
    while the next step computes, so that two graphs are in memory at the same time. It
    also hides the error that tells of a graph which is carried from step to step.

    How it is found: the nodes of a few calls are compared. Reported when three calls of
    a line retained their graph, no other call met one of them, and the script has come
    to its end.

    What to do: leave out `retain_graph=True`.

    When to ignore it: when gradients are asked for by code that runs later.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    for step in range(4):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward(retain_graph=True)
        model.zero_grad()
    ```
    """
    for diagnosis in told(context, {Kind.RETAINED: _RETAINED}):
        # there, retain_graph=True only hides an error that these explain
        follows = "growing-graph", "freed-graph"
        part = "retain_graph=True"
        yield diagnosis._replace(names=(), part=part, follows=follows)
