"""What groups are called: by their module, else by the function that they ran in, else
by the ops that carry their work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gradviz.fold.elements import counted
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
    if group.kind == "turn" and group.parent is not None:
        run = groups[group.parent]
        number = run.children.index(~group_id) + 1
        return f"{_of_several(groups, group_id)}, turn {number} of {run.turns}"
    if group.scope is None:
        return _of_several(groups, group_id)
    scope = graph.scopes[group.scope]
    words = titled(scope.path, scope.type)
    if group.part:
        words += f" (part {group.part} of {group.parts})"
    return f"{words}, call {scope.call:,}" if scope.call > 1 else words


def _of_several(groups: Groups, group_id: int) -> str:
    """`layers.1–11 Block`, `layers.0–11 Attention, Mamba + 2 ops`, `matmul, softmax`;
    of a segment `dt_proj Linear, softplus, einsum`.
    """
    calls = calls_in(groups, group_id)
    scopes = list(calls.values())
    first = _first_turn(groups, group_id)
    if not scopes:
        return work(groups.ops[node] for node in groups.leaves_of(first))

    loose = sum(
        child >= 0 or groups[~child].scope is None for child in parts_in(groups, first)
    )
    beside = f" + {plural(loose, 'op')}" if loose else ""
    functions, paths, types = _functions(scopes), _modules(scopes), _types(scopes)
    is_run = groups[group_id].kind in ("run", "turn")
    if functions and (is_run or len(scopes) == 1):
        return _some(functions) + beside
    # `experts.0–3 FeedForward + 22 ops`: elements of a list are what a reader looks for
    if is_run or (is_list(paths) and (not loose or paths[1:])):
        modules = titled(together(paths), _some(types))
        return modules + beside + _elements(groups, calls)

    words = _carrying_work(groups, first)
    if len(paths) == 1 and len(words) == 1:
        return titled(paths[0], types[0]) + beside
    return _some(words)


def _elements(groups: Groups, calls: Iterable[int]) -> str:
    scopes = (groups[call].scope for call in calls)
    return counted(groups.elements.get(scope) for scope in scopes)


def _carrying_work(groups: Groups, child: int) -> list[str]:
    """What carries the work of a segment, in order: functions, modules with parameters,
    and ops. The first has its whole path, those beside it their own names.
    """
    calls = calls_in(groups, ~child).values()
    has_parameters = any(scope.parameters for scope in calls)
    modules: list[str] = []
    words: list[str] = []
    for part in parts_in(groups, child):
        scope_id = groups[~part].scope if part < 0 else None
        if scope_id is None:
            words += heavy_ops(groups.ops[node] for node in groups.leaves_of(part))
            continue
        scope = groups.graph.scopes[scope_id]
        if scope.parameters or not (scope.type and has_parameters):
            modules.append(scope.path)
            words.append(scope.path)

    # of many a title names three, and a module says more than an op
    if len(set(words)) > MOST:
        words.sort(key=lambda word: word not in modules)
    words = list(dict.fromkeys(words))
    if len({path.rpartition(".")[0] for path in _modules(calls)}) > 1:
        return words

    own = {path: path.rpartition(".")[2] for path in modules if not list_of(path)}
    return [*words[:1], *(own.get(word, word) for word in words[1:])]


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


def parts_in(groups: Groups, child: int) -> Iterator[int]:
    """The outermost calls in a child, and the ops outside of them, in order."""
    waiting = [child]
    while waiting:
        part = waiting.pop()
        group = groups[~part] if part < 0 else None
        if group is None or group.scope is not None or group.op is not None:
            yield part
        else:
            waiting.extend(reversed(group.children))


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
        child = groups[~child].children[0]
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

    return stem + dot + _some(last)


def _some(words: Sequence[str]) -> str:
    return ", ".join((*words[:MOST], "…") if len(words) > MOST else words)


def heavy_ops(ops: Iterable[tuple[str, str]]) -> list[str]:
    """The texts of those ops that carry work; an op is its backward function and its
    text.
    """
    return [name for op, name in ops if _HEAVY.fullmatch(name) and not is_view(op)]


def work(nodes: Iterable[tuple[str, str]]) -> str:
    """The ops that carry the work, in order: `matmul, softmax, matmul`."""
    ops = list(nodes)
    names = [name for op, name in ops if not is_view(op)]
    chosen = heavy_ops(ops) or names or [name for _, name in ops]
    once = [name for i, name in enumerate(chosen) if i == 0 or name != chosen[i - 1]]
    # a short list keeps `matmul, softmax, matmul`; a long one names each op once
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
