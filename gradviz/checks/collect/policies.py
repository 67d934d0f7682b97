"""Follows the entropy of a distribution to the loss: whether a policy's is made smaller there. Looks at no number of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gradviz.checks.collect.calls import Call, Facts, Readers, Watch
from gradviz.packages import Place
from gradviz.variables.scanner import first_argument

_KEEPS = ("mean", "sum", "add", "radd", "iadd", "squeeze", "view", "reshape", "float")
_SCALES = ("mul", "rmul", "div", "truediv", "neg", "rsub", "sub")
_DRAWS = ("multinomial", "normal", "gather", "bernoulli", "binary_cross_entropy_with_logits")


class _Entropy(NamedTuple):
    """The entropy of a distribution, as a part of a tensor: of which, by which sign, and the line that joined it last."""

    owner: int
    sign: float
    joined: Place | None = None


class PolicyWatch(Watch):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._entropies = Facts[_Entropy]()
        self._drawn = False  # actions were drawn from a distribution
        self._policies: set[int] = set()  # distributions of a step that say how likely an action was

    @property
    def readers(self) -> Readers:
        """Which functions of torch are looked at, and how."""
        return ((dict.fromkeys((*_KEEPS, *_SCALES, *_DRAWS)), self._seen),)

    def next_step(self, outputs: Iterable[object]) -> None:
        """A call of backward comes, of these."""
        for entropy in filter(None, map(self._entropies.of, outputs)):
            if self._drawn and entropy.owner in self._policies and entropy.sign > 0:
                self._note("entropy falls", entropy.joined)
        self._entropies.clear()
        self._policies.clear()

    def _seen(self, call: Call) -> None:
        code, inside = call.frame.f_code, call.frame.f_globals.get("__name__", "").startswith("torch.distributions")
        if inside and code.co_name == "entropy":
            self._entropies.put(call.result, _Entropy(id(first_argument(call.frame)), 1))
        elif inside:
            self._drawn |= code.co_name == "sample"
            self._policies |= {id(first_argument(call.frame))} if code.co_name == "log_prob" else set()
        if not (inside and code.co_name == "entropy") and self._entropies:
            self._follow(call)

    def _follow(self, call: Call) -> None:
        """A term of a sum, or something that a number is multiplied with."""
        for i, given in enumerate(call.arguments[:2]):
            entropy = self._entropies.of(given)
            if entropy is None:
                continue
            factor = _factor(call, i)
            joined = self._place(call.frame) if call.name in ("add", "radd", "iadd", "sub", "rsub") else entropy.joined
            if factor:
                self._entropies.put(call.result, _Entropy(entropy.owner, entropy.sign * factor, joined))


def _factor(call: Call, i: int) -> float:
    """What a call does to the sign of its argument number `i`; 0 where that is not known."""
    if call.name in _KEEPS:
        return 1
    if call.name == "neg":
        return -1
    if call.name in ("sub", "rsub"):
        return -1 if (call.name == "sub") == (i == 1) else 1
    other = call.arguments[1 - i] if len(call.arguments) == 2 else None
    return other if isinstance(other, (int, float)) and (i == 0 or call.name == "mul") else 0
