"""What groups are called: by their module, their function, or what the program wrote;
else by how many ops they hold, and where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gradviz.fold.groups import Groups, Section
from gradviz.fold.order import is_view
from gradviz.graph import Group, GroupKind, Node, Scope
from gradviz.graph.origins import own_line
from gradviz.graph.written import code_of
from gradviz.wording import clip, plural

LONGEST = 60
"""Letters of a title that is code."""


def group_of(groups: Groups, group_id: int) -> Group:
    """What a closed group is called and drawn as; what it holds is not counted."""
    scopes = calls_in(groups, group_id).values()
    with_parameters = [scope for scope in scopes if scope.parameters]
    return Group(
        kind_of(groups, group_id),
        title(groups, group_id),
        (),
        groups[group_id].turns,
        code=code(groups, group_id),
        owns=owns(groups, group_id),
        frozen=bool(with_parameters) and all(one.is_frozen for one in with_parameters),
    )


def op_of(groups: Groups, group_id: int) -> Node:
    """The op that its views are drawn with, and the variable that holds what the last
    view returned.
    """
    nodes, op = groups.graph.nodes, groups[group_id].op
    assert op is not None, "an op is asked for"
    last = nodes[groups.members(group_id)[-1]]
    return nodes[op]._replace(assigned=last.assigned or nodes[op].assigned)


def titled(path: str, type: str) -> str:
    """`encoder.fc Linear`; `loss.MSELoss` where the path says the class already, which
    stands in for a missing name.
    """
    return path if path.rpartition(".")[2] == type else f"{path} {type}".strip()


def title(groups: Groups, group_id: int) -> str:
    """What a closed group is called. Paths are whole."""
    group, graph = groups[group_id], groups.graph
    if group.op is not None:
        return graph.nodes[group.op].op
    if group.scope is not None:
        return _of_scope(groups, group_id, graph.scopes[group.scope])
    if group.is_rest and groups.is_loop(group.parent):
        assert group.parent is not None
        return title(groups, group.parent)
    words = _of_several(groups, group_id)
    if group.kind == "turn" and group.parent is not None:
        run = groups[group.parent]
        return f"{words}, turn {run.children.index(~group_id) + 1} of {run.turns}"
    return words


def _of_scope(groups: Groups, group_id: int, scope: Scope) -> str:
    group = groups[group_id]
    if scope.kind == "turn":
        calls = list(calls_in(groups, group_id).values())
        loop = groups[group.parent] if group.parent is not None else None
        if len(calls) == 1 and loop is not None and not loop.feeds:
            return calls[0].path  # of siblings, what each calls says which it is
        construct = groups.construct(group_id)
        return f"turn {construct.turn if construct is not None else 1:,}"
    if scope.kind in ("loop", "statement", "call"):
        return clip(_code_of_output(groups, group_id) or scope.path, LONGEST)

    words = titled(scope.path, scope.type)
    if group.part:
        words += f" (part {group.part} of {group.parts})"
    return f"{words}, call {scope.call:,}" if scope.call > 1 else words


def code(groups: Groups, group_id: int) -> str:
    """The code of a statement, where that is not its title; the variables that turns of
    a loop hand to the next.
    """
    group, construct = groups[group_id], groups.construct(group_id)
    if group.kind == "run" and group.is_rest and group.parent is not None:
        construct = groups.construct(group.parent)
    if construct is not None and construct.kind == "loop":
        return code_of(construct)
    if construct is None or construct.kind != "statement" or not construct.text:
        return ""
    return "" if _code_of_output(groups, group_id) else code_of(construct)


def _code_of_output(groups: Groups, group_id: int) -> str:
    """The code of a statement that computes an output by its name, which has a box."""
    construct = groups.construct(group_id)
    if construct is None or construct.kind != "statement":
        return ""
    last = groups.members(group_id)[-1]
    names = {root.name for root in groups.graph.roots_of.get(last, ())}
    return code_of(construct) if construct.text in names else ""


def owns(groups: Groups, group_id: int) -> bool:
    """Whether what is in a group belongs to the modules that its title names."""
    scope = groups[group_id].scope
    if scope is not None:
        return groups.graph.scopes[scope].kind == "module"
    return not _is_loose(groups, _first_turn(groups, group_id))


def _is_loose(groups: Groups, child: int) -> bool:
    """Whether a child has ops outside of modules, or no modules at all."""
    parts = list(parts_in(groups, child))
    scopes = [groups[~part].scope if part < 0 else None for part in parts]
    graph = groups.graph
    return any(s is None or graph.scopes[s].kind != "module" for s in scopes)


def _of_several(groups: Groups, group_id: int) -> str:
    """`layers.1–11 Block`, `net.0–5`; of what is no list of modules its ops, by lines
    where these are known: `12 ops, lines 41–58`, else by its ends:
    `12 ops, matmul to softmax`.
    """
    first = _first_turn(groups, group_id)
    calls = calls_in(groups, group_id).values()
    paths, types = _modules(calls), _types(calls)
    if not _is_loose(groups, first) and is_list(paths):
        return titled(together(paths), types[0] if len(types) == 1 else "")

    functions = {scope.path for scope in calls if not scope.type}
    if len(functions) == 1 and not paths and len(list(parts_in(groups, first))) == 1:
        return functions.pop()
    nodes = list(groups.leaves_of(first))
    if first >= 0 or groups[~first].op is not None:
        nodes = groups.members(
            group_id
        )  # turns of one op each may differ: `[1]`, `[2]`
    words = _counted(groups, nodes)
    return f"… {words}" if groups[group_id].kind == "segment" else words


def _counted(groups: Groups, nodes: Sequence[int]) -> str:
    records, words = groups.graph.nodes, plural(len(nodes), "op")
    name = ends(groups.ops[node] for node in nodes)
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


def _modules(scopes: Iterable[Scope]) -> list[str]:
    return list(dict.fromkeys(scope.path for scope in scopes if scope.type))


def _types(scopes: Iterable[Scope]) -> list[str]:
    return list(dict.fromkeys(scope.type for scope in scopes if scope.type))


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


def parts_in(groups: Groups, child: int) -> Iterator[int]:
    """The outermost calls in a child, and the ops outside of them, in order."""
    waiting = [child]
    while waiting:
        part = waiting.pop()
        group = groups[~part] if part < 0 else None
        if group is None or group.op is not None or _is_call(groups, group):
            yield part
        else:
            waiting.extend(reversed(group.children))


def _is_call(groups: Groups, group: Section) -> bool:
    """Whether a group is a call of a module or of a function of the user's."""
    if group.scope is None:
        return False
    return groups.graph.scopes[group.scope].kind in ("module", "function", "gradient")


def calls_in(groups: Groups, group_id: int) -> dict[int, Scope]:
    """The outermost calls inside a group, in order, by their groups."""
    calls = {}
    for part in parts_in(groups, ~group_id):
        scope = groups[~part].scope if part < 0 else None
        if scope is not None:
            calls[~part] = groups.graph.scopes[scope]
    return calls


def has_calls(groups: Groups, group_id: int) -> bool:
    """Whether there is a call inside a group."""
    inner = (~child for child in groups[group_id].children if child < 0)
    return any(calls_in(groups, child) for child in inner)


def _first_turn(groups: Groups, group_id: int) -> int:
    """A group as a child, or the first turn of a run."""
    child = ~group_id
    while child < 0 and groups[~child].kind == "run":
        shown = groups[~child].shown
        child = ~shown[0] if shown else groups[~child].children[0]
    return child


def together(paths: Sequence[str]) -> str:
    """`blocks.1–11` for what differs in the last number, `attention.query, key, value`
    for what lies in one module, else the first and the last.
    """
    if len(paths) == 1:
        return paths[0]
    if len({path.rpartition(".")[0] for path in paths}) > 1:
        return f"{paths[0]} … {paths[-1]}"

    stem, dot, _ = paths[0].rpartition(".")
    last = [path.rpartition(".")[2] for path in paths]
    if all(map(str.isdigit, last)):
        # turns of a loop may begin with any of them
        numbers = sorted(map(int, last))
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            return f"{stem}{dot}{numbers[0]}–{numbers[-1]}"

    return f"{stem}{dot}{', '.join(last)}"


def kind_of(groups: Groups, group_id: int) -> GroupKind:
    """What a closed group is drawn as. Turns that feed each other are a loop, unless
    they are different modules.
    """
    group = groups[group_id]
    if group.scope is not None and group.kind != "run":
        kind = groups.graph.scopes[group.scope].kind
        return _KINDS.get(kind, "module")
    if group.kind != "run":
        return "op" if group.op is not None else "chain"
    if groups.is_loop(group_id) or (group.is_rest and groups.is_loop(group.parent)):
        return "loop" if group.feeds else "repeat"
    return _kind_of_run(groups, group_id)


_KINDS: dict[str, GroupKind] = {
    "statement": "statement",
    "call": "call",
    "loop": "loop",
    "turn": "chain",
}
"""What the program wrote that is drawn otherwise than a call of a module."""


def _kind_of_run(groups: Groups, group_id: int) -> GroupKind:
    calls = (
        calls_in(groups, ~child).values()
        for child in turns_in(groups, group_id)
        if child < 0
    )
    paths = {scope.path for inside in calls for scope in islice(inside, 1)}
    if len(paths) > 1:
        return "alike"

    turn_of = turns_of(groups, group_id)
    feeds = any(
        turn_of.get(edge.producer, i) != i
        for node, i in turn_of.items()
        for edge in groups.graph.inputs(node)
    )
    return "loop" if feeds else "repeat" if paths else "alike"


def turns_of(groups: Groups, group_id: int) -> dict[int, int]:
    """The turn of a run that each node is in."""
    turns: dict[int, int] = {}
    for turn, child in enumerate(turns_in(groups, group_id)):
        turns.update(dict.fromkeys(groups.leaves_of(child), turn))
    return turns


def turns_in(groups: Groups, group_id: int) -> list[int]:
    """The turns of a run, those of its rest among them, as children."""
    turns: list[int] = []
    waiting = list(reversed(groups[group_id].children))
    while waiting:
        child = waiting.pop()
        if child < 0 and groups[~child].kind in ("run", "segment"):
            waiting.extend(reversed(groups[~child].children))
        else:
            turns.append(child)
    return turns
