"""`gradviz tensors`: what autograd knows of every tensor of a script, as a table or as
JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from gradviz.cli.options import json_option, row_limit, top_option, write_result
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.errors import NotATensorError
from gradviz.features import load
from gradviz.rank import rank

if TYPE_CHECKING:
    from gradviz.run.outputs import LiveOutputs
    from gradviz.tensors import TensorFacts

_ROWS = 100


@click.command("tensors", cls=TargetCommand)
@top_option(_ROWS)
@json_option("Print all tensors as JSON.")
@target_argument
def command(source: Source, top: int | None, as_json: bool) -> None:
    """List the script's tensors with their autograd state.

    The script stops after the first optimizer step, so gradients exist; without an
    optimizer it runs to its end. --continue always runs it to its end. --at K stops at
    the K-th backward call. Before the end, local variables are listed too. Reading
    changes nothing.
    """
    with result_stream() as stream:
        captured = source.read(lambda live: _read(live, source), need_graph=False)
        listed = captured.result
        rows, table = row_limit(top, _ROWS), load("gradviz.tensors:tensors_table")
        data = {"title": listed.title, "tensors": listed.tensors}
        title = listed.title if listed.at_call or rank() else ""
        write_result(
            stream, as_json, lambda: data, lambda: table(listed.tensors, rows), title
        )

    captured.raise_failure()


class Listed(NamedTuple):
    """The tensors, and what they are the tensors of."""

    title: str
    tensors: tuple[TensorFacts, ...]
    at_call: bool


def _read(live: LiveOutputs, source: Source) -> Listed:
    from gradviz.tensors import inventory

    named = source.target.name
    variables = [{named: live.outputs}] if named else live.variables
    tensors = inventory(variables)
    if tensors:
        return Listed(live.title, tensors, live.call is not None)
    if named:
        raise NotATensorError(f"{named} in {source.target.short} holds no tensor.")
    if live.call:
        where = "no variable that holds a tensor at that call"
    else:
        where = "no global variable that holds a tensor"
    raise NotATensorError(
        f"{source.target.short} has {where}. Name what to look at: {source.target.short}:NAME, or a call of backward: --at 1."
    )
