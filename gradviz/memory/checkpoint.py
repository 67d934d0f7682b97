"""Which modules to wrap in `torch.utils.checkpoint` so that a forward pass fits a budget of memory. An estimate.

A wrapped module keeps its inputs and computes the rest again during backward. What it frees is what only it saved; what
it costs is one more run of its forward. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.memory.saved import shown
from gradviz.memory.series import pattern, series
from gradviz.memory.wrapping import CallCosts, Wrapping
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, plural

POINTS = 200
"""Plans that are kept for a part of the model while it is joined with others: the cheapest for what they free."""

LIMITS = 12
"""How many limits are tried for what one module may bring back when it is computed again."""


class Wrap(NamedTuple):
    """One module to wrap, all its calls at once."""

    path: str
    type: str
    calls: int
    freed: int  # bytes, after the steps before it
    ops: int  # forward ops that backward runs again
    held: int  # bytes held when backward begins, after this step
    again: int  # bytes that its largest call brings back while backward is inside it
    seconds: float | None = None  # of computing it again, where that was measured


class StepTime(NamedTuple):
    """Seconds of a training step as measured: forward of the modules and backward, and half the range over the steps."""

    forward: float
    backward: float
    spread: float
    steps: int


@displayed("gradviz.memory.table.advice_table")
@dataclass(frozen=True)
class Advice:
    """What to wrap, in the order chosen. `held` and `peak` are estimates for all of it together.

    `held` is what is held when backward begins: activations, wrapped numbers, inputs and outputs. `peak` is the most of
    it at any time of backward, with what a wrapped module brings back. Parameters and gradients are in neither.
    """

    budget: int
    before: int
    steps: tuple[Wrap, ...]
    held: int
    peak: int
    ops: int  # forward ops in the whole graph
    useless: tuple[str, ...] = ()  # modules that save tensors of their own, and free nothing: their inputs stay
    step: StepTime | None = None

    def __repr__(self) -> str:
        wrap = plural(len(self.steps), "module")
        return f"<Advice: wrap {wrap}, {bytes_text(self.before)} held now, {bytes_text(self.held)} then>"

    @property
    def fits(self) -> bool:
        """Whether the peak is within the budget."""
        return self.peak <= self.budget

    @property
    def again(self) -> int:
        """Forward ops that backward runs again."""
        return sum(step.ops for step in self.steps)

    @property
    def seconds(self) -> float | None:
        """The time that this takes, None where that of a module was not measured."""
        seconds = [step.seconds for step in self.steps if step.seconds is not None]
        return sum(seconds) if len(seconds) == len(self.steps) else None


def checkpoint_plan(graph: Graph, budget: int, step: StepTime | None = None) -> Advice:
    """Modules to wrap in a non-reentrant checkpoint so that at most `budget` bytes are held for backward, at the least cost.

    The cost is the time of computing again where `graph` knows it of every module, else the number of ops. By dynamic
    programming over the tree of modules: for each part the cheapest sets that free so much, none inside another. What a set frees
    is then counted exactly, with what its modules have in common, and the cheapest that fits is taken.

    Raises FormatError for a graph without recorded modules and for a budget that is not above 0; UnreadableError as `saved`.

    Sources: https://docs.pytorch.org/docs/stable/checkpoint.html; T. Chen and others, "Training Deep Nets with Sublinear
    Memory Cost", 2016, https://arxiv.org/abs/1604.06174
    """
    if budget <= 0:
        raise FormatError(f"budget cannot be {budget}: it is a number of bytes above 0")
    graph = shown(graph.original or graph)
    if not any(node.scope is not None for node in graph.nodes):
        raise FormatError(
            "this graph has no modules that could be wrapped: only gradviz.record() and the command line see modules, "
            "and only where an op ran inside a torch.nn.Module"
        )
    calls = CallCosts(graph)
    alone = {path: Wrapping(calls, [path]) for path in calls.by_path}
    useless = [path for path, wrapped in alone.items() if wrapped.held >= calls.total and calls.saves_alone(path)]
    plan = _plan(calls, budget, _cheapest(calls, alone, budget))
    return replace(plan, useless=tuple(_alike_together(calls, useless)), step=step)


def titles(advice: Advice) -> list[str]:
    """The modules to wrap, alike ones together: `blocks.0–5`."""
    return [
        one.title or "the whole model" for one in series(advice.steps, lambda step: step.path, lambda step: step.type)
    ]


Paths = tuple[str, ...]


def _cheapest(calls: CallCosts, alone: Mapping[str, Wrapping], budget: int) -> Paths:
    """The set that keeps the budget at the least cost, or has the lowest peak where none does."""
    timed = all(calls.seconds(path) is not None for path in alone)
    useful = {path: wrapped for path, wrapped in alone.items() if wrapped.held < calls.total and calls.total > budget}
    found: set[Paths] = {()}
    for limit in _limits([calls.again(path) for path in useful]):
        costs = {
            path: (calls.total - wrapped.held, calls.seconds(path) or 0.0 if timed else wrapped.ops)
            for path, wrapped in useful.items()
            if calls.again(path) <= limit
        }
        found.add(_first_that_fits(calls, budget, _points(calls, costs)))

    def rank(paths: Paths) -> tuple[float, ...]:
        wrapped = Wrapping(calls, paths)
        peak, seconds = wrapped.peak(), sum(calls.seconds(path) or 0.0 for path in paths) if timed else 0.0
        return (peak > budget, peak) if peak > budget else (False, seconds, wrapped.ops, peak)

    return min(sorted(found), key=rank)


def _limits(sizes: Iterable[int]) -> Iterable[int]:
    """What one module may bring back: some sizes that occur, and the largest."""
    ordered = sorted({*sizes})
    return dict.fromkeys([*ordered[:: max(1, len(ordered) // LIMITS)], *ordered[-1:]])


def _first_that_fits(calls: CallCosts, budget: int, points: Sequence[_Point]) -> Paths:
    """Of points from the cheapest on, the last one where none fits. What is recomputed at once counts, too."""
    enough = [i for i, point in enumerate(points) if calls.total - point.freed <= budget]
    low, high = enough[0] if enough else len(points) - 1, len(points) - 1
    while low < high:
        middle = (low + high) // 2
        fits = Wrapping(calls, points[middle].paths).peak() <= budget
        low, high = (low, middle) if fits else (middle + 1, high)
    return points[low].paths


class _Point(NamedTuple):
    """A set of modules: the bytes that they free if each does so alone, and what that costs."""

    freed: int = 0
    cost: float = 0.0
    paths: Paths = ()


def _points(calls: CallCosts, costs: Mapping[str, tuple[int, float]]) -> list[_Point]:
    """The sets of modules of which none is cheaper and frees as much, from the cheapest on."""
    below: dict[str | None, list[_Point]] = {}
    for path, parent in reversed(calls.parents.items()):
        points = below.pop(path, [_Point()])
        if path in costs:
            points = _best([*points, _Point(*costs[path], (path,))])
        around = below.get(parent, [_Point()])
        below[parent] = _best(
            [_Point(a.freed + b.freed, a.cost + b.cost, a.paths + b.paths) for a in around for b in points]
        )
    return below[None]


def _best(points: Sequence[_Point]) -> list[_Point]:
    """Without those that a cheaper one frees as much as, and thinned to a number that can be joined with others."""
    best: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.freed, point.paths)):
        if not best or point.freed > best[-1].freed:
            best.append(point)
    return best if len(best) <= POINTS else [best[i * (len(best) - 1) // (POINTS - 1)] for i in range(POINTS)]


def _alike_together(calls: CallCosts, paths: Sequence[str]) -> list[str]:
    """Modules whose paths differ only in numbers one after the other, in forward order. What a plan comes to stays the same."""
    kinds = list(dict.fromkeys(pattern(path) for path in sorted(paths, key=calls.first_op)))
    return sorted(paths, key=lambda path: (kinds.index(pattern(path)), calls.first_op(path)))


def _plan(calls: CallCosts, budget: int, paths: Sequence[str]) -> Advice:
    """What comes of wrapping these modules one after the other, without those that free nothing then."""
    state, chosen, steps = Wrapping(calls), list[str](), list[Wrap]()
    for path in _alike_together(calls, paths):
        after = Wrapping(calls, [*chosen, path])
        freed, ops = state.held - after.held, after.ops - state.ops
        if freed > 0:
            chosen.append(path)
            seconds = calls.seconds(path)
            steps.append(Wrap(path, *calls.described(path), freed, ops, after.held, calls.again(path), seconds))
            state = after
    return Advice(budget, calls.total, tuple(steps), state.held, state.peak(), calls.ops)
