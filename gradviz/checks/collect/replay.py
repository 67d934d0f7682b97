"""Replays custom Functions of the user's in a forked child, and compares their backward
with the slope of their forward.

Once for each class and shape, with copies of the inputs in double precision: one
thread, `SECONDS` at most, then the child is gone. Nothing of the user's runs in this
process, and the state that the code keeps is the child's. Not once CUDA is initialised,
nor under ranks, nor where there is no fork; what was not compared is told.
"""

from __future__ import annotations

import ast
import gc
import inspect
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradviz.checks.record import Misuse
from gradviz.cuts.functions import PLAIN
from gradviz.graph import SourceLine
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.rank import rank
from gradviz.source.search import changes, keeps_on_first_argument, returned_by
from gradviz.source.statements import body_of, targets_of
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
_WHOLE = ("forgets mask", "gives none")
"""What is said of a Function alone."""
_ROUNDS = frozenset(("round", "floor", "ceil", "trunc", "sign", "heaviside"))
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

            definition = kind.backward.__code__
            returns = returned_by(definition_of(definition))
            lines = {
                "writes gradient": next(
                    (change.source for change in changes(body_of(definition))), returns
                ),
                "keeps state": _kept_by(kind.forward.__code__),
                _AGAIN: keeps_on_first_argument(definition),
            }

            for fault, *words in told:
                source = lines.get(fault) or returns
                found = self.once_more if fault == _AGAIN else self.found
                found.append(
                    Misuse(
                        fault,
                        source,
                        (kind.__name__, *words),
                        names=(kind.__name__,),
                    )
                )

    def _obstacle(self, given: Sequence[Any]) -> str:
        """Why a Function is not replayed that is to be, "" where nothing speaks against
        it.
        """
        if self._spent > SECONDS or len(self._seen) >= MOST:
            return "came after as many as are compared in one run"

        if (
            max(
                (value.numel() for value in given if type(value) in PLAIN),
                default=0,
            )
            > LARGEST
        ):
            return f"is given more than {LARGEST:,} elements"

        if not hasattr(os, "fork") or not _is_nobodys(signal.getsignal(signal.SIGCHLD)):
            return "would need a child process, which this " + (
                "system" if not hasattr(os, "fork") else "script waits for"
            )

        if getattr(torch.cuda, "_initialized", False):
            apart = "CUDA"
        elif rank() is not None:
            apart = "several ranks"
        else:
            apart = ""

        if apart and not self._run_anyway:
            return f"is not replayed beside {apart} without --run-custom"

        return ""


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


class _Called(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the operations that run inside, in the child process."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        given: Any = (),
        options: Any = None,
    ) -> Any:
        self.names.add(function.overloadpacket.__name__.strip("_"))
        return function(*given, **(options or {}))


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

        with _Called() as called:
            self.outputs = [
                output.detach() for output in self.forward() if _is_real(output)
            ]

        # its slope is none that anybody trains with
        self.rounds = not called.names.isdisjoint(_ROUNDS)
        self.saves = False  # whether forward() keeps tensors for backward()
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

    def backward(
        self,
    ) -> Callable[..., list[torch.Tensor | None]]:
        """What calls backward() of one application, without the engine, as often as it
        is called, with a factor of the gradient.
        """
        outputs = self.forward()
        node: Any = next(
            output.grad_fn for output in outputs if output.grad_fn is not None
        )
        self.saves, pulls = bool(node._raw_saved_tensors), iter(self.pulls)
        given = [
            next(pulls) if _is_real(output) else torch.zeros_like(output)
            for output in outputs
        ]

        def gradients(factor: float = 1.0) -> list[torch.Tensor | None]:
            result = node.apply(
                *(pull * factor for pull in given) if factor != 1 else given
            )
            return list(result) if isinstance(result, tuple) else [result]

        return gradients

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

    def is_elementwise(self, place: int) -> bool:
        """Whether each element of the only output depends on the same element of an
        input, as far as a few steps show.
        """
        value = self.given[place]
        if len(self.outputs) > 1 or self.outputs[0].shape != value.shape:
            return False

        some = torch.arange(value.numel()).reshape(value.shape) % 3 == 0
        return not bool(
            self.slopes(
                place,
                torch.randn_like(value) * some,
            )[0][~some]
            .abs()
            .gt(_TINY)
            .any()
        )


def _kept_by(code: CodeType) -> SourceLine | None:
    """The first line of a function that assigns to something which is not its own."""
    body = body_of(code)
    targets = (
        (node, ast.unparse(target))
        for node, _ in body.statements
        for target in targets_of(node)
    )
    beyond = (
        body.source(node)
        for node, target in targets
        if re.findall(r"\w+", target)[0] not in code.co_varnames
    )

    return next(beyond, None)


def _goes_on(
    applied: _Applied,
    gradient: torch.Tensor,
    moves: torch.Tensor,
) -> bool:
    """Whether a gradient is the same where the forward is flat, and was computed: what
    hands it on as it is was chosen.
    """
    sizes = (gradient / applied.pulls[0]).abs()
    chosen = torch.equal(gradient, applied.pulls[0]) and not applied.saves
    return not chosen and bool((sizes[~moves] >= sizes[moves].median() / 2).all())


def _judged(
    kind: Any,
    given: Sequence[Any],
) -> list[list[str]]:
    """What is wrong with a Function: each fault, and its words."""
    applied = _Applied(kind, given)
    fault, gradients = _repeated(applied)
    if fault:
        return [[fault]]

    verdicts = {place: _compared(applied, place, gradients) for place in applied.places}
    # somebody has chosen it, and with it what depends on the same tensor
    if "surrogate" in verdicts.values():
        verdicts = {
            place: verdict
            for place, verdict in verdicts.items()
            if given[place].is_leaf and verdict in _WHOLE
        }

    whole = [
        [verdict, str(place + 1)]
        for place, verdict in verdicts.items()
        if verdict in _WHOLE
    ]
    others = [
        ["other slope", str(place + 1), verdict]
        for place, verdict in verdicts.items()
        if verdict
    ]
    if applied.rounds or whole or others:
        return whole[:1] or ([] if applied.rounds else others)

    with suppress(RuntimeError):  # as where backward() is once_differentiable
        return [[_AGAIN]] if any(map(applied.is_wrong_again, applied.places)) else []

    return []


def _repeated(
    applied: _Applied,
) -> tuple[str, Sequence[torch.Tensor | None]]:
    """What is wrong with a backward that runs several times, if something is; and its
    gradients.
    """
    gradients = applied.backward()
    versions = [pull._version for pull in applied.pulls]
    first = [
        gradient.clone() if gradient is not None else None for gradient in gradients()
    ]
    if [pull._version for pull in applied.pulls] != versions:
        return "writes gradient", first

    applied.forward(
        applied.places[0], torch.randn_like(applied.given[applied.places[0]])
    )
    if not all(map(_same, first, gradients())):
        return "keeps state", first

    wide = any(output.numel() > 1 for output in applied.outputs)
    ignores = (
        wide
        and any(one is not None and one.any() for one in first)
        and all(map(_same, first, gradients(2.0)))
    )

    return "ignores gradient" if ignores else "", first


def _same(
    one: torch.Tensor | None,
    other: torch.Tensor | None,
) -> bool:
    """Whether two gradients are equal, as far as both are there."""
    return one is None or other is None or torch.equal(one, other)


def _compared(
    applied: _Applied, place: int, every: Sequence[torch.Tensor | None]
) -> str:
    """By which factor a gradient differs from the slope, or "not"; "" where it does
    not; "surrogate" where that is meant.

    A forward that is flat, or that hands its input on as it is, has a backward that
    somebody has chosen.
    """
    value, gradient = applied.given[place], every[place]
    if gradient is None:
        known = abs(applied.along(place, torch.randn_like(value)))
        if known > _FAR and any(other is not None for other in every):
            return "gives none"
        return ""

    if gradient.shape != value.shape:
        return ""

    first, second = (_ratio(applied, place, gradient) for _ in range(2))
    if isinstance(first, str) or isinstance(second, str):
        return first if isinstance(first, str) else str(second)

    scaled = value.numel() > 1 and abs(first - second) < _FAR * abs(first)
    return _by_element(applied, place, gradient) or (
        f"{first:.3g} times" if scaled else "not"
    )


def _ratio(
    applied: _Applied,
    place: int,
    gradient: torch.Tensor,
) -> float | str:
    """By which factor a gradient differs from the slope along one step; the verdict
    where that is known.
    """
    step = torch.randn_like(gradient)
    slopes = applied.slopes(place, step)
    told, known = float((gradient * step).sum()), applied.along(place, step)
    if told and not any(bool(slope.any()) for slope in slopes):
        return "surrogate"

    hands_on = any(
        slope.shape == step.shape and torch.allclose(slope, step, rtol=_FAR)
        for slope in slopes
    )
    if hands_on or abs(told - known) <= _FAR * max(
        abs(told),
        abs(known),
        _TINY / _FAR,
    ):
        return ""

    return told / known if known else 0.0


def _by_element(
    applied: _Applied,
    place: int,
    gradient: torch.Tensor,
) -> str:
    """Whether a gradient is right wherever the forward of single elements is not flat:
    a forgotten mask, or chosen; else "".
    """
    if not applied.is_elementwise(place):
        return ""

    known = applied.slopes(place, torch.ones_like(gradient))[0] * applied.pulls[0]
    moves = known.abs() > _TINY
    if not moves.any():
        return "surrogate"

    if not torch.allclose(
        gradient[moves],
        known[moves],
        rtol=_FAR,
    ):
        return ""

    return "forgets mask" if _goes_on(applied, gradient, moves) else "surrogate"
