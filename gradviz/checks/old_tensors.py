"""The tensors of earlier steps that a new graph is joined to: what the user's code calls them, and how to cut them off.

A variable that was given a new value no longer tells. Then the code does: of `out, h = rnn(x, h)`, only `h` can be what the
next step took over, because the line also reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.words import as_code
from gradviz.graph import Edge, Graph, SourceLine
from gradviz.graph.origins import own_line
from gradviz.source.code_line import assigned, read
from gradviz.source.search import taken_over
from gradviz.source.statements import around, assigned as given, body_around


class OldTensors(NamedTuple):
    """Tensors that one line made in an earlier step, by the names that the user has for them; none where nobody knows.

    `several` are the names that hold several tensors, `mappings` those of them that are dicts. `carried`: whether each step
    makes them anew, as it does a state; None when that is unknown.
    """

    names: tuple[str, ...]
    several: frozenset[str]
    mappings: frozenset[str]
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
    several = {_variable(name) for names in groups for name in names if "[" in name}
    mappings = {_variable(name) for names in groups for name in names if "['" in name or '["' in name}
    inside = context.backward is not None and "self" in " ".join(read(context.backward))
    outside = taken_over(context.backward) if context.backward is not None else {}
    carried = tuple(name for name in outside if any(name == _variable(other) for names in groups for other in names))
    old: dict[tuple[str, ...], tuple[bool | None, set[tuple[int, int]]]] = {}
    for edge in joints:
        record = graph.nodes[edge.producer]
        names = _names(record.names, record.source, graph.nodes[edge.consumer].source, groups)
        if len(names) == 1 and names[0].startswith("self.") and not inside:
            names = _from_outside(names[0], groups) or names
        elif not record.names and carried and _elsewhere(record.source, context.backward):
            names = carried  # what the function around the backward call calls it
        retained = record.source in newer if record.source is not None else None
        old.setdefault(names, (retained, set()))[1].add((edge.producer, edge.output))
    single = {name for names in groups for name in names if "[" not in name}
    made = []
    for names, (retained, tensors) in old.items():
        packed = several.intersection(names) - single
        if len(names) == 1 and len(tensors) > 1 and names[0] not in single:
            packed.add(names[0])
        made.append(OldTensors(names, frozenset(packed), frozenset(mappings.intersection(packed)), retained))
    return made


def _names(
    now: Sequence[str], made: SourceLine | None, used: SourceLine | None, groups: Sequence[Sequence[str]]
) -> tuple[str, ...]:
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


def _from_outside(name: str, groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
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
        if shared.sequence not in old or own.sequence in old or edge.producer not in with_graph:
            continue
        behind = _leaves(graph, [edge.producer])
        beside = _leaves(graph, [root.node for root in graph.roots if root.node is not None], without=edge.producer)
        there, elsewhere = _holders(context, behind), _holders(context, beside - behind)
        source = own_line(own)
        if source is not None and there and elsewhere and not there & elsewhere:
            why = f"{min(elsewhere)} updates nothing behind it, so that call needs no history of it"
            return NotNeeded(source, with_graph[edge.producer][0], why)
    return None


def _first_call(context: CheckContext, joints: Sequence[Edge], names: Sequence[str]) -> NotNeeded | None:
    """Where the first call could have gone without the history, as optimizers of their own on both sides tell."""
    before = context.before
    if before is None or not joints or len(names) != 1:
        return None
    sequence = context.graph.nodes[joints[0].producer].sequence
    node = next((node.id for node in before.nodes if node.sequence == sequence and sequence is not None), None)
    if node is None:
        return None
    behind = _leaves(before, [node])
    beside = _leaves(before, [root.node for root in before.roots if root.node is not None], without=node)
    there, elsewhere = _holders(context, behind), _holders(context, beside - behind)
    word = re.compile(rf"(?<![\w.]){re.escape(names[0])}(?!\w)")
    for edge in before.consumers(node):
        source = own_line(before.nodes[edge.consumer])
        if source is not None and word.search(source.text) and there and elsewhere and not there & elsewhere:
            why = f"{min(elsewhere)} updates nothing behind it, so that call needs no history of it, and leaves it to the next one"
            return NotNeeded(source, names[0], why)
    return None


def _leaves(graph: Graph, start: Sequence[int], without: int | None = None) -> set[str]:
    """The names of the leaves behind some nodes, and not only behind another."""
    seen, waiting = set(start), list(start)
    while waiting:
        for edge in graph.inputs(waiting.pop()):
            if edge.producer not in seen and edge.producer != without:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return {name for leaf in graph.leaves if leaf.node in seen for name in leaf.names}


def _holders(context: CheckContext, names: set[str]) -> set[str]:
    return {
        optimizer.name
        for optimizer in context.optimizers
        if any(names.intersection(tensor.names) for tensor in optimizer.tensors)
    }
