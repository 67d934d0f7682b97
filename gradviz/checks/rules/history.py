"""Checks on a graph that backward has already used up, and what the tensors are called that join a new graph to it.

A variable that was given a new value no longer tells. Then the code does: of `out, h = rnn(x, h)`, only `h` can be what the
next step took over, because the line also reads it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext, Earlier
from gradviz.checks.flow import behind
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import Names, all_names, as_code, as_leaf, line, listed, title, verb, where as place
from gradviz.graph import Edge, Graph, SavedTensor, SourceLine
from gradviz.graph.origins import own_line
from gradviz.source.code_line import assigned, parsed, read
from gradviz.source.search import taken_over
from gradviz.source.statements import around, assigned as given, body_around
from gradviz.wording import one_line, plural

# -- freed-graph -------------------------------------------------------------------------------------------------------


@check("freed-graph", "error", "backward() has already run through a part of this graph, so it will fail")
def freed_graph(context: CheckContext) -> Diagnoses:
    """`backward()` has run through (part of) this graph and freed what it had saved: a second time fails.

    Two cases are typical. A state is carried from one step to the next with its history (truncated backpropagation through
    time): cut it with `state = state.detach()`. Or something was computed once outside the loop and is used in every step:
    compute it again in each step, detach it, or keep it with `retain_graph=True`. The finding names the nodes that are freed, the
    backward call that freed them as far as this run saw it, and the edges where the new graph reaches the old one. A graph that is
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
    if context.call is None and not any(_holds(slot) for node in graph.nodes for slot in node.saved):
        yield _used_up(context, freed)
        return
    joints = _joints(context, freed)
    first = joints[0].producer if joints else freed[0]
    old = old_tensors(context, joints)
    names, made = all_names(old), own_line(graph.nodes[first])
    leaf = as_leaf(made) if not any(tensors.retained for tensors in old) else ""  # else each step makes new numbers
    diagnosis = Diagnosis(
        f"backward() has already run through {plural(len(freed), 'node')} of this graph",
        names,
        _freed_why(context, freed, joints, listed(names) or title(graph, first)),
        f"Create the leaf last: {leaf}." if leaf else _freed_fix(context, joints, old),
        tuple(freed),
        tuple((edge.consumer, edge.position) for edge in joints),
        where=place(graph, first),
        source=made,
    )
    if not joints and _other_loss(context):
        diagnosis = diagnosis._replace(where="", source=context.backward, part="")
    spared = not_needed(context, joints, names)
    if spared is not None:
        name = one_line(spared.name)
        fix = f"In {line(spared.source)}, use {name}.detach() instead of {name}: {one_line(spared.because)}."
        diagnosis = diagnosis._replace(fix=fix, where="", source=spared.source, part=spared.name)
    yield diagnosis


def _holds(slot: SavedTensor) -> bool:
    """Whether a slot still holds what backward would have freed; attributes that a custom Function set on `ctx` stay."""
    return slot.tensor is not None and slot.state != "freed" and not slot.slot.startswith("ctx.")


def _used_up(context: CheckContext, freed: Sequence[int]) -> Diagnosis:
    return Diagnosis(
        "backward() has run through this graph",
        tuple(root.name for root in context.graph.roots),
        f"what {plural(len(freed), 'node')} had saved is freed",
        "No change needed, unless you call backward() once more: then compute the output again, or use retain_graph=True.",
        tuple(freed),
        where=place(context.graph, freed[0]),
        severity="note",
    )


def _joints(context: CheckContext, freed: Sequence[int]) -> list[Edge]:
    """Edges from what was made after the freed part into it.

    The freed part is everything up to the newest freed node, and what the same step made after it, as far as this run saw.
    """
    graph = context.graph
    gone = set(freed)
    newest = max((graph.nodes[i].sequence or 0) for i in freed)
    newest = min((call.boundary - 1 for call in context.earlier if call.boundary > newest), default=newest)

    def old(i: int) -> bool:
        sequence = graph.nodes[i].sequence
        return sequence is not None and sequence <= newest

    return [edge for edge in graph.edges if old(edge.producer) and not old(edge.consumer) and edge.consumer not in gone]


def _freed_why(context: CheckContext, freed: Sequence[int], joints: Sequence[Edge], who: str) -> str:
    graph = context.graph
    parts = [f"backward() already freed {listed([title(graph, i) for i in freed], 2)}"]
    calls = _calls(context.earlier, graph, freed)
    if calls:
        parts.append(f"they were created for {listed(calls)}, which ran first")
    elif context.earlier or context.call is None:
        parts.append("which backward() call freed them was not seen")
    if joints:
        edge = joints[0]
        parts.append(
            f"this graph reaches them through {who}: {title(graph, edge.consumer)} uses the result of "
            f"{title(graph, edge.producer)}"
        )
        if len(joints) > 1:
            parts.append(f"{plural(len(joints), 'edge')} lead to them")
    else:
        parts.append("nothing in this graph is new, so this is a second backward() through the same graph")
    return "; ".join(parts)


def _calls(earlier: Sequence[Earlier], graph: Graph, freed: Sequence[int]) -> list[str]:
    """The earlier backward calls that the freed nodes were made for, as far as this run saw them."""
    numbers = (graph.nodes[i].sequence for i in freed)
    first = (
        next((call for call in earlier if number < call.boundary), None) for number in numbers if number is not None
    )
    calls = {call.call: call.output for call in first if call is not None}
    return [f"{f'{one_line(output)} of ' if output else ''}backward call {call}" for call, output in calls.items()]


def _other_loss(context: CheckContext) -> str:
    """The output that backward began at before, where that is another one than now and both were there at that time."""
    before, roots = (context.earlier[-1] if context.earlier else None), context.graph.roots
    if before is None or len(roots) != 1 or roots[0].node is None or before.output == roots[0].name:
        return ""
    made = context.graph.nodes[roots[0].node].sequence
    named = all(name.replace(".", "_").isidentifier() for name in (before.output, roots[0].name))
    return before.output if named and made is not None and made < before.boundary else ""


def _freed_fix(context: CheckContext, joints: Sequence[Edge], old: Sequence[OldTensors]) -> str:
    other = _other_loss(context) if not joints else ""
    if other:
        both = f"({as_code(other)} + {as_code(context.graph.roots[0].name)}).backward()"
        return (
            f"Call backward() once, of the sum: {both} gives the same gradients in one pass. Or call the first one with "
            "retain_graph=True."
        )
    if not old:
        return "Compute the output again before the second backward(), or call the first one with retain_graph=True."
    parts = []
    full = [name for name in all_names(old) if _is_filled(context.graph, joints, name)]
    if full:
        after = f" after {line(context.backward)}" if context.backward is not None else ""
        empty = "; ".join(f"{one_line(name)}.clear()" for name in full)
        parts.append(
            f"Clear {listed(full)} in every step{after}, so that it keeps nothing of the step before: {empty}."
        )
        old = [tensors for tensors in old if not set(tensors.names).intersection(full)]
    return " ".join([*parts, *_kept_fixes(context, old)])


def _kept_fixes(context: CheckContext, old: Sequence[OldTensors]) -> list[str]:
    """What to do about tensors that stay: carried from step to step, made once, or nobody can tell which."""
    parts = []
    retained = [tensors for tensors in old if tensors.retained]
    constant = [tensors for tensors in old if tensors.retained is False]
    if retained:
        parts.append(
            f"{detached(context, retained)} retain_graph=True would run back to the very first step each time."
        )
    if constant:
        names = all_names(constant)
        parts.append(
            f"Compute {listed(names) or 'the tensor there'} inside the loop, in every step. If "
            f"{verb(names, 'it needs', 'they need')} no gradient, detach {verb(names, 'it', 'them')} once "
            f"({cuts(constant)})"
            + ("." if retained else "; backward(retain_graph=True) works too and keeps its memory.")
        )
    for tensors in old:
        if tensors.retained is None:
            parts.append(
                f"If {listed(tensors.names) or 'the tensor there'} is a state carried from step to step, detach it "
                f"before the next step: {tensors.cut()}. If it is computed once and used in every step, compute it inside the "
                "loop, detach it, or call backward(retain_graph=True)."
            )
    return parts


def detached(context: CheckContext, old: Sequence[OldTensors]) -> str:
    """The advice to detach a state between two steps: before the line that uses it again, or after the backward call."""
    names = listed(all_names(old)) or "the state"
    return f"Detach {names}{_between(context, old)}: {cuts(old) or 'state = state.detach()'}."


def _between(context: CheckContext, old: Sequence[OldTensors]) -> str:
    backward = context.backward
    lines = taken_over(backward) if backward is not None else {}
    names = all_names(old)
    places = list(dict.fromkeys(line(lines[name]) for name in names if name in lines))
    if len(places) == 1 and lines.keys() >= set(names):
        return f" before {places[0]}"
    return f" after {line(backward)}" if backward is not None else " between the steps"


def _is_filled(graph: Graph, joints: Sequence[Edge], name: str) -> bool:
    """Whether the lines that made the old tensors put them into a container of this name, whatever object holds it."""
    lines = {graph.nodes[edge.producer].source for edge in joints}
    return any(into.rpartition(".")[2] == name.rpartition(".")[2] for source in lines for into in filled(source))


def cuts(old: Sequence[OldTensors]) -> str:
    return "; ".join(dict.fromkeys(tensors.cut() for tensors in old))


# -- old tensors -----------------------------------------------------------------------------------------------------


class OldTensors(NamedTuple):
    """Tensors that one line made in an earlier step, by the names that the user has for them; none where nobody knows.

    `several` are the names that hold several tensors, `mappings` those that are dicts of them. `retained`: whether each step
    makes them anew, as it does a state; None when that is unknown.
    """

    names: Names
    several: Collection[str]
    mappings: Collection[str]
    retained: bool | None

    def cut(self) -> str:
        """The code that cuts the history of these.

        >>> OldTensors(("h", "c"), frozenset("c"), frozenset(), True).cut()
        'h = h.detach(); c = tuple(one.detach() for one in c)'
        """
        return "; ".join(self._cut(as_code(name)) for name in self.names or ("state",))

    def _cut(self, name: str) -> str:
        if name in self.mappings:
            return f"{name} = {{key: one.detach() for key, one in {name}.items()}}"
        return (
            f"{name} = tuple(one.detach() for one in {name})" if name in self.several else f"{name} = {name}.detach()"
        )


def old_tensors(context: CheckContext, joints: Sequence[Edge]) -> list[OldTensors]:
    """What is behind these edges, which lead from a new part of the graph into an old one; same names are told once."""
    graph = context.graph
    oldest_new = min((graph.nodes[edge.consumer].sequence or 0 for edge in joints), default=0)
    newer = {node.source for node in graph.nodes if (node.sequence or -1) >= oldest_new}
    groups = [
        (*tensor.names, *tensor.aliases) for tensor in context.named_tensors if tensor.requires_grad and not tensor.leaf
    ]
    every = [name for names in groups for name in names]
    variables = set(map(_variable, every))
    inside = "self" in " ".join(read(context.backward))
    outside = taken_over(context.backward) if context.backward is not None else {}
    carried = tuple(name for name in outside if name in variables)
    old: dict[Names, tuple[bool | None, set[tuple[int, int]]]] = {}
    for edge in joints:
        record = graph.nodes[edge.producer]
        names = _names(record.names, record.source, graph.nodes[edge.consumer].source, groups)
        if len(names) == 1 and names[0].startswith("self.") and not inside:
            names = _from_outside(names[0], groups) or names
        elif not record.names and carried and _elsewhere(record.source, context.backward):
            names = carried  # what the function around the backward call calls it
        retained = record.source in newer if record.source is not None else None
        old.setdefault(names, (retained, set()))[1].add((edge.producer, edge.output))
    several = {_variable(name) for name in every if "[" in name} - set(every)
    mappings = several.intersection(_variable(name) for name in every if re.search(r"\[['\"]", name))
    made = []
    for names, (retained, tensors) in old.items():
        alone = len(names) == 1 and len(tensors) > 1 and names[0] not in every
        made.append(OldTensors(names, names if alone else several.intersection(names), mappings, retained))
    return made


def _names(
    now: Sequence[str], made: SourceLine | None, used: SourceLine | None, groups: Sequence[Sequence[str]]
) -> Names:
    """What the user calls a tensor that line `made` made and line `used` uses, when variables call it `now`.

    `groups` are the names of each tensor that variables hold now, among them what the line made in this step.
    """
    if now:
        return (_variable(now[0]),)
    given, taken = assigned(made), set(read(used))
    both = tuple(name for name in given if name in taken)
    if both:
        return both
    passed_on = [names for names in groups if not taken.isdisjoint(map(_variable, names))]
    again = [names for names in passed_on if not set(given).isdisjoint(names)]  # given another name after the line
    names_now = [_variable(name) for names in again or passed_on for name in names]
    return tuple(dict.fromkeys(name for name in names_now if name in taken)) or given[:1]


def _elsewhere(made: SourceLine | None, backward: SourceLine | None) -> bool:
    """Whether a line is in another function than the backward call, which has names of its own."""
    return (
        made is not None and backward is not None and (made.file, made.function) != (backward.file, backward.function)
    )


def _from_outside(name: str, groups: Sequence[Sequence[str]]) -> Names:
    """The tensors that a module calls `self.x`, as the code around it calls them: `net.first.x` and `net.second.x`."""
    ending = name.removeprefix("self")
    return tuple(names[0] for names in groups if names and names[0].endswith(ending) and "[" not in names[0])


def _variable(name: str) -> str:
    """The variable that holds what is called so: "state" of "state[0]"."""
    return name.partition("[")[0]


# Which of two backward calls through one tensor did not need its history: that of the network whose turn it was not.


class NotNeeded(NamedTuple):
    """The line that used `name` with its history, though nothing behind it is trained from there, and why."""

    source: SourceLine
    name: str
    because: str


def not_needed(context: CheckContext, joints: Sequence[Edge], names: Sequence[str]) -> NotNeeded | None:
    """Where one of the calls could have gone without the history: a running value, or a loss with another optimizer's turn."""
    return _running(context, joints, names) or _first_call(context, joints, names) or _second_call(context)


def _running(context: CheckContext, joints: Sequence[Edge], names: Sequence[str]) -> NotNeeded | None:
    """A line such as `mean = 0.9 * mean + 0.1 * score`, which takes the history of `score` along to the next step."""
    roots = {root.name for root in context.graph.roots}
    with_graph = {
        name for tensor in context.named_tensors if tensor.node is not None and not tensor.leaf for name in tensor.names
    }
    for edge in joints if len(names) == 1 else ():
        source = own_line(context.graph.nodes[edge.consumer])
        reads = set(read(source))
        carriers = {name for name in assigned(source) if name in reads and name in with_graph - roots}
        if source is not None and carriers and names[0] in reads - carriers and _sole(source, carriers):
            return NotNeeded(
                source, names[0], f"{min(carriers)} is carried on to the next step, and needs numbers only"
            )
    return None


def _sole(source: SourceLine, names: set[str]) -> bool:
    """Whether no other line of the loop gives these a value, as one that begins anew in each step would."""
    loops = around(source.file, source.line).loops
    body = body_around(source.file, source.line)
    lines = [
        statement.node.lineno
        for statement in (body.statements if body is not None else ())
        if names & {*given(statement.node)[0]}
    ]
    return bool(loops) and all(line == source.line or line < loops[-1] for line in lines)


def _second_call(context: CheckContext) -> NotNeeded | None:
    """The second of two losses of one forward pass, when it trains only what an optimizer of its own holds."""
    graph, before = context.graph, context.before
    if before is None:
        return None
    old = {node.sequence for node in before.nodes} - {None}
    with_graph = {
        tensor.node: tensor.names for tensor in context.named_tensors if tensor.node is not None and not tensor.leaf
    }
    for edge in graph.edges:
        shared, own = graph.nodes[edge.producer], graph.nodes[edge.consumer]
        source = own_line(own)
        if shared.sequence in old and own.sequence not in old and edge.producer in with_graph and source is not None:
            trains = _whose_turn(context, graph, edge.producer)
            if trains:
                why = f"{trains} updates nothing behind it, so that call needs no history of it"
                return NotNeeded(source, with_graph[edge.producer][0], why)
    return None


def _first_call(context: CheckContext, joints: Sequence[Edge], names: Sequence[str]) -> NotNeeded | None:
    """Where the first call could have gone without the history, as optimizers of their own on both sides tell."""
    before = context.before
    if before is None or not joints or len(names) != 1:
        return None
    sequence = context.graph.nodes[joints[0].producer].sequence
    node = next((node.id for node in before.nodes if node.sequence == sequence is not None), None)
    trains = _whose_turn(context, before, node) if node is not None else ""
    word = re.compile(rf"(?<![\w.]){re.escape(names[0])}(?!\w)")
    for edge in before.consumers(node) if node is not None and trains else ():
        source = own_line(before.nodes[edge.consumer])
        if source is not None and word.search(source.text):
            why = f"{trains} updates nothing behind it, so that call needs no history of it, and leaves it to the next one"
            return NotNeeded(source, names[0], why)
    return None


def _whose_turn(context: CheckContext, graph: Graph, node: int) -> str:
    """The optimizer of what a call trains beside a node, where others hold all that is behind the node; else ""."""
    inside = _leaves(graph, [node])
    beside = _leaves(graph, (root.node for root in graph.roots), [node])
    there, elsewhere = _holders(context, inside), _holders(context, beside - inside)
    return min(elsewhere) if there and elsewhere and not there & elsewhere else ""


def _leaves(graph: Graph, start: Iterable[int | None], without: Collection[int] = ()) -> set[str]:
    """The names of the leaves behind some nodes, and not only behind another."""
    return {
        name for node in behind(graph, start, without) if node in graph.leaf_of for name in graph.leaf_of[node].names
    }


def _holders(context: CheckContext, names: set[str]) -> set[str]:
    return {
        optimizer.name
        for optimizer in context.optimizers
        if any(names.intersection(tensor.names) for tensor in optimizer.tensors)
    }


FILLING = ("add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update")


def filled(source: SourceLine | None) -> Names:
    """The containers that a line puts something into.

    >>> [filled(SourceLine("a.py", 1, "f", text)) for text in ("self.seen.append(p[a])", "losses[step] = loss", "x = (")]
    [('self.seen',), ('losses',), ()]
    """
    containers: list[str] = []
    for statement in parsed(source):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        containers += [ast.unparse(target.value) for target in targets if isinstance(target, ast.Subscript)]
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in FILLING:
                containers.append(ast.unparse(call.func.value))
    return tuple(dict.fromkeys(containers))
