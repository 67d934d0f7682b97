"""The check that what is pushed moves, as holds of every training run."""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.run import LeafRow, OptimizerRow
from gradviz.checks.words import first_names, verb
from gradviz.wording import plural

SAMPLED = 2
"""Steps from which on a parameter that does not move is told of."""
STILL = 0.75
"""Of the elements with a gradient: from this part on an update counts as rounded away
in half precision.
"""
# which leaves parameters as they are from where its first step has ended
_CONVERGES = "LBFGS"
_HALF = {"bfloat16": "1/256", "float16": "1/2048"}  # the least relative change


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
    record = context.run
    for optimizer in record.optimizers:
        pushed = [
            row
            for key, row in record.leaves.items()
            if key in optimizer.held and row.pushed >= SAMPLED
        ]
        half = [
            row
            for row in pushed
            if row.tensor.dtype in _HALF and row.still > STILL * row.pushed
        ]
        if pushed and all(row.still == row.pushed > SAMPLED for row in pushed):
            stuck = pushed
        else:
            stuck = half

        if stuck and optimizer.type != _CONVERGES:
            yield _stuck(optimizer, stuck, bool(half))


def _stuck(
    optimizer: OptimizerRow,
    rows: Sequence[LeafRow],
    half: bool,
) -> Diagnosis:
    dtype, names = rows[0].tensor.dtype, first_names(rows)
    part = sum(row.still for row in rows) / sum(row.pushed for row in rows)
    rate = f"{optimizer.rate:.3g}"
    source, fix = (
        optimizer.source,
        f"Raise the learning rate: {rate} changes no {dtype} number of this size.",
    )
    why = f"at {plural(rows[0].pushed, 'step')} of {optimizer.title}, {part:.0%} of their elements with a gradient were "
    why += f"the same bit for bit afterwards; the learning rate was at most {rate}"

    if half:
        why += (
            f", and an update below {_HALF[dtype]} of a {dtype} number is rounded away"
        )
        fix = (
            f"Leave the parameters and inputs in float32, and compute each forward pass inside `with torch.autocast('cpu', "
            f"torch.{dtype}):` (or 'cuda')."
        )

    moves = f"{'hardly' if half else 'never'} {verb(rows, 'moves', 'move')}"
    return Diagnosis(
        f"{plural(len(rows), 'parameter')} of {optimizer.title} {moves}: updates are rounded away",
        names,
        why + ".",
        fix,
        source=source,
    )
