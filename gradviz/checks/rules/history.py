"""Checks on what a graph drags along from earlier steps: parts that backward has used up, and parts that only grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import CheckContext, Earlier, RetainedHistory
from gradviz.checks.old_tensors import NotNeeded, OldTensors, not_needed, old_tensors
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.rewrite import as_leaf, filled, without_graph
from gradviz.checks.words import (
    code,
    line,
    listed,
    title,
    verb,
    where as place,
)
from gradviz.graph import (
    Edge,
    Graph,
    SavedTensor,
    SourceLine,
)
from gradviz.graph.origins import own_line
from gradviz.source.code_line import adds_to
from gradviz.source.search import taken_over
from gradviz.wording import bytes_text, one_line, plural

# -- freed-graph -------------------------------------------------------------------------------------------------------


@check("freed-graph", "error", "backward() has already run through a part of this graph, so it will fail")
def freed_graph(context: CheckContext) -> Iterator[Diagnosis]:
    """`backward()` has run through (part of) this graph and freed what it had saved: a second time fails.

    Two cases are typical. A state is carried from one step to the next with its history (truncated backpropagation through
    time): cut it with `state = state.detach()`. Or something was computed once outside the loop and is used in every step:
    compute it again in each step, detach it, or keep it with `retain_graph=True`. The finding names the nodes that are freed, the
    backward call that freed them as far as this run saw it, and the edges where the new graph is joined to the old. A graph that is
    freed as a whole, looked at after its own `backward()`, is a note only.

    How it is found: Nodes whose saved tensors are freed are looked for. Edges from newer nodes to those show which tensor
    carried the old graph along.

    What to do: Detach what is carried from step to step, `state = state.detach()`, or compute in every step what is used in
    every step. `retain_graph=True` is right only when two backward calls share one forward pass.

    When to ignore it: When the graph is looked at after its `backward()` and not used again: that is a note.

    ```python
    import torch

    cell = torch.nn.RNNCell(2, 3)
    state = torch.zeros(1, 3)
    for step in range(2):
        state = cell(torch.ones(1, 2), state)
        loss = state.sum()
        loss.backward()
    ```
    """
    graph = context.graph
    freed = [node.id for node in graph.nodes if "freed" in node.flags]
    if context.ran:  # this call has freed something itself, what was made since the call before among it
        again = context.raised is not None and "second time" in context.raised.text
        freed = [i for i in freed if again and (graph.nodes[i].sequence or 0) < context.since]
    if not freed:
        return
    live = any(_holds(slot) for node in graph.nodes for slot in node.saved)
    joints = _joints(context, freed)
    if not live and context.call is None:
        yield _used_up(context, freed)
        return
    first = joints[0].producer if joints else freed[0]
    old = old_tensors(context, joints)
    names = tuple(dict.fromkeys(name for tensors in old for name in tensors.names))
    made = own_line(graph.nodes[first])
    spared = not_needed(context, joints, names)
    yield Diagnosis(
        f"backward() has already run through {plural(len(freed), 'node')} of this graph",
        names,
        line(spared.source) if spared is not None else place(graph, first),
        _freed_why(context, freed, joints, listed(names) or title(graph, first)),
        _without_history(spared) if spared is not None else _as_leaf_fix(made, old) or _freed_fix(context, joints, old),
        tuple(freed),
        tuple((edge.consumer, edge.position) for edge in joints),
        source=spared.source if spared is not None else made,
        part=spared.name if spared is not None else "",
    )


def _without_history(spared: NotNeeded) -> str:
    name = one_line(spared.name)
    return f"In {line(spared.source)}, use {name}.detach() instead of {name}: {one_line(spared.because)}."


def _as_leaf_fix(made: SourceLine | None, old: Sequence[OldTensors]) -> str:
    """What to do where the old part is how a leaf was made: computing that again would make new numbers in every step."""
    leaf = as_leaf(made)
    return f"Let the leaf come last: {leaf}." if leaf and not any(tensors.retained for tensors in old) else ""


def _holds(slot: SavedTensor) -> bool:
    """Whether a slot still holds what backward would have freed; attributes that a custom Function set on `ctx` stay."""
    return slot.tensor is not None and slot.state != "freed" and not slot.slot.startswith("ctx.")


def _used_up(context: CheckContext, freed: Sequence[int]) -> Diagnosis:
    roots = tuple(root.name for root in context.graph.roots)
    return Diagnosis(
        "backward() has run through this graph",
        roots,
        place(context.graph, freed[0]),
        f"what {plural(len(freed), 'node')} had saved is freed",
        "Nothing, unless backward() is to run once more: compute the output again for that, or use retain_graph=True.",
        tuple(freed),
        severity="note",
    )


def _joints(context: CheckContext, freed: Sequence[int]) -> list[Edge]:
    """Edges from what was made after the freed part into it.

    The freed part is everything up to the newest freed node, and what the same step made after it, as far as this run saw.
    """
    graph = context.graph
    newest = max((graph.nodes[i].sequence or 0) for i in freed)
    newest = min((call.boundary - 1 for call in context.earlier if call.boundary > newest), default=newest)

    def old(i: int) -> bool:
        sequence = graph.nodes[i].sequence
        return sequence is not None and sequence <= newest

    return [
        edge for edge in graph.edges if old(edge.producer) and not old(edge.consumer) and edge.consumer not in freed
    ]


def _freed_why(context: CheckContext, freed: Sequence[int], joints: Sequence[Edge], who: str) -> str:
    graph = context.graph
    parts = [f"what they had saved is freed: {listed([title(graph, i) for i in freed], 2)}"]
    calls = _calls(context.earlier, graph, freed)
    if calls:
        parts.append(f"they are also behind {listed(calls)}, which ran first")
    elif context.earlier or context.call is None:
        parts.append("which backward() call freed them was not seen")
    if joints:
        edge = joints[0]
        parts.append(
            f"the new part is joined to the old one at {who}: {title(graph, edge.consumer)} uses what "
            f"{title(graph, edge.producer)} made"
        )
        if len(joints) > 1:
            parts.append(f"{plural(len(joints), 'edge')} in all lead there")
    else:
        parts.append("all of this graph was there before, so this is a second backward() through the same graph")
    return "; ".join(parts)


def _calls(earlier: Sequence[Earlier], graph: Graph, freed: Sequence[int]) -> list[str]:
    """The earlier backward calls that the freed nodes were made for, as far as this run saw them."""
    calls: dict[str, None] = {}
    for i in freed:
        number = graph.nodes[i].sequence
        for call in earlier:
            if number is not None and number < call.boundary:
                output = f"{one_line(call.output)} of " if call.output else ""
                calls[f"{output}backward call {call.call}"] = None
                break
    return list(calls)


def _freed_fix(context: CheckContext, joints: Sequence[Edge], old: Sequence[OldTensors]) -> str:
    if not old:
        return "Compute the output again before the second backward(), or call the first one with retain_graph=True."
    parts = []
    full = [name for tensors in old for name in tensors.names if _is_filled(context.graph, joints, name)]
    if full:
        behind = f" behind {line(context.backward)}" if context.backward is not None else ""
        empty = "; ".join(f"{one_line(name)}.clear()" for name in full)
        parts.append(
            f"Empty {listed(full)} in every step{behind}, so that nothing of the step before is in it: {empty}."
        )
        old = [tensors for tensors in old if not set(tensors.names).intersection(full)]
    retained = [tensors for tensors in old if tensors.retained]
    constant = [tensors for tensors in old if tensors.retained is False]
    if retained:
        parts.append(
            f"Cut the history between the steps: {_cuts(retained)}.{_between(context, retained)} retain_graph=True would go back "
            "to the very first step each time."
        )
    if constant:
        names = [name for tensors in constant for name in tensors.names]
        parts.append(
            f"Compute {listed(names) or 'the tensor there'} inside the loop, in every step. If "
            f"{verb(names, 'it needs', 'they need')} no gradient, detach {verb(names, 'it', 'them')} once "
            f"({_cuts(constant)})"
            + ("." if retained else "; backward(retain_graph=True) works too and keeps its memory.")
        )
    for tensors in old:
        if tensors.retained is None:
            parts.append(
                f"If {listed(tensors.names) or 'the tensor there'} is a state carried from step to step, cut its history "
                f"before the next step: {tensors.cut()}. If it is computed once and used in every step, compute it inside the "
                "loop, detach it, or call backward(retain_graph=True)."
            )
    return " ".join(parts)


def _between(context: CheckContext, old: Sequence[OldTensors]) -> str:
    """Where to put what cuts the history off: in front of the line that takes the tensors over, or behind the call."""
    backward = context.backward
    lines = taken_over(backward) if backward is not None else {}
    places = list(dict.fromkeys(line(lines[name]) for tensors in old for name in tensors.names if name in lines))
    if len(places) == 1 and all(name in lines for tensors in old for name in tensors.names):
        return f" Put that in front of {places[0]}."
    return f" Put that behind {line(backward)}." if backward is not None else ""


def _is_filled(graph: Graph, joints: Sequence[Edge], name: str) -> bool:
    """Whether the lines that made the old tensors put them into a container of this name, whatever object holds it."""
    lines = {graph.nodes[edge.producer].source for edge in joints}
    return any(into.rpartition(".")[2] == name.rpartition(".")[2] for source in lines for into in filled(source))


def _cuts(old: Sequence[OldTensors]) -> str:
    return "; ".join(dict.fromkeys(tensors.cut() for tensors in old))


# -- growing-graph -----------------------------------------------------------------------------------------------------


@check("growing-graph", "warning", "the graph of earlier steps is kept, and more of it with every step")
def growing_graph(context: CheckContext) -> Iterator[Diagnosis]:
    """What hangs on earlier steps grows from one backward call to the next: memory fills up slowly, and steps get slower.

    Three things do it: a running total of losses with their graphs (`total += loss`), a state that keeps its history, and an
    update that is recorded (`w = w - lr * w.grad`). Consecutive steps of the run are compared (three are needed): nodes that
    were made in an earlier step, and of which there are more each time. Backward calls with no update between them belong to
    one step: several losses of one forward pass share its graph. The graph merely being larger, as with a longer sequence, is
    no sign and not reported.

    How it is found: At each step, the nodes are counted that are older than the step before and still held, by the outputs and
    by each variable, also in closures, classes and modules of yours. From the third step on, growth shows. Later, now and then
    and when the script ends, variables are looked for that hold the graphs of three steps or more.

    What to do: Add `loss.item()` or `loss.detach()` to running totals, cut states with `.detach()`, and update under
    `torch.no_grad()`.

    When to ignore it: When a few steps are accumulated on purpose and then let go, as in truncated backpropagation over several
    chunks.

    ```python
    import torch

    w = torch.ones(1, requires_grad=True)
    total = 0.0
    for step in range(3):
        loss = (w * step - 1).square().sum()
        loss.backward()
        total = total + loss
    ```
    """
    yield from (_held(context, history) for history in context.held)
    if context.step < 2:
        return
    before = _step_before(context)
    told: set[SourceLine | None] = set()  # lines whose results the graph of the outputs carries along
    for history in context.retained:
        call, last = before.get(history.name, (context.earlier[-1].call, RetainedHistory(history.name, 0, 0)))
        if history.name and history.newest == last.newest:
            continue  # it holds what it held, and more of that is old by now
        if history.nodes > last.nodes and (last.nodes or history.repeats) and history.source not in told:
            yield _growing(context, history, last, call)
            if not history.name:
                told = {context.graph.nodes[edge.producer].source for edge in _edges(context.graph, history)} - {None}


def _step_before(context: CheckContext) -> dict[str, tuple[int, RetainedHistory]]:
    """The most that each variable, or the outputs, carried along in the step before this one, and at which call."""
    most: dict[str, tuple[int, RetainedHistory]] = {}
    for call in context.earlier:
        for history in call.retained if call.step == context.step - 1 else ():
            if history.name not in most or history.nodes >= most[history.name][1].nodes:
                most[history.name] = call.call, history
    return most


def _edges(graph: Graph, retained: RetainedHistory) -> list[Edge]:
    """The joints of the outputs' graph; those of a variable's are in a graph of its own."""
    joints = set(retained.joints) if not retained.name else set()
    return [edge for edge in graph.edges if (edge.consumer, edge.position) in joints]


def _growing(context: CheckContext, history: RetainedHistory, last: RetainedHistory, previous: int) -> Diagnosis:
    graph = context.graph
    joints = _edges(graph, history)
    old = old_tensors(context, joints)
    names = (history.name,) if history.name else tuple(dict.fromkeys(name for tensors in old for name in tensors.names))
    nodes = history.nodes - last.nodes
    grown = f"{plural(nodes, 'node')}"
    if history.nbytes and last.nbytes is not None and history.nbytes > last.nbytes:
        grown += f" and {bytes_text(history.nbytes - last.nbytes)} of saved tensors"
    call = context.call
    end = max(earlier.call for earlier in context.earlier if earlier.step < context.step)
    holds = (
        f"{one_line(history.name)} holds"
        if history.name
        else f"the graph of {listed(root.name for root in graph.roots)} holds"
    )
    source = history.added or history.source or (graph.nodes[joints[0].producer].source if joints else None)
    carrier = f", through {listed(names)}" if names and not history.name else ""
    why = (
        f"at backward call {call} {holds} {plural(history.nodes, 'node')} from before call {end}{carrier}; at call "
        f"{previous} there were {last.nodes:,} such nodes: {grown} more per step"
    )
    if source is not None:
        why += f". The history is taken along in {code(source)}"
    name = one_line(names[0]) if names else ""
    edges = () if history.name else history.joints
    return Diagnosis(
        f"{name or 'the graph'} keeps the history of all earlier steps: {grown} more per step",
        names,
        ", ".join(
            filter(None, (place(graph, joints[0].producer) if joints else "", line(source) if history.name else ""))
        ),
        why,
        _growing_fix(context, name, history, joints, old),
        tuple(dict.fromkeys(edge.producer for edge in joints)),
        edges,
        source=source,
    )


def _held(context: CheckContext, history: RetainedHistory) -> Diagnosis:
    """What began to hold graphs after the calls that are read in full."""
    name, source = one_line(history.name), history.added or history.source
    if history.update:
        return _recorded_update(history, name)
    why = f"what it holds leads to {plural(history.nodes, 'node')} of earlier steps, with all that these keep"
    if source is not None:
        why += f". The history is taken along in {code(source)}"
    return Diagnosis(
        f"{name} keeps the graphs of {plural(history.steps, 'step')}",
        (history.name,),
        line(source),
        why,
        _growing_fix(context, name, history, (), ()),
        source=source,
    )


def _recorded_update(history: RetainedHistory, name: str) -> Diagnosis:
    """An update that is recorded with its gradients, in a run of which every call has `create_graph`."""
    return Diagnosis(
        f"{name} keeps the graphs of all earlier updates: {plural(history.steps, 'backward call')} so far",
        (history.name,),
        line(history.source),
        f"{code(history.source)} records the update, create_graph=True records the gradients in it, and no backward call goes "
        f"through them: {plural(history.nodes, 'node')} of earlier steps are kept",
        f"Cut the history in each step: ({one_line(history.update)}).detach().requires_grad_(). Leave out create_graph=True where "
        "no gradient of a gradient is needed.",
        source=history.source,
        part=history.update,
    )


def _growing_fix(
    context: CheckContext, name: str, history: RetainedHistory, joints: Sequence[Edge], old: Sequence[OldTensors]
) -> str:
    if history.name and adds_to(history.source, history.name) is False:
        return f"Cut the history between the steps: {name} = {name}.detach()."
    if history.name:
        handed = without_graph(history.added) or without_graph(history.source)
        where = history.added if without_graph(history.added) else history.source
        if handed:
            return f"In {line(where)}, hand over what has no graph: {handed}. Or .item(), for a number alone."
        return f"Add numbers or detached tensors to {name}: loss.item() or loss.detach() instead of loss."
    graph = context.graph
    if joints and all(
        graph.nodes[edge.producer].op.startswith(("Sub", "Add")) and graph.nodes[edge.producer].none_inputs
        for edge in joints
    ):
        return (
            f"Update {name or 'parameters'} without recording: inside torch.no_grad() and in place, or with "
            "torch.optim."
        )
    return f"Cut the history between the steps: {_cuts(old) or 'state = state.detach()'}.{_between(context, old)}"
