"""The options of every renderer: name, default, valid values and help line, each written once.

The command line makes its options from the fields of `Options`, and the Python API takes them by the same names. This
module knows nothing of graphs, renderers or the command line.
"""

# ruff: noqa: RUF009 -- what is called there makes fields
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, cast, get_args

from gradviz.errors import FormatError, did_you_mean

Direction = Literal["down", "up", "right", "left"]
Leaves = Literal["auto", "shared", "per-use", "hidden"]
LayoutEngine = Literal["auto", "dot", "layered"]
Theme = Literal["auto", "light", "dark"]
Color = Literal["kind", "memory", "grad"]

LinkSource = Literal["none", "vscode", "file"]
OpNames = Literal["backward", "forward"]
By = Literal["auto", "node", "module", "line"]
OUTLINE_COLUMNS = ("calls", "ops", "parameters", "output", "saved", "made")

Check = Callable[[str, Any], Any]
"""Takes an option's name and the value given, returns the value to keep, raises FormatError when it is not valid."""


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """The value, when it is one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    near = did_you_mean(value, choices) if isinstance(value, str) else ""
    hint = f" {near}" if near.startswith("Did you") else ""
    raise FormatError(f"{name} cannot be {value!r}. Valid are: {', '.join(choices)}.{hint}")


def flag(name: str, value: Any) -> bool:
    """The value, when it is True or False."""
    if not isinstance(value, bool):
        raise FormatError(f"{name} cannot be {value!r}. Valid are: True, False.")
    return value


def seconds(name: str, value: Any) -> float:
    """A number of seconds above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise FormatError(f"{name} cannot be {value!r}. It is a number of seconds above 0.")
    return float(value)


def limit(name: str, value: Any) -> int | None:
    """How many at most: 0 for no limit, None to let the renderer choose."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise FormatError(f"{name} cannot be {value!r}. It is a whole number, with 0 for no limit.")
    return value


def depth_value(name: str, value: Any) -> int | str:
    """Levels of modules: a whole number from 1, "auto" or "all"."""
    if value in ("auto", "all") or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return cast("int | str", value)
    raise FormatError(f"{name} cannot be {value!r}. It is a whole number from 1, 'auto' or 'all'.")


def path_value(name: str, value: Any) -> str | None:
    """A module's path."""
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{name} cannot be {value!r}. It is the path of a module, such as 'layers.0'.")
    return value


def path_values(name: str, value: Any) -> tuple[str, ...]:
    """Paths of modules."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or not all(isinstance(path, str) for path in value):
        raise FormatError(f"{name} cannot be {value!r}. It is a list of module paths, such as ['layers.0'].")
    return tuple(value)


def columns_value(name: str, value: Any) -> tuple[str, ...]:
    """Names of columns, as a list or as one text with commas."""
    given = value.split(",") if isinstance(value, str) else list(value)
    return tuple(choice(name, str(word).strip(), OUTLINE_COLUMNS) for word in given)


def _choice(default: str, choices: object, help: str) -> Any:
    """A field that takes one of the values of a Literal."""
    valid = get_args(choices)

    def check(name: str, value: Any) -> str:
        return choice(name, value, valid)

    return field(default=default, metadata={"help": help, "choices": valid, "check": check})


def _value(default: Any, check: Check, help: str) -> Any:
    """A field that takes whatever `check` lets pass."""
    return field(default=default, metadata={"help": help, "choices": (), "check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to draw. Every field has `metadata` with `help` (one line), `choices` (empty when any value) and `check`.

    >>> Options.of({"direction": "right"}).direction
    'right'
    """

    direction: Direction = _choice("down", Direction, "Where data flows; leaves are at the start.")
    names: OpNames = _choice("backward", OpNames, "Name ops as autograd does, AddmmBackward0, or as torch does, addmm.")
    depth: int | Literal["auto", "all"] = _value(
        "auto", depth_value, "Levels of modules to show: a number, all, or auto for about two screens."
    )
    focus: str | None = _value(None, path_value, "Path of one module to open; everything around it stays closed.")
    expand: tuple[str, ...] = _value((), path_values, "Path of a module to open whatever the depth; may be repeated.")
    leaves: Leaves = _choice(
        "auto", Leaves, "Draw a leaf once, once per use or not; auto splits leaves with many uses."
    )
    layout: LayoutEngine = _choice("auto", LayoutEngine, "What places the boxes; auto picks by size.")
    layout_timeout: float = _value(20.0, seconds, "Seconds that dot may take before the layered layout takes over.")
    theme: Theme = _choice("auto", Theme, "Colours; auto follows the reader's setting where it can.")
    color: Color = _choice("kind", Color, "Colours mean the kind of box, memory it holds, or gradient that arrives.")
    numbers: bool = _value(False, flag, "Number boxes in the order in which backward calls them.")
    by: By = _choice("auto", By, "Rows of a tree: nodes from the output down, modules, or lines of code.")
    columns: str | tuple[str, ...] = _value(
        (), columns_value, f"Columns by module or line, with commas: {', '.join(OUTLINE_COLUMNS)}."
    )
    link_source: LinkSource = _choice("none", LinkSource, "In SVG, let a click on a box open its line of code.")
    max_depth: int | None = _value(None, limit, "Levels of branches that a tree shows; 0 for all.")
    max_rows: int | None = _value(None, limit, "Rows of a tree; 200 in a terminal, all in a file; 0 for all.")
    saved: bool = _value(False, flag, "Draw the tensors saved for backward.")
    attributes: bool = _value(False, flag, "Show what else a node saved, such as sizes and numbers.")

    def __post_init__(self) -> None:
        for item in fields(self):
            checked = item.metadata["check"](item.name, getattr(self, item.name))
            object.__setattr__(self, item.name, checked)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Options from a mapping of names to values. Raises FormatError for an unknown name or a value not taken."""
        known = [item.name for item in option_fields()]
        for name in given:
            if name not in known:
                hint = did_you_mean(str(name), known, what="options")
                every = "" if hint.startswith("The options") else f" The options are: {', '.join(sorted(known))}."
                raise FormatError(f"there is no option {name!r}. {hint}{every}")
        return cls(**given)


def option_fields() -> tuple[Field[Any], ...]:
    """Every option in the order help shows them, for whoever generates a command line or a page from them."""
    return fields(Options)
