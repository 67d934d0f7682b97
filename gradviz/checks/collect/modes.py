"""Sees dropout and batch normalization that run in the wrong mode, and models that are
trained while they are in eval() mode.

Looks at modes and identities, reads no number, and keeps modules weakly.
"""

from __future__ import annotations

import ast
import weakref
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gradviz.checks.collect.calls import ByIdentity, Observer, taps
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.run import Asleep
from gradviz.graph import SourceLine
from gradviz.packages import Place, script_lines
from gradviz.recording.session import running
from gradviz.source.statements import expressions_at, nodes_of
from gradviz.variables.objects import joined, parameters, submodules
from gradviz.variables.scanner import first_argument, local_variables
from gradviz.walker.isolation import isolated

_LOOKS = 50  # how often the module around a line is asked for its mode
_DOES = (
    "batch normalization takes its statistics from this data",
    "dropout leaves out elements at random",
)
_CALLS = {
    torch.nn.Module._call_impl.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
}


class ModeWatch(Observer):
    """Calls that run as in training: of one run, in one thread."""

    def _begin(self) -> None:
        self._looked = Counter[object]()  # how often a line was looked at

    @taps(
        functional.dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.alpha_dropout,
    )
    def _dropped(
        self,
        frame: FrameType,
        _: Any,
        p: float,
        training: bool,
        *__: Any,
    ) -> None:
        if training is True and p:
            self._runs(frame, True)

    @taps(functional.batch_norm)
    def _normalized(
        self,
        frame: FrameType,
        _: Any,
        mean: Any,
        variance: Any,
        weight: Any,
        bias: Any,
        training: bool,
        *__: Any,
    ) -> None:
        if training is True:
            self._runs(frame, False)

    def _runs(self, frame: FrameType, drops: bool) -> None:
        """Something runs as in training: inside of a model in eval mode, or where
        nothing is recorded.
        """
        users = users_frame(frame)
        if users is None:
            return
        at = frame.f_code, users.f_code, users.f_lineno, torch.is_grad_enabled()
        self._looked[at] += 1
        if self._looked[at] > _LOOKS:
            return

        model, calling = model_around(frame)
        if model is None or calling is None:
            return
        if not model.training and drops:
            self._goes_on(model, frame, self._place(users))
        elif model.training and not _in_training():
            self._unswitched(model, calling, drops)

    def _goes_on(
        self, model: torch.nn.Module, frame: FrameType, place: Place | None
    ) -> None:
        """A dropout that is not told, and not switched alone, as for Monte Carlo
        dropout.
        """
        switched = any(module.training for _, module in submodules(model))
        if place is not None and not switched and not _is_told(line_at(place)):
            calls = frame.f_back.f_code.co_filename if frame.f_back else ""
            apart = calls == torch.nn.modules.dropout.__file__
            kind = "dropout apart" if apart else "dropout in eval"
            self._note(kind, place, type(model).__name__)

    def _unswitched(
        self, model: torch.nn.Module, calling: FrameType, drops: bool
    ) -> None:
        """A model that is trained runs in training mode where nothing is recorded."""
        place = self._place(calling)
        with isolated():
            weights = [one for one in parameters(model) if one.requires_grad]
        if place is None or not weights or _is_for_itself(model, calling, place):
            return
        if not drops and _is_picked_from(line_at(place)):
            return
        self._note(
            "train in evaluation",
            place,
            type(model).__name__,
            _DOES[drops],
            tensors=frozenset(map(id, weights)),
            around=[(line.file, line.line) for line in script_lines(calling)],
        )


def _is_told(source: SourceLine) -> bool:
    """Whether a line passes `training` to a dropout: it is meant, then."""
    calls = expressions_at(source.file, source.line)
    drops = (
        call
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("dropout")
    )
    return any(
        len(call.args) > 2 or any(one.arg == "training" for one in call.keywords)
        for call in drops
    )


def _is_for_itself(model: torch.nn.Module, calling: FrameType, place: Place) -> bool:
    """Whether a line calls a model and drops what that gives, as those do that collect
    the statistics of batch norms.
    """
    source = line_at(place)
    known = {**calling.f_globals, **local_variables(calling)}
    calls = [
        node.value.func
        for node in nodes_of(source.file, ast.Expr)
        if node.lineno == source.line and isinstance(node.value, ast.Call)
    ]
    return any(known.get(ast.unparse(function)) is model for function in calls)


def _is_picked_from(source: SourceLine) -> bool:
    """Whether a line gives a model what the same file picks its batches from: a look at
    the data of the training.
    """
    calls = (
        node
        for node in expressions_at(source.file, source.line)
        if isinstance(node, ast.Call)
    )
    given = {ast.unparse(argument) for call in calls for argument in call.args}
    return any(
        ast.unparse(item.value) in given
        for item in nodes_of(source.file, ast.Subscript)
    )


def _in_training() -> bool:
    """Whether something is recorded here or by a module around, as where a network
    computes its own targets without recording.
    """
    session = running()
    calls = session.event_log().stack if session is not None else ()
    return torch.is_grad_enabled() or any(call.module.recording for call in calls)


def model_around(
    frame: FrameType | None,
) -> tuple[torch.nn.Module | None, FrameType | None]:
    """The outermost module whose call this runs in, and the frame that called it."""
    model, calling = None, None
    while frame is not None:
        if frame.f_code in _CALLS:
            model, calling = first_argument(frame), frame.f_back
        frame = frame.f_back
    return model, users_frame(calling)


# -- steps in eval() mode --------------------------------------------------------------


class Trainee(NamedTuple):
    """A model, and the identities of its parameters that require grad."""

    name: str
    model: weakref.ref[torch.nn.Module]
    weights: frozenset[int]

    @property
    def is_switched(self) -> bool:
        """Whether it is in eval() mode."""
        live = self.model()
        return live is not None and not live.training


class SleepWatch:
    """Sees steps of models that are in eval() mode, of one run."""

    def __init__(self) -> None:
        # the models at the last backward call that was read
        self.known: tuple[Trainee, ...] = ()
        # those in eval() mode at the last backward call
        self._switched: list[Trainee] = []
        # that called train() or eval() of a model last
        self._lines = ByIdentity[SourceLine | None]()
        self._judged = set[str]()
        self.found: list[Asleep] = []

    def line(
        self, frame: FrameType, module: torch.nn.Module, line: SourceLine | None
    ) -> None:
        """A line calls train() or eval() of a module, which calls that of its parts."""
        if frame.f_back is None or frame.f_back.f_code is not frame.f_code:
            self._lines.put(module, line)

    def backward(self) -> None:
        """A call of backward comes that fills gradients."""
        self._switched = [trainee for trainee in self.known if trainee.is_switched]

    def stepped(self, fed: Iterable[int]) -> None:
        """An optimizer takes a step with the gradients of these tensors."""
        weights = frozenset(fed) if self._switched else frozenset[int]()
        for trainee in self._switched:
            live = trainee.model()
            if (
                live is None
                or live.training
                or trainee.name in self._judged
                or trainee.weights.isdisjoint(weights)
            ):
                continue

            self._judged.add(trainee.name)
            parts = tuple(
                joined(trainee.name, path)
                for path, module in submodules(live)
                if _sleeps(module)
            )
            if parts:
                self.found.append(
                    Asleep(
                        trainee.name,
                        type(live).__name__,
                        parts,
                        self._lines.of(live),
                    )
                )


def _sleeps(module: torch.nn.Module) -> bool:
    """Whether a module does nothing in eval() mode that it would do: dropout, or batch
    normalization that is trained.
    """
    own = module._parameters.values() if isinstance(module, _BatchNorm) else ()
    trained = any(weight is not None and weight.requires_grad for weight in own)
    return not module.training and (
        trained or (isinstance(module, _DropoutNd) and bool(module.p))
    )
