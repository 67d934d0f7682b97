"""`gradviz tensors`: what autograd knows of every tensor of a script, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gradviz.cli.streams import result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument
from gradviz.errors import NotATensorError
from gradviz.rank import rank
from gradviz.report.plain import write_table
from gradviz.wording import json_ready

if TYPE_CHECKING:
    from gradviz.run.target import Live
    from gradviz.tensors.inventory import TensorFacts

_TOP = 100


@click.command("tensors", cls=TargetCommand)
@click.option("--top", type=click.IntRange(min=0), metavar="N", help="Rows to show; 0 for all. [default: 100]")
@click.option("--json", "as_json", is_flag=True, help="Print all tensors as JSON.")
@target_argument
def command(source: Source, top: int | None, as_json: bool) -> None:
    """List the script's tensors and what autograd knows of each.

    The script runs to its end, so gradients are there. One whose global variables hold no tensor, such as one with a main(), is
    looked at when it first calls backward, and --at K looks at the K-th call: there, local variables are listed, too. Reading
    changes nothing.
    """
    with result_stream() as stream:
        captured = source.read(lambda live: _read(live, source), need_graph=False)
        found = captured.result
        if as_json:
            data = {"title": found.title, "tensors": [as_data(one) for one in found.tensors]}
            stream.write(json.dumps(data, indent=2) + "\n")
        else:
            from gradviz.tensors.table import tensors_table

            write_table(
                stream,
                tensors_table(found.tensors, _TOP if top is None else top),
                found.title if found.at_call or rank() else "",
            )
    captured.raise_failure()


class Listed(NamedTuple):
    """The tensors, and what they are the tensors of."""

    title: str
    tensors: tuple[TensorFacts, ...]
    at_call: bool


def _read(live: Live, source: Source) -> Listed:
    from gradviz.tensors.inventory import inventory

    named = source.target.name
    variables = [{named: live.outputs}] if named else live.variables
    found = inventory(variables)
    if found:
        return Listed(live.title, found, live.call is not None)
    if named:
        raise NotATensorError(f"{named} in {source.target.short} holds no tensor.")
    where = (
        "no variable that holds a tensor at that call"
        if live.call
        else "no global variable that holds a tensor, and calls no backward()"
    )
    raise NotATensorError(f"{source.target.short} has {where}. Name what to look at: {source.target.short}:NAME.")


def as_data(one: TensorFacts) -> dict[str, Any]:
    """All facts of a tensor, for `--json`."""
    grad = None if one.grad is None else {**one.grad._asdict(), "tensor": one.grad.tensor._asdict()}
    if grad is not None:
        grad.update({key: json_ready(grad[key]) for key in ("norm", "value")})
    return {**one._asdict(), "tensor": one.tensor._asdict(), "grad": grad}
