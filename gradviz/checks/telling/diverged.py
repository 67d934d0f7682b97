"""Parameters and losses that updates have made NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnosis
from gradviz.checks.words import first_names, listed
from gradviz.gradients.values import Value
from gradviz.wording import one_line, plural

GROWN = 1e3
"""A loss that ends at more than this multiple of its least value did not fall, but
diverge.
"""


LARGE, _DIVERGED = 10.0, 1e6
"""Inputs above the first are called large: layers are initialised for inputs of about
1. Above the second, they may diverge.
"""


_CAUSES = ("gradient-not-reset", "wrong-backward", "loss-input")
"""Checks: what they find makes updates too large, so that the run diverges because of
it.
"""


def diverged(context: BackwardCall) -> bool:
    """Whether the losses before this call grew from step to step."""
    losses = [abs(value) for _, value in context.losses if math.isfinite(value)]
    return (
        len(losses) > 1
        and losses[-1] > GROWN * max(min(losses), 1e-30)
        # one lucky batch may have had a tiny loss
        and losses[-1] > losses[0]
    )


def from_the_update(context: BackwardCall, bad: Sequence[Value]) -> Diagnosis:
    """Updates have made parameters NaN or infinite, or so large that the loss is."""
    names, values = tuple(dict.fromkeys(first_names(bad))), context.values
    summary, why = "the loss diverges", "the loss is not finite after an update"
    if names:
        summary = (
            f"an update has made {plural(len(names), 'parameter')} NaN or infinite"
        )
        why = f"since the update before this call, NaN or Inf is in {listed(names)}"

    losses = [loss for loss in context.losses if math.isfinite(loss[1])]
    if len(losses) > 1:
        (first, begin), (last, end) = losses[0], losses[-1]
        why += f"; the loss was {begin:.4g} at call {first} and {end:.4g} at call {last}, before it was {context.loss}"

    # the line with the rate
    rows = [optimizer.row for optimizer in context.optimizers]
    lines = [row.source for row in rows if row.source]
    fix, source = _RATE, next(iter(lines), context.backward)
    # even larger inputs are what divergence made, not its cause
    if values is not None and LARGE < values.largest_input < _DIVERGED:
        name, source = one_line(values.largest_name or "x"), context.backward
        why += f"; {name} has numbers up to {values.largest_input:.4g}"
        fix = f"Scale {name} to about 1: {name} = ({name} - {name}.mean(0)) / {name}.std(0). Else lower the learning rate."

    return Diagnosis(
        summary,
        names or first_names(context.parameters),
        why,
        fix,
        tuple(value.made_by for value in bad if value.made_by is not None),
        source=source,
        follows=_CAUSES,
    )


_RATE = (
    "Lower the learning rate, tenfold at a time, until the loss falls; torch.nn.utils.clip_grad_norm_(parameters, 1.0) before "
    "step() bounds single steps that are too large."
)
