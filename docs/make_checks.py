"""Writes docs/checks.md and docs/checks/ from the registry of health checks: `python docs/make_checks.py`, in an environment
with gradviz.

A page holds the checks of some modules of `gradviz/checks/rules/`. Each check's section is its docstring, its example, and what
`gradviz check` prints for that example: all of it real.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from click.testing import CliRunner

from gradviz.checks.pages import EXAMPLE, MEANING, SECTIONS, page
from gradviz.checks.registry import Check, checks
from gradviz.cli.main import cli

DOCS = Path(__file__).parent


class Group(NamedTuple):
    """A page of checks. `rules` are modules of `gradviz/checks/rules/`."""

    title: str
    rules: tuple[str, ...]


GROUPS = {
    "failing": Group("backward() fails", ("saved", "history", "raised")),
    "no-gradient": Group(
        "No gradient", ("roots", "cuts", "parameters", "zeros", "leaves")
    ),
    "steps": Group(
        "Training steps", ("updates", "optimizers", "steps", "order", "clipping")
    ),
    "results": Group(
        "Wrong loss, mode or backward", ("loss_inputs", "broadcasts", "misuse")
    ),
    "values": Group("NaN, exploding, dead ReLUs", ("nonfinite", "gradients")),
    "memory": Group("Memory", ("memory",)),
}
"""Pages in docs/checks/, by name."""
NOTE = "<!-- Written by docs/make_checks.py. Change the checks' docstrings instead. -->"
HEAD = f"""# Checks

{NOTE}

`gradviz check script.py` reads three backward calls of a script (`--steps`), watches it run on, and says what is wrong,
where, why, and what to do. `gradviz.check(loss, model=net)` does the same for what you hold. Nothing is
disturbed: no hook runs, no `.grad` is written, nothing is freed.

`--values` reads all numbers of the calls that are read, and computes their gradients. Without it, `gradviz.check` reads no
number, and `gradviz check` only these:

- the loss, and the norms of the gradients that a call leaves in `.grad`;
- up to 4,096 elements of parameters at a few optimizer steps, and 8 of leaves that no optimizer holds, to see whether they move;
- whether a logarithm, a root or a division stands at a number where its derivative is infinite;
- copies of what custom Functions are given, which are replayed in a child process (`wrong-backward`).

If a loss or gradient is NaN or infinite, or an operation stands at such a number, all numbers of that call are read.

An *error* makes `backward()` fail, or the gradient useless. A *warning* is a mistake in most cases. A *note* is good to know: so is
what happens inside an installed library and no line of yours causes. The exit code is 1 when an error or a warning was found;
`--fail-on` says what counts, `--only` and `--ignore` choose checks by id.
To ignore a check in a whole project, write `[tool.gradviz]` and `ignore = ["ID"]` into `pyproject.toml` (read from Python 3.11 on).
For a project with findings that are known, `--baseline gradviz.json` writes them down once; then only new ones count.
`gradviz check --explain ID` prints the section of a check.

What the findings rest on:

- The graph itself, with names from your variables and models, and module and line of every operation, as recorded.
- Models and optimizers that the script's variables lead to (`trainer.model`).
- Who updates what, over the whole run: optimizers as they are made and as they step, which parameters they hold, which
  parameters got a gradient, and which moved.
- Which modules ran, under which mode, and whether their results had a graph.
- The text of the function that calls `backward()`, followed upwards from the output: it is how a finding can name the line with a
  `.detach()`. A variable on that line that still has its graph proves the place; without one, the finding only says what the
  line does.

"""


def documents() -> dict[Path, str]:
    """Every page: the list of all checks, and a page for each group."""
    groups: dict[str, list[Check]] = {name: [] for name in GROUPS}
    for one in checks():
        groups[_group_of(one)].append(one)

    pages = {DOCS / "checks.md": HEAD + "\n".join(map(_list, groups, groups.values()))}
    for name, group in groups.items():
        title = f"# {GROUPS[name].title}\n\n{NOTE}\n"
        sections = (f"\n{_section(one)}" for one in group)
        pages[DOCS / "checks" / f"{name}.md"] = title + "".join(sections)
    return pages


def _group_of(one: Check) -> str:
    module = one.function.__module__.rpartition(".")[2]
    for name, group in GROUPS.items():
        if module in group.rules:
            return name
    raise LookupError(f"name the module {module} in GROUPS of docs/make_checks.py")


def _list(name: str, group: list[Check]) -> str:
    """A table of the checks of one page. Links to checks.md#ID lead to its rows."""
    page = f"checks/{name}.md"
    rows = "".join(
        f'| <a id="{one.id}"></a>[`{one.id}`]({page}#{one.id}) | {one.severity} '
        f"| {one.summary}{' (`--values`)' if one.needs_values else ''} |\n"
        for one in group
    )
    header = "| check | severity | says that there is |\n|---|---|---|\n"
    return f"## [{GROUPS[name].title}]({page})\n\n{header}{rows}"


def _section(one: Check) -> str:
    options = ["--only", one.id, *(["--values"] if one.needs_values else [])]
    command = f"gradviz check script.py {' '.join(options)}"
    text = page(one)
    printed = output(text[EXAMPLE], options)
    rest = "\n\n".join(f"**{title}.** {text[title]}" for title in SECTIONS)
    return (
        f"## `{one.id}`\n\n{one.severity.capitalize()}. {text[MEANING]}\n\n```python\n{text[EXAMPLE]}```\n\n"
        f"```console\n$ {command}\n{printed}```\n\n{rest}\n"
    )


def output(script: str, options: list[str]) -> str:
    """What the command line prints for a script of this text."""
    with _empty_folder(), torch.random.fork_rng():
        Path("script.py").write_text(script)
        result = CliRunner().invoke(cli, ["check", "script.py", *options])
        if result.exception is not None and not isinstance(
            result.exception, SystemExit
        ):
            raise result.exception
    return result.stdout


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


if __name__ == "__main__":
    for path, text in documents().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
