"""Sees dropout and batch normalization that run in the wrong mode, and models that are
trained while they are in eval() mode.

Looks at modes and identities, reads no number, and keeps modules weakly.
"""

from __future__ import annotations

import ast
import re
import weakref
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.checks.words import listed
from gradviz.graph import SourceLine
from gradviz.packages import script_lines
from gradviz.recording.session import running
from gradviz.source.code_line import parsed
from gradviz.source.statements import expressions_at
from gradviz.variables.objects import joined, parameters, submodules
from gradviz.variables.scanner import first_argument, local_variables
from gradviz.walker.isolation import isolated
from gradviz.walker.taps import Began

_TOLD = re.compile(r"dropout\(.*(training=|, (True|self\.training)\))")
_LOOKS = 50  # how often the module around a line is asked for its mode
_DROPOUTS = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
)
_CALLS = {
    torch.nn.Module._call_impl.__code__,
    torch.nn.Module._wrapped_call_impl.__code__,
}


class ModeWatch:
    """Of one run, in one thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._looked = Counter[object]()  # how often a line was looked at
        # at the last backward call that was read, by name
        self.models: dict[str, weakref.ref[torch.nn.Module]] = {}
        self._judged = set[str]()
        # that called train() or eval() of a module last
        self._switches = WeakKeyDictionary[torch.nn.Module, SourceLine | None]()

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        for function in _DROPOUTS:
            yield function, self._dropped
        yield functional.batch_norm, self._normalized
        yield torch.nn.Module.train, self._switched

    def _name(self, model: torch.nn.Module) -> str:
        """What a sentence calls a model."""
        names = [name for name, ref in self.models.items() if ref() is model]
        return next(filter(None, names), type(model).__name__)

    # -- what runs as in training ------------------------------------------------------

    def _dropped(
        self,
        frame: FrameType,
        _: Any,
        p: float,
        training: bool,
        *__: Any,
    ) -> None:
        if training is True and p:
            self._runs(frame, "dropout leaves out elements at random")

    def _normalized(self, frame: FrameType, *arguments: Any) -> None:
        if arguments[5] is True:  # training
            self._runs(frame, "batch normalization takes its statistics from this data")

    def _runs(self, frame: FrameType, what: str) -> None:
        """Something runs as in training: inside of a model in eval mode, or where
        nothing is recorded.
        """
        users = users_frame(frame)
        if users is None:
            return
        line = frame.f_code, users.f_code, users.f_lineno, torch.is_grad_enabled()
        self._looked[line] += 1
        # walking up the stack at every dropout would slow down the training
        if self._looked[line] > _LOOKS:
            return

        model, calling = model_around(frame)
        if model is None or calling is None:
            return
        if not model.training:
            self._drops_on(model, users)
        elif not _in_training():
            self._evaluated(model, calling, what)

    def _drops_on(self, model: torch.nn.Module, users: FrameType) -> None:
        """Something runs in eval() mode that is not told of it, or that eval() does not
        reach; nothing that was switched alone, as for Monte Carlo dropout.
        """
        source = self._recorder.script_line(users)
        switched = any(module.training for _, module in submodules(model))
        if source is not None and not switched and not _is_told(source):
            self._recorder.note(Kind.DROPS_ON, source, self._name(model))

    def _evaluated(self, model: torch.nn.Module, calling: FrameType, what: str) -> None:
        """A model that is trained runs in training mode where nothing is recorded."""
        source = self._recorder.script_line(calling)
        with isolated():
            weights = [weight for weight in parameters(model) if weight.requires_grad]

        if source is None or not weights:
            return

        if not _collects_statistics(model, calling, source):
            self._recorder.note(
                Kind.EVALUATED,
                source,
                self._name(model),
                what,
                tensors=frozenset(map(id, weights)),
                lines=[(line.file, line.line) for line in script_lines(calling)],
            )

    # -- steps in eval() mode ----------------------------------------------------------

    def _switched(
        self,
        frame: FrameType,
        module: Any,
        *_: Any,
    ) -> None:
        """A line calls train() or eval() of a module, which calls that of its parts."""
        if frame.f_back is None or frame.f_back.f_code is not frame.f_code:
            self._switches[module] = self._recorder.line(frame)

    def stepped(self, fed: set[int]) -> None:
        """An optimizer takes a step with the gradients of these tensors."""
        for name, ref in self.models.items():
            model = ref()
            if model is None or model.training or name in self._judged:
                continue
            # this optimizer trains another model
            if fed.isdisjoint(map(id, parameters(model))):
                continue

            self._judged.add(name)
            parts = [
                joined(name, path) for path, part in submodules(model) if _sleeps(part)
            ]
            if parts:
                about = self._name(model), listed(parts)
                self._recorder.note(Kind.ASLEEP, self._switches.get(model), *about)


def _is_told(source: SourceLine) -> bool:
    """Whether a line passes `training` to a dropout: it is meant, then."""
    calls = map(ast.unparse, expressions_at(source.file, source.line))
    return any(_TOLD.search(call) for call in calls)


def _collects_statistics(
    model: torch.nn.Module, calling: FrameType, source: SourceLine
) -> bool:
    """Whether a line calls a model and drops what that gives."""
    variables = {**calling.f_globals, **local_variables(calling)}
    for statement in parsed(source):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call):
            return variables.get(ast.unparse(call.func)) is model
    return False


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
        # goes on to the top: the last one that is found is the outermost
        if frame.f_code in _CALLS:
            model, calling = first_argument(frame), frame.f_back
        frame = frame.f_back
    return model, users_frame(calling)


def _sleeps(module: torch.nn.Module) -> bool:
    """Whether a module does nothing in eval() mode that it would do: dropout, or batch
    normalization that is trained.
    """
    if module.training:
        return False
    if isinstance(module, _DropoutNd):
        return bool(module.p)
    weights = module._parameters.values() if isinstance(module, _BatchNorm) else ()
    return any(weight is not None and weight.requires_grad for weight in weights)
