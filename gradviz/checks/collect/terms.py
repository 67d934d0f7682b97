"""Follows terms to the loss, by their signs: the entropy of a policy, how likely its action was, and scores of one label.

Reads labels that may all be alike, and no other number of a tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads
from gradviz.checks.collect.effects import leaves
from gradviz.checks.collect.numbers import is_readable
from gradviz.packages import Place
from gradviz.recording.torch_calls import PLAIN
from gradviz.variables.scanner import first_argument, local_variables
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import storage_of

_KEEPS = ("mean", "sum", "add", "radd", "iadd", "squeeze", "view", "reshape", "float")
_SCALES = ("mul", "rmul", "div", "truediv", "neg", "rsub", "sub")
_DRAWS = ("multinomial", "normal", "gather", "bernoulli", "binary_cross_entropy_with_logits")
_JUDGES = ("mse_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
_LABELS, _LOOKS = 100_000, 8  # elements of labels that are read, and how often they are in a line


class _Judged(NamedTuple):
    """Scores of one label: which, what computed them, and whether that was given what another network has made."""

    label: float
    leaves: frozenset[int]
    made: bool = False


class _Term(NamedTuple):
    """A part of a tensor: of which kind, of whom, by which sign, and the line that joined or computed it."""

    kind: str
    owner: Any
    sign: float
    joined: Place | None = None


class TermWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._terms = Facts[tuple[_Term, ...]]()
        self._drawn: dict[object, weakref.ref[object]] = {}  # from which distribution, by storage
        self._draws = False  # actions were drawn from a distribution
        self._policies: set[int] = set()  # distributions of a step that say how likely an action was
        self._detached = Facts[bool]()
        self._given: bool | None = False  # whether what a network was given last was detached
        self._judged: dict[_Judged, Place | None] = {}

    def comes(self, outputs: Sequence[object]) -> None:
        for term in (term for output in outputs for term in self._terms.of(output) or ()):
            if term.kind == "entropy" and self._draws and term.owner in self._policies and term.sign > 0:
                self._note("entropy falls", term.joined)
            elif term.kind == "judged" and term.sign > 0:
                self._judged[term.owner] = term.joined
                self._plays(term)
        super().comes(outputs)

    def _forget(self) -> None:
        for seen in (self._terms, self._drawn, self._detached):
            seen.clear()
        self._policies.clear()

    def _plays(self, term: _Term) -> None:
        """Whether a network that is judged by another is trained to get the label that the other gives to what it makes."""
        label, mine, _ = term.owner
        for made in [one for one in self._judged if one.made and one.label == label and one.leaves < mine]:
            others = {one.label for one in self._judged if one.leaves == made.leaves and not one.made} - {label}
            if others and not any((*one[:2],) == (other, mine) for one in self._judged for other in others):
                self._note("plays along", term.joined, f"{label:g}", f"{others.pop():g}")

    @reads("detach")
    def _cut(self, call: TorchCall) -> None:
        if call.makes:
            self._detached.put(call.result, bool(call.first.requires_grad))

    @reads("linear", "conv1d", "conv2d")
    def _begins(self, call: TorchCall) -> None:
        """A network is given data."""
        if type(call.first) in PLAIN and not call.first.requires_grad:
            self._given = self._detached.of(call.first)

    @reads(*{*_KEEPS, *_SCALES, *_DRAWS, *_JUDGES, "exp"})
    def _seen(self, call: TorchCall) -> None:
        code, inside = call.frame.f_code, call.frame.f_globals.get("__name__", "").startswith("torch.distributions")
        terms = tuple(self._followed(call)) if self._terms else ()
        if inside:
            distribution: Any = first_argument(call.frame)
            owner = id(distribution)
            if code.co_name == "sample":
                self._draws = True
                self._drawn[storage_of(call.result)] = weakref.ref(distribution)
            elif code.co_name == "log_prob":
                self._policies.add(owner)
                value: Any = local_variables(call.frame).get("value")
                drawn = self._drawn.get(storage_of(value)) if type(value) in PLAIN else None
                terms = (_Term("score", owner, 1),)
                if drawn is not None and drawn() is distribution:
                    terms = (*terms, _Term("likelihood", owner, 1, call.place))
            elif code.co_name == "entropy":
                terms = (_Term("entropy", owner, 1),)
        elif call.name in _JUDGES:
            terms = tuple(self._errs(call))
        if terms:
            self._terms.put(call.result, terms)

    def _errs(self, call: TorchCall) -> Iterator[_Term]:
        """A loss of scores that all have one label."""
        scores, labels = call.arguments[:2]
        caller = call.frame.f_back
        looks = self._looks(caller and (caller.f_code, caller.f_lineno), _LOOKS)
        one = type(labels) in PLAIN and labels.is_floating_point() and 1 < labels.numel() <= _LABELS
        if looks and one and type(scores) in PLAIN and scores.requires_grad and is_readable(labels):
            with unrecorded():
                label = labels.flatten()[0]
                alike = bool((labels == label).all())
            if alike:
                mine = frozenset(leaves(scores))
                yield _Term("judged", _Judged(float(label), mine, bool(self._given)), 1, call.place)

    def _followed(self, call: TorchCall) -> Iterator[_Term]:
        """Terms of a sum, or something that a number is multiplied with."""
        joins = call.name in ("add", "radd", "iadd", "sub", "rsub")
        for i, (given, other) in enumerate(call.pairs):
            for term in self._terms.of(given) or ():
                factor = _factor(call, i)
                if call.name == "exp":
                    self._note("new action", term.joined if term.kind == "ratio" else None)
                elif term.kind == "score" and call.name == "mul" and self._pulls(call, given, other):
                    self._note("trained weight", call.place)
                elif term.kind == "likelihood" and joins and _is_older(other, given):
                    yield term._replace(kind="ratio", sign=factor)
                elif factor:
                    at = call.place if joins and term.kind == "entropy" else term.joined
                    yield term._replace(sign=term.sign * factor, joined=at)

    def _pulls(self, call: TorchCall, likelihood: torch.Tensor, weight: Any) -> bool:
        """Whether a weight for each likelihood has a graph that leads to more than the likelihood does."""
        if type(weight) not in PLAIN or not weight.requires_grad or not weight.numel() == likelihood.numel() > 1:
            return False
        own = not call.frame.f_globals.get("__name__", "").startswith("torch.distributions")
        return self._looks(call.line, _LOOKS) and own and not leaves(weight) <= leaves(likelihood)


def _is_older(other: Any, likelihood: torch.Tensor) -> bool:
    """Whether a tensor is a constant that is not the likelihood itself."""
    return type(other) in PLAIN and not other.requires_grad and storage_of(other) != storage_of(likelihood)


def _factor(call: TorchCall, i: int) -> float:
    """What a call does to the sign of its argument number `i`; 0 where that is not known."""
    if call.name in _KEEPS:
        return 1
    if call.name == "neg":
        return -1
    if call.name in ("sub", "rsub"):
        return -1 if (call.name == "sub") == (i == 1) else 1
    other = call.arguments[1 - i] if len(call.arguments) == 2 else None
    return other if isinstance(other, (int, float)) and (i == 0 or call.name == "mul") else 0
