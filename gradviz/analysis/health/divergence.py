"""Losses and parameters that grow from step to step until they overflow: the steps are too large.

Knows the losses of the run, and no operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradviz.analysis.health.registry import Found
from gradviz.analysis.health.words import line, listed
from gradviz.evidence import Evidence, Value
from gradviz.wording import plural

GROWN = 1e3
"""A loss that ends at more than this multiple of its least value did not fall, but diverge."""

LARGE = 10.0
"""Inputs above this are called large: layers are initialised for inputs of about 1."""


def diverged(evidence: Evidence) -> bool:
    """Whether the losses before this call grew from step to step."""
    losses = [abs(value) for _, value in evidence.losses if math.isfinite(value)]
    return len(losses) > 1 and losses[-1] > GROWN * max(min(losses), 1e-30) and losses[-1] > losses[0]


def from_the_update(evidence: Evidence, bad: Sequence[Value]) -> Found:
    """Updates have made parameters NaN or infinite, or so large that the loss is: the steps are too large."""
    names = tuple(dict.fromkeys(name for one in bad for name in one.names[:1]))
    have = "has" if len(names) == 1 else "have"
    why = (
        f"{listed(names)} {have} NaN or Inf since the update before this call"
        if names
        else "the parameters have grown too large"
    )
    losses = [one for one in evidence.losses if math.isfinite(one[1])]
    if len(losses) > 1:
        (first, begin), (last, end) = losses[0], losses[-1]
        why += f"; the loss was {begin:.4g} at call {first} and {end:.4g} at call {last}, before it was {evidence.loss}"
    else:
        why += "; the gradient of that step overflowed, or the step was too large"
    what = f"an update has made {plural(len(names), 'parameter')} NaN or infinite" if names else "the loss diverges"
    return Found(
        f"{what}: the steps are too large",
        names or tuple(name for leaf in evidence.graph.leaves if leaf.kind == "parameter" for name in leaf.names[:1]),
        line(evidence.backward),
        why,
        _fix(evidence),
        tuple(one.made_by for one in bad if one.made_by is not None),
    )


def _fix(evidence: Evidence) -> str:
    largest = evidence.values.largest_input if evidence.values is not None else 0.0
    if largest > LARGE:
        return (
            f"Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0): the largest number among them is {largest:.4g}. "
            "Else lower the learning rate, tenfold at a time."
        )
    return (
        "Lower the learning rate, tenfold at a time, until the loss falls; torch.nn.utils.clip_grad_norm_(parameters, 1.0) before "
        "step() bounds single steps that are too large."
    )
