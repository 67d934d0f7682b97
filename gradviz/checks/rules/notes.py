"""Notes: what is not wrong, but good to know about a graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import importing, instead
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import Names, all_names, code, first_names, listed, nodes_of, title, verb
from gradviz.graph import Graph, Leaf, Node
from gradviz.graph.amounts import depth
from gradviz.source.search import repeated_modules
from gradviz.wording import one_line, plural, tensor_line

DEEP = 10_000
"""Backward functions in a row from which `deep-graph` speaks up."""

_TWICE = re.compile(r"Backward\d*(Backward)\d*$")


@check("requires-grad-input", "note", "an input of a model requires grad", follows=("never-updated",))
def requires_grad_input(context: CheckContext) -> Diagnoses:
    """A tensor that is no parameter requires grad, in a graph that has parameters.

    Backward then computes a gradient for it at every step, and keeps it in `.grad`. That is right for adversarial examples,
    saliency maps and gradient penalties, and a waste otherwise.

    How it is found: Leaves of the graph that are no parameters of a module are listed.

    What to do: Leave out `requires_grad=True` for data. If the tensor is to be trained, make it a `torch.nn.Parameter`.

    When to ignore it: When its gradient is wanted: adversarial examples, saliency maps, gradient penalties.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    x = torch.ones(2, 3, requires_grad=True)
    loss = model(x).sum()
    loss.backward()
    ```
    """
    inputs = [leaf for leaf in context.graph.leaves if leaf.kind == "input"]
    if not inputs or not any(leaf.kind == "parameter" for leaf in context.graph.leaves):
        return
    names = first_names(inputs)
    shown = listed(names) or tensor_line(inputs[0].tensor)
    yield Diagnosis(
        f"{plural(len(inputs), 'input')} {verb(inputs, 'requires', 'require')} grad: {shown}",
        names,
        f"{verb(inputs, 'it is a leaf', 'they are leaves')} of the graph and no {verb(inputs, 'parameter', 'parameters')}, so "
        f"backward() computes a gradient for {verb(inputs, 'it', 'each')}",
        "No change needed if you use that gradient. Otherwise remove requires_grad=True.",
        nodes_of(inputs),
    )


@check("tied-parameter", "note", "one parameter is used under several names")
def tied_parameter(context: CheckContext) -> Diagnoses:
    """One parameter has several names in the model: its gradient is the sum over all its uses.

    That is how tied embeddings work. It matters when parameters are counted, saved, sharded or given to optimizers in groups.

    How it is found: The names of each parameter are collected from the models. A warning where one line puts one module several
    times into a list, as `ModuleList([Block()] * 3)` does.

    What to do: Nothing, when they are tied on purpose. Else give each module a tensor of its own: `copy.deepcopy(module)`.

    When to ignore it: When they are tied on purpose.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    ```
    """
    tied = [leaf for leaf in context.graph.leaves if leaf.kind == "parameter" and len(leaf.names) > 1]
    repeated = list(_repeated(context, tied))
    yield from repeated
    if tied and not repeated:
        first, *others = tied
        too = f"; {plural(len(others), 'other')} {verb(others, 'has', 'have')} several names, too" if others else ""
        yield Diagnosis(
            f"{listed(first.names)} are one parameter{too}",
            all_names(tied),
            f"these names lead to one tensor {tensor_line(first.tensor)}, and its gradient is the sum over all uses",
            "No change needed if they are tied on purpose.",
            nodes_of(tied),
        )


def _repeated(context: CheckContext, tied: Sequence[Leaf]) -> Diagnoses:
    """The lists of modules that have one and the same module at several places, where one line has put it there."""
    lists: dict[str, Leaf] = {}
    for leaf in tied:
        patterns = {re.sub(r"\.\d+\.", ".*.", name, count=1) for name in leaf.names}
        if len(patterns) == 1:
            lists.setdefault(patterns.pop().partition(".*.")[0], leaf)
    for name, leaf in lists.items():
        row = next((row for row in context.record.rows if row.names == leaf.names and row.source is not None), None)
        at = row.source if row is not None else context.backward
        for source, old, new in repeated_modules(at.file) if at is not None else ():
            edit = instead(source, source.text.replace(old, new))
            if name.rpartition(".")[2] in source.text:
                yield Diagnosis(
                    f"{name} has one module {len(leaf.names)} times: all its layers are the same object",
                    leaf.names,
                    f"{code(source)} puts one object several times into the list: it has the parameters of one layer, and their "
                    "gradient is the sum over all uses",
                    f"Make one for each place: {new} in place of {old}. No change needed if all are to share their weights.",
                    source=source,
                    severity="warning",
                    edit=importing(edit, "copy") if "copy." in new else edit,
                )


@check("hooks-present", "note", "hooks of yours are registered on tensors of this graph")
def hooks_present(context: CheckContext) -> Diagnoses:
    """Hooks run during backward and may change gradients. gradviz runs none of them.

    Listed are hooks on leaves and on other tensors that a variable holds, full backward hooks of modules, and saved tensors
    that are packed by hooks. Hooks on nodes, and those that C++ code such as `DistributedDataParallel` registers, cannot be
    seen from Python.

    How it is found: Leaves, nodes and saved tensors are asked whether they have hooks; none is run.

    What to do: Call `remove()` on the handle of a hook that is not wanted any more.

    When to ignore it: When the hooks are wanted.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    w.register_hook(lambda gradient: gradient * 2)
    loss = (w * w).sum()
    loss.backward()
    ```
    """
    graph = context.graph
    hooked = [leaf for leaf in graph.leaves if leaf.hooks]
    if hooked:
        count, names = sum(leaf.hooks for leaf in hooked), first_names(hooked)
        yield Diagnosis(
            f"{plural(count, 'hook')} on {listed(names) or plural(len(hooked), 'leaf', 'leaves')}",
            names,
            "they run when the gradient of the tensor is computed or accumulated, and may change it",
            "No change needed if this is intentional. The handle that register_hook() returned has remove().",
            nodes_of(hooked),
        )
    for nodes, names, summary, why, fix in _hooked(graph):
        if nodes:
            yield Diagnosis(summary, names, why, f"No change needed if {fix}", tuple(node.id for node in nodes))


def _hooked(graph: Graph) -> Iterator[tuple[list[Node], Names, str, str, str]]:
    """The nodes on which hooks are, or hang, and what is said of them."""
    inner = [node for node in graph.nodes if "hooks" in node.flags and node.id not in graph.leaf_of]
    modules = [node for node in graph.nodes if node.op == "BackwardHookFunctionBackward"]
    packed = [node for node in graph.nodes if "packed" in node.flags]
    ways = sorted({slot.note for node in packed for slot in node.saved if slot.state == "packed" and slot.note})
    yield (
        inner,
        first_names(inner),
        f"hooks on {listed(first_names(inner)) or plural(len(inner), 'tensor')}",
        "they run when the gradient of the tensor is computed, and may change it",
        "they are wanted. The handle that register_hook() returned has remove().",
    )
    yield (
        modules,
        (),
        "full backward hooks of modules are in this graph",
        f"{plural(len(modules), 'node')} of this graph {verb(modules, 'calls', 'call')} them, and they may change gradients",
        "they are wanted. The handle that register_full_backward_hook() returned has remove().",
    )
    yield (
        packed,
        (),
        f"hooks pack the saved tensors of {plural(len(packed), 'node')}",
        f"{listed(ways, 2) or 'saved-tensor hooks'}: what backward will compute with is known only when the hook runs",
        "that is on purpose (checkpoint, save_on_cpu, saved_tensors_hooks).",
    )


@check("double-backward", "note", "the graph contains a backward pass: gradients of gradients")
def double_backward(context: CheckContext) -> Diagnoses:
    """The graph was made by `create_graph=True`: a part of it is a backward pass itself.

    That is how gradient penalties and Hessians are computed. It keeps the first graph alive and costs a second one; when
    `backward(create_graph=True)` made it, `.grad` and the graph hold each other alive until `.grad` is reset.

    How it is found: The names of the backward functions tell: `ThresholdBackwardBackward0` is the derivative of a derivative.

    What to do: Leave out `create_graph=True` where no gradient of a gradient is needed.

    When to ignore it: When gradients of gradients are wanted.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    score = torch.tanh(w).sum()
    (slope,) = torch.autograd.grad(score, w, create_graph=True)
    penalty = slope.square().sum()
    penalty.backward()
    ```
    """
    graph = context.graph
    made = [node for node in graph.nodes if _TWICE.search(node.op)]
    if made:
        yield Diagnosis(
            f"the graph contains a backward pass ({plural(len(made), 'node')} of second order)",
            tuple(name for node in made for name in node.names),
            f"such as {title(graph, made[0].id)}, the derivative of a backward function",
            "No change needed if you differentiate the gradients. Otherwise remove create_graph=True.",
            tuple(node.id for node in made),
        )


@check("deep-graph", "note", "the graph is very deep")
def deep_graph(context: CheckContext) -> Diagnoses:
    """More than 10,000 backward functions in a row: as deep as a very long recurrence.

    Backward handles that. Gradients over so many steps mostly vanish or explode, every step keeps what it saved, and tools that
    follow the graph recursively fail on it. Truncated backpropagation cuts it with `state = state.detach()`.

    How it is found: The longest way from an output to a leaf is counted.

    What to do: Cut the recurrence now and then: `state = state.detach()`.

    When to ignore it: When gradients over the whole length are wanted, and the memory suffices.

    ```python
    import torch

    x = torch.ones(1, requires_grad=True)
    state = x
    for step in range(10_001):
        state = state * 1.0
    loss = state.sum()
    loss.backward()
    ```
    """
    if len(context.graph.nodes) <= DEEP:
        return
    deepest = depth(context.graph)
    if deepest > DEEP:
        yield Diagnosis(
            f"the graph is {deepest:,} backward functions deep",
            tuple(one_line(root.name) for root in context.graph.roots),
            f"the longest way from an output to a leaf has {deepest:,} backward functions, more than {DEEP:,}",
            "If it is a recurrence, cut its history now and then: state = state.detach().",
        )


_KNOWN = {
    "generic_jump": (
        "a branch depends on the numbers of a tensor",
        "Choose with torch.where() or torch.cond() in place of `if`, or move the line out of the compiled function.",
    ),
    "step_unsupported": ("it cannot trace this line", ""),
}
"""What torch names after its own parts, by how its words begin: in other words, and what to do."""


@check("graph-break", "note", "torch.compile broke a function into several graphs")
def graph_break(context: CheckContext) -> Diagnoses:
    """A line that `torch.compile` could not compile, so that what comes before it and after it are graphs of their own.

    At each break Python runs, the graphs before and after are optimised apart, and what the one hands to the other is kept for
    backward. With `fullgraph=True` torch raises an error there instead.

    How it is found: torch notes every break that it makes, with the line and the reason; its notes are read. A break counts
    where an operation of the graph comes from the same function.

    What to do: What torch advises, which the finding quotes; or move the line out of the compiled function.

    When to ignore it: When the break is outside the part that takes the time.

    ```python
    import torch


    def step(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos().sum()


    x = torch.ones(3, requires_grad=True)
    loss = torch.compile(step, backend="aot_eager")(x)
    loss.backward()
    ```
    """
    lines = {place for node in context.graph.nodes for place in (node.source, node.script_line) if place is not None}
    functions = {(place.file, place.function) for place in lines}
    for broken in context.breaks:  # of the whole process: those in other functions are not about this graph
        if (broken.source.file, broken.source.function) not in functions:
            continue
        reason, fix = next((known for start, known in _KNOWN.items() if broken.reason.startswith(start)), ("", ""))
        yield Diagnosis(
            f"torch.compile broke the graph: {reason or one_line(broken.reason)}",
            (),
            f"torch could not compile {code(broken.source)} together with what comes before it",
            one_line(broken.hint) or fix or "Move the line out of the compiled function.",
            source=broken.source,
        )
