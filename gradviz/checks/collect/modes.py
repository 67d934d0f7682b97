"""Sees dropout and batch normalization that run in the wrong mode, and models that are
trained while they are in eval() mode.

Looks at modes and identities, reads a few elements of weights that nothing trains, and
keeps modules weakly.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from itertools import chain
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.armour.isolation import isolated
from gradviz.armour.taps import Began
from gradviz.checks.collect.numbers import ByTensor, mark_of
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.checks.words import as_code, listed
from gradviz.graph import SourceLine
from gradviz.packages import script_lines, users_frame
from gradviz.recording.failure import MODULE_CALL
from gradviz.recording.session import running
from gradviz.source.statements import (
    body_of,
    called,
    expressions_at,
    loops_around,
    statements_at,
    written_at,
)
from gradviz.variables.objects import (
    attribute_of,
    class_attribute,
    joined,
    parameters,
    submodules,
)
from gradviz.variables.scanner import first_argument, local_variables

_DROPOUTS = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
)
_COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.GeneratorExp
_CALLS = {MODULE_CALL, torch.nn.Module._wrapped_call_impl.__code__}


_Value = TypeVar("_Value")
# by identity: a class of the user's may say what is equal
ByModule = MutableMapping[torch.nn.Module, _Value]


class ModeWatch:
    """Of one run, in one thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # at the last backward call that was read, by name
        self.models: dict[str, weakref.ref[torch.nn.Module]] = {}
        self._judged = set[str]()
        self._looked: ByModule[bool] = WeakIdKeyDictionary()
        # a weight as it was when nothing was recorded for it, and at which call
        self._marks: ByTensor[tuple[object, int]] = WeakIdKeyDictionary()
        self._told: ByTensor[bool] = WeakIdKeyDictionary()
        # that called train() or eval() of a module last
        self._switches: ByModule[SourceLine | None] = WeakIdKeyDictionary()

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        for function in (*_DROPOUTS, functional.batch_norm):
            yield function, self._runs
        yield torch.nn.Module.train, self._switched

    def _runs(self, frame: FrameType, *_: Any, **__: Any) -> None:
        """A dropout or a batch normalization runs as in training, where nothing is
        recorded, or nothing trains it.
        """
        given = local_variables(frame)
        if not (given.get("training") is True and given.get("p", 1)):
            return
        # of a batch normalization
        weight, recorded = given.get("weight"), _in_training()
        if recorded and not (isinstance(weight, torch.Tensor) and _is_left_out(weight)):
            return
        model, calling = model_around(frame)
        if model is None or calling is None:
            return
        if not model.training:
            if not recorded and weight is None:
                self._awake(model, frame)
            return

        with isolated():
            if not recorded:
                self._unrecorded(model, calling)
            elif isinstance(weight, torch.Tensor):
                self._frozen(model, weight)

    def _awake(self, model: torch.nn.Module, frame: FrameType) -> None:
        """A model is in eval() mode, and its code calls dropout without saying so."""
        source = self._recorder.line(frame.f_back)
        direct = users_frame(frame.f_back) is frame.f_back
        if direct and source is not None and "training" not in written_at(source):
            weights = frozenset(map(id, parameters(model)))
            name, function = self._name(model), frame.f_code.co_name
            self._recorder.note(Kind.AWAKE, source, name, function, tensors=weights)

    def _unrecorded(self, model: torch.nn.Module, calling: FrameType) -> None:
        """A model runs as in training where nothing is recorded: it is evaluated; or it
        never trains, as a teacher.
        """
        source, weights = self._recorder.script_line(calling), parameters(model)
        # a line that drops what the model gives collects statistics
        drops = any(isinstance(part, ast.Expr) for part in statements_at(source))
        if source is None or drops or not weights or _draws(source):
            return
        kind, about = Kind.EVALUATED, [type(model).__name__]
        if self._stays(weights[0]):
            kind, about = Kind.TEACHER, _asleep([self._name(model)])
        elif not any(weight.requires_grad for weight in weights):
            return
        self._recorder.note(
            kind,
            source,
            *about,
            tensors=frozenset(map(id, weights)),
            lines=[(line.file, line.line) for line in script_lines(calling)],
        )

    def _frozen(self, model: torch.nn.Module, weight: torch.Tensor) -> None:
        """A batch normalization that nothing trains goes on collecting statistics."""
        if weight in self._told or not self._stays(weight):
            return
        frozen: dict[str, torch.Tensor] = {}
        for path, part in submodules(model):
            own = part.weight if isinstance(part, _BatchNorm) else None
            if own is not None and (own is weight or not own.requires_grad):
                frozen[path] = own
        for other in frozen.values():
            self._told[other] = True

        # the part of the model that is frozen as a whole, where there is one
        parts = [
            path
            for path, part in submodules(model)
            if all(f"{other}.".startswith(f"{path}.") for other in frozen)
            and not any(own.requires_grad for own in parameters(part))
        ]
        name = self._name(model)
        names = [as_code(joined(name, path)) for path in parts[:1] or frozen]
        self._recorder.note(
            Kind.TEACHER,
            self._switches.get(model),
            *_asleep(names),
            tensors=frozenset(map(id, frozen.values())),
        )

    def _stays(self, weight: torch.Tensor) -> bool:
        """Whether a weight is as it was two backward calls ago, or more: an average of
        another model moves with each.
        """
        number, mark = self._recorder.number, mark_of(weight)
        first, since = self._marks.setdefault(weight, (mark, number))
        if mark != first:
            self._marks[weight] = None, number
        return mark == first is not None and number >= since + 2

    def _name(self, model: torch.nn.Module) -> str:
        names = (name for name, ref in self.models.items() if ref() is model)
        return next(names, "") or type(model).__name__

    def _switched(self, frame: FrameType, module: Any, *_: Any) -> None:
        """A line calls train() or eval() of a module, which calls that of its parts."""
        if frame.f_back is None or frame.f_back.f_code is not frame.f_code:
            self._switches[module] = self._recorder.line(frame)
            if local_variables(frame).get("mode") is False:
                with isolated(), self._recorder.reading("modes"):
                    self._goes_on(module)

    def _goes_on(self, model: torch.nn.Module) -> None:
        """A model is switched to eval() mode, and attention in it drops all the same."""
        if model in self._looked:
            return
        self._looked[model] = True
        modules = [part for _, part in submodules(model)]
        # who overrides train() may switch it there
        usual = class_attribute(torch.nn.Module, "train")
        if any(class_attribute(type(part), "train") is not usual for part in modules):
            return
        ids = frozenset(map(id, parameters(model)))
        for part in modules:
            forward = class_attribute(type(part), "forward")
            if type(forward) is not FunctionType:
                continue
            source, given = _dropping(forward.__code__)
            first, *path = given.split(".")
            number = attribute_of(part, path) if first == "self" else None
            if type(number) is float and number > 0:
                about = self._name(model), given
                self._recorder.note(Kind.DROPPING, source, *about, tensors=ids)

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
                about = name or type(model).__name__, listed(parts)
                self._recorder.note(Kind.ASLEEP, self._switches.get(model), *about)


@lru_cache(maxsize=1000)
def _dropping(code: CodeType) -> tuple[SourceLine | None, str]:
    """The line of the user's that gives attention an attribute of the module as
    `dropout_p`, in whichever mode, and the attribute.
    """
    body = body_of(code)
    if any("training" in ast.unparse(statement) for statement in body.statements):
        return None, ""
    for part in chain.from_iterable(map(ast.walk, body.statements)):
        if called(part) == "scaled_dot_product_attention":
            given = {word.arg: word.value for word in part.keywords}  # type: ignore[attr-defined]
            dropout = given.get("dropout_p")
            if isinstance(dropout, ast.Attribute):
                return body.source(part), ast.unparse(dropout)
    return None, ""


def _asleep(names: list[str]) -> list[str]:
    """Modules in a sentence, and the calls that switch them to eval() mode."""
    return [listed(names), listed(f"{name}.eval()" for name in names)]


def _draws(source: SourceLine) -> bool:
    """Whether a line runs something again and again on the same input, as to draw
    samples with dropout.
    """
    written = expressions_at(source.file, source.line)
    turns = [each for one in written for each in getattr(one, "generators", ())]
    bodies: list[ast.AST] = [
        one.elt for one in written if isinstance(one, _COMPREHENSIONS)
    ]
    for loop in loops_around(source.file, source.line)[-1:]:
        if isinstance(loop, ast.For) and len(loop.body) == 1:
            turns, bodies = [*turns, loop], [*bodies, loop.body[0]]
    read = {ast.unparse(part) for body in bodies for part in ast.walk(body)}
    ranges = [each for each in turns if called(each.iter) == "range"]
    return any(ast.unparse(each.target) not in read for each in ranges)


def _is_left_out(weight: torch.Tensor) -> bool:
    """Whether nothing that is computed with a weight now trains it."""
    return not (torch.is_grad_enabled() and weight.requires_grad)


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


_WITH_DROPOUT = torch.nn.RNNBase, torch.nn.MultiheadAttention
"""Layers that drop elements themselves."""


def _sleeps(module: torch.nn.Module) -> bool:
    """Whether a module does nothing in eval() mode that it would do: dropout, or batch
    normalization that is trained.
    """
    if isinstance(module, _WITH_DROPOUT):
        # what an LSTM drops is what goes from layer to layer
        drops = module.dropout and getattr(module, "num_layers", 2) > 1
    else:
        drops = isinstance(module, _DropoutNd) and module.p
    weights = parameters(module) if isinstance(module, _BatchNorm) else []
    learns = any(weight.requires_grad for weight in weights)
    return not module.training and bool(drops or learns)
