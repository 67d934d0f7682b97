"""Compares the backward of a custom Function with the slope of its forward, in the
child process that replays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from gradviz.checks.run import Kind
from gradviz.cuts.functions import PLAIN

# in float64, a central difference over 1e-6 has about 10 correct digits
_EPSILON, _FAR, _TINY = 1e-6, 1e-4, 1e-9
Fault = tuple[str, int]
"""The letter of an event, and the input that it is about, counted from 1."""


def is_real(value: object) -> bool:
    return type(value) in PLAIN and value.is_floating_point()  # type: ignore[attr-defined]


def faults_of(
    kind: Any,
    values: Sequence[Any],
) -> list[Fault]:
    """What is wrong with a Function that was given these."""
    function = _Function(kind, values)
    gradients = function.gradients()
    missing, wrong, chosen = list[int](), list[int](), False
    for place in function.places:
        gradient = gradients[place]
        if gradient is None:
            others = any(other is not None for other in gradients)
            if others and function.depends_on(place):
                (missing if values[place].is_leaf else wrong).append(place)
        elif gradient.shape == function.inputs[place].shape:
            verdict = function.compare(place, gradient)
            chosen |= verdict is None
            wrong += [place] if verdict is False else []

    if missing:
        return [(Kind.NO_GRADIENT.value, missing[0] + 1)]
    if chosen:  # and with it what depends on the same tensor
        return []
    if wrong:
        return [(Kind.OTHER_SLOPE.value, place + 1) for place in wrong]
    with suppress(RuntimeError):  # as where backward() is once_differentiable
        if function.is_wrong_again():
            return [(Kind.SECOND_SLOPE.value, 0)]
    return []


class _Function:
    """A Function that is applied to copies in double precision; each time it draws the
    same numbers.
    """

    def __init__(self, kind: Any, values: Sequence[Any]) -> None:
        self._kind = kind
        self.inputs = [v.detach().double() if is_real(v) else v for v in values]
        self.places = [
            i
            for i, value in enumerate(values)
            if is_real(value) and value.requires_grad
        ]
        outputs = [output.detach() for output in self._forward() if is_real(output)]
        self._shapes = [output.shape for output in outputs]
        # a single number may be the loss, whose gradient is 1
        self._pulls = [torch.ones_like(output) for output in outputs]
        for pull in self._pulls:
            # all ones would not show a backward() that ignores its gradient
            if pull.numel() > 1:
                pull.uniform_(0.5, 1.5)

    def _leaves(self, values: Sequence[Any]) -> list[Any]:
        return [
            value.clone().requires_grad_() if i in self.places else value
            for i, value in enumerate(values)
        ]

    def _apply(self, *leaves: Any) -> Any:
        torch.manual_seed(0)
        return self._kind.apply(*leaves)

    def _forward(
        self,
        place: int = -1,
        step: Any = 0,
    ) -> tuple[torch.Tensor, ...]:
        """The outputs, with one input moved by a step."""
        inputs = [*self.inputs]
        if place >= 0:
            inputs[place] = inputs[place] + step
        result = self._apply(*self._leaves(inputs))
        return result if isinstance(result, tuple) else (result,)

    def gradients(
        self,
        factor: float = 1.0,
    ) -> list[torch.Tensor | None]:
        """What backward() gives for a factor of the gradient, without the engine."""
        outputs, pulls = self._forward(), iter(self._pulls)
        nodes = [output.grad_fn for output in outputs]
        node: Any = next(node for node in nodes if node is not None)
        incoming = [
            next(pulls) * factor if is_real(output) else torch.zeros_like(output)
            for output in outputs
        ]
        result = node.apply(*incoming)
        return list(result) if isinstance(result, tuple) else [result]

    def _slopes(
        self,
        place: int,
        step: torch.Tensor,
    ) -> list[torch.Tensor]:
        """How the outputs change along a step of one input."""
        with torch.no_grad():
            ahead = self._forward(place, _EPSILON * step)
            back = self._forward(place, -_EPSILON * step)
        pairs = [pair for pair in zip(ahead, back) if is_real(pair[0])]
        return [(end - start) / (2 * _EPSILON) for end, start in pairs]

    def _along(self, slopes: Sequence[torch.Tensor]) -> float:
        """The same as one number, as backward() would weigh it."""
        weighed = [slope * pull for slope, pull in zip(slopes, self._pulls)]
        return sum(float(slope.sum()) for slope in weighed)

    def depends_on(self, place: int) -> bool:
        step = torch.randn_like(self.inputs[place])
        return abs(self._along(self._slopes(place, step))) > _FAR

    def compare(
        self,
        place: int,
        gradient: torch.Tensor,
    ) -> bool | None:
        """Whether a gradient is right along two random steps; None where somebody has
        chosen another one: forward is flat, hands its input on, or is flat there.
        """
        right = True
        for _ in range(2):
            step = torch.randn_like(gradient)
            slopes = self._slopes(place, step)
            claimed, slope_along = float((gradient * step).sum()), self._along(slopes)
            if claimed and not any(bool(slope.any()) for slope in slopes):
                return None

            hands_on = any(
                slope.shape == step.shape and torch.allclose(slope, step, rtol=_FAR)
                for slope in slopes
            )
            size = max(abs(claimed), abs(slope_along), _TINY / _FAR)
            right &= hands_on or abs(claimed - slope_along) <= _FAR * size
        return right or (None if self._is_chosen(place, gradient) else False)

    def _is_chosen(self, place: int, gradient: torch.Tensor) -> bool:
        """Whether the only output depends on the same element of an input, and the
        gradient is right wherever that is not flat: it goes on by choice.
        """
        value, pull = self.inputs[place], self._pulls[0]
        if len(self._shapes) > 1 or self._shapes[0] != value.shape:
            return False

        # moves a third of the elements: elementwise, the other outputs stay
        some = torch.arange(value.numel()).reshape(value.shape) % 3 == 0
        others = self._slopes(
            place,
            torch.randn_like(value) * some,
        )[0][~some]
        slopes = self._slopes(place, torch.ones_like(value))[0] * pull
        moves = slopes.abs() > _TINY
        right = torch.allclose(
            gradient[moves],
            slopes[moves],
            rtol=_FAR,
        )
        return right and not bool(others.abs().gt(_TINY).any())

    def is_wrong_again(self) -> bool:
        """Whether the derivative of backward(), as it is recorded, is another one than
        its slope.
        """
        return not torch.autograd.gradgradcheck(
            self._apply,
            self._leaves(self.inputs),
            raise_exception=False,
            fast_mode=True,
        )
