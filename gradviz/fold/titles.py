"""What groups are called: by their module, else by the function that they ran in, else
by the ops that carry their work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from gradviz.fold.groups import Groups
from gradviz.fold.order import is_view
from gradviz.graph import GroupKind, Scope
from gradviz.wording import plural

MOST = 3
"""Classes or ops that a title names."""
_HEAVY = re.compile(
    r"(matmul|\w*addb?mm|conv\w*|\w*softmax|\w*attention\w*|\w*norm\w*|\w*rnn\w*|\w*lstm\w*|\w*gru\w*|embedding\w*|\w*loss\w*|\w*pool\w*|"
    r"\w*dropout|mv|dot|linear|cumsum|sort|topk|gather|scatter\w*|index\w*|cat|stack|fft\w*|linalg\w*|fused\w*)"
)
"""Forward ops that carry the work of what they stand in, beside additions and the like.
"""


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
    if group.scope is None:
        return _of_several(groups, group_id)
    scope = graph.scopes[group.scope]
    words = titled(scope.path, scope.type)
    if group.part:
        words += f" (part {group.part} of {group.parts})"
    return f"{words}, call {scope.call:,}" if scope.call > 1 else words


def _of_several(groups: Groups, group_id: int) -> str:
    """`layers.1–11 Block`, `layers.0–11 Attention, Mamba`, `matmul, softmax, matmul`,
    `4 modules + 31 ops`.
    """
    scopes = list(calls_in(groups, group_id).values())
    if not scopes:
        return work(groups.ops[node] for node in _turn(groups, group_id))
    if groups[group_id].kind in ("run", "turn"):
        return _of_turns(scopes, _ops_beside_calls(groups, group_id))
    return _of_segment(scopes, _ops_outside(groups, group_id))


def _of_turns(scopes: Sequence[Scope], alone: int) -> str:
    """What goes round: the function, else the modules, and how many ops beside."""
    functions = _functions(scopes)
    beside = f" + {plural(alone, 'op')}" if alone else ""
    if functions:
        return _some(functions) + beside
    return titled(together(_modules(scopes)), _some(_types(scopes))) + beside


def _of_segment(scopes: Sequence[Scope], ops: int) -> str:
    """Modules give their names to a box that holds nothing else, and several only as a
    numbered list.
    """
    functions, paths, types = _functions(scopes), _modules(scopes), _types(scopes)
    if not ops and not functions and is_list(paths):
        words = titled(together(paths), _some(types))
        if len(paths) == 1:
            return words
        if len(types) == 1:
            return f"{words}, {len(paths):,} of one class"
        return f"{words}, {plural(len(paths), 'module')}"

    if not ops and not paths and len(functions) == 1:
        return functions[0]

    counts = (
        (len(paths), "module"),
        (len(functions), "function"),
        (ops, "op"),
    )

    return " + ".join(plural(count, noun) for count, noun in counts if count)


def _modules(scopes: Iterable[Scope]) -> list[str]:
    return list(dict.fromkeys(scope.path for scope in scopes if scope.type))


def _types(scopes: Iterable[Scope]) -> list[str]:
    return list(dict.fromkeys(scope.type for scope in scopes if scope.type))


def _functions(scopes: Iterable[Scope]) -> list[str]:
    return list(dict.fromkeys(scope.path for scope in scopes if not scope.type))


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


def _ops_outside(groups: Groups, group_id: int) -> int:
    """Ops of a group that lie in none of its calls."""
    count, waiting = 0, [group_id]
    while waiting:
        for child in groups[waiting.pop()].children:
            if child >= 0:
                count += 1
            elif groups[~child].scope is None:
                waiting.append(~child)
    return count


def _ops_beside_calls(groups: Groups, group_id: int) -> int:
    """Ops of the first turn of a run that lie in none of its calls."""
    while groups[group_id].kind == "run" and groups[group_id].children[0] < 0:
        group_id = ~groups[group_id].children[0]
    ops = (
        child
        for child in groups[group_id].children
        if child >= 0 or groups[~child].op is not None
    )
    return sum(1 for _ in ops) if groups[group_id].kind == "turn" else 0


def calls_in(groups: Groups, group_id: int) -> dict[int, Scope]:
    """The outermost calls inside a group, in order, by their groups."""
    found: dict[int, Scope] = {}
    waiting = [group_id]
    while waiting:
        inner = waiting.pop()
        group = groups[inner]
        if group.scope is not None:
            found[inner] = groups.graph.scopes[group.scope]
        else:
            waiting.extend(~child for child in reversed(group.children) if child < 0)
    return found


def has_calls(groups: Groups, group_id: int) -> bool:
    """Whether there is a call inside a group."""
    return any(
        calls_in(groups, ~child) for child in groups[group_id].children if child < 0
    )


def _turn(groups: Groups, group_id: int) -> list[int]:
    """The nodes of a group, or of the first turn of a run."""
    while groups[group_id].kind == "run":
        child = groups[group_id].children[0]
        if child >= 0:
            return [child]
        group_id = ~child
    return groups.members(group_id)


def together(paths: Sequence[str]) -> str:
    """`blocks.1–11` for what differs in the last number, `attention.query, key, value`
    for three, else first and last.
    """
    if len(paths) == 1:
        return paths[0]

    stems = {path.rpartition(".")[0] for path in paths}
    last = [path.rpartition(".")[2] for path in paths]
    stem = f"{next(iter(stems))}." if len(stems) == 1 and "" not in stems else ""
    if len(stems) > 1:
        return f"{paths[0]} … {paths[-1]}"

    if all(map(str.isdigit, last)):
        # turns of a loop may begin with any of them
        numbers = sorted(map(int, last))
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            return f"{stem}{numbers[0]}–{numbers[-1]}"
        last = [str(number) for number in numbers]

    if len(last) <= MOST:
        return f"{stem}{', '.join(last)}"

    return f"{stem}{last[0]} … {last[-1]}"


def _some(words: Sequence[str]) -> str:
    return ", ".join((*words[:MOST], "…") if len(words) > MOST else words)


def work(nodes: Iterable[tuple[str, str]]) -> str:
    """The ops that carry the work, in order: `matmul, softmax, matmul`. Nodes are a
    backward function and the text of its op.
    """
    ops = list(nodes)
    names = [name for op, name in ops if not is_view(op)]
    heavy = [name for name in names if _HEAVY.fullmatch(name)]
    chosen = heavy or names or [name for _, name in ops]
    once = [name for i, name in enumerate(chosen) if i == 0 or name != chosen[i - 1]]
    return _some(once if len(once) <= MOST else list(dict.fromkeys(once)))


def kind_of(groups: Groups, group_id: int) -> GroupKind:
    """What a closed group is drawn as. Turns that feed each other are a loop, unless
    they are different modules.
    """
    group = groups[group_id]
    if group.kind != "run":
        if group.op is not None:
            return "op"
        if group.kind == "call":
            return "module"
        return "chain"

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
