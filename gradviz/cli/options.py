"""Turns the fields of `gradviz.draw.options.Options` into click options: same names, defaults, help and checks."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from gradviz.draw.options import Options, option_fields
from gradviz.errors import FormatError

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]  # later versions of click have it generic
else:
    _ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class FieldType(_ParamType):
    """The value of one field: converted to the field's type, then checked by the field's own check."""

    def __init__(self, item: Field[Any], accepted: Sequence[type]) -> None:
        self._item = item
        self._accepted = accepted
        self.name = "number" if str not in accepted else "text" if int not in accepted else "number or word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._item.metadata["check"](self._item.name, self._number(value))
        except FormatError as error:
            self.fail(str(error), param, ctx)

    def _number(self, value: Any) -> Any:
        for number in (int, float):
            if isinstance(value, str) and number in self._accepted:
                try:
                    return number(value)
                except ValueError:
                    continue
        return value


def render_options(*names: str) -> Callable[[F], F]:
    """Adds the named options of `Options` to a command, or all of them. They arrive as keyword arguments, by field name."""

    def add(function: F) -> F:
        hints = get_type_hints(Options)
        for item in reversed(option_fields()):
            if not names or item.name in names:
                function = _option(item, hints[item.name])(function)
        return function

    return add


def _option(item: Field[Any], hint: Any) -> Callable[[F], F]:
    flag = "--" + item.name.replace("_", "-")
    help = item.metadata["help"]
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=item.default, help=help)
    if get_origin(hint) is tuple:  # the checks of such a field are about all its values: `Options` makes them
        return click.option(flag, item.name, multiple=True, metavar="TEXT", default=item.default, help=help)
    accepted = _accepted(hint)
    kind: _ParamType = (
        click.Choice(item.metadata["choices"])
        if item.metadata["choices"] and set(accepted) <= {str}
        else FieldType(item, accepted)
    )
    shown = item.default is not None
    return click.option(flag, item.name, type=kind, default=item.default, show_default=shown, help=help)


def _accepted(hint: Any) -> list[type]:
    """The plain types that a field takes: `int | None` gives int, a Literal the types of its values."""
    plain: list[type] = []
    waiting = [hint]
    while waiting:
        part = waiting.pop()
        if get_origin(part) in (Union, types.UnionType):
            waiting.extend(get_args(part))
        elif isinstance(part, type):
            plain.append(part)
        else:
            plain.extend(type(value) for value in get_args(part))
    return [kind for kind in dict.fromkeys(plain) if kind is not type(None)]
