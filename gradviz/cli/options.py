"""The options that commands share: those made of the fields of
`gradviz.draw.options.Options`, `--top`, `--json`, and sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field
from typing import TYPE_CHECKING, Any, TextIO

import click

from gradviz.cli.completion import module_paths
from gradviz.cli.streams import Command
from gradviz.draw.options import option_fields
from gradviz.errors import FormatError
from gradviz.features import is_there
from gradviz.report.results import write_json, write_table
from gradviz.wording import parse_size

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType

    _ParamType = click.ParamType[Any]  # later versions of click have it generic
else:
    _ParamType = click.ParamType


class FieldType(_ParamType):
    """The value of one field: converted to the field's type, then checked by the
    field's own check.
    """

    def __init__(self, item: Field[Any]) -> None:
        self._item, self._kinds = item, item.metadata["kinds"]
        if str not in self._kinds:
            self.name = "number"
        elif int not in self._kinds:
            self.name = "text"
        else:
            self.name = "number or word"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            return self._item.metadata["check"](self._item.name, self._number(value))
        except FormatError as error:
            self.fail(str(error), param, ctx)

    def _number(self, value: Any) -> Any:
        for number in (int, float):
            if isinstance(value, str) and number in self._kinds:
                with suppress(ValueError):
                    return number(value)
        return value


_ROWS = ("by", "max_rows", "columns")  # which a tree has, and no picture


def render_options(*names: str) -> Callable[[Command], Command]:
    """Adds the named options of `Options` to a command, or all of a picture.

    They arrive as keyword arguments, by field name.
    """

    def add(function: Command) -> Command:
        for item in reversed(option_fields()):
            if item.name in names or (not names and item.name not in _ROWS):
                function = _option(item)(function)
        return function

    return add


def _option(item: Field[Any]) -> Callable[[Command], Command]:
    flag = "--" + item.name.replace("_", "-")
    help, choices, default = (
        item.metadata["help"],
        item.metadata["choices"],
        item.default,
    )
    if item.metadata["kinds"] == (bool,):
        return click.option(flag, item.name, is_flag=True, help=help)

    # the checks of such a field are about all its values: `Options` makes them
    if item.metadata["kinds"] == (tuple,):
        return click.option(
            flag,
            item.name,
            multiple=True,
            metavar="TEXT",
            default=default,
            shell_complete=module_paths if item.name == "expand" else None,
            help=help,
        )

    kind: _ParamType = click.Choice(choices) if choices else FieldType(item)
    return click.option(
        flag,
        item.name,
        type=kind,
        shell_complete=module_paths if item.name == "focus" else None,
        default=default,
        show_default=default is not None,
        help=help,
    )


def with_feature(
    feature: str, option: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """The option, where its feature is there. Where it is not, the command gets no
    value: its parameter has a default.
    """
    return option if is_there(f"gradviz.{feature}") else lambda command: command


run_custom_option = with_feature(
    "gradients",
    click.option(
        "--run-custom",
        is_flag=True,
        help="Also call the backward of custom Functions. They may keep state, so the script's own run may change.",
    ),
)


def top_option(
    rows: int, subject: str = "Rows to show"
) -> Callable[[Command], Command]:
    """`--top`: None unless it is given, which `row_limit` turns into `rows`."""
    help = f"{subject}; 0 for all. [default: {rows}]"
    return click.option("--top", type=click.IntRange(min=0), metavar="N", help=help)


def json_option(help: str) -> Callable[[Command], Command]:
    """`--json`, which the command gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def row_limit(top: int | None, rows: int) -> int:
    """How many rows to show, 0 for all: what `--top` says, else so many in a table."""
    return top if top is not None else rows


def write_result(
    stream: TextIO,
    as_json: bool,
    data: Callable[[], Any],
    table: Callable[[], RenderableType],
    title: str = "",
) -> None:
    """Write a result in the format asked for."""
    if as_json:
        write_json(stream, data())
    else:
        write_table(stream, table(), title)


# -- sizes of memory as people write them: `40GiB`, `512 MB`, `1e9` --------------------


class ByteSize(_ParamType):
    """A number of bytes, with a unit if wanted. `GiB` is 1024³ bytes, `GB` 1000³."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        nbytes = parse_size(str(value))
        if nbytes is None:
            self.fail(
                f"{value!r} is not a size. Write a number and a unit, such as 40GiB, 512MB or 1e9.",
                param,
                ctx,
            )
        return nbytes
