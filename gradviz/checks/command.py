"""`gradviz check`: what is wrong with the graph of a script, where, and what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gradviz.checks.finding import SEVERITIES
from gradviz.checks.settings import ignored, without_known
from gradviz.cli.completion import check_ids
from gradviz.cli.launch import reports
from gradviz.cli.options import json_option, with_feature
from gradviz.cli.progress import progress, reading
from gradviz.cli.source import Source
from gradviz.cli.streams import (
    SHORT,
    complain,
    destination,
    file_options,
    forced,
    opens,
    result_stream,
    shown_in_any_case,
)
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.errors import TargetError, text_of
from gradviz.features import load
from gradviz.rank import rank
from gradviz.report.results import write_json, write_table

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings
    from gradviz.run.ending import RunResult

FOUND = 1
"""Exit code when findings reach --fail-on."""
_ALSO = "This was gradviz check. See gradviz --help for render, saved, flow, ..."


def _list(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from gradviz.checks.pages import catalogue
        from gradviz.checks.registry import checks

        click.echo("\n".join(catalogue(checks())))
        ctx.exit()


def _explain(ctx: click.Context, parameter: click.Parameter, id: str | None) -> None:
    if id is not None and not ctx.resilient_parsing:
        from gradviz.checks.pages import page_lines
        from gradviz.checks.registry import chosen

        (check,) = chosen([id])
        click.echo("\n".join(page_lines(check)))
        ctx.exit()


@click.command("check", cls=TargetCommand)
@click.option(
    "--fail-on",
    type=click.Choice([*SEVERITIES, "never"]),
    default="warning",
    show_default=True,
    help="Exit with code 1 for a finding this severe or worse.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    shell_complete=check_ids,
    help="Run only this check; may be repeated.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="ID",
    shell_complete=check_ids,
    help="Skip this check; may be repeated.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Leave out the findings that this file lists; it is written when it is not there.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List all checks and exit.",
)
@click.option(
    "--explain",
    metavar="ID",
    shell_complete=check_ids,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Print the page of a check and exit: its meaning, an example, the fix, when to ignore it.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=None,
    metavar="N",
    help="Stop after N backward calls and the create_graph calls between them. [default: read 3, then watch until the script "
    "ends, fails, or has run for as long again, 5 to 60 s]",
)
@click.option(
    "--values",
    is_flag=True,
    help="Also read all numbers and compute gradients at each call, before backward runs.",
)
@with_feature(
    "page",
    click.option(
        "--html",
        "page",
        metavar="FILE.html",
        help="Also write a page: the graph with numbered findings that open.",
    ),
)
@with_feature("page", file_options)
@click.option(
    "--verbose",
    is_flag=True,
    help="Print all names, the reasons of notes, and the checks that ran.",
)
@json_option("Print the findings as JSON.")
@click.option(
    "--sarif",
    "as_sarif",
    is_flag=True,
    help="Print SARIF 2.1.0, which editors and CI show at the lines.",
)
@target_argument
def command(
    source: Source,
    fail_on: str,
    as_json: bool,
    as_sarif: bool,
    verbose: bool,
    ignore: tuple[str, ...],
    baseline: str | None,
    page: str | None = None,
    **options: Any,
) -> None:
    """Report what is wrong, where, why, and how to fix it.

    Reads the first backward calls, because some faults show only from step to step,
    then watches the script run on. Without --values it reads the loss, the norms of the
    gradients after a call, a few elements of parameters, and all numbers of a call that
    is not finite. Exit code 1 if there are findings. `[tool.gradviz]` in pyproject.toml
    may ignore checks: ignore = ["ID"].
    """
    options["ignore"] = ignore + ignored(Path.cwd(), complain)
    if page is None and opens():
        page = f"{source.target.stem}.html"

    if page is not None:
        page = destination(page, source.target.files, format="html")
    with result_stream() as stream:
        captured = findings_of(source, cuts=page is not None, **options)
        findings = captured.result
        if baseline is not None and reports():
            findings = without_known(findings, baseline)
        if page is not None:
            with shown_in_any_case(captured):
                write_page(findings, page)
        if as_sarif:
            write_json(stream, load("gradviz.checks.sarif:sarif")(findings))
        elif as_json:
            write_json(stream, findings.as_data())
        else:
            _print(findings, verbose, stream)

    if reports() and fail_on != "never" and findings.reach(fail_on):  # type: ignore[arg-type]
        error = captured.error
        if error is not None:
            from gradviz.checks.output import WIDTH

            complain(
                f"The script then failed: {type(error).__name__}: {text_of(error)}",
                WIDTH,
            )
        sys.exit(FOUND)

    captured.raise_failure()


def findings_of(source: Source, **options: Any) -> RunResult[Findings]:
    """Run the script and check its graphs. Options:
    `gradviz.checks.check.check_target`. Raises TargetError for a saved graph.
    """
    from gradviz.checks.check import check_target

    if source.target.kind == "graph":
        raise TargetError(
            f"{source.target.place!r} is a saved graph, and checks read live tensors, models and optimizers: give the script."
        )
    return check_target(
        source.target,
        source.arguments,
        at=source.at,
        keep_going=source.keep_going,
        to_end=source.keep_going,
        around=reading,
        **options,
    )


def _print(findings: Findings, verbose: bool, stream: TextIO) -> None:
    from gradviz.checks.output import FindingsTable

    write_table(stream, FindingsTable(findings, verbose), str(rank() or ""))
    stream.write(f"{_ALSO}\n" if click.get_current_context().meta.get(SHORT) else "")


def write_page(findings: Findings, path: str) -> None:
    """Write the page of findings, as progress on a terminal."""
    from gradviz.draw.options import Options
    from gradviz.draw.output import encode, write

    with progress("drawing the findings"):
        write(
            path,
            map(encode, load("gradviz.page.html:render_findings")(findings, Options())),
            force=forced(),
        )
