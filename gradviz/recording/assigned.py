"""The variables that hold what ops made, as the code says: `y = f(a * b)` names the
last op of `f`, and not the product.

A name belongs to an op where three things are known: the op ran while the value of the
assignment was computed and for nothing smaller; every other op of that moment leads to
it and to nothing else; and each function that was called returns it. Where one of these
is not known there is no name.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from gradviz.packages import CallSite
from gradviz.recording.event_log import ModuleCall
from gradviz.source import written
from gradviz.walker.places import BareGraph
from gradviz.walker.private import LAST

Span = tuple[int, int, int, int]
"""First and last line, first and last column in bytes, as Python counts them."""

LONGEST_TURN = 100
"""Ops of one turn of a loop that is found by its repeats."""

_SEVERAL = ("Split", "Unbind", "Chunk", "UnsafeSplit", "TensorSplit")
"""Ops with several results, which a line may give a variable each."""


class Assignment(NamedTuple):
    """A variable that a line gives the value of an expression. `several`: it is a tuple
    of names, of one value.
    """

    name: str
    line: int
    in_loop: bool
    several: bool = False


@dataclass
class Code:
    """What a function says of expressions, by their span: the variable that holds one,
    and whether it is returned. What stands outside all functions is one too.
    """

    assignments: dict[Span, Assignment] = field(default_factory=dict)
    returned: set[Span] = field(default_factory=set)
    # first and last line of each
    loops: list[tuple[int, int]] = field(default_factory=list)

    def read(self, function: ast.AST) -> None:
        """Add what a function says, with the lambdas in it, or a file."""
        waiting = [function]
        while waiting:
            waiting += self._read(waiting.pop())

    def _read(self, function: ast.AST) -> list[ast.AST]:
        """Read what is in no function inside this one. Returns the lambdas inside it."""
        lambdas: list[ast.AST] = []
        pairs: list[tuple[Span, Assignment]] = []
        names: set[str] = set()
        if isinstance(function, ast.Lambda):
            self.returned.update(spans_of(function.body))

        waiting = [(child, False) for child in ast.iter_child_nodes(function)]
        while waiting:
            node, in_loop = waiting.pop()
            if isinstance(node, ast.Lambda):
                lambdas.append(node)
            if isinstance(node, _FUNCTIONS):
                continue
            if isinstance(node, _LOOPS):
                in_loop = True
                self.loops.append((node.lineno, node.end_lineno or node.lineno))
            if isinstance(node, ast.Return) and node.value is not None:
                self.returned.update(spans_of(node.value))
                names.update(_name(node.value))
            pairs += _pairs(node, in_loop)
            waiting += [(child, in_loop) for child in ast.iter_child_nodes(node)]

        self.assignments.update(pairs)
        self.returned.update(_last_of_each(pairs, names))
        return lambdas


def assigned_names(
    bare: BareGraph,
    sites: Sequence[CallSite | None],
    calls: Sequence[ModuleCall | None],
) -> dict[int, str]:
    """The variable that holds the result of each node, by node id, where that is
    certain.
    """
    order = [node for node, number in enumerate(bare.sequences) if number != LAST]
    order.sort(key=bare.sequences.__getitem__)

    last_use = _last_uses(bare, order)
    names: dict[int, str] = {}
    depths: dict[int, int] = {}
    for run in _runs(order, sites):
        for turn in _turns(run, bare, sites, calls):
            node = _result(turn, run.site, sites, last_use)
            if node is None or (
                run.assignment.several and not _has_several(bare, node)
            ):
                continue

            # the innermost function says it best: it is where the line of the op stands
            depth = sum(1 for _ in run.site.chain())
            if depth > depths.get(node, 0):
                names[node], depths[node] = run.assignment.name, depth
    return names


# -- ops of one assignment -------------------------------------------------------------


class AssignedOps(NamedTuple):
    """Nodes one after the other that ran while one expression was computed, whose value
    is assigned.
    """

    site: CallSite
    assignment: Assignment
    nodes: list[int]


class _LastUses(NamedTuple):
    """Where each node stands in the order, and where the last one that uses it does; -1
    for none.
    """

    position: dict[int, int]
    last_use: dict[int, int]


def _last_uses(bare: BareGraph, order: Sequence[int]) -> _LastUses:
    position = {node: i for i, node in enumerate(order)}
    last_use: dict[int, int] = {}
    for edge in bare.edges:
        use = position.get(edge.consumer, len(order))
        if use > last_use.get(edge.producer, -1):
            last_use[edge.producer] = use
    return _LastUses(position, last_use)


def _runs(order: Sequence[int], sites: Sequence[CallSite | None]) -> list[AssignedOps]:
    """Every run, of each function that was running."""
    assigned: dict[CallSite, list[tuple[CallSite, Assignment]]] = {}
    open_runs: dict[CallSite, tuple[int, AssignedOps]] = {}
    runs = []
    for i, node in enumerate(order):
        site = sites[node]
        if site is None:
            continue
        if site not in assigned:
            assigned[site] = list(_assignments(site))

        for outer, assignment in assigned[site]:
            end, run = open_runs.get(outer, (-1, None))
            # another line ran in between, so this is the next time that it runs
            if run is None or end != i - 1:
                run = AssignedOps(outer, assignment, [])
                runs.append(run)
            run.nodes.append(node)
            open_runs[outer] = i, run
    return runs


def _assignments(site: CallSite) -> Iterator[tuple[CallSite, Assignment]]:
    """The sites of a chain whose whole value is assigned."""
    for outer in site.chain():
        span = span_of(outer)
        if span is not None:
            assignment = code_of(outer.code).assignments.get(span)
        else:
            assignment = None
        if assignment is not None:
            yield outer, assignment


def _turns(
    run: AssignedOps,
    bare: BareGraph,
    sites: Sequence[CallSite | None],
    calls: Sequence[ModuleCall | None],
) -> Iterator[list[int]]:
    """The nodes of each time that the line ran: by the module call that it made, else,
    in a loop, by what repeats.
    """
    nodes = run.nodes
    modules = [_call_from(run.site, calls[node]) for node in nodes]
    if any(module is not None for module in modules):
        start = 0
        for end in range(1, len(nodes) + 1):
            if end == len(nodes) or modules[end] is not modules[start]:
                yield nodes[start:end]
                start = end
        return

    size = len(nodes)
    if run.assignment.in_loop and not any(
        _loops_below(run.site, sites[node]) for node in nodes
    ):
        steps = [(bare.kinds[node], sites[node]) for node in nodes]
        # the body of a loop: each turn assigns the variable once more
        size = _period(steps)
    for start in range(0, len(nodes), size):
        yield nodes[start : start + size]


def _call_from(site: CallSite, call: ModuleCall | None) -> ModuleCall | None:
    """The outermost module call that was made at this site, around a node: those inside
    a `Sequential` have the same one.
    """
    outermost = None
    while call is not None:
        if call.site is site:
            outermost = call
        call = call.parent
    return outermost


def _loops_below(site: CallSite, inner: CallSite | None) -> bool:
    """Whether a function that was called from `site` was in a loop of its own."""
    for callee in inner.chain() if inner is not None else ():
        if callee is site:
            return False
        line = callee.place.source.line if callee.place is not None else 0
        if any(first <= line <= last for first, last in code_of(callee.code).loops):
            return True
    return False


def _period(steps: Sequence[object]) -> int:
    """The length of the part that repeats from the beginning to the end; the whole
    length where none does.
    """
    count = len(steps)
    for size in range(1, min(count // 2, LONGEST_TURN) + 1):
        if count % size == 0 and all(
            steps[i] == steps[i - size] for i in range(size, count)
        ):
            return size
    return count


def _result(
    nodes: Sequence[int],
    site: CallSite,
    sites: Sequence[CallSite | None],
    uses: _LastUses,
) -> int | None:
    """The one node that all others lead to, which the functions called from `site`
    return; None where this is not certain.
    """
    last = uses.position[nodes[-1]]
    ends = []
    for node in nodes:
        use = uses.last_use.get(node, -1)
        if use < 0 or use > last:
            ends.append(node)
    # several results, or one that a function computes and does not return: the variable
    # may hold something else
    if len(ends) != 1 or not _is_returned(sites[ends[0]], site):
        return None
    return ends[0]


def _is_returned(inner: CallSite | None, site: CallSite) -> bool:
    """Whether each function between the two returns what its line at that moment
    computes.
    """
    for callee in inner.chain() if inner is not None else ():
        if callee is site:
            return True
        if span_of(callee) not in code_of(callee.code).returned:
            return False
    return False


def _has_several(bare: BareGraph, node: int) -> bool:
    return getattr(bare.kinds[node], "__name__", "").startswith(_SEVERAL)


# -- what the code says ----------------------------------------------------------------


def span_of(site: CallSite) -> Span | None:
    """The expression that an instruction computes; None where Python does not tell, as
    before 3.11.
    """
    spans = _spans(site.code)
    return spans[site.instruction // 2] if spans else None


@lru_cache(maxsize=4096)
def _spans_by_id(code_id: int, code: CodeType) -> list[Span | None]:
    spans: list[Span | None] = []
    for first, last, start, end in code.co_positions():
        complete = None not in (first, last, start, end)
        spans.append((first, last, start, end) if complete else None)  # type: ignore[arg-type]
    return spans


def _spans(code: CodeType) -> list[Span | None]:
    return _spans_by_id(id(code), code) if hasattr(code, "co_positions") else []


def code_of(code: CodeType) -> Code:
    """The assignments and returns of the function that code belongs to; none where it
    cannot be read.

    >>> code_of(code_of.__code__).returned != set()
    True
    """
    outside = code.co_name == "<module>"
    return _code_at(code.co_filename, 0 if outside else code.co_firstlineno)


@lru_cache(maxsize=4096)
def _code_at(file: str, line: int) -> Code:
    code = Code()
    code.read(_function_at(_tree(file), line))
    return code


@lru_cache(maxsize=32)
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


forget_trees = _tree.cache_clear
"""Free the text of files as trees; what was read of them is kept."""


def _function_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line that is no lambda; the file where there is
    none.
    """
    function: ast.AST = tree
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.stmt, ast.excepthandler)):
            decorators = getattr(node, "decorator_list", ())
            first = min(part.lineno for part in (node, *decorators))
            if not first <= line <= (node.end_lineno or first):
                continue
        elif not isinstance(node, ast.match_case):
            continue

        if isinstance(node, _FUNCTIONS):
            function = node
        waiting += ast.iter_child_nodes(node)
    return function


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def _last_of_each(
    pairs: Sequence[tuple[Span, Assignment]], names: set[str]
) -> Iterator[Span]:
    """The values that a function assigns last to the variables that it returns."""
    last: dict[str, int] = {}
    for _, assignment in pairs:
        last[assignment.name] = max(assignment.line, last.get(assignment.name, 0))
    for span, assignment in pairs:
        if assignment.name in names and assignment.line == last[assignment.name]:
            yield span


def _pairs(node: ast.AST, in_loop: bool) -> Iterator[tuple[Span, Assignment]]:
    """What a statement, or an expression with `:=`, assigns: the spans of each value
    with the variable.
    """
    targets: list[tuple[ast.expr, ast.AST]] = []
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        if both and len(target.elts) == len(node.value.elts):  # type: ignore[attr-defined]
            targets += zip(target.elts, node.value.elts)  # type: ignore[attr-defined]
        else:
            targets.append((target, node.value))
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        targets.append((node.target, node.value))
    elif isinstance(node, ast.AugAssign):
        targets.append((node.target, node))

    for target, value in targets:
        names = _name(target)
        several = isinstance(target, ast.Tuple) and all(
            isinstance(element, ast.Name) for element in target.elts
        )
        if several:
            names = [ast.unparse(target).strip("()")]
        for name in names:
            for span in spans_of(value):
                yield span, Assignment(name, span[0], in_loop, several)


def _name(target: ast.expr) -> list[str]:
    if isinstance(target, (ast.Name, ast.Attribute)):
        return [ast.unparse(target)]
    return []


def spans_of(value: ast.AST) -> Iterator[Span]:
    """The spans that Python may give for the instruction that computes an expression."""
    if isinstance(value, ast.IfExp):
        yield from spans_of(value.body)
        yield from spans_of(value.orelse)
        return
    if isinstance(value, ast.NamedExpr):
        yield from spans_of(value.value)
        return

    assert isinstance(value, (ast.expr, ast.stmt))
    yield from written.spans_of(value)
