"""The check on `ReduceLROnPlateau`: what it waits for, and what it is given. Each fault is a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.record import Fed
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.source.search import calls_of
from gradviz.source.statements import around

_FEW, _ALIKE = 8, 0.8  # numbers from which a run is judged, and the part of them that goes the way of the loss
_PATIENCE, _NOISE = 10, 0.3  # what no noise of batches bears, and the part of steps up that is noise
_CUT = "{code} is given {first} at first and {last} in the end, and has cut the learning rate to {rate}: "
_ROWS = {
    "max": Row(
        "ReduceLROnPlateau waits for a number to grow that falls as the model learns",
        _CUT + "with mode='max' each fall counts as a plateau, and the number falls and grows with the training loss",
        "Pass mode='min' for a loss; mode='max' is for what grows, such as an accuracy.",
    ),
    "sum": Row(
        "ReduceLROnPlateau is given a sum of the losses of all epochs: it grows whatever the model learns",
        _CUT + "each number is the one before and the losses since",
        "Set the sum to 0 at the beginning of each epoch.",
    ),
    "batch": Row(
        "ReduceLROnPlateau counts batches: its patience of {patience} ends after a few of them",
        _CUT + "it ran after each step, and the losses of batches go up and down",
        "Call {text} once in each epoch, with the mean of its losses.",
    ),
}


@check("misled-plateau", "warning", "ReduceLROnPlateau cuts the learning rate although the model learns")
def misled_plateau(context: CheckContext) -> Diagnoses:
    """A `ReduceLROnPlateau` waits for the wrong direction, is given a sum that only grows, or counts batches.

    How it is found: each number that its `step()` is given is compared with the losses that backward ran on since the one before.
    Reported when the rate was cut, and a number falls and grows as the loss does, with `mode="max"`; when each is the one before
    and the losses since; and when `step()` is called for each batch, with a patience of 10 at most, and the losses go up and down.

    What to do: choose the mode by what is better, and give it one number for each epoch.

    When to ignore it: when a falling loss is to slow the training down.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)
    for step in range(10):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
    ```
    """
    record = context.record
    for optimizer in record.optimizers:
        given = optimizer.plateaus
        kind = _fault(given, record.losses, optimizer.steps) if len(given) >= _FEW else ""
        rates, source = [one.rate for one in given], given[0].source if given else None
        if kind and source is not None and rates[-1] < rates[0]:
            lines = (one for one in calls_of(source.file, "ReduceLROnPlateau") if one.text.count(kind) == 1)
            made, last = next(lines, source), given[-1]
            values = {"first": f"{given[0].value:.3g}", "last": f"{last.value:.3g}", "rate": f"{last.rate:.3g}"}
            found = _ROWS[kind].told(optimizer.subject, made, patience=last.patience, **values)
            yield found._replace(edit=instead(made, made.text.replace(kind, "min") if made is not source else ""))


def _fault(given: Sequence[Fed], losses: Sequence[tuple[int, float]], steps: int) -> str:
    """Which one it is, "" for none."""
    first, spans = given[0], [(before.call, after.call) for before, after in pairwise(given)]
    sums = [sum(loss for call, loss in losses if start < call <= end) for start, end in spans]
    changes = [after.value - before.value for before, after in pairwise(given)]
    if first.mode == "max":
        return "max" if sum(changes) < 0 and _alike(changes, sums) >= _ALIKE else ""
    ratios = [change / max(total, 1e-30) for change, total in zip(changes, sums)]
    if 0 < max(ratios) < 1.05 * min(ratios):
        return "sum"
    nested = len(around(first.source.file, first.source.line).loops) > 1
    often = len(given) > 0.9 * steps and first.patience <= _PATIENCE and nested
    return "batch" if often and sum(change > 0 for change in changes) > _NOISE * len(changes) else ""


def _alike(changes: Sequence[float], sums: Sequence[float]) -> float:
    """The part of the changes that go the way of the loss."""
    same = [(sums[i] < sums[i - 1]) == (changes[i] < 0) for i in range(1, len(sums))]
    return sum(same) / len(same)
