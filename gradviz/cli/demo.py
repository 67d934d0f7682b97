"""`gradviz demo`: a page of a small script with two faults, and what to look at in it."""

from __future__ import annotations

from importlib import resources

import click

from gradviz.cli.help import GroupedCommand
from gradviz.cli.source import Source
from gradviz.cli.streams import destination, file_options, result_stream
from gradviz.draw.output import write
from gradviz.errors import OutputError
from gradviz.features import load
from gradviz.run.target import parse_target

SCRIPT, PAGE = "gradviz_demo.py", "gradviz_demo.html"

_SAID = f"""\
{SCRIPT}    a training loop that runs, with two faults in it
{PAGE}  its page. Open it in a browser; gradviz demo --open does

Look at, in the page:
1. Findings, on the left. Each says what is wrong, where, and the fix. A click goes to its box.
2. The dashed part of the graph: no gradient passes there. Line {{cut}} cuts it off.
3. Code, on the left: a line lights the boxes that it created.
4. Backward, at the top: the gradient goes back through the graph, step by step.

Then fix {SCRIPT} and ask again:
  gradviz check {SCRIPT}
  gradviz why {SCRIPT} model.encoder.weight

And with your own script:
  gradviz check train.py
"""


@click.command("demo", cls=GroupedCommand)
@file_options
def command() -> None:
    """Write a page of a small script that has two faults.

    Writes gradviz_demo.py and gradviz_demo.html into the current folder, and says what
    to look at.
    """
    text = (
        resources.files("gradviz.cli")
        .joinpath("demo_script.txt")
        .read_text(encoding="utf-8")
    )
    _write_script(text)
    page = destination(PAGE, [SCRIPT])

    with result_stream() as stream:
        findings_of, write_page = (
            load("gradviz.checks.command:findings_of"),
            load("gradviz.checks.command:write_page"),
        )
        findings = findings_of(
            Source(parse_target(SCRIPT), (), None, False), cuts=True
        ).result
        write_page(findings, page)
        cut = next(
            number
            for number, line in enumerate(text.splitlines(), 1)
            if ".detach()" in line
        )
        stream.write(_SAID.format(cut=cut))


def _write_script(text: str) -> None:
    """Write it, or leave what is there if it is the same. Raises OutputError when it is
    another.
    """
    try:
        with open(SCRIPT, encoding="utf-8") as file:
            if file.read() != text:
                raise OutputError(
                    f"{SCRIPT!r} is there and has been changed. Move it away, or run demo in another folder."
                )
    except FileNotFoundError:
        write(SCRIPT, [text.encode()], force=True)  # its suffix is no picture's
