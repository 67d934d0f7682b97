"""Keeps the record of a run. The one place that hooks optimizers, schedulers, clipping
and scalers.

Optimizers tell of their steps themselves: fused ones write past the version counter,
which shows all other changes. Some of torch's own functions are tapped while the code
runs. Tensors and optimizers are held weakly between the calls, and at some steps a few
elements of parameters are compared before and after. Concludes nothing, and writes
nothing.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, GeneratorType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradviz.checks.collect.calls import ByIdentity
from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.modes import SleepWatch
from gradviz.checks.collect.numbers import TensorRef, is_readable, optimized
from gradviz.checks.record import LETTERS, Intervals, LoopCall, OptimizerRow, RunRecord
from gradviz.checks.words import Names
from gradviz.gradients.values import is_zero
from gradviz.graph import SourceLine
from gradviz.packages import code_line, with_text
from gradviz.source.statements import loops_around
from gradviz.variables.objects import is_a, parameters
from gradviz.walker.isolation import isolated
from gradviz.walker.private import has_compiled
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended, all_tapped
from gradviz.walker.tensors import version_of

KEPT = 3000
"""Calls that are noted; what an order is like shows in the first few."""
ELEMENTS = 4096
"""Elements of a parameter that are compared before and after a step, at most, at the
same places each time.
"""
# steps of an optimizer that are sampled; later ones whenever there were twice as many
_FIRST = 3


class _Watching(NamedTuple):
    """An optimizer."""

    ref: weakref.ref[torch.optim.Optimizer]
    row: OptimizerRow


Listener = tuple[Any, Callable[..., "Ended | None"]]
"""A function of torch's own, and what is told of its calls."""


def _untraced(
    hook: Callable[..., None],
) -> Callable[..., None]:
    """A hook of steps that torch's compiler does not trace, as it would break the
    graph: `look` sees a compiled step.
    """

    @functools.wraps(hook)
    def called(*arguments: Any) -> None:
        if not torch.compiler.is_compiling():
            hook(*arguments)

    return called


class RunRecorder:
    """Of one run."""

    def __init__(self) -> None:
        self.record = RunRecord()
        self.between = Between()
        self.modes = SleepWatch()
        self._optimizers: dict[int, _Watching] = {}
        self._births = ByIdentity[tuple[SourceLine, int]]()  # see `birth`
        # at the last call
        self._versions: dict[OptimizerRow, tuple[int, dict[int, int | None]]] = {}
        # elements, and their gradient
        self._before: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self._call = 0
        self.stage = 0  # changes when an optimizer is made, or a parameter behind one
        # optimizers whose step() runs now: a closure may call backward inside
        self._stepping: list[int] = []
        self._line_of = functools.cache(
            lambda code, line: with_text(code_line(code, line))
        )

    @property
    def in_step(self) -> bool:
        """Whether the step() of an optimizer runs now, and has called a closure."""
        return bool(self._stepping)

    def backward(
        self,
        number: int,
        frame: FrameType,
        fills: bool = True,
    ) -> None:
        """The code calls backward for the `number`-th time. `fills`: gradients go to
        `.grad`.
        """
        self._call = number
        self._note("backward", None if fills else (), frame)
        if fills:
            self.modes.backward()

    def reaches(
        self, leaves: Iterable[int], number: int, frame: FrameType | None
    ) -> None:
        """The `number`-th backward call, which may not be noted yet, leads to these
        leaves.
        """
        log = self.record.log
        if number != self._call and frame is not None:
            self.backward(number, frame)
        if log and (log[-1].letter, log[-1].number) == ("b", self._call):
            log[-1] = log[-1]._replace(tensors=frozenset(leaves))

    def result(self, ended: bool) -> RunRecord:
        """All that is known, with what stands around the lines. `ended`: the script has
        come to its end.
        """
        record, look = self.record, functools.cache(loops_around)
        self._reach_likewise()

        for i, call in enumerate(record.log):
            if call.source is not None:
                record.log[i] = call._replace(
                    loops=look(call.source.file, call.source.line)
                )

        for row in record.optimizers:
            row.ended = ended

        for key, leaf in record.leaves.items():
            leaf.holders = tuple(
                row.name or row.type for row in record.optimizers if key in row.held
            )

        record.ended, record.asleep = ended, tuple(self.modes.found)
        return record

    def _reach_likewise(self) -> None:
        """What is held that a backward call reaches which was not read: that of all
        others of its line, where these agree.
        """
        log, held = self.record.log, self.record.holding
        reached: dict[SourceLine | None, set[frozenset[int]]] = {}
        for call in log:
            if call.letter == "b" and call.tensors is not None:
                reached.setdefault(call.source, set()).add(call.tensors & held)

        for i, call in enumerate(log):
            if call.letter == "b" and call.tensors is None:
                every = reached.get(call.source, ())
            else:
                every = ()
            if len(every) == 1:
                log[i] = call._replace(tensors=next(iter(every)))

    # -- hooks -------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, everything is noted."""
        scaler, clips, home = (
            torch.amp.GradScaler,
            torch.nn.utils.clip_grad,
            torch.optim.lr_scheduler.LRScheduler,
        )
        listeners: list[Listener] = [
            (torch.optim.Optimizer.zero_grad, self._noting("zero")),
            (torch.nn.Module.zero_grad, self._noting("zero")),
            (scaler.scale, self._noting("scale")),
            (scaler.unscale_, self._noting("unscale")),
            (scaler.step, self._noting("scaler_step")),
            (scaler.update, self._noting("update")),
            (clips.clip_grad_norm_, self._noting("clip")),
            (clips.clip_grad_value_, self._noting("clip")),
            (torch.optim.Optimizer.__init__, self._made),
            (torch.nn.Parameter.__new__, self._born),
            (
                torch.nn.Module.train,
                lambda frame, module, *_, **__: self.modes.line(
                    frame, module, self._line(frame)
                ),
            ),
        ]

        if hasattr(home, "_update_lr"):
            listeners.append((home._update_lr, self._scheduled))
        else:  # an older torch, as 2.6: the guard that only step() makes
            guard = torch.optim.lr_scheduler._enable_get_lr_call
            listeners.append(
                (
                    guard.__init__,
                    lambda frame, _, scheduler: self._scheduled(frame, scheduler),
                )
            )

        with ExitStack() as until:
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            until.enter_context(all_tapped(listeners))
            yield

    def _made(
        self,
        frame: FrameType,
        optimizer: torch.optim.Optimizer,
        *_: Any,
        **__: Any,
    ) -> Ended:
        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned:
                self.stage += 1
                self.row(optimizer, frame)

        return ended

    def _scheduled(
        self,
        frame: FrameType,
        scheduler: Any,
        *_: Any,
    ) -> None:
        """A learning rate scheduler takes its step; that which torch makes when it is
        made is left out.

        What `step()` calls is what is seen: torch's warning about their order names the
        line that calls `step()` itself.
        """
        step = frame.f_back
        caller = step.f_back if step is not None else None
        if step is None or caller is None or caller.f_code.co_name == "_initial_step":
            return

        with suppress(Exception):  # a scheduler of the user's own may hold anything
            # it is used in a way of its own
            given = step.f_locals.get("epoch") is not None
            if not given and any(
                group["lr"] for group in scheduler.optimizer.param_groups
            ):
                # else 0 is left out on purpose
                self._note("schedule", scheduler.optimizer, caller)

    def _born(
        self,
        frame: FrameType,
        *_: Any,
        **__: Any,
    ) -> Ended | None:
        if not self.record.optimizers:
            return None
        return lambda returned, parameter: (
            self._is_born(parameter, frame) if returned else None
        )

    @uninterrupted
    def _is_born(self, parameter: torch.Tensor, frame: FrameType) -> None:
        """A parameter was made after an optimizer, which may be one too late for it."""
        source = self._line(frame)
        if source is not None:
            self.stage += 1
            self._births.put(
                parameter,
                (source, len(self.record.optimizers)),
            )

    def birth(
        self,
        leaf: torch.Tensor,
    ) -> tuple[SourceLine, int] | None:
        """The line that made a leaf that is younger than an optimizer, and how many of
        these were there.
        """
        return self._births.of(leaf)

    def row(
        self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None
    ) -> OptimizerRow:
        """The row of an optimizer, which a line of this frame has made, as far as that
        is known.
        """
        known = self._optimizers.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            row = OptimizerRow(
                type(optimizer).__name__,
                len(self.record.optimizers),
                self._line(frame),
            )
            known = self._optimizers[id(optimizer)] = _Watching(
                weakref.ref(optimizer), row
            )
            self.record.optimizers.append(row)

        return known.row

    def look(self) -> None:
        """Bring the rows of all optimizers up to date, at a backward call.

        A step that was compiled ran no hook: the parameters have changed since the last
        call all the same.
        """
        for known in self._optimizers.values():
            live, row = known.ref(), known.row
            with isolated(), suppress(Exception):
                row.held.update(map(id, optimized(live)) if live is not None else ())

            if live is not None and has_compiled():
                tensors = optimized(live)
            else:
                tensors = []

            versions = {id(tensor): version_of(tensor) for tensor in tensors}
            counted, before = self._versions.get(row, (0, {}))
            moved = {
                key
                for key, version in versions.items()
                if before.get(key, version) != version
            }
            if moved and row.steps == counted:
                row.steps += 1
                row.fed |= moved

            self._versions[row] = row.steps, versions

    # -- a step of an optimizer --------------------------------------------------------

    @uninterrupted
    @_untraced
    def _step_begins(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        self._note("step", optimizer, sys._getframe(1))
        self.record.updates += not self._stepping
        self._stepping.append(id(optimizer))

        # an optimizer of the user's own may hold anything
        with isolated(), suppress(Exception):
            row = self.row(optimizer)
            row.steps += 1
            rates = [float(group.get("lr", 1.0)) for group in optimizer.param_groups]
            row.idle_rates += not any(rates)
            row.rate = max(row.rate, *rates)
            tensors = optimized(optimizer)
            fed = [t for t in tensors if t.is_leaf and t.grad is not None]
            row.held.update(map(id, tensors))
            row.fed.update(map(id, fed))
            row.frozen.update(id(leaf) for leaf in fed if not leaf.requires_grad)
            self.modes.stepped(map(id, fed))
            self._sample(optimizer, row)

    def _sample(
        self,
        optimizer: torch.optim.Optimizer,
        row: OptimizerRow,
    ) -> None:
        """Keep a few elements of each parameter until the step is over, where it is one
        of those that are looked at.
        """
        self._before = []
        if row.steps > _FIRST and row.steps & (row.steps - 1):
            return

        for group in optimizer.param_groups:
            for tensor in group["params"] if float(group.get("lr", 1.0)) else ():
                dense = (
                    type(tensor.grad) is torch.Tensor
                    and not tensor.grad.is_sparse
                    and is_readable(tensor.grad)
                )
                if id(tensor) in self.record.leaves and dense and is_readable(tensor):
                    self._before.append(
                        (
                            tensor,
                            _few(tensor).clone(),
                            _few(tensor.grad).clone(),
                        )
                    )

    def _compare(self, row: OptimizerRow) -> None:
        before, self._before = self._before, []
        for tensor, elements, gradient in before:
            leaf, pushed, change = (
                self.record.leaves.get(id(tensor)),
                gradient != 0,
                _few(tensor) - elements,
            )
            count = int(pushed.sum())
            if leaf is not None and count:
                leaf.pushed += 1
                leaf.still += float(((change == 0) & pushed).sum()) / count

    @uninterrupted
    @_untraced
    def _step_ends(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        with isolated(), suppress(Exception):
            self.between.stepped(optimizer)
            row = self.row(optimizer)
            row.last_call = self._call
            self._compare(row)
        if id(optimizer) in self._stepping:
            self._stepping.remove(id(optimizer))

    # -- the log -----------------------------------------------------------------------

    def _noting(self, kind: str) -> Callable[..., None]:
        """What is told of the calls of one function."""
        begin = 1 if kind in ("unscale", "scaler_step") else 0  # behind the scaler

        def noted(
            frame: FrameType,
            *arguments: Any,
            **options: Any,
        ) -> None:
            about = next(iter(arguments[begin:]), None)
            if kind == "scale" and about is not None and about.is_enabled():
                self.record.scaled = True
            if kind != "clip" or _limit(*arguments, **options) < math.inf:
                self._note(kind, about, frame)

        return noted

    def _note(
        self,
        kind: str,
        about: object,
        frame: FrameType,
    ) -> None:
        if len(self.record.log) < KEPT and not self._stepping:
            tensors = _tensors_of(about)
            if tensors is not None:  # one set for all calls about the same
                tensors = self._sets.setdefault(tensors, tensors)
            self.record.log.append(
                LoopCall(
                    LETTERS[kind],
                    self._call,
                    tensors,
                    self._line(frame),
                )
            )

    def _line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        frame = users_frame(frame)
        if frame is not None:
            return self._line_of(frame.f_code, frame.f_lineno)
        return None


def _few(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements of a tensor, always the same ones."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // ELEMENTS)][:ELEMENTS]


def _limit(
    parameters: object = None,
    max_norm: Any = None,
    clip_value: Any = None,
    **_: object,
) -> float:
    """What gradients are clipped to. An infinite limit only asks for the norm, and
    clips nothing.
    """
    given = max_norm if max_norm is not None else clip_value
    return float(given) if isinstance(given, (int, float)) else sys.float_info.max


def _tensors_of(about: object) -> frozenset[int] | None:
    """Identities of the parameters that a call is about; None where it cannot be told
    without using something up.
    """
    if is_a(about, torch.optim.Optimizer):
        return frozenset(map(id, optimized(about)))
    if is_a(about, torch.nn.Module):
        return frozenset(map(id, parameters(about)))
    if is_a(about, torch.Tensor):
        return frozenset({id(about)})

    if (
        type(about) is GeneratorType
        and about.gi_code is torch.nn.Module.parameters.__code__
        and about.gi_frame
    ):
        return frozenset(map(id, parameters(about.gi_frame.f_locals["self"])))

    if is_a(about, list) or is_a(about, tuple):
        return frozenset(map(id, about))

    return None


# -- what is done with a leaf between two calls ----------------------------------------


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it
    before that call.
    """

    version: int | None
    grad: TensorRef
    grad_version: int | None
    intervals: Names


class Between:
    """What the code does with leaves and their gradients between the backward calls
    that reach them. Of one run.

    An interval is a word: "s" an optimizer that holds the leaf took a step, and it had
    a gradient then; "w" it was changed in place; "z" `.grad` was emptied, replaced or
    zeroed; "?" nobody can tell whether it was. Whether a gradient was zeroed no counter
    tells for certain (`w.grad.data.zero_()`), so its numbers are looked at, if the leaf
    was updated. `before` and `after` belong around each backward call that is read.
    """

    def __init__(self) -> None:
        self._left = ByIdentity[_Left]()
        # ids of leaves with a gradient, since a call reached them
        self._stepped: set[int] = set()
        # by the call that runs now
        self._reached: list[tuple[torch.Tensor, Names]] = []
        # of all that calls have reached
        self._versions: dict[int, tuple[TensorRef, int | None]] = {}
        # whether an optimizer has taken a step since `updated` was asked
        self._updated = False
        self.saw_updates = False  # whether `updated` was ever true

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has taken a step."""
        self._updated = True
        self._stepped |= {
            id(leaf)
            for leaf in optimized(optimizer)
            # reading `.grad` of others warns
            if leaf.is_leaf and leaf.grad is not None
        }

    def before(self, leaves: Mapping[int, torch.Tensor]) -> Intervals:
        """What was done with each of these leaves between the calls that reached it, by
        the same keys.
        """
        intervals = {}
        leaves = {key: leaf for key, leaf in leaves.items() if leaf.is_leaf}
        for key, leaf in leaves.items():
            left = self._left.of(leaf)
            if left is not None:
                intervals[key] = (*left.intervals, self._since(left, leaf))
        self._reached = [(leaf, intervals.get(key, ())) for key, leaf in leaves.items()]
        return intervals

    def updated(self) -> bool:
        """Whether an optimizer took a step, or a leaf was changed in place, since this
        was asked last. Ask after `before`.
        """
        known = [
            (leaf, version)
            for ref, version in self._versions.values()
            if (leaf := ref()) is not None
        ]
        updated = self._updated or any(
            version_of(leaf) != version for leaf, version in known
        )
        leaves = [leaf for leaf, _ in [*known, *self._reached]]
        self._versions = {
            id(leaf): (weakref.ref(leaf), version_of(leaf)) for leaf in leaves
        }
        self._updated, self.saw_updates = False, self.saw_updates or updated

        return updated

    def after(self, filled: bool) -> None:
        """The call has run, and `filled` the gradients of its leaves, or not."""
        reached, self._reached = self._reached, []
        for leaf, intervals in reached if filled else ():
            if leaf.grad is not None:
                grad = leaf.grad
                left = _Left(
                    version_of(leaf), weakref.ref(grad), version_of(grad), intervals
                )
                self._left.put(leaf, left)
                self._stepped.discard(id(leaf))

    def _since(self, left: _Left, leaf: torch.Tensor) -> str:
        done, grad = "s" * (id(leaf) in self._stepped), leaf.grad
        done += "w" if version_of(leaf) != left.version else ""
        if grad is None or left.grad() is not grad:
            return f"{done}z"
        if not {*done} & {"s", "w"} and version_of(grad) == left.grad_version:
            return done
        return done + {True: "z", None: "?"}.get(
            is_zero(grad),
            "",
        )
