"""Writes the API reference from the docstrings: `python docs/make_reference.py FOLDER`, with `pip install '.[docs]'`.

Whatever pdoc warns of is an error here, and so are a public function, class or method without a docstring, and a parameter that
a docstring describes and the function does not have.
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
import pdoc.docstrings

import gradviz

MODULES = (
    "gradviz",
    "gradviz.graph.model",
    "gradviz.graph.records",  # what graphs are made of
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
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        modules = {name: pdoc.doc.Module.from_name(name) for name in MODULES}
        pages = {name: "\n".join(page(module)) for name, module in modules.items()}
    problems = [str(one.message) for one in warned] + [
        text for module in modules.values() for text in missing(module)
    ]
    if problems:
        raise SystemExit(
            "the API reference is not complete:\n  " + "\n  ".join(problems)
        )
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f"| [{one.fullname}]({name}.md) | {first_line(one)} |"
        for name, one in modules.items()
    ]
    pages["index"] = "\n".join(
        ["# Classes and functions\n", "| module | |", "|---|---|", *rows, ""]
    )
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return sorted(folder.glob("*.md"))


def first_line(module: pdoc.doc.Module) -> str:
    """What a module is, as one line of a table."""
    return " ".join(module.docstring.partition("\n\n")[0].split()).replace("|", "\\|")


def page(module: pdoc.doc.Module) -> Iterator[str]:
    """A page of the site: the module, its functions and classes, and what these have."""
    yield f"# {module.fullname}\n"
    yield text_of(module)
    public = [one for one in module.members.values() if not one.name.startswith("_")]
    for member in public:
        if isinstance(member, (pdoc.doc.Function, pdoc.doc.Class)):
            yield from entry(member, "##")
        if isinstance(member, pdoc.doc.Class):
            for own in member.own_members:
                if not own.name.startswith("_") and own.docstring:
                    yield from entry(own, "###")


def entry(member: pdoc.doc.Doc[Any], heading: str) -> Iterator[str]:
    """One function, class, method or field."""
    short = member.qualname
    yield f"{heading} {short} {{ #{short} }}\n"
    if isinstance(member, pdoc.doc.Function):
        yield f"```python\n{short}{member.signature}\n```\n"
    elif isinstance(member, pdoc.doc.Class):
        fields = [
            one for one in member.own_members if isinstance(one, pdoc.doc.Variable)
        ]
        lines = [
            f"    {one.name}{one.annotation_str}"
            for one in fields
            if not one.name.startswith("_")
        ]
        if lines:
            yield "\n".join(["```python", f"class {short}:", *lines, "```\n"])
    yield text_of(member)


def text_of(member: pdoc.doc.Doc[Any]) -> str:
    """A docstring as Markdown, its examples as code."""
    made = []
    for part in pdoc.docstrings.convert(member.docstring, "numpy", None).split("\n\n"):
        part = re.sub(r"^#+ (\w+)$", r"**\1**\n", part, flags=re.MULTILINE)
        head, prompt, code = part.partition(">>> ")
        made.append(f"{head}\n```python\n{prompt}{code}\n```" if prompt else part)
    return "\n\n".join(made) + "\n"


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
    """The names that the parameters of a docstring describe.

    >>> arguments("Do it.\\n\\nParameters\\n----------\\na, b\\n    numbers\\nc\\n    text\\n\\nRaises\\n------\\nd\\n    never")
    ['a', 'b', 'c']
    """
    _, _, section = docstring.partition("Parameters\n----------\n")
    lines = section.partition("\n\n")[0].splitlines()
    names = [line for line in lines if not line.startswith(" ")]
    return [name for line in names for name in line.split(", ")]


if __name__ == "__main__":
    print(*write(Path(sys.argv[1])), sep="\n")
