"""Turns the fields of `gradviz.draw.options.Options` into click options: same names, defaults, help and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradviz.draw.options import option_fields
from gradviz.errors import FormatError

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]  # later versions of click have it generic
else:
    _ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class FieldType(_ParamType):
    """The value of one field: converted to the field's type, then checked by the field's own check."""

    def __init__(self, item: Field[Any]) -> None:
        self._item, self._kinds = item, item.metadata["kinds"]
        self.name = "number" if str not in self._kinds else "text" if int not in self._kinds else "number or word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._item.metadata["check"](self._item.name, self._number(value))
        except FormatError as error:
            self.fail(str(error), param, ctx)

    def _number(self, value: Any) -> Any:
        for number in (int, float):
            if isinstance(value, str) and number in self._kinds:
                try:
                    return number(value)
                except ValueError:
                    continue
        return value


def render_options(*names: str) -> Callable[[F], F]:
    """Adds the named options of `Options` to a command, or all of them. They arrive as keyword arguments, by field name."""

    def add(function: F) -> F:
        for item in reversed(option_fields()):
            if not names or item.name in names:
                function = _option(item)(function)
        return function

    return add


def _option(item: Field[Any]) -> Callable[[F], F]:
    flag = "--" + item.name.replace("_", "-")
    help, choices, default = item.metadata["help"], item.metadata["choices"], item.default
    if item.metadata["kinds"] == (bool,):
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=default, help=help)
    if item.metadata["kinds"] == (tuple,):  # the checks of such a field are about all its values: `Options` makes them
        return click.option(flag, item.name, multiple=True, metavar="TEXT", default=default, help=help)
    kind: _ParamType = click.Choice(choices) if choices else FieldType(item)
    return click.option(flag, item.name, type=kind, default=default, show_default=default is not None, help=help)
