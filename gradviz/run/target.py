"""What a TARGET of the command line names.

It is spelled `script.py`, `script.py:name`, `train.ipynb`, `package.module:name`,
`-m package.module`, or is a saved `graph.json`. Runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from gradviz.errors import TargetError, did_you_mean
from gradviz.run.inputs import InputSpec

NOTEBOOK = ".ipynb"
_SCRIPT_SUFFIXES = (".py", ".pyw", "", NOTEBOOK)
_TARGETS = (".py", NOTEBOOK, ".json")
_DIGITS = re.compile(r"[0-9]+")


class RunningCell(Protocol):
    """A cell of a notebook that runs now, in the interpreter as it is."""

    namespace: dict[str, Any]

    @property
    def made(self) -> dict[str, Any]:
        """The variables that it gave a value to."""

    def run(self) -> None:
        """Run it. Raises what its code raises."""


@dataclass(frozen=True, slots=True)
class Target:
    """What to look at. `place` is a path as it was given, or a module's dotted name;
    `name` is "" when none was given.

    A "main" is a module that runs as `python -m` runs it, a "module" one that is
    imported. With `inputs` the name is a model's, which is called with them. A script
    that `is_imported` runs under its own name and not as `__main__`.
    """

    kind: Literal["script", "main", "module", "graph", "cell"]
    place: str
    name: str = ""
    cell: RunningCell | None = None  # of a notebook that runs now
    inputs: tuple[InputSpec, ...] = ()
    is_imported: bool = False

    @property
    def short(self) -> str:
        """The script's or module's name, for messages and titles: "train.py"."""
        if self.kind in ("main", "module", "cell"):
            return self.place
        return os.path.basename(self.place)

    @property
    def path(self) -> str:
        """Where the file is, not normalised, as in Python."""
        return os.path.join(os.getcwd(), self.place)

    @property
    def is_notebook(self) -> bool:
        """Whether it is a notebook, a script in cells."""
        return self.kind == "script" and self.place.lower().endswith(NOTEBOOK)

    @property
    def title(self) -> str:
        """What is looked at: "train.py:loss", or "train.py" when no name was given."""
        name = f"{self.short}:{self.name}" if self.name else self.short
        inputs = "".join(f" --input {one.text}" for one in self.inputs)
        return name + inputs

    @property
    def files(self) -> tuple[str, ...]:
        """What is read first: the script or graph; a module's file is not known yet."""
        return (self.place,) if self.kind in ("script", "graph") else ()

    @property
    def stem(self) -> str:
        """The name a result file gets: "train"."""
        if self.kind in ("main", "module"):
            return self.short.removesuffix(".__main__").rpartition(".")[2]
        return os.path.splitext(self.short)[0]


def names_script(word: str) -> bool:
    """Whether a word of a command line is a script or notebook, or a name in one."""
    return word.endswith((".py", ".ipynb")) or ".py:" in word or ".ipynb:" in word


def parse_target(text: str) -> Target:
    """The target that `text` spells. Raises TargetError when it names no file, or no
    module and name.
    """
    place, name = _split(text)
    suffix = os.path.splitext(place)[1].lower()

    if os.path.isdir(place):
        raise TargetError(
            f"{place!r} is a folder. Give a script in it, such as {os.path.join(place, 'train.py')!r}."
        )

    if suffix == ".json" and name:
        raise TargetError(
            f"{place!r} is a saved graph, which holds no variable {name!r}. Leave out ':{name}'."
        )

    if os.path.exists(place):
        if suffix not in (*_SCRIPT_SUFFIXES, ".json"):
            raise TargetError(
                f"{place!r} is not a Python script (.py), a notebook (.ipynb) or a saved graph (.json)."
            )
        return Target("graph" if suffix == ".json" else "script", place, name)

    is_path = (
        "/" in place or os.sep in place or place.endswith((".py", ".pyw", NOTEBOOK))
    )
    if name and not is_path and _is_dotted(place):
        return Target("module", place, name)

    raise TargetError(_missing(place, name))


def with_inputs(target: Target, inputs: Sequence[InputSpec], runs: bool) -> Target:
    """The same, whose model is to be called. Its code is imported, unless it `runs` or is
    a notebook's. Raises TargetError where no name says which model.
    """
    if target.kind == "graph":
        raise TargetError(f"{target.place!r} is a saved graph, so it takes no --input.")
    imports = not runs and not target.is_notebook
    if imports and target.kind == "main":
        target = replace(target, kind="module")
    is_imported = imports and target.kind == "script"
    return replace(target, inputs=tuple(inputs), is_imported=is_imported)


def parse_module(text: str) -> Target:
    """The target that `-m text` spells: "package.train" or "package.train:name". Raises
    TargetError when it is no such name.
    """
    place, _, name = text.partition(":")
    if not all(part.isidentifier() for part in place.split(".")) or (
        name and not _is_dotted(name)
    ):
        raise TargetError(
            f"{text!r} is not a module's name. Write it as for python -m, such as package.train or package.train:loss."
        )
    return Target("main", place, name)


def _split(text: str) -> tuple[str, str]:
    """Path or module, and the name after the last colon. A file whose own name holds a
    colon is taken whole.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or os.path.exists(text):
        return text, ""
    if len(place) == 1 and name[:1] in ("/", "\\"):  # C:\train.py
        return text, ""
    if not _is_dotted(name):
        raise TargetError(
            f"{name!r} after the colon is not a name. Write a variable or function, such as train.py:loss."
        )
    return place, name


def _is_dotted(name: str) -> bool:
    """Whether this is a name with attributes: "loss", "out.loss", "outs.0"."""
    first, *rest = name.split(".")
    return first.isidentifier() and all(
        part.isidentifier() or _DIGITS.fullmatch(part) for part in rest
    )


def _missing(place: str, name: str) -> str:
    if not name and _is_dotted(place) and not place.endswith(_TARGETS):
        return (
            f"there is no file {place!r}. To run a module: -m {place}. To import one, say what to look at in it: {place}:NAME. "
            f"For a script give its file, such as {place}.py."
        )

    if os.path.islink(place):
        return f"{place!r} is a link to {os.readlink(place)!r}, where there is no file."

    folder, base = os.path.split(place)
    try:
        entries = [
            entry for entry in os.listdir(folder or ".") if entry.endswith(_TARGETS)
        ]
    except OSError:
        return f"there is no file {place!r}, because there is no folder {folder!r}."

    hint = did_you_mean(
        base,
        entries,
        what=f"scripts, notebooks and saved graphs in {folder or 'this folder'}",
    )

    return f"there is no file {place!r}. {hint}"
