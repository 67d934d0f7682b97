"""Writes docs/checks.md from the registry of health checks: `python docs/make_checks.py`, in an environment with gradviz.

Each check's section is its docstring, its example, and what `gradviz check` prints for that example: all of it real.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from click.testing import CliRunner

from gradviz.checks.output import EXAMPLE, MEANING, SECTIONS, page
from gradviz.checks.registry import Check, checks
from gradviz.cli.main import cli

PAGE = Path(__file__).parent / "checks.md"
HEAD = """<!-- Written by docs/make_checks.py. Change the checks' docstrings instead. -->

# Checks

`gradviz check script.py` reads three backward calls of a script (`--steps`), watches it run on, and says what is wrong,
where, why, and what to do. `gradviz.check(loss, model=net)` does the same for what you hold. Nothing is
disturbed: no hook runs, no `.grad` is written, nothing is freed, and without `--values` no number is read
(but the loss, whether a gradient that should have been reset is all zeros, a few elements of leaves that nothing seems to
update, of weights that are zero and of weights that look tied, and labels, targets and masks of a few batches).

An *error* makes `backward()` fail, or the gradient useless. A *warning* is a mistake in most cases. A *note* is good to know. The
exit code is 1 when an error or a warning was found; `--fail-on` says what counts, `--only` and `--ignore` choose checks by id.
`gradviz check --explain ID` prints a section of this page.

What the findings rest on:

- The graph itself, with names from your variables and models, and module and line of every operation, as recorded.
- Models and optimizers among the script's variables, one attribute deep (`trainer.model`).
- Who updates what, over the whole run: optimizers as they are made and as they step, which parameters they hold, which
  parameters got a gradient, and which moved.
- Which modules ran, under which mode, and whether their results had a graph.
- The text of the function that calls `backward()`, followed upwards from the output: it is how a finding can name the line with a
  `.detach()`. A variable on that line that still has its graph proves the place; without one, the finding only says what the
  line does.

"""


def document() -> str:
    """The whole page."""
    every = checks()
    rows = [
        f"| [`{one.id}`](#{one.id}) | {one.severity} | {one.summary}{' (`--values`)' if one.needs_values else ''} |"
        for one in every
    ]
    table = "\n".join(["| check | severity | says that there is |", "|---|---|---|", *rows])
    return HEAD + table + "\n\n" + "\n".join(_section(one) for one in every)


def _section(one: Check) -> str:
    options = ["--only", one.id, *(["--values"] if one.needs_values else [])]
    command = f"gradviz check script.py {' '.join(options)}"
    text = page(one)
    if one.ranks:
        command = "torchrun --nproc-per-node 2 -m gradviz render script.py -o net.json\n$ gradviz merge net.rank*.json"
    printed = output(text[EXAMPLE], options) if not one.ranks else ""  # that takes several processes
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
        if result.exception is not None and not isinstance(result.exception, SystemExit):
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
    PAGE.write_text(document())
