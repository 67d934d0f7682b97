"""The commands that draw the graph: `gradviz render` to a file or to standard output,
`gradviz tree` in the terminal.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from gradviz.cli.launch import reports
from gradviz.cli.options import render_options, run_custom_option, with_feature
from gradviz.cli.progress import progress
from gradviz.cli.source import Source
from gradviz.cli.streams import (
    destination,
    file_options,
    forced,
    refuse_to_open,
    result_stream,
    shown_in_any_case,
)
from gradviz.cli.target import TargetCommand, input_option, target_argument
from gradviz.draw.options import Options
from gradviz.draw.output import (
    FORMATS,
    format_of,
    get_format,
    listed,
    pieces,
    refuse_options,
    save,
)
from gradviz.draw.tree import SUMMARY
from gradviz.errors import OutputError
from gradviz.features import hook, load
from gradviz.report.results import console
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult


_DEFAULT = "svg"
_SVG_SIZE = re.compile(rb'<svg [^>]* height="(\d+)')
_TALL = 4000
"""Pixels: two of the tallest picture that gradviz makes by itself."""
_TO_STDOUT = "-"


_PAGE = "html is an interactive offline page, " if "html" in FORMATS else ""
_HELP = f"""Draw the graph, as a picture, a page, text or data.

Writes {listed()}: {_PAGE}md is Mermaid. Without -o, the file is
named after the script and lies in the current folder. Prints the path.
"""
_CUT = (
    "Draw what .detach(), .item(), .sample() or argmax cut off, dashed; --check does."
)


@click.command("render", cls=TargetCommand, help=_HELP)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file; the suffix chooses the format. - is standard output.",
)
@click.option(
    "--format",
    type=click.Choice(list(FORMATS)),
    help="Output format, if no suffix says it.",
)
@with_feature(
    "checks",
    click.option(
        "--check",
        is_flag=True,
        help="Mark the findings of gradviz check by number, and list them under the picture.",
    ),
)
@with_feature("cuts", click.option("--cut", is_flag=True, help=_CUT))
@with_feature(
    "gradients",
    click.option(
        "--values",
        is_flag=True,
        help="Show numbers and gradients: up to 4 elements, in a page 64; of more their range and mean.",
    ),
)
@file_options
@run_custom_option
@render_options()
@input_option
@target_argument
def render_command(
    source: Source,
    output: str | None,
    format: str | None,
    check: bool = False,
    cut: bool = False,
    values: bool = False,
    run_custom: bool = False,
    **options: Any,
) -> None:
    drawing = Options.of(options)
    name = format or _format_of(output)
    refuse_options(name, drawing)
    gradients = values or drawing.color == "grad"
    reading = _reading(check, cut, gradients)
    for_reader = name == "txt" or get_format(name).folded  # not for another program
    if cut and (source.target.kind == "graph" or not for_reader):
        raise click.UsageError(
            "--cut draws what a running script cuts off: give a script, and a picture to draw."
        )

    if output == _TO_STDOUT:
        refuse_to_open(output)
        _refuse_binary(name)
        with result_stream() as stream:
            captured = _graph(source, reading, for_reader, values, run_custom)
            _write(captured.result, name, drawing, stream)
    else:
        path = output or source.target.stem + get_format(name).suffixes[0]
        inputs = source.target.files
        path = destination(path, inputs, asked=output is not None)
        captured = _graph(source, reading, for_reader, values, run_custom)
        with shown_in_any_case(captured), progress("drawing the graph"):
            path = save(captured.result, path, format=format, force=forced(), **options)
        if reports():
            click.echo(one_line(path))
            _warn_of_height(path)

    captured.raise_failure()


def _format_of(output: str | None) -> str:
    if output in (None, _TO_STDOUT):
        return _DEFAULT
    return format_of(str(output)).name


def _warn_of_height(path: str) -> None:
    """Say on standard error that a picture is too tall to be read whole."""
    with open(path, "rb") as file:
        size = _SVG_SIZE.match(file.read(200))
    if size is None or int(size[1]) <= _TALL:
        return
    words = f"{path} is {int(size[1]):,} pixels tall"
    if _PAGE:
        page = Path(path).with_suffix(".html")
        words += f"; -o {page} writes a page in which modules open"
    click.echo(one_line(words), err=True)


Reading = Literal["plain", "gradients", "findings", "cuts"]
"""What is read of a script beside its graph."""


def _reading(check: bool, cut: bool, gradients: bool) -> Reading:
    """What the options ask for. Raises UsageError where no one run has all of it."""
    if (check or cut) and gradients:
        flag = "--check" if check else "--cut"
        raise click.UsageError(
            f"{flag} and gradients (--color grad, --values) are read at different calls. "
            "Draw two pictures."
        )
    if check:
        return "findings"
    if cut:
        return "cuts"
    return "gradients" if gradients else "plain"


def _graph(
    source: Source, reading: Reading, for_reader: bool, values: bool, run_custom: bool
) -> RunResult[Graph]:
    """The graph to draw. That of findings is the worst one's, which may be of a later
    backward call. For a reader, it may have more than backward runs.
    """
    captured: RunResult[Graph]
    if reading == "plain":
        lesson = hook("gradviz.gradients.lesson:graph_with_lesson")
        captured = source.graph(lesson if for_reader else None)
    elif reading == "gradients":
        read = load("gradviz.gradients.command:graph_with_backward")
        captured = read(source, run_custom, values)
    elif reading == "cuts":
        from gradviz.run.reading import read_graph

        captured = source.graph(lambda live: read_graph(live, cuts=True))
    else:
        findings_of = load("gradviz.checks.command:findings_of")
        checked = findings_of(source, cuts=for_reader)
        captured = replace(checked, result=checked.result.graph)
    return captured


def _refuse_binary(format: str) -> None:
    if get_format(format).binary and sys.stdout is not None and sys.stdout.isatty():
        raise OutputError(
            f"{format} is not text, so it is not written to a terminal. Give a file with -o, or a pipe."
        )


def _write(graph: Graph, format: str, drawing: Options, stream: TextIO) -> None:
    with progress("drawing the graph") as line:
        for piece in pieces(graph, format, drawing):
            if stream.isatty():
                line.end()  # what is written now stands on the terminal, too
            stream.buffer.write(piece)


# -- tree ------------------------------------------------------------------------------


@click.command("tree", cls=TargetCommand)
@render_options("by", "names", "depth", "max_rows", "leaves", "saved")
@input_option
@target_argument
def tree_command(source: Source, **options: Any) -> None:
    """Print the graph as a tree of modules, or node by node.

    Modules are listed in the order they ran, each with its ops, parameters, output and
    bytes saved for backward; ×12 is the sum of 12 alike modules. --by node shows single
    nodes from the output down, each with what it was given. The script's own output
    goes to standard error.
    """
    _print_tree(source, options)


@click.command("summary", cls=TargetCommand)
@render_options("columns", "depth")
@input_option
@target_argument
def summary_command(source: Source, **options: Any) -> None:
    """Print a table of modules: outputs, parameters, FLOPs and memory.

    It is gradviz tree with chosen columns. FLOPs are those of the forward pass, by torch's own formulas.
    """
    options |= {"columns": options["columns"] or SUMMARY, "by": "module"}
    Options.of(options)  # refuses a wrong name before anything runs
    _print_tree(source, options)


def _print_tree(source: Source, options: dict[str, Any]) -> None:
    with result_stream() as stream:
        captured = source.graph()
        _print(captured.result, options, stream)
    captured.raise_failure()


def _print(graph: Graph, options: dict[str, Any], stream: TextIO) -> None:
    """In colour and cut to the screen on a terminal; whole lines and all rows for a
    pipe or a file.
    """
    screen = console(stream)
    if screen.is_terminal:
        from gradviz.report.rich_parts import Segments

        with progress("drawing the tree"):
            rows = Segments(list(screen.render(graph.tree(**options))))
        screen.print(rows, end="")
        return
    with progress("drawing the tree"):
        for piece in pieces(graph, "txt", Options.of(options)):
            stream.buffer.write(piece)
