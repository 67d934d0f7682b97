"""Follows how likely a policy says that its actions were, to what weighs it: a weight is a number, and not to be trained by it.

Reads no number, and keeps no tensor.
"""

from __future__ import annotations

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads
from gradviz.checks.collect.effects import leaves
from gradviz.cuts.torch_calls import PLAIN

_CARRIES = (
    *("add", "radd", "iadd", "sub", "neg", "sum", "squeeze", "unsqueeze", "view", "reshape", "float"),
    *("stack", "cat", "getitem", "gather"),
)
_LOOKS = 8  # how often a line is looked at


class TermWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._likelihoods = Facts[bool]()

    def _forget(self) -> None:
        self._likelihoods.clear()

    @reads(*_CARRIES, "mul", "normal", "bernoulli", "binary_cross_entropy_with_logits")
    def _seen(self, call: TorchCall) -> None:
        within = call.frame.f_globals.get("__name__", "").startswith("torch.distributions")
        if within:
            likely = call.frame.f_code.co_name == "log_prob"
        else:
            first = call.first[0] if type(call.first) in (list, tuple) and call.first else call.first
            likely = call.name in _CARRIES and self._likelihoods.of(first) is not None
            if call.name == "mul" and self._likelihoods:
                self._weighs(call)
        if likely:
            self._likelihoods.put(call.result, True)

    def _weighs(self, call: TorchCall) -> None:
        """Whether likelihoods are multiplied by a tensor whose graph leads to more than theirs."""
        for likelihood, weight in call.pairs:
            pulls = self._likelihoods.of(likelihood) and type(weight) in PLAIN and weight.requires_grad
            if pulls and weight.numel() == likelihood.numel() > 1 and self._looks(call.line, _LOOKS):
                self._note("trained weight", call.place if not leaves(weight) <= leaves(likelihood) else None)
