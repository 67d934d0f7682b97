"""What groups are called: by their module, their function, or what the program wrote;
else by how many ops they hold, and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from gradviz.fold.groups import Child, Section, nodes_of
from gradviz.fold.order import is_view
from gradviz.graph import Group, GroupKind, Node, Scope
from gradviz.graph.origins import op_text, own_line
from gradviz.graph.written import code_of
from gradviz.wording import clip, plural

LONGEST = 60
"""Letters of a title that is code."""
_NUMBER = re.compile(r"\d+")


def group_of(group: Section) -> Group:
    """What a closed group is called and drawn as; what it holds is not counted."""
    with_parameters = [scope for scope in scopes_in(group) if scope.parameters]
    return Group(
        kind_of(group),
        title(group),
        (),
        group.turns,
        code=code(group),
        owns=owns(group),
        frozen=bool(with_parameters) and all(one.is_frozen for one in with_parameters),
    )


def op_of(group: Section) -> Node:
    """The op that its views are drawn with, and the variable that holds what the last
    view returned.
    """
    nodes = group.tree.graph.nodes
    assert group.op is not None, "an op is asked for"
    op, last = nodes[group.op], nodes[group.nodes[-1]]
    return op._replace(assigned=last.assigned or op.assigned)


def titled(path: str, type: str) -> str:
    """`encoder.fc Linear`; `loss.MSELoss` where the path says the class already, which
    stands in for a missing name.
    """
    return path if path.rpartition(".")[2] == type else f"{path} {type}".strip()


def title(group: Section) -> str:
    """What a closed group is called. Paths are whole."""
    if group.op is not None:
        return group.tree.graph.nodes[group.op].op
    if group.record is not None:
        return _of_scope(group, group.record)
    run = group.parent
    if group.is_rest and run is not None and run.is_loop:
        return title(run)
    return _of_several(group)


def _of_scope(group: Section, scope: Scope) -> str:
    if scope.kind == "turn":
        if call := _told_by(group):
            return call.path + _call_number(call)
        construct = group.construct
        return f"turn {construct.turn if construct is not None else 1:,}"
    if scope.kind in ("loop", "statement", "call"):
        return clip(_code_of_output(group) or scope.path, LONGEST)

    words = titled(scope.path, scope.type)
    if group.part:
        words += f" (part {group.part} of {group.parts})"
    return words + _call_number(scope)


def _told_by(turn: Section) -> Scope | None:
    """The call that says which of its siblings a turn is, where it makes one."""
    calls = scopes_in(turn)
    is_sibling = turn.parent is not None and not turn.parent.feeds
    return calls[0] if len(calls) == 1 and is_sibling else None


def _call_number(scope: Scope) -> str:
    return f", call {scope.call:,}" if scope.call > 1 else ""


def code(group: Section) -> str:
    """The code of a statement, where that is not its title; the variables that turns of
    a loop hand to the next.
    """
    construct = group.construct
    if group.is_rest and group.parent is not None:
        construct = group.parent.construct
    if construct is None:
        return ""
    if construct.kind == "statement" and construct.text and not _code_of_output(group):
        return code_of(construct)
    return code_of(construct) if construct.kind == "loop" else ""


def _code_of_output(group: Section) -> str:
    """The code of a statement that computes an output by its name, which has a box."""
    construct = group.construct
    if construct is None or construct.kind != "statement":
        return ""
    roots = group.tree.graph.roots_of.get(group.nodes[-1], ())
    return code_of(construct) if construct.text in {root.name for root in roots} else ""


def owns(group: Section) -> bool:
    """Whether what is in a group belongs to the modules that its title names."""
    if group.record is not None:
        return group.record.kind == "module"
    return not _is_loose(_first_turn(group))


def _is_loose(child: Child) -> bool:
    """Whether a child has ops outside of modules, or no modules at all."""
    records = (_call(part) for part in parts_in(child))
    return any(record is None or record.kind != "module" for record in records)


def _of_several(group: Section) -> str:
    """`layers.1–11 Block`, `net.0–5`; of what is no list of modules its ops, by lines
    where these are known: `12 ops, lines 41–58`, else by its ends:
    `12 ops, matmul to softmax`.
    """
    first, named = _first_turn(group), _named(group)
    if named:
        types = {scope.type for scope in named}
        paths = list(dict.fromkeys(scope.path for scope in named))
        return titled(together(paths), types.pop() if len(types) == 1 else "")

    if isinstance(first, int) or first.op is not None:
        first = group  # turns of one op each may differ: `[1]`, `[2]`
    words = _counted(first)
    return f"… {words}" if group.kind == "segment" else words


def _named(group: Section) -> list[Scope]:
    """The calls that the title of several names, of modules or of one function; none
    where it counts ops.
    """
    first, calls = _first_turn(group), scopes_in(group)
    modules = [scope for scope in calls if scope.type]
    if not _is_loose(first) and is_list(list({scope.path for scope in modules})):
        return modules
    is_one = len({scope.path for scope in calls}) == len(list(parts_in(first))) == 1
    return [] if modules or not is_one else calls


def _counted(group: Section) -> str:
    nodes, records = group.nodes, group.tree.graph.nodes
    words = plural(len(nodes), "op")
    name = ends((records[node].op, op_text(records[node])) for node in nodes)
    if " to " not in name:
        return name  # all of them are that op
    lines = [own_line(records[node]) for node in nodes]
    files = {line.file for line in lines if line is not None and not line.package}
    numbers = [line.line for line in lines if line is not None and line.line]
    if len(files) == 1 and len(numbers) == len(nodes):
        first, last = min(numbers), max(numbers)
        where = f"line {first}" if first == last else f"lines {first}–{last}"
        return f"{words}, {where}"
    return f"{words}, {name}"


def ends(nodes: Iterable[tuple[str, str]]) -> str:
    """The first and the last op that do more than change a shape: `matmul to softmax`."""
    ops = list(nodes)
    names = [name for op, name in ops if not is_view(op)] or [name for _, name in ops]
    if not names:
        return ""
    return names[0] if len(set(names)) == 1 else f"{names[0]} to {names[-1]}"


def is_list(paths: Sequence[str]) -> bool:
    """Whether these are one module, or modules that only a number at the end tells
    apart.

    >>> is_list(["h.1", "h.2"]), is_list(["fnet", "cnet"]), is_list(["fc1", "fc2"])
    (True, False, False)
    """
    stems = {list_of(path) for path in paths}
    return len(paths) == 1 or (len(stems) == 1 and "" not in stems)


def list_of(path: str) -> str:
    """The list that a module is an element of; "" where it is in none. Elements of the
    outermost one are in `.`.
    """
    stem, _, last = path.rpartition(".")
    return (stem or ".") if last.isdigit() else ""


def pattern(path: str) -> str:
    """What the paths of alike modules have in common: `blocks.#.norm`."""
    return _NUMBER.sub("#", path)


def parts_in(child: Child) -> Iterator[Child]:
    """The outermost calls in a child, and the ops outside of them, in order."""
    waiting = [child]
    while waiting:
        part = waiting.pop()
        if isinstance(part, int) or part.op is not None or _call(part) is not None:
            yield part
        else:
            waiting.extend(reversed(part.children))


def _call(part: Child) -> Scope | None:
    """The call of a module or of a function of the user's that a group is."""
    record = part.record if isinstance(part, Section) else None
    is_call = record is not None and record.kind in ("module", "function", "gradient")
    return record if is_call else None


def calls_in(group: Section) -> list[Section]:
    """The outermost calls inside a group, in order."""
    parts = (part for part in parts_in(group) if isinstance(part, Section))
    return [part for part in parts if part.scope is not None]


def scopes_in(child: Child) -> list[Scope]:
    """What the outermost calls in a child are calls of."""
    return [scope for scope in map(_call, parts_in(child)) if scope is not None]


def has_calls(group: Section) -> bool:
    """Whether there is a call inside a group."""
    parts = chain.from_iterable(map(parts_in, group.children))
    return any(_call(part) is not None for part in parts)


def _first_turn(group: Section) -> Child:
    """A group itself, or the first turn of a run."""
    child: Child = group
    while isinstance(child, Section) and child.kind == "run":
        child = child.shown[0] if child.shown else child.children[0]
    return child


def together(paths: Sequence[str]) -> str:
    """What lies in one list or module: `blocks.1–11` for numbers that follow each other,
    else `attention.query, key, value`.
    """
    if len(paths) == 1:
        return paths[0]

    stem, dot, _ = paths[0].rpartition(".")
    last = [path.rpartition(".")[2] for path in paths]
    if all(map(str.isdigit, last)):
        # turns of a loop may begin with any of them
        numbers = sorted(map(int, last))
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            return f"{stem}{dot}{numbers[0]}–{numbers[-1]}"

    return f"{stem}{dot}{', '.join(last)}"


def kind_of(group: Section) -> GroupKind:
    """What a closed group is drawn as. Turns that feed each other are a loop, unless
    they are different modules.
    """
    if group.record is not None and group.kind != "run":
        return _KINDS.get(group.record.kind, "module")
    if group.kind != "run":
        return "op" if group.op is not None else "chain"
    around = group.parent if group.is_rest else None
    if group.is_loop or (around is not None and around.is_loop):
        return "loop" if group.feeds else "repeat"
    return _kind_of_run(group)


_KINDS: dict[str, GroupKind] = {
    "statement": "statement",
    "call": "call",
    "loop": "loop",
    "turn": "chain",
}
"""What the program wrote that is drawn otherwise than a call of a module."""


def _kind_of_run(group: Section) -> GroupKind:
    paths = {scope.path for turn in turns_in(group) for scope in scopes_in(turn)[:1]}
    if len(paths) > 1:
        return "alike"

    turn_of = turns_of(group)
    feeds = any(
        turn_of.get(edge.producer, i) != i
        for node, i in turn_of.items()
        for edge in group.tree.graph.inputs(node)
    )
    return "loop" if feeds else "repeat" if paths else "alike"


def names_calls(group: Section) -> bool:
    """Whether a title names the one module or function that a group calls."""
    if group.record is not None:
        kind = group.record.kind
        is_told = kind == "turn" and _told_by(group) is not None
        return is_told or kind in ("module", "function", "gradient")
    is_of_loop = bool(turns_beside(group))
    return not is_of_loop and len({scope.path for scope in _named(group)}) == 1


def turns_beside(group: Section) -> list[Section]:
    """The turns of a loop that are shown beside the box for the rest."""
    run = group.parent
    is_rest_of_loop = group.is_rest and run is not None and run.is_loop
    return run.shown if run is not None and is_rest_of_loop else []


def turns_of(group: Section) -> dict[int, int]:
    """The turn of a run that each node is in."""
    turns: dict[int, int] = {}
    for turn, child in enumerate(turns_in(group)):
        turns.update(dict.fromkeys(nodes_of(child), turn))
    return turns


def turns_in(group: Section) -> list[Child]:
    """The turns of a run, those of its rest among them."""
    turns: list[Child] = []
    waiting = group.children[::-1]
    while waiting:
        child = waiting.pop()
        if isinstance(child, Section) and child.kind in ("run", "segment"):
            waiting += child.children[::-1]
        else:
            turns.append(child)
    return turns
