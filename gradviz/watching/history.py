"""The numbers of a run, step by step: plain data, bounded, and the lines of a CSV file. Knows no tensor and no page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradviz.wording import number

KEPT = 2000
"""Steps that are kept in all; of older ones every second is dropped when there are more."""
RECENT = 200
"""The last steps, all of which are kept."""
COLUMNS = ("step", "optimizer", "loss", "backward_calls", "skipped", "grad_norm")


class StepNumbers(NamedTuple):
    """One step of one optimizer.

    `loss` is the sum of the losses that backward was called on since the step before, None where there was none. `norms` are
    gradient norms by module, in the order of `History.modules`: None for a module without gradients, empty where not measured.
    """

    step: int
    optimizer: str
    loss: float | None
    calls: int
    skipped: bool  # a GradScaler left the step out
    norms: tuple[float | None, ...]

    @property
    def norm(self) -> float | None:
        """The norm of all gradients, None where it was not measured."""
        known = [norm for norm in self.norms if norm is not None]
        return math.sqrt(sum(norm * norm for norm in known)) if known else None

    @property
    def broken(self) -> bool:
        """Whether the loss or a gradient is NaN or infinite. Where a GradScaler skips the step, only a loss of NaN is a fault."""
        loss, norm = (0.0 if value is None else value for value in (self.loss, self.norm))
        return math.isnan(loss) or not (self.skipped or (math.isfinite(loss) and math.isfinite(norm)))

    def cells(self) -> list[str]:
        """The line of a CSV file."""
        numbers = (self.loss, self.calls, int(self.skipped), self.norm, *self.norms)
        return [str(self.step), self.optimizer, *("" if value is None else f"{value:.7g}" for value in numbers)]


class History:
    """Of one run. `modules` are the names that norms go by."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = tuple(modules)
        self.steps: list[StepNumbers] = []
        self.broken: StepNumbers | None = None  # the first one
        self.before: tuple[StepNumbers, ...] = ()  # the steps up to that one

    def add(self, steps: Sequence[StepNumbers]) -> None:
        """The next steps, in order."""
        for step in steps:
            self.steps.append(step)
            if step.broken and self.broken is None:
                self.broken, self.before = step, tuple(self.steps[-RECENT:])
        if len(self.steps) > KEPT:
            older, recent = self.steps[:-RECENT], self.steps[-RECENT:]
            self.steps = [*_thinned(older), *recent]

    def numbers(self) -> dict[str, float | None]:
        """The last step of each optimizer, by names that loggers take."""
        last = {step.optimizer: step for step in self.steps[-RECENT:]}
        found: dict[str, float | None] = {}
        for optimizer, step in last.items():
            prefix = f"{optimizer}/" if len(last) > 1 else ""
            found |= {"step": step.step, f"{prefix}loss": step.loss, f"{prefix}grad_norm": step.norm}
            found |= {f"{prefix}grad_norms/{name}": norm for name, norm in zip(self.modules, step.norms)}
        return found

    def breaks(self) -> str:
        """Where the first number is that is not finite, in words; "" where all are finite."""
        step = self.broken
        if step is None:
            return ""
        last = [known for known in self.before[:-1] if known.optimizer == step.optimizer and known.loss is not None][
            -3:
        ]
        losses = ", ".join(number(known.loss) for known in [*last, step])
        bad = step.loss is not None and not math.isfinite(step.loss)
        what, value = ("the loss", step.loss) if bad else ("a gradient", step.norm)
        return f"{what} is {number(value)} at step {step.step:,} (losses: {losses})"


def _thinned(steps: Sequence[StepNumbers]) -> Iterator[StepNumbers]:
    """Of each two steps of one optimizer the one with the larger gradient norm, so that peaks stay."""
    waiting: dict[str, StepNumbers] = {}
    for step in steps:
        first = waiting.pop(step.optimizer, None)
        if first is None:
            waiting[step.optimizer] = step
        else:
            yield max(first, step, key=_peak)
    yield from waiting.values()


def _peak(step: StepNumbers) -> float:
    if step.broken:
        return math.inf
    return step.norm if step.norm is not None else step.loss if step.loss is not None else -math.inf
