"""Finds parameters that are not what the code means: frozen by a wrong name, or run
with other tensors in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.utils import stateless
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.checks.call import Parameter
from gradviz.checks.collect.lines import Models, Variables
from gradviz.checks.collect.numbers import ByTensor
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.graph import SourceLine
from gradviz.source.search import sets_attribute
from gradviz.variables.objects import joined, own_attributes, submodules
from gradviz.walker.taps import Began

_ALIKE = 0.8  # from which an attribute's name counts as `requires_grad` mistyped


def note_mistyped(
    recorder: Recorder,
    models: Models,
    parameters: Sequence[tuple[Parameter, torch.Tensor]],
    variables: Variables,
) -> None:
    """Attributes of parameters and modules that are False, and that torch does not
    read.
    """
    named: dict[str, list[str]] = {}
    for parameter, tensor in parameters:
        for attribute in _off(own_attributes(tensor)):
            if attribute != "requires_grad" and tensor.requires_grad:
                named.setdefault(attribute, []).append(parameter.names[0])

    for name, model in models:
        for path, module in submodules(model):
            for attribute in _off(module.__dict__):
                if any(weight.requires_grad for weight in module.parameters()):
                    named.setdefault(attribute, []).append(joined(name, path))

    for attribute, names in named.items():
        source = _set_in(variables, attribute)
        recorder.note(Kind.MISTYPED, source, attribute, *names)


def _set_in(variables: Variables, attribute: str) -> SourceLine | None:
    """The line that sets an attribute, in the files that variables belong to."""
    files = dict.fromkeys(space.get("__file__") for space in variables)
    lines = (sets_attribute(file, attribute) for file in files if type(file) is str)
    return next(filter(None, lines), None)


def _off(attributes: Mapping[str, object]) -> list[str]:
    """Attributes that are False, and named as `requires_grad` or nearly so."""
    return [
        name
        for name, value in attributes.items()
        if value is False and _is_alike(name) and not name.startswith("_")
    ]


def _is_alike(name: str) -> bool:
    return SequenceMatcher(None, name, "requires_grad").ratio() >= _ALIKE


class Replaced:
    """The parameters that `torch.func.functional_call` has run their module without,
    and the line that called it, of one run.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lines: ByTensor[SourceLine] = WeakIdKeyDictionary()
        # of modules, with the names given
        self._calls = WeakKeyDictionary[torch.nn.Module, tuple[Any, ...]]()

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        yield stateless._functional_call, self._called

    def _called(
        self,
        frame: FrameType,
        module: torch.nn.Module,
        tensors: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        # a mapping of the user's own may raise anything
        with suppress(Exception):
            names, line = tuple(tensors), self._recorder.script_line(frame)
            # a training loop calls it in each step: once tells all
            if line is None or self._calls.get(module) == names:
                return

            self._calls[module] = names
            for path, owner in submodules(module):
                for key, tensor in owner._parameters.items():
                    name = joined(path, key)
                    if tensor is not None and tensors.get(name, tensor) is not tensor:
                        self._lines[tensor] = line

    def line_of(self, tensor: torch.Tensor) -> SourceLine | None:
        """The line that ran a parameter's module with something else in its place; None
        when none did.
        """
        return self._lines.get(tensor)
