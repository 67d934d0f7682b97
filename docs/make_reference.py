"""Writes the API reference from the docstrings: `python docs/make_reference.py FOLDER`, with `pip install '.[docs]'`.

Whatever pdoc warns of is an error here, and so are a public function, class or method without a docstring, and an `Args:` that
names no parameter.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pdoc.doc
import pdoc.render

import gradviz

MODULES = (
    "gradviz",
    "gradviz.graph.model",  # what graphs are made of
    "gradviz.checks.finding",  # and what the functions return
    "gradviz.memory.saved",
    "gradviz.memory.checkpoint",
    "gradviz.memory.oom",
    "gradviz.gradients.flow",
    "gradviz.gradients.paths",
    "gradviz.comparison.diff",
    "gradviz.ranks.rank_diff",
    "gradviz.explanation",
    "gradviz.notebook",
    "gradviz.recording.record",
    "gradviz.ipython",
    "gradviz.testing",
    "gradviz.draw.options",
    "gradviz.errors",
)


def write(folder: Path) -> list[Path]:
    """The pages of the reference, written into a folder. Raises SystemExit that lists everything that is wrong."""
    for name in gradviz.__all__:  # they are imported when used, which pdoc does not do
        setattr(gradviz, name, getattr(gradviz, name))
    for module in map(importlib.import_module, MODULES):
        _resolve_fields(module)
    pdoc.render.configure(
        docformat="numpy",
        show_source=False,
        search=False,
        footer_text=f"gradviz {gradviz.__version__}",
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        modules = {name: pdoc.doc.Module.from_name(name) for name in MODULES}
        pages = {
            name: pdoc.render.html_module(module, modules)
            for name, module in modules.items()
        }
    problems = [str(one.message) for one in warned] + [
        text for module in modules.values() for text in missing(module)
    ]
    if problems:
        raise SystemExit(
            "the API reference is not complete:\n  " + "\n  ".join(problems)
        )
    pages["index"] = pdoc.render.html_index(modules)
    for name, page in pages.items():
        file = folder / f"{name.replace('.', '/')}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    return sorted(folder.rglob("*.html"))


def _resolve_fields(module: Any) -> None:
    """Give the constructors of named tuples their types, which Python leaves there as text that nobody can look up."""
    for one in vars(module).values():
        if (
            inspect.isclass(one)
            and issubclass(one, tuple)
            and one.__module__ == module.__name__
        ):
            one.__new__.__annotations__ = typing.get_type_hints(one)


def missing(module: pdoc.doc.Module) -> Iterator[str]:
    """What a reader would look for in vain."""
    waiting: list[pdoc.doc.Doc[Any]] = [module]
    while waiting:
        one = waiting.pop()
        if isinstance(one, pdoc.doc.Namespace):
            members = (
                one.own_members
                if isinstance(one, pdoc.doc.Class)
                else one.members.values()
            )
            waiting += [member for member in members if not member.name.startswith("_")]
        if isinstance(one, pdoc.doc.Variable):
            continue  # a field: the docstring of its class, or a comment beside it, says what it is
        if not one.docstring:
            yield f"{one.fullname} has no docstring"
        if isinstance(one, pdoc.doc.Function):
            unknown = set(arguments(one.docstring)) - set(one.signature.parameters)
            if unknown:
                yield f"{one.fullname} has no parameter {', '.join(sorted(unknown))}, which its docstring describes"


def arguments(docstring: str) -> list[str]:
    """The names that the `Args:` of a docstring describes.

    >>> arguments("Do it.\\n\\nArgs:\\n    a, b: numbers; more\\n        words: and more\\n    c: text\\n\\nRaises:\\n    d: never")
    ['a', 'b', 'c']
    """
    _, _, section = docstring.partition("Args:\n")
    lines = section.partition("\n\n")[0].splitlines()
    found = [re.match(r" {4}((?:\w+, )*\w+):", line) for line in lines]
    return [name for match in found if match for name in match[1].split(", ")]


if __name__ == "__main__":
    print(*write(Path(sys.argv[1])), sep="\n")
