"""Which modules to run in `torch.utils.checkpoint` so that what backward holds fits a
budget of bytes. An estimate.

A checkpointed module frees what only it saved, and backward runs its ops again. Knows
nothing of torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.fold.titles import pattern
from gradviz.graph.given import graph_of
from gradviz.memory.freed import Checkpointed, ModuleCosts
from gradviz.memory.saved import shown
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, plural

LIMITS = 12
"""How many limits are tried for what one module may bring back when it is computed
again.
"""


class Wrap(NamedTuple):
    """One module to wrap, all its calls at once."""

    path: str
    type: str
    calls: int
    freed: int  # bytes, after the steps before it
    ops: int  # forward ops that backward runs again
    held: int  # bytes held when backward begins, after this step
    again: int  # bytes that its largest call brings back while backward is inside it


@displayed("gradviz.memory.table:advice_table")
@dataclass(frozen=True)
class Advice:
    """What to wrap, in the order chosen. `held` and `peak` are estimates for all of it
    together.

    `held` is what is held when backward begins: activations, wrapped numbers, inputs
    and outputs. `peak` is the most of it at any time of backward, with what a wrapped
    module brings back. Parameters and gradients are in neither.
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


def checkpoint_plan(graph: object, budget: int) -> Advice:
    """Modules to wrap in a non-reentrant checkpoint so that at most `budget` bytes are
    held for backward, with few ops run again.

    Modules that free the most bytes for each op run again are taken until the budget
    holds. What they free together is counted exactly, with what they have in common,
    and the cheapest set that fits is taken.

    Parameters
    ----------
    graph
        with recorded modules, or the tensors of one.
    budget
        bytes, without those of parameters.

    Raises
    ------
    FormatError
        the graph has no recorded modules, or `budget` is not above 0.
    UnreadableError
        as `saved`.

    Notes
    -----
    Sources: https://docs.pytorch.org/docs/stable/checkpoint.html; T. Chen and others,
    "Training Deep Nets with Sublinear Memory Cost", 2016,
    https://arxiv.org/abs/1604.06174
    """
    if budget <= 0:
        raise FormatError(f"budget cannot be {budget}: it is a number of bytes above 0")
    graph = graph_of(graph)
    costs = ModuleCosts(shown(graph.whole))
    if not costs.calls:
        raise FormatError(
            "this graph has no modules that could be wrapped: only gradviz.record() and the command line see modules, "
            "and only where an op ran inside a torch.nn.Module"
        )
    return _plan(costs, budget, _cheapest(costs, budget))


def _cheapest(costs: ModuleCosts, budget: int) -> Collection[str]:
    """The modules that keep the budget with the fewest ops run again, of the sets that
    are tried; else those of the lowest peak.

    A set is the modules that free most bytes for an op, of those that bring back no
    more than a limit.
    """
    alone = {path: Checkpointed(costs, [path]) for path in costs.scopes}
    useful = [path for path, single in alone.items() if single.held < costs.total]
    # the most bytes for each op that runs again
    useful.sort(key=lambda path: (alone[path].held - costs.total) / alone[path].ops)

    def rank(paths: Sequence[str]) -> tuple[int, int, int]:
        state = Checkpointed(costs, paths)
        return max(state.peak - budget, 0), state.ops, state.peak

    best: list[str] = []
    sizes = sorted({costs.again(path) for path in useful})
    # a large module alone may bring back more than the budget, so also sets of small
    # ones
    for limit in [*sizes[:: max(1, len(sizes) // LIMITS)], *sizes[-1:]]:
        small = [path for path in useful if costs.again(path) <= limit]
        # the fewest of them that keep the budget
        count = bisect_left(
            range(len(small)), True, key=lambda count: rank(small[:count])[0] == 0
        )
        best = min(best, small[:count], key=rank)

    for kind in dict.fromkeys(map(pattern, best)):  # what later ones made needless
        best = min([path for path in best if pattern(path) != kind], best, key=rank)
    return Checkpointed(costs, best).paths


def _plan(costs: ModuleCosts, budget: int, paths: Collection[str]) -> Advice:
    """What comes of wrapping these modules one after the other, without those that free
    nothing then.
    """
    state, steps = Checkpointed(costs), list[Wrap]()

    def place(path: str) -> tuple[int, str]:
        return min(costs.tree.place[scope] for scope in costs.scopes[path]), path

    for path in sorted(paths, key=place):
        after = Checkpointed(costs, [*(step.path for step in steps), path])
        # what an earlier step has freed already is not freed again
        if after.held < state.held:
            scopes = costs.scopes[path]
            steps.append(
                Wrap(
                    path,
                    costs.graph.scopes[scopes[0]].type,
                    len(scopes),
                    state.held - after.held,
                    after.ops - state.ops,
                    after.held,
                    costs.again(path),
                )
            )
            state = after

    ops = len(costs.graph.nodes) - len(costs.graph.leaf_of)
    return Advice(budget, costs.total, tuple(steps), state.held, state.peak, ops)
