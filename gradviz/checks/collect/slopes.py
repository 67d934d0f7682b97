"""Compares the backward of a custom Function with the slope of its forward, in the child
process that replays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from gradviz.cuts.functions import PLAIN

AGAIN = "second slope"


_EPSILON, _FAR, _TINY = 1e-6, 1e-4, 1e-9


def is_real(value: object) -> bool:
    return type(value) in PLAIN and value.is_floating_point()  # type: ignore[attr-defined]


class _Applied:
    """A Function that is applied to copies in double precision; each time it draws the
    same numbers.
    """

    def __init__(self, kind: Any, given: Sequence[Any]) -> None:
        self._kind = kind
        self.given = [
            value.detach().double() if is_real(value) else value for value in given
        ]
        self.places = [
            i for i, value in enumerate(given) if is_real(value) and value.requires_grad
        ]
        self.outputs = [one.detach() for one in self.forward() if is_real(one)]
        # a single number may be the loss, whose gradient is 1
        self.pulls = [
            torch.rand_like(output) + 0.5
            if output.numel() > 1
            else torch.ones_like(output)
            for output in self.outputs
        ]

    def forward(
        self, place: int = -1, step: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """The outputs, with one input moved by a step."""
        moved = [
            value + step if i == place else value for i, value in enumerate(self.given)
        ]
        torch.manual_seed(0)
        result = self._kind.apply(*self._leaves(moved))
        return result if isinstance(result, tuple) else (result,)

    def _leaves(self, given: Sequence[Any]) -> list[Any]:
        return [
            value.clone().requires_grad_() if i in self.places else value
            for i, value in enumerate(given)
        ]

    def gradients(self, factor: float = 1.0) -> list[torch.Tensor | None]:
        """What backward() gives for a factor of the gradient, without the engine."""
        outputs, pulls = self.forward(), iter(self.pulls)
        nodes = [output.grad_fn for output in outputs]
        node: Any = next(node for node in nodes if node is not None)
        given = [
            next(pulls) * factor if is_real(output) else torch.zeros_like(output)
            for output in outputs
        ]
        result = node.apply(*given)
        return list(result) if isinstance(result, tuple) else [result]

    def slopes(
        self,
        place: int,
        step: torch.Tensor,
    ) -> list[torch.Tensor]:
        """How the outputs change along a step of one input."""
        with torch.no_grad():
            ahead, back = (
                self.forward(place, sign * _EPSILON * step) for sign in (1, -1)
            )
            return [
                (one - other) / (2 * _EPSILON)
                for one, other in zip(ahead, back)
                if is_real(one)
            ]

    def along(self, place: int, step: torch.Tensor) -> float:
        """The same as one number, as backward() would weigh it."""
        return sum(
            float((slope * pull).sum())
            for slope, pull in zip(
                self.slopes(place, step),
                self.pulls,
            )
        )

    def verdict(self, place: int, gradient: torch.Tensor) -> str:
        """What is wrong with a gradient along one random step."""
        step = torch.randn_like(gradient)
        slopes = self.slopes(place, step)
        told, known = float((gradient * step).sum()), self.along(place, step)
        if told and not any(bool(slope.any()) for slope in slopes):
            return "surrogate"

        hands_on = any(
            slope.shape == step.shape and torch.allclose(slope, step, rtol=_FAR)
            for slope in slopes
        )
        size = max(abs(told), abs(known), _TINY / _FAR)
        wrong = not hands_on and abs(told - known) > _FAR * size
        return "other slope" if wrong else ""

    def is_wrong_again(self) -> bool:
        """Whether the derivative of backward(), as it is recorded, is another one than
        its slope.
        """

        def apply(*leaves: Any) -> Any:
            torch.manual_seed(0)
            return self._kind.apply(*leaves)

        return not torch.autograd.gradgradcheck(
            apply, self._leaves(self.given), raise_exception=False, fast_mode=True
        )

    def is_chosen(self, place: int, gradient: torch.Tensor) -> bool:
        """Whether the only output depends on the same element of an input, and the
        gradient is right wherever that is not flat: it goes on by choice.
        """
        value, pull = self.given[place], self.pulls[0]
        if len(self.outputs) > 1 or self.outputs[0].shape != value.shape:
            return False

        some = torch.arange(value.numel()).reshape(value.shape) % 3 == 0
        others = self.slopes(place, torch.randn_like(value) * some)[0][~some]
        known = self.slopes(place, torch.ones_like(value))[0] * pull
        moves = known.abs() > _TINY
        right = torch.allclose(gradient[moves], known[moves], rtol=_FAR)
        return right and not bool(others.abs().gt(_TINY).any())


def judged(kind: Any, given: Sequence[Any]) -> list[list[str]]:
    """What is wrong with a Function: each fault, and its words."""
    applied = _Applied(kind, given)
    gradients = applied.gradients()
    if _ignores(applied, gradients):
        return [["ignores gradient"]]

    verdicts = {place: _compared(applied, place, gradients) for place in applied.places}
    missing = [
        ["gives none", str(place + 1)]
        for place, verdict in verdicts.items()
        if verdict == "gives none" and given[place].is_leaf
    ]
    # somebody has chosen it, and with it what depends on the same tensor
    if missing or "surrogate" in verdicts.values():
        return missing[:1]

    wrong = [place for place, verdict in verdicts.items() if verdict]
    if wrong:
        return [["other slope", str(place + 1)] for place in wrong]
    with suppress(RuntimeError):  # as where backward() is once_differentiable
        if applied.is_wrong_again():
            return [[AGAIN]]
    return []


def _ignores(applied: _Applied, gradients: Sequence[torch.Tensor | None]) -> bool:
    """Whether gradients are the same when what comes in is doubled."""
    doubled = applied.gradients(2.0)
    pairs = [
        (one, two)
        for one, two in zip(gradients, doubled)
        if one is not None and two is not None
    ]
    wide = any(output.numel() > 1 for output in applied.outputs)
    flat = not any(bool(one.any()) for one, _ in pairs)
    return wide and not flat and all(torch.equal(one, two) for one, two in pairs)


def _compared(
    applied: _Applied, place: int, every: Sequence[torch.Tensor | None]
) -> str:
    """What is wrong with a gradient, "" where nothing is; "surrogate" where a forward
    that is flat, or hands its input on, has a backward that somebody has chosen.
    """
    value, gradient = applied.given[place], every[place]
    if gradient is None:
        known = abs(applied.along(place, torch.randn_like(value)))
        others = any(other is not None for other in every)
        return "gives none" if known > _FAR and others else ""
    if gradient.shape != value.shape:
        return ""

    steps = [applied.verdict(place, gradient) for _ in range(2)]
    if "surrogate" in steps:
        return "surrogate"
    if any(steps):
        chosen = applied.is_chosen(place, gradient)
        return "surrogate" if chosen else "other slope"
    return ""
