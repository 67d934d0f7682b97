"""`gradviz formula`: what an op computes, what its backward function sends back, and
what it keeps for that.
"""

from __future__ import annotations

from textwrap import fill

import click

from gradviz.cli.completion import ops
from gradviz.cli.help import GroupedCommand
from gradviz.cli.options import json_option
from gradviz.cli.streams import result_stream
from gradviz.report.results import write_json

WIDTH = 80


@click.command("formula", cls=GroupedCommand)
@json_option("Print the formulas as JSON, with MathML.")
@click.argument("op", metavar="OP", shell_complete=ops)
def command(op: str, as_json: bool) -> None:
    """Show the formula of an op and of its gradient.

    OP is the name of a backward function (SoftmaxBackward0), of an op (softmax), or of
    a torch function (F.linear). No script runs.
    """
    from gradviz.formulas.lookup import as_data, find, lines, sentence

    with result_stream() as stream:
        if sentence(op) and not as_json:
            stream.write(f"{op}: {sentence(op)}\n")
            return
        found = find(op)
        if as_json:
            write_json(stream, {"formulas": [as_data(formula) for formula in found]})
            return
        for formula in found:
            stream.write(f"{formula.op}\n")
            for word, text in lines(formula):
                stream.write(
                    fill(
                        text,
                        WIDTH,
                        initial_indent=f"  {word:<10}",
                        subsequent_indent=" " * 12,
                    )
                    + "\n"
                )
        stream.write(
            "\ng is the incoming gradient; gradients of broadcast inputs are summed over the repeated dimensions.\n"
        )
