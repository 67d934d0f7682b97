"""Replays custom Functions of the user's in a forked child, and compares their backward
with the slope of their forward.

Once for each class and shape, with copies of the inputs in double precision: one
thread, `SECONDS` at most, then the child is gone. Nothing of the user's runs in this
process, and the state that the code keeps is the child's. Not once CUDA is initialised,
nor under ranks, nor where there is no fork; what was not compared is told.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch

from gradviz.checks.record import Misuse
from gradviz.cuts.functions import PLAIN
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.rank import rank
from gradviz.source.search import keeps_on_first_argument, returned_by
from gradviz.walker.isolation import isolated
from gradviz.walker.taps import tapped

SECONDS, MOST, TRIES = 5.0, 12, 2
"""How long replays may take, one or all of them, how many there are, and how often one
begins that gives no answer.
"""
LARGEST = 1_000_000
"""Elements of what a Function is given, from which on it is not replayed."""
_PLAIN = (
    *PLAIN,
    bool,
    int,
    float,
    str,
    type(None),
    torch.Size,
    torch.dtype,
    torch.device,
)
APPLY = getattr(
    vars(torch.autograd.Function)["apply"],
    "__func__",
    None,
)
"""What every custom Function runs through, where that is Python: in torch 2.15 it is
not, and those that save tensors are seen.
"""
_AGAIN = "second slope"
_EPSILON, _FAR, _TINY = 1e-6, 1e-4, 1e-9


class FunctionReplay:
    """Of one run. `run_anyway`: also where CUDA is initialised or several ranks run."""

    def __init__(self, run_anyway: bool = False) -> None:
        self._run_anyway, self._seen, self._replaying = run_anyway, set[object](), False
        self._spent = 0.0  # seconds
        self.found: list[Misuse] = []
        # what is wrong where a gradient is differentiated again
        self.once_more: list[Misuse] = []
        # why a class could not be compared, after its name; "" where one was
        self.unknown: dict[str, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, each class is replayed when it is applied for the first time to such
        shapes.
        """
        saving = torch.autograd.function.FunctionCtx.save_for_backward
        with (
            tapped(APPLY, self._began)
            if APPLY is not None
            else tapped(saving, self._saving)
        ):
            yield

    def _began(
        self,
        _: FrameType,
        kind: Any,
        *given: Any,
        **__: Any,
    ) -> None:
        if torch.is_grad_enabled():
            self._applied(kind, given)

    def _saving(
        self,
        frame: FrameType,
        ctx: Any,
        *_: Any,
    ) -> None:
        """What forward() or setup_context() was given stands in its frame."""
        by, kind = frame.f_back, getattr(type(ctx), "_forward_cls", None)
        if by is None or kind is None:
            return
        names, rest, _keywords, values = inspect.getargvalues(by)
        if by.f_code is getattr(kind.setup_context, "__code__", None):
            self._applied(kind, values[names[1]])
        elif by.f_code is getattr(kind.forward, "__code__", None):
            self._applied(
                kind,
                [*(values[name] for name in names[1:]), *values.get(rest or "", ())],
            )

    def _applied(self, kind: Any, given: Sequence[Any]) -> None:
        with suppress(Exception):
            if not all(type(value) in _PLAIN for value in given):
                return  # an object of the user's may do anything when it is asked

            shapes = tuple(
                (tuple(value.shape), value.dtype) if _is_real(value) else None
                for value in given
            )
            if (
                (kind, shapes) in self._seen
                or self._replaying
                or not _is_to_be_compared(kind, given)
            ):
                return

            obstacle = self._obstacle(given)
            if obstacle:
                self.unknown.setdefault(kind.__name__, obstacle)
                return

            self._seen.add((kind, shapes))
            self._replaying, began = True, time.perf_counter()  # in the child, too
            try:
                with isolated():
                    told = _in_a_child(lambda: _judged(kind, given))
                if isinstance(told, str):
                    self.unknown.setdefault(kind.__name__, told)
                    return
                # whatever comes of it in another shape
                self.unknown[kind.__name__] = ""
            finally:
                self._replaying = False
                self._spent += time.perf_counter() - began

            backward = kind.backward.__code__
            again = keeps_on_first_argument(backward)
            returns = returned_by(definition_of(backward))
            for fault, *words in told:
                found = self.once_more if fault == _AGAIN else self.found
                source = (again if fault == _AGAIN else None) or returns
                words = [kind.__name__, *words]
                found.append(
                    Misuse(fault, source, tuple(words), names=(kind.__name__,))
                )

    def _obstacle(self, given: Sequence[Any]) -> str:
        """Why a Function is not replayed that is to be, "" where nothing speaks against
        it.
        """
        sizes = [value.numel() for value in given if type(value) in PLAIN]
        handler = signal.getsignal(signal.SIGCHLD)
        alone = self._run_anyway or rank() is None
        obstacles = {
            "came after as many as are compared in one run": (
                self._spent > SECONDS or len(self._seen) >= MOST
            ),
            f"is given more than {LARGEST:,} elements": max(sizes, default=0) > LARGEST,
            "would need a child process, which this system has not": (
                not hasattr(os, "fork")
            ),
            "would need a child process, which this script waits for": (
                not _is_nobodys(handler)
            ),
            "is not replayed beside CUDA without --run-custom": (
                getattr(torch.cuda, "_initialized", False) and not self._run_anyway
            ),
            "is not replayed beside several ranks without --run-custom": not alone,
        }
        return next((why for why, holds in obstacles.items() if holds), "")


def _is_to_be_compared(kind: Any, given: Sequence[Any]) -> bool:
    file = kind.forward.__code__.co_filename
    users = not (is_foundation(file) or package_of(file))
    return users and any(_is_real(value) and value.requires_grad for value in given)


def _is_nobodys(handler: Any) -> bool:
    """Whether the end of a child is told to nobody but a DataLoader, which asks for its
    own workers alone.
    """
    loaders = (
        getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling"
    )
    return handler == signal.SIG_DFL or (
        loaders
        and inspect.getclosurevars(handler).nonlocals["previous_handler"] is None
    )


def _in_a_child(
    judge: Callable[[], list[list[str]]],
) -> list[list[str]] | str:
    """What a child process found before it ended, as it does in any case; why nothing
    is known, where it has found nothing out.

    One that hardly ran waits for a lock that a thread held at the fork, or for a busy
    machine: another one is tried.
    """
    for _ in range(TRIES):
        told, seconds = _forked(judge)
        if told is not None:
            return told
        if seconds > SECONDS / 2:
            break
    return f"gave no answer in {SECONDS:g} s"


def _forked(
    judge: Callable[[], list[list[str]]],
) -> tuple[list[list[str]] | str | None, float]:
    """What one child found, and the seconds that it ran on a processor."""
    reads, writes = os.pipe()
    child = os.fork()

    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            gc.disable()
            torch.set_num_threads(1)
            try:
                with torch.enable_grad():
                    found: object = judge()
            except Exception as error:
                found = f"raises {type(error).__name__} in double precision"
            os.write(writes, json.dumps(found).encode())
        finally:
            os._exit(0)

    os.close(writes)
    seconds, told = 0.0, b"null"
    try:
        ready, _, _ = select.select(
            [reads],
            [],
            [],
            SECONDS,
        )
        # it died, and has found nothing out
        told = (os.read(reads, 65536) if ready else b"") or b"null"
    finally:
        os.close(reads)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            seconds = os.wait4(child, 0)[2].ru_utime

    return json.loads(told), seconds


# -- in the child ----------------------------------------------------------------------


def _is_real(value: object) -> bool:
    return type(value) in PLAIN and value.is_floating_point()  # type: ignore[attr-defined]


class _Applied:
    """A Function that is applied to copies in double precision; each time it draws the
    same numbers.
    """

    def __init__(self, kind: Any, given: Sequence[Any]) -> None:
        self._kind = kind
        self.given = [
            value.detach().double() if _is_real(value) else value for value in given
        ]
        self.places = [
            i
            for i, value in enumerate(given)
            if _is_real(value) and value.requires_grad
        ]
        self.outputs = [one.detach() for one in self.forward() if _is_real(one)]
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
        leaves = [
            value.clone().requires_grad_() if i in self.places else value
            for i, value in enumerate(moved)
        ]
        torch.manual_seed(0)
        result = self._kind.apply(*leaves)
        return result if isinstance(result, tuple) else (result,)

    def gradients(self, factor: float = 1.0) -> list[torch.Tensor | None]:
        """What backward() gives for a factor of the gradient, without the engine."""
        outputs, pulls = self.forward(), iter(self.pulls)
        nodes = [output.grad_fn for output in outputs]
        node: Any = next(node for node in nodes if node is not None)
        given = [
            next(pulls) * factor if _is_real(output) else torch.zeros_like(output)
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
                if _is_real(one)
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

    def is_wrong_again(self, place: int) -> bool:
        """Whether the derivative of backward() for an input, as it is recorded, is
        another one than its slope.
        """
        value = self.given[place]
        step, weights = torch.randn_like(value), torch.randn_like(value)

        def weighed(shift: float) -> tuple[torch.Tensor, torch.Tensor]:
            leaf = (value + shift * step).requires_grad_()
            torch.manual_seed(0)
            result = self._kind.apply(
                *(leaf if i == place else other for i, other in enumerate(self.given))
            )
            outputs = [
                one
                for one in (result if isinstance(result, tuple) else (result,))
                if _is_real(one)
            ]
            (gradient,) = torch.autograd.grad(
                outputs, leaf, self.pulls, create_graph=True
            )

            return leaf, (gradient * weights).sum()

        leaf, sum_here = weighed(0.0)
        known = float(weighed(_EPSILON)[1] - weighed(-_EPSILON)[1]) / (2 * _EPSILON)
        if sum_here.requires_grad:
            told = torch.autograd.grad(sum_here, leaf)[0]
        else:
            told = torch.zeros_like(step)
        return abs(float((told * step).sum()) - known) > _FAR * max(abs(known), 1.0)

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


def _judged(kind: Any, given: Sequence[Any]) -> list[list[str]]:
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
        if any(map(applied.is_wrong_again, applied.places)):
            return [[_AGAIN]]
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
