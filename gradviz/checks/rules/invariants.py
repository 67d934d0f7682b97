"""The check that what is pushed moves, as holds of every training run."""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import first_names
from gradviz.wording import plural

SAMPLED = 2
"""Steps from which on a parameter that does not move is told of."""
STILL = 0.75
"""Of the elements with a gradient: from this part on an update counts as rounded away
in half precision.
"""

# which leaves parameters as they are from where its first step has ended
_CONVERGES = "LBFGS"
_HALF = ("bfloat16", "float16")
_WHY = (
    "at {steps} of {optimizer}, {part:.0%} of their elements with a gradient were the same bit for bit afterwards; the learning "
    "rate was at most {rate:.3g}"
)
_ROUNDED = Row(
    "{count} of {optimizer} hardly moves: updates are rounded away",
    _WHY
    + ", and an update below 1/256 of a bfloat16 number, 1/2048 of a float16 one, is lost.",
    "Leave the parameters and inputs in float32, and compute each forward pass inside `with torch.autocast('cpu', "
    "torch.{dtype}):` (or 'cuda').",
)
_STUCK = Row(
    "{count} of {optimizer} never moves: updates are rounded away",
    _WHY,
    "Raise the learning rate: {rate:.3g} changes no {dtype} number of this size.",
)


@check(
    "swallowed-update",
    "warning",
    "updates are so small that rounding takes them away: parameters never move",
    whole_run=True,
)
def swallowed_update(context: BackwardCall) -> Diagnoses:
    """Parameters get a gradient and are stepped, and their numbers stay the same bit
    for bit.

    A bfloat16 number has 8 bits: an update below 1/256 of it is rounded away (1/2048 in
    float16). In float32 it takes a learning rate that is nearly zero.

    How it is found: up to 4,096 elements of each parameter are compared between the
    backward calls that are read. Reported when three quarters of those with
    a gradient stay as they were in half precision; or all of what an optimizer holds.

    What to do: keep parameters in float32 and compute under `torch.autocast`; or raise
    the learning rate.

    When to ignore it: when the optimizer keeps a float32 copy of its own.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for step in range(5):
        loss = (model(torch.ones(2, 64, dtype=torch.bfloat16)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    for optimizer in context.run.optimizers:
        if optimizer.type == _CONVERGES:
            continue

        leaves = context.run.leaves.items()
        pushed = [leaf for key, leaf in leaves if key in optimizer.held]
        pushed = [leaf for leaf in pushed if leaf.pushed >= SAMPLED]
        half = [leaf for leaf in pushed if leaf.tensor.dtype in _HALF]
        half = [leaf for leaf in half if leaf.still > STILL * leaf.pushed]
        # in full precision, a few still parameters are no sign: all have to be
        never = all(leaf.still == leaf.pushed > SAMPLED for leaf in pushed)
        stuck = pushed if never else half
        if stuck:
            steps = sum(leaf.pushed for leaf in stuck)
            yield (_ROUNDED if half else _STUCK).filled(
                first_names(stuck),
                optimizer.source,
                count=plural(len(stuck), "parameter"),
                optimizer=optimizer.title,
                steps=plural(stuck[0].pushed, "step"),
                part=sum(leaf.still for leaf in stuck) / steps,
                rate=optimizer.rate,
                dtype=stuck[0].tensor.dtype,
            )
