"""Compares the backward of a custom Function with the slope of its forward, in the
child process that replays it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch

from gradviz.checks.run import Kind
from gradviz.gradients.values import BASE
from gradviz.walker.tensors import PLAIN

_REVERSAL = re.compile(r"grad\w*rev|rev\w*grad|reversal|reverselayer", re.IGNORECASE)
"""Names of a gradient reversal."""
# in float64, a central difference over 1e-6 has about 10 correct digits
_EPSILON, _FAR, _TINY = 1e-6, 1e-4, 1e-9


def _is_near(number: float, other: float) -> bool:
    return abs(number - other) <= _FAR * max(abs(number), abs(other), _TINY / _FAR)


def is_real(value: object) -> bool:
    return type(value) in PLAIN and value.is_floating_point()  # type: ignore[attr-defined]


def faults_of(kind: Any, values: Sequence[Any]) -> dict[str, list[str]]:
    """The letters of what is wrong with a Function that was given these, each with what
    was measured.
    """
    function = _Function(kind, values)
    if _REVERSAL.search(kind.__name__) and function.keeps_sign():
        return {Kind.SAME_SIGN.value: []}
    verdicts = [function.judge(*item) for item in function.gradients().items()]
    # with what was chosen goes what depends on the same tensor
    if None in verdicts:
        return {}
    if False in verdicts:
        return {Kind.OTHER_SLOPE.value: function.measured}
    if function.ignores_its_gradient():
        return {Kind.NO_CHAIN.value: []}
    with suppress(RuntimeError):  # as where backward() is once_differentiable
        if function.is_wrong_again():
            return {Kind.SECOND_SLOPE.value: []}
    return {}


class _Function:
    """A Function that is applied to copies in double precision; each time it draws the
    same numbers.
    """

    def __init__(self, kind: Any, values: Sequence[Any]) -> None:
        self._kind = kind
        self.measured: list[str] = []  # of what backward() gives, and of forward()
        self._inputs = [BASE.detach(v).double() if is_real(v) else v for v in values]
        self._places = [
            place
            for place, value in enumerate(values)
            if is_real(value) and value.requires_grad
        ]
        # all ones would not show a backward() that ignores its gradient, but a single
        # number may be the loss
        self._pulls = [
            torch.rand_like(output) + 0.5
            if output.numel() > 1
            else torch.ones_like(output)
            for output in self._outputs(self._inputs)
        ]

    def _apply(self, *inputs: Any) -> Any:
        torch.manual_seed(0)
        return self._kind.apply(*inputs)

    def _outputs(self, inputs: Iterable[Any]) -> list[torch.Tensor]:
        result = self._apply(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        return [output for output in results if is_real(output)]

    def _leaves(self) -> list[Any]:
        return [
            value.clone().requires_grad_() if place in self._places else value
            for place, value in enumerate(self._inputs)
        ]

    def gradients(self) -> dict[int, torch.Tensor]:
        """What backward() gives that is not None, by the place of the input."""
        leaves, weighed = self._leaves(), list[torch.Tensor]()
        for output, pull in zip(self._outputs(leaves), self._pulls):
            if output.requires_grad:
                weighed.append((output * pull).sum())
        inputs = [leaves[place] for place in self._places]
        gradients = torch.autograd.grad(weighed, inputs, allow_unused=True)
        pairs = zip(self._places, gradients)
        return {place: given for place, given in pairs if given is not None}

    def ignores_its_gradient(self) -> bool:
        """Whether backward() gives the same, whatever comes in."""
        once = self.gradients()
        self._pulls = [2 * pull for pull in self._pulls]
        twice = self.gradients()
        return any(
            bool(once[place].any()) and torch.equal(once[place], twice[place])
            for place in once
        )

    def keeps_sign(self) -> bool:
        """Whether forward() hands its input on, and backward() the sign of its gradient."""
        outputs, gradients = self._outputs(self._inputs), self.gradients()
        for place, given in gradients.items():
            same = [torch.equal(output, self._inputs[place]) for output in outputs]
            if same != [True] or not bool((given * self._pulls[0] > 0).all()):
                return False
        return bool(gradients)

    def _slopes(
        self, place: int, step: torch.Tensor, length: float = _EPSILON
    ) -> list[torch.Tensor]:
        """How the outputs change along a step of one input."""
        ends = []
        for sign in (1, -1):
            inputs = [*self._inputs]
            inputs[place] = inputs[place] + sign * length * step
            with torch.no_grad():
                ends.append(self._outputs(inputs))
        return [(ahead - back) / (2 * length) for ahead, back in zip(*ends)]

    def _along(self, slopes: Sequence[torch.Tensor]) -> float:
        """The same as one number, as backward() would weigh it."""
        pairs = zip(slopes, self._pulls)
        return sum(float((slope * pull).sum()) for slope, pull in pairs)

    def judge(self, place: int, gradient: torch.Tensor) -> bool | None:
        """Whether a gradient is right along a random step; None where somebody has
        chosen another one: forward is flat, hands its input on, or is flat in part and
        the gradient right elsewhere; or where forward computes in less than double
        precision, so that its slope depends on how long the step is.
        """
        step = torch.randn_like(gradient)
        slopes = self._slopes(place, step)
        claimed, slope = gradient * step, self._along(slopes)
        given = float(claimed.sum())
        if _is_near(given, slope):
            return True
        if not _is_near(slope, self._along(self._slopes(place, step, 8 * _EPSILON))):
            return None
        self.measured = [f"{number:.4g}" for number in (given, slope)]

        chosen = not any(bool(slope.any()) for slope in slopes)
        if [slope.shape for slope in slopes] == [step.shape]:
            moves = slopes[0].abs() > _TINY
            right = slopes[0] * self._pulls[0]
            chosen |= torch.allclose(slopes[0], step, rtol=_FAR)
            chosen |= torch.allclose(claimed[moves], right[moves], rtol=_FAR)
        return None if chosen else False

    def is_wrong_again(self) -> bool:
        """Whether the derivative of backward(), as it is recorded, is another one than
        its slope.
        """
        return not torch.autograd.gradgradcheck(
            self._apply, self._leaves(), raise_exception=False, fast_mode=True
        )
