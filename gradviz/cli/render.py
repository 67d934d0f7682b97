"""The commands that draw the graph: `gradviz render` to a file or to standard output,
`gradviz tree` in the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from gradviz.cli.launch import reports
from gradviz.cli.options import render_options, with_feature
from gradviz.cli.progress import progress
from gradviz.cli.streams import destination, open_option, refuse_to_open, result_stream
from gradviz.cli.target import (
    Source,
    TargetCommand,
    run_custom_option,
    shown_in_any_case,
    target_argument,
)
from gradviz.cli.why import cuts_watched
from gradviz.draw.options import Options
from gradviz.draw.output import FORMATS, format_of, get_format, listed
from gradviz.errors import OutputError
from gradviz.features import hook, load
from gradviz.report.results import console
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult


_DEFAULT = "svg"
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
@with_feature(
    "cuts",
    click.option("--cut", is_flag=True, help=_CUT),
)
@with_feature(
    "gradients",
    click.option(
        "--values",
        is_flag=True,
        help="Show numbers and gradients: in a page of tensors up to 64 elements, else of single numbers.",
    ),
)
@open_option
@run_custom_option
@render_options()
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
    name = format or (
        _DEFAULT if output in (None, _TO_STDOUT) else format_of(str(output)).name
    )
    if name == "txt":  # before a script runs for an hour
        from gradviz.draw.tree import refuse_backward

        refuse_backward(Options.of(options))
    _refuse_together(
        source,
        name,
        check,
        cut,
        values or _needs_backward(options),
        options["color"] == "time",
    )
    source = replace(source, run_custom=run_custom, values=values)
    read = partial(
        _read,
        source,
        options,
        check,
        cut or (check and name not in _FOR_PROGRAMS),
        name not in _FOR_PROGRAMS,
    )
    if output == _TO_STDOUT:
        refuse_to_open(output)
        _to_stdout(read, format or _DEFAULT, options)
    else:
        suffix = get_format(format or _DEFAULT).suffixes[0]
        path = destination(
            output or f"{source.target.stem}{suffix}", asked=output is not None
        )
        _to_file(read, path, format, options)


_FOR_PROGRAMS = ("json", "graphml")  # which read what backward runs


def _refuse_together(
    source: Source,
    name: str,
    check: bool,
    cut: bool,
    gradients: bool,
    time: bool,
) -> None:
    if (check or cut) + time + gradients > 1:
        raise click.UsageError(
            f"{'--check' if check else '--cut'}, --color time and gradients (--color grad, --numbers, --values) are read at "
            "different calls. Draw two pictures."
        )
    if cut and (source.target.kind == "graph" or name in _FOR_PROGRAMS):
        raise click.UsageError(
            "--cut draws what a running script cuts off: give a script, and a picture to draw."
        )


_Timed = Callable[[Source], "RunResult[Graph]"]
_Read = Callable[[], "RunResult[Graph]"]


def _read(
    source: Source,
    options: dict[str, Any],
    check: bool,
    cut: bool,
    is_picture: bool,
) -> RunResult[Graph]:
    """The graph to draw. With `check` it is that of the worst finding, which may be of
    a later backward call.
    """
    if options["color"] == "time":
        timed_graph: _Timed = load("gradviz.gradients.command:timed_graph")
        return timed_graph(source)
    if cut and not check:
        with cuts_watched(parts=True) as cuts:
            return source.graph(
                read=partial(load("gradviz.run.run:read_graph"), cuts=cuts)
            )
    if not check:
        backward = source.values or _needs_backward(options)
        few = hook("gradviz.gradients.command:with_values_of_few")
        return source.graph(backward=backward, read=few if is_picture else None)
    from gradviz.run.ending import RunResult

    checked = load("gradviz.checks.command:findings_of")(source, cuts=cut)
    return RunResult(checked.result.graph, checked.target, checked.failure)


def _to_file(
    read: _Read,
    path: str,
    format: str | None,
    options: dict[str, Any],
) -> None:
    captured = read()
    from gradviz.draw.output import save

    with shown_in_any_case(captured), progress("drawing the graph"):
        written = save(captured.result, path, format=format, **options)
    if reports():
        click.echo(one_line(written))
    captured.raise_failure()


def _needs_backward(options: dict[str, Any]) -> bool:
    return options["color"] == "grad" or bool(options.get("numbers"))


def _to_stdout(
    read: _Read,
    format: str,
    options: dict[str, Any],
) -> None:
    if get_format(format).binary and sys.stdout is not None and sys.stdout.isatty():
        raise OutputError(
            f"{format} is not text, so it is not written to a terminal. Give a file with -o, or a pipe."
        )
    with result_stream() as stream:
        captured = read()
        from gradviz.draw.output import pieces

        with progress("drawing the graph") as line:
            for piece in pieces(captured.result, format, Options.of(options)):
                if stream.isatty():
                    line.end()  # what is written now stands on the terminal, too
                stream.buffer.write(piece)
    captured.raise_failure()


# -- tree ------------------------------------------------------------------------------


@click.command("tree", cls=TargetCommand)
@render_options(
    "by", "columns", "names", "depth", "max_rows", "leaves", "saved", "attributes"
)
@with_feature(
    "gradients",
    click.option(
        "--time",
        "with_time",
        is_flag=True,
        help="Time forward and backward of each module, over the first 6 backward calls: medians, without the first.",
    ),
)
@target_argument
def tree_command(
    source: Source,
    with_time: bool = False,
    **options: Any,
) -> None:
    """Print the graph as a tree of modules, nodes or lines of code.

    Modules are listed in the order they ran, each with its calls, ops, parameters,
    output and bytes saved for backward. --by node shows single nodes from the output
    down; a node with several uses is shown once and referenced afterwards. --by line
    shows the lines of your code with the ops that each created. The script's own output
    goes to standard error.
    """
    with result_stream() as stream:
        if with_time:
            captured = load("gradviz.gradients.command:timed_graph")(source)
        else:
            captured = source.graph()
        _print(captured.result, options, stream)
    captured.raise_failure()


def _print(
    graph: Graph,
    options: dict[str, Any],
    stream: TextIO,
) -> None:
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
    from gradviz.draw.output import pieces

    with progress("drawing the tree"):
        for piece in pieces(graph, "txt", Options.of(options)):
            stream.buffer.write(piece)
