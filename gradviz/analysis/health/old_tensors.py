"""The tensors of earlier steps that a new graph is joined to: what the user's code calls them, and how to cut them off.

A variable that was given a new value no longer tells. Then the code does: of `out, h = rnn(x, h)`, only `h` can be what the
next step took over, because the line also reads it. This module reads single lines as far as they can be read alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradviz.evidence import Evidence
from gradviz.graph import Edge, SourceLine
from gradviz.wording import one_line


class OldTensors(NamedTuple):
    """Tensors that one line made in an earlier step, by the names that the user has for them; none where nobody knows.

    `several` are the names that hold several tensors, `mappings` those of them that are dicts. `carried`: whether each step
    makes them anew, as it does a state; None when that is unknown.
    """

    names: tuple[str, ...]
    several: frozenset[str]
    mappings: frozenset[str]
    carried: bool | None

    def cut(self) -> str:
        """The code that cuts the history of these.

        >>> OldTensors(("h", "c"), frozenset("c"), frozenset(), True).cut()
        'h = h.detach(); c = tuple(one.detach() for one in c)'
        """
        return "; ".join(self._cut(one_line(name)) for name in self.names or ("state",))

    def _cut(self, name: str) -> str:
        if name in self.mappings:
            return f"{name} = {{key: one.detach() for key, one in {name}.items()}}"
        return (
            f"{name} = tuple(one.detach() for one in {name})" if name in self.several else f"{name} = {name}.detach()"
        )


def old_tensors(evidence: Evidence, joints: Sequence[Edge]) -> list[OldTensors]:
    """What is behind these edges, which lead from a new part of the graph into an old one; same names are told once."""
    graph = evidence.graph
    oldest_new = min((graph.nodes[edge.consumer].sequence or 0 for edge in joints), default=0)
    newer = {node.source for node in graph.nodes if (node.sequence or -1) >= oldest_new}
    held = [(*one.names, *one.aliases) for one in evidence.held if one.requires_grad and not one.leaf]
    several = {_variable(name) for names in held for name in names if "[" in name}
    mappings = {_variable(name) for names in held for name in names if "['" in name or '["' in name}
    found: dict[tuple[str, ...], tuple[bool | None, set[tuple[int, int]]]] = {}
    for edge in joints:
        record = graph.nodes[edge.producer]
        names = _names(record.names, record.source, graph.nodes[edge.consumer].source, held)
        carried = record.source in newer if record.source is not None else None
        found.setdefault(names, (carried, set()))[1].add((edge.producer, edge.output))
    single = {name for names in held for name in names if "[" not in name}
    made = []
    for names, (carried, tensors) in found.items():
        packed = several.intersection(names) - single
        if len(names) == 1 and len(tensors) > 1 and names[0] not in single:
            packed.add(names[0])
        made.append(OldTensors(names, frozenset(packed), frozenset(mappings.intersection(packed)), carried))
    return made


def _names(
    now: Sequence[str], made: SourceLine | None, used: SourceLine | None, held: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """What the user calls a tensor that line `made` made and line `used` uses, when variables call it `now`.

    `held` are the names of each tensor that variables hold now, among them what the line made in this step.
    """
    if now:
        return (_variable(now[0]),)
    given, taken = assigned(made), set(_read(used))
    both = tuple(name for name in given if name in taken)
    if both:
        return both
    passed_on = [names for names in held if not taken.isdisjoint(map(_variable, names))]
    again = [names for names in passed_on if not set(given).isdisjoint(names)]  # given another name after the line
    found = [_variable(name) for names in again or passed_on for name in names]
    return tuple(dict.fromkeys(name for name in found if name in taken)) or given[:1]


def _variable(name: str) -> str:
    """The variable that holds what is called so: "state" of "state[0]"."""
    return name.partition("[")[0]


# -- reading a line of code --------------------------------------------------------------------------------------------


def assigned(source: SourceLine | None) -> tuple[str, ...]:
    """The names that a line of code gives a value to, as far as it can be read alone.

    >>> assigned(SourceLine("a.py", 1, "f", "out, (h, self.c) = cell(x, state)"))
    ('out', 'h', 'self.c')
    """
    found: list[str] = []
    for statement in _parsed(source):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        found += [name for target in targets for name in _targets(target)]
    return tuple(found)


def adds_to(source: SourceLine | None, name: str) -> bool | None:
    """Whether a line adds something to a variable, as a running total does. None when the line gives it no value.

    >>> [adds_to(SourceLine("a.py", 1, "f", text), "a") for text in ("a += b", "a = a + b", "a = f(a)", "b.append(a)")]
    [True, True, False, None]
    """
    if name not in assigned(source):
        return None
    return any(
        isinstance(statement, ast.AugAssign)
        or (
            isinstance(value := getattr(statement, "value", None), ast.BinOp)
            and isinstance(value.op, ast.Add)
            and name in (ast.unparse(value.left), ast.unparse(value.right))
        )
        for statement in _parsed(source)
    )


def _targets(target: ast.AST | None) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _targets(part)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        yield ast.unparse(target)


def _read(source: SourceLine | None) -> Iterator[str]:
    """The names that a line of code reads."""
    for statement in _parsed(source):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                yield ast.unparse(node)
        if isinstance(statement, ast.AugAssign):
            yield ast.unparse(statement.target)


def _parsed(source: SourceLine | None) -> list[ast.stmt]:
    text = source.text.strip() if source is not None else ""
    try:
        return ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError):  # a part of a longer statement
        return []
