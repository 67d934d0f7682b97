"""Which modules to wrap in `torch.utils.checkpoint` so that a forward pass fits a budget of memory. An estimate.

A wrapped module keeps its inputs and computes the rest again during backward. What it frees is what only it saved; what
it costs is one more run of its ops. Knows nothing of torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.memory.series import pattern
from gradviz.memory.wrapping import CallCosts, Gain, Wrapping
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, plural

SHARES = (8, 4, 2, 1)
"""A module may bring back at most such a part of the budget when it is computed again. Each is tried, the best plan kept."""

LAST_RESORT = (64, 32, 16, 8, 4, 2)
"""The same as parts of all that is held, for a budget that no plan meets."""


class Wrap(NamedTuple):
    """One module to wrap, all its calls at once."""

    path: str
    type: str
    calls: int
    freed: int  # bytes, after the steps before it
    ops: int  # forward ops that backward runs again
    held: int  # bytes held when backward begins, after this step
    again: int  # bytes that its largest call brings back while backward is inside it


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


def checkpoint_advice(graph: Graph, budget: int) -> Advice:
    """Modules to wrap in a non-reentrant checkpoint so that at most `budget` bytes are held for backward.

    Greedy: the module that frees most bytes per op computed again comes first, until the budget holds or no module frees
    anything. A module inside a wrapped one is not wrapped again; when the outer one is chosen later, it takes its place.

    Raises FormatError for a graph without recorded modules and for a budget that is not above 0.

    Sources: https://docs.pytorch.org/docs/stable/checkpoint.html; T. Chen and others, "Training Deep Nets with Sublinear
    Memory Cost", 2016, https://arxiv.org/abs/1604.06174
    """
    if budget <= 0:
        raise FormatError(f"budget cannot be {budget}: it is a number of bytes above 0")
    graph = graph.original or graph
    if not any(node.scope is not None for node in graph.nodes):
        raise FormatError(
            "this graph has no modules that could be wrapped: only gradviz.record() and the command line see modules, "
            "and only where an op ran inside a torch.nn.Module"
        )
    calls = CallCosts(graph)
    plans = [_plan(calls, budget, budget // share) for share in SHARES]
    fitting = [plan for plan in plans if plan.fits]
    if fitting:
        return min(fitting, key=lambda plan: plan.again)
    plans += [_plan(calls, budget, calls.total // share) for share in LAST_RESORT]
    return min(plans, key=lambda plan: (not plan.fits, plan.peak))


def _greedy(calls: CallCosts, budget: int, most_again: int) -> list[str]:
    """Paths to wrap when no call of a module may bring back more than `most_again` bytes."""
    state = Wrapping(calls)
    chosen: list[str] = []
    gains: dict[str, Gain] = {}
    stale: set[str] = set(calls.by_path)
    while state.held > budget or state.peak() > budget:
        gains.update((path, state.gain(path)) for path in stale)
        best = max(
            (gain for gain in gains.values() if gain.freed > 0 and gain.again <= most_again),
            key=lambda gain: (gain.freed / gain.ops, -gain.place),
            default=None,
        )
        if best is None:
            break
        stale = state.wrap(best.path)
        chosen.append(best.path)
    return [path for path in chosen if state.has(path)]  # an outer module may have taken the place of inner ones


def _alike_together(calls: CallCosts, paths: list[str]) -> list[str]:
    """Modules whose paths differ only in numbers one after the other, in forward order. What a plan comes to stays the same."""
    kinds = list(dict.fromkeys(pattern(path) for path in paths))
    return sorted(paths, key=lambda path: (kinds.index(pattern(path)), calls.first_op(path)))


def _plan(calls: CallCosts, budget: int, most_again: int) -> Advice:
    """What comes of wrapping modules one after the other, of which no call may bring back more than `most_again` bytes."""
    state = Wrapping(calls)
    steps: list[Wrap] = []
    for path in _alike_together(calls, _greedy(calls, budget, most_again)):
        gain = state.gain(path)
        state.wrap(path)
        steps.append(Wrap(path, *calls.described(path), gain.freed, gain.ops, state.held, gain.again))
    return Advice(budget, calls.total, tuple(steps), state.held, state.peak(), calls.ops)
