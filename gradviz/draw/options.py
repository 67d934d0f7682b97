"""The options of every renderer: name, default, valid values and help line, each
written once.

The command line makes its options from the fields of `Options`, and the Python API
takes them by the same names. This module knows nothing of graphs, renderers or the
command line.
"""

# ruff: noqa: RUF009 -- what is called there makes fields
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, get_args

from gradviz.errors import FormatError, did_you_mean
from gradviz.features import is_there
from gradviz.report.labels import OpNames

Direction = Literal["auto", "down", "right"]
Leaves = Literal["auto", "shared", "per-use", "parameters", "hidden"]
Views = Literal["auto", "show"]
Names = Literal["auto", "variable", "forward", "backward"]
Theme = Literal["auto", "light", "dark"]
Links = Literal["none", "vscode"]
Color = Literal["kind", "memory", "grad"]

By = Literal["auto", "node", "module"]
COLUMNS = ["output", "parameters", "trainable", "FLOPs", "saved", "ops", "calls"]
"""Of a table of modules."""
_MEASURES = "gradviz.gradients"
"""The feature without which nobody asks for gradients."""


def _option(
    default: Any,
    help: str,
    kinds: tuple[type, ...],
    accepts: Callable[[Any], bool],
    valid: str,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of these kinds that takes what `accepts` lets pass, `valid` in words."""

    def check(name: str, value: Any) -> Any:
        if accepts(value):
            return value
        hint = near(value, choices) if isinstance(value, str) else ""
        raise FormatError(f"{name} cannot be {value!r}. {valid}{hint}")

    metadata = {"help": help, "kinds": kinds, "choices": choices, "check": check}
    return field(default=default, metadata=metadata)


def _choice(
    default: str, choices: object, help: str, needs: Mapping[str, str] = {}
) -> Any:
    """A field that takes one of the values of a Literal, as far as the features are
    there that they need.
    """
    there = tuple(
        choice
        for choice in get_args(choices)
        if is_there(needs.get(choice, "gradviz.draw"))
    )
    valid = f"Valid are: {', '.join(there)}."
    return _option(default, help, (str,), there.__contains__, valid, there)


def near(name: str, valid: Iterable[str]) -> str:
    """Which of the known names may be meant, as a sentence more; nothing where none is
    near.
    """
    hint = did_you_mean(name, valid)
    return f" {hint}" if hint.startswith("Did you") else ""


def _are_texts(value: Any) -> bool:
    return isinstance(value, tuple) and {*map(type, value)} <= {str}


def _titles(names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns by name, several of which may stand in one text, as they are spelled."""
    spelled = {title.lower(): title for title in COLUMNS}
    words = ",".join(names).replace(",", " ").split()
    return tuple([spelled.get(word.lower(), word) for word in words])


def _flag(help: str) -> Any:
    valid = "Valid are: True, False."
    return _option(False, help, (bool,), lambda value: type(value) is bool, valid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to draw. Every field has `metadata`: `help` (one line), `kinds` (types of a
    value), `choices` (empty when any value) and `check`, which takes the name and a
    value, returns the value to keep, and raises FormatError when it is not valid.

    >>> Options.of({"direction": "right"}).direction
    'right'
    """

    direction: Direction = _choice(
        "auto",
        Direction,
        "Layout direction, from leaves to outputs; auto: what fits a page or a slide.",
    )
    names: Names = _choice(
        "auto",
        Names,
        "Name ops by variable, op (addmm) or backward function (AddmmBackward0).",
    )
    depth: int | Literal["auto", "all"] = _option(
        "auto",
        "Levels of modules to show: a number, all, or auto for what a page holds.",
        (int, str),
        lambda value: value in ("auto", "all") or (type(value) is int and value >= 1),
        "Give a whole number from 1, 'auto' or 'all'.",
    )
    focus: str | None = _option(
        None,
        "Path of one module to draw alone, with its inputs and outputs.",
        (str,),
        lambda value: value is None or isinstance(value, str),
        "Give the path of a module, such as 'layers.0'.",
    )
    expand: tuple[str, ...] = _option(
        (),
        "Path of a module to open at any depth; may be repeated.",
        (tuple,),
        _are_texts,
        "Give a list of module paths, such as ['layers.0'].",
    )
    views: Views = _choice(
        "auto",
        Views,
        "Ops that only change a shape: auto merges them into another op above 16 nodes.",
    )
    leaves: Leaves = _choice(
        "auto",
        Leaves,
        "Draw leaves once, per use or not at all; auto splits at many uses. parameters: no data.",
    )
    title: str | None = _option(
        None,
        "Title of the picture, in place of the script's line.",
        (str,),
        lambda value: value is None or isinstance(value, str),
        "Give a text.",
    )
    bare: bool = _flag("Leave out title, legend and footer of a picture.")
    scale: float | None = _option(
        None,
        "Pixels of a PNG for one of the drawing; by default 2, less where it is large.",
        (float,),
        lambda value: (
            value is None or (type(value) in (int, float) and 0.1 <= value <= 20)
        ),
        "Give a number from 0.1 to 20.",
    )
    theme: Theme = _choice(
        "auto", Theme, "Colour theme; auto follows the reader's setting where possible."
    )
    links: Links = _choice(
        "none", Links, "Link lines of code in a page to an editor on this machine."
    )
    color: Color = _choice(
        "kind",
        Color,
        "Colour boxes by kind, memory held, or incoming gradient.",
        needs={"grad": _MEASURES},
    )
    by: By = _choice(
        "auto",
        By,
        "Rows of a tree: modules, or nodes from the output down; auto: modules, if there are any.",
    )
    max_rows: int | None = _option(
        None,
        "Rows of a tree; 200 in a terminal, all in a file; 0 for all.",
        (int,),
        lambda value: value is None or (type(value) is int and value >= 0),
        "Give a whole number; 0 means no limit.",
    )
    columns: tuple[str, ...] = _option(
        (),
        f"Columns: {', '.join(COLUMNS)}.",
        (tuple,),
        lambda value: _are_texts(value) and {*value} <= {*COLUMNS},
        f"Valid are: {', '.join(COLUMNS)}.",
    )
    saved: bool = _flag("Draw the tensors saved for backward.")
    details: bool = _flag(
        "Say in each box what it made, its line of code, bytes and parameters."
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.metadata["kinds"] == (tuple,):
                value = (value,) if isinstance(value, str) else value
                value = tuple(value) if isinstance(value, list) else value
            if item.name == "columns" and _are_texts(value):
                value = _titles(value)
            checked = item.metadata["check"](item.name, value)
            # a frozen dataclass refuses plain assignment
            object.__setattr__(self, item.name, checked)

    def op_names(self, usual: OpNames) -> OpNames:
        """How to name ops: as asked for, else as is usual where they are shown."""
        return usual if self.names == "auto" else self.names

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Options:
        """Options from a mapping of names to values. Raises FormatError for an unknown
        name or a value not taken.
        """
        names = [item.name for item in fields(cls)]
        for name in values:
            if name not in names:
                options = f"The options are: {', '.join(sorted(names))}."
                raise FormatError(
                    f"there is no option {name!r}.{near(str(name), names)} {options}"
                )
        return cls(**values)


def option_fields() -> tuple[Field[Any], ...]:
    """Every option in the order help shows them, for whoever generates a command line
    or a page from them.
    """
    return fields(Options)
