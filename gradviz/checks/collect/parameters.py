"""Finds parameters that are not what the code means: frozen by a wrong name, or run
with other tensors in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from types import FrameType
from typing import Any

import torch
from torch.nn.utils import stateless

from gradviz.checks.call import Parameter
from gradviz.checks.collect.calls import ByIdentity, Observer, taps
from gradviz.checks.collect.lines import Models, Variables, line_at
from gradviz.checks.run import Mistyped
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.source.search import sets_attribute
from gradviz.variables.objects import joined, own_attributes, submodules

_ALIKE = 0.8  # from which an attribute's name counts as `requires_grad` mistyped


def mistyped(
    models: Models,
    parameters: Sequence[tuple[Parameter, torch.Tensor]],
    variables: Variables,
) -> Iterator[Mistyped]:
    """Attributes of parameters and modules that are False, and that torch does not
    read.
    """
    by_attribute: dict[tuple[str, bool], list[str]] = {}
    for parameter, tensor in parameters:
        for key in _off(own_attributes(tensor)):
            if key != "requires_grad" and tensor.requires_grad:
                by_attribute.setdefault(
                    (key, False),
                    [],
                ).append(parameter.names[0])

    for name, model in models:
        for path, module in submodules(model):
            for key in _off(module.__dict__):
                if not key.startswith("_") and any(
                    weight.requires_grad for weight in module.parameters()
                ):
                    by_attribute.setdefault(
                        (key, True),
                        [],
                    ).append(joined(name, path))

    files = files_of(variables)
    for (key, of_module), names in by_attribute.items():
        assigned = next(
            filter(None, (sets_attribute(file, key) for file in files)), None
        )
        yield Mistyped(tuple(names), key, of_module, assigned)


def files_of(variables: Variables) -> list[str]:
    """The files that variables belong to."""
    return list(
        dict.fromkeys(
            str(space["__file__"])
            for space in variables
            if type(space.get("__file__")) is str
        )
    )


def _off(attributes: Mapping[str, object]) -> list[str]:
    """Attributes that are False, and named as `requires_grad` or nearly so."""
    return [
        name
        for name, value in attributes.items()
        if value is False
        and SequenceMatcher(None, name, "requires_grad").ratio() >= _ALIKE
    ]


class Replaced(Observer):
    """The parameters that `torch.func.functional_call` has run their module without,
    and the line that called it, of one run.
    """

    def _begin(self) -> None:
        self._noted = ByIdentity[Place]()
        self._calls = ByIdentity[tuple[Any, ...]]()  # of modules, with the names given

    @taps(stateless._functional_call)
    def _called(
        self,
        frame: FrameType,
        module: torch.nn.Module,
        given: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        with suppress(Exception):
            names, place = tuple(given), self._place(frame)
            if place is None or self._calls.of(module) == names:
                return

            self._calls.put(module, names)
            for path, owner in submodules(module):
                for key, tensor in owner._parameters.items():
                    name = joined(path, key)
                    if (
                        tensor is not None
                        and name in given
                        and given[name] is not tensor
                    ):
                        self._noted.put(tensor, place)

    def at(self, tensor: torch.Tensor) -> SourceLine | None:
        """The line that ran a parameter's module with something else in its place; None
        when none did.
        """
        place = self._noted.of(tensor)
        return line_at(place) if place is not None else None
