"""Checks on what a graph drags along from earlier steps: parts that backward has used up, and parts that only grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradviz.analysis.health.registry import Found, check
from gradviz.analysis.health.words import code, line, listed, title
from gradviz.analysis.health.words import where as place
from gradviz.evidence import Carried, Earlier, Evidence
from gradviz.graph import Edge, Graph, SavedTensor, SourceLine
from gradviz.wording import bytes_text, one_line, plural

# -- freed-graph -------------------------------------------------------------------------------------------------------


@check("freed-graph", "error", "backward() has already run through a part of this graph, so it will fail")
def freed_graph(evidence: Evidence) -> Iterator[Found]:
    """`backward()` has run through (part of) this graph and freed what it had saved: a second time fails.

    Two cases are typical. A state is carried from one step to the next with its history (truncated backpropagation through
    time): cut it with `state = state.detach()`. Or something was computed once outside the loop and is used in every step:
    compute it again in each step, detach it, or keep it with `retain_graph=True`. The finding names the nodes that are freed, the
    backward call that freed them as far as this run saw it, and the edges where the new graph is joined to the old. A graph that is
    freed as a whole, looked at after its own `backward()`, is a note only.

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
    graph = evidence.graph
    freed = [node.id for node in graph.nodes if "freed" in node.flags]
    if not freed:
        return
    live = any(_holds(slot) for node in graph.nodes for slot in node.saved)
    joints = _joints(graph, freed)
    if not live and evidence.call is None:
        yield _used_up(evidence, freed)
        return
    producers = list(dict.fromkeys(edge.producer for edge in joints)) or freed[:1]
    names = tuple(dict.fromkeys(name for node in producers for name in _names(graph, node)))
    who = listed(names) or title(graph, producers[0])
    carried = _carried(graph, joints)
    yield Found(
        f"backward() has already run through {plural(len(freed), 'node')} of this graph",
        names,
        place(graph, producers[0]),
        _freed_why(evidence, freed, joints, who),
        _freed_fix(graph, names, carried, bool(joints)),
        tuple(freed),
        tuple((edge.consumer, edge.position) for edge in joints),
    )


def _holds(slot: SavedTensor) -> bool:
    """Whether a slot still holds what backward would have freed; attributes that a custom Function set on `ctx` stay."""
    return slot.tensor is not None and slot.state != "freed" and not slot.slot.startswith("ctx.")


def _used_up(evidence: Evidence, freed: Sequence[int]) -> Found:
    roots = tuple(root.name for root in evidence.graph.roots)
    return Found(
        "backward() has run through this graph",
        roots,
        place(evidence.graph, freed[0]),
        f"what {plural(len(freed), 'node')} had saved is freed",
        "Nothing, unless backward() is to run once more: compute the output again for that, or use retain_graph=True.",
        tuple(freed),
        severity="note",
    )


def _joints(graph: Graph, freed: Sequence[int]) -> list[Edge]:
    """Edges from what was made after the freed part into it. The freed part is everything up to the newest freed node."""
    newest = max((graph.nodes[i].sequence or 0) for i in freed)

    def old(i: int) -> bool:
        sequence = graph.nodes[i].sequence
        return sequence is not None and sequence <= newest

    return [
        edge for edge in graph.edges if old(edge.producer) and not old(edge.consumer) and edge.consumer not in freed
    ]


def _names(graph: Graph, node: int) -> tuple[str, ...]:
    """What the user calls the result of a node: its variables now, else the variable that its line assigns."""
    record = graph.nodes[node]
    return record.names or assigned(record.source)


def assigned(source: SourceLine | None) -> tuple[str, ...]:
    """The names that a line of code gives a value to, as far as it can be read alone.

    >>> assigned(SourceLine("a.py", 1, "f", "state, out = cell(x, state)"))
    ('state', 'out')
    """
    try:
        body = ast.parse(source.text.strip()).body if source is not None and source.text else []
    except (SyntaxError, ValueError):
        return ()
    found: list[str] = []
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            found += [ast.unparse(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute))]
    return tuple(found)


def _carried(graph: Graph, joints: Sequence[Edge]) -> bool | None:
    """Whether the joints are a state that each step makes anew: the line that made it made newer nodes, too. None: unknown."""
    lines = {graph.nodes[edge.producer].source for edge in joints} - {None}
    if not lines:
        return None
    oldest_new = min(graph.nodes[edge.consumer].sequence or 0 for edge in joints)
    return any(node.source in lines for node in graph.nodes if (node.sequence or -1) >= oldest_new)


def _freed_why(evidence: Evidence, freed: Sequence[int], joints: Sequence[Edge], who: str) -> str:
    graph = evidence.graph
    parts = [f"what they had saved is freed: {listed([title(graph, i) for i in freed], 2)}"]
    calls = _calls(evidence.earlier, graph, freed)
    if calls:
        parts.append(f"they are also behind {listed(calls)}, which ran first")
    elif evidence.earlier or evidence.call is None:
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
    found: dict[str, None] = {}
    for i in freed:
        number = graph.nodes[i].sequence
        for call in earlier:
            if number is not None and number < call.boundary:
                found[f"{one_line(call.output)} of backward call {call.call}"] = None
                break
    return list(found)


def _freed_fix(graph: Graph, names: Sequence[str], carried: bool | None, joined: bool) -> str:
    name = one_line(names[0]) if names else "the tensor there"
    cut = f"{name} = {name}.detach()" if names else "state = state.detach()"
    if not joined:
        return "Compute the output again before the second backward(), or call the first one with retain_graph=True."
    if carried is None:
        return (
            f"If {name} is a state carried from step to step, cut its history before the next step: {cut}. If it is "
            "computed once "
            "and used in every step, compute it inside the loop, detach it, or call backward(retain_graph=True)."
        )
    if carried:
        return (
            f"Cut the history between the steps: {cut}. retain_graph=True would go back to the very first step each "
            "time."
        )
    return (
        f"Compute {name} inside the loop, in every step. If it needs no gradient, detach it once ({cut}); "
        "backward(retain_graph=True) "
        "works too and keeps its memory."
    )


# -- growing-graph -----------------------------------------------------------------------------------------------------


@check("growing-graph", "warning", "the graph of earlier steps is kept, and more of it with every step")
def growing_graph(evidence: Evidence) -> Iterator[Found]:
    """What hangs on earlier steps grows from one backward call to the next: memory fills up slowly, and steps get slower.

    Three things do it: a running total of losses with their graphs (`total += loss`), a state that keeps its history, and an
    update that is recorded (`w = w - lr * w.grad`). Consecutive backward calls of the run are compared, as many as `--steps` says
    (three are needed): nodes that were made before the previous call, and of which there are more each time. The graph
    merely being larger, as with a longer sequence, is no sign and not reported.

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
    if len(evidence.earlier) < 2:
        return
    before = {one.name: one for one in evidence.earlier[-1].carried}
    for one in evidence.carried:
        last = before.get(one.name, Carried(one.name, 0, 0))
        if one.nodes > last.nodes and (last.nodes or one.repeats):
            yield _growing(evidence, one, last)


def _growing(evidence: Evidence, one: Carried, last: Carried) -> Found:
    graph = evidence.graph
    joints = [edge for edge in graph.edges if (edge.consumer, edge.position) in set(one.joints)] if not one.name else []
    names = (
        (one.name,)
        if one.name
        else tuple(dict.fromkeys(name for edge in joints for name in _names(graph, edge.producer)))
    )
    nodes = one.nodes - last.nodes
    grown = f"{plural(nodes, 'node')}"
    if one.nbytes and last.nbytes is not None and one.nbytes > last.nbytes:
        grown += f" and {bytes_text(one.nbytes - last.nbytes)} of saved tensors"
    previous, call = evidence.earlier[-1].call, evidence.call
    held = (
        f"{one_line(one.name)} holds" if one.name else f"the graph of {listed(root.name for root in graph.roots)} holds"
    )
    source = one.source or (graph.nodes[joints[0].producer].source if joints else None)
    carrier = f", through {listed(names)}" if names and not one.name else ""
    why = (
        f"at backward call {call} {held} {plural(one.nodes, 'node')} from before call {previous}{carrier}; at call "
        f"{previous} "
        f"there were {last.nodes:,} such nodes: {grown} more per step"
    )
    if source is not None:
        why += f". The history is taken along in {code(source)}"
    name = one_line(names[0]) if names else ""
    edges = () if one.name else one.joints
    return Found(
        f"{name or 'the graph'} keeps the history of all earlier steps: {grown} more per step",
        names,
        ", ".join(filter(None, (place(graph, joints[0].producer) if joints else "", line(source) if one.name else ""))),
        why,
        _growing_fix(graph, name, one, joints),
        tuple(dict.fromkeys(edge.producer for edge in joints)),
        edges,
    )


def _growing_fix(graph: Graph, name: str, one: Carried, joints: Sequence[Edge]) -> str:
    if one.name:
        return f"Add numbers or detached tensors to {name}: loss.item() or loss.detach() instead of loss."
    if joints and all(
        graph.nodes[edge.producer].op.startswith(("Sub", "Add")) and graph.nodes[edge.producer].none_inputs
        for edge in joints
    ):
        return (
            f"Update {name or 'parameters'} without recording: inside torch.no_grad() and in place, or with "
            "torch.optim."
        )
    return f"Cut the history between the steps: {name or 'state'} = {name or 'state'}.detach()."
