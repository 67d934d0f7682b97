"""`gradviz why`: why one tensor gets a gradient, or none, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradviz.cli.completion import module_paths
from gradviz.cli.options import json_option, write_result
from gradviz.cli.source import Source
from gradviz.cli.streams import result_stream
from gradviz.cli.target import TargetCommand, target_argument
from gradviz.errors import NotATensorError
from gradviz.features import load
from gradviz.report.results import write_json, write_table

if TYPE_CHECKING:
    import torch

    from gradviz.explanation import Why
    from gradviz.run.outputs import LiveOutputs


@click.command("why", cls=TargetCommand)
@json_option("Print everything as JSON.")
@target_argument
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=module_paths)
def command(source: Source, names: tuple[str, ...], as_json: bool) -> None:
    """Say why a tensor gets a gradient, or none.

    NAME is a variable or parameter (w, model.fc.weight); w.grad means the same. Says
    what fills its .grad, who holds it, which path leads to it from the loss, and which
    line cuts the graph. Without NAME: which loss and which optimizer reach which
    parameter, in one table.
    """
    if not names:
        _of_all(source, as_json)
        return

    def read(live: LiveOutputs) -> list[Why]:
        return [explained(live, name, source.target.short) for name in names]

    with result_stream() as stream:
        captured = source.read(read)
        answers, table = captured.result, load("gradviz.explanation:why_table")
        if as_json:
            write_json(stream, answers if len(answers) > 1 else answers[0])
        else:
            for why in answers:
                if why is not answers[0]:
                    stream.write("\n")
                write_table(stream, table(why))
    captured.raise_failure()


def _of_all(source: Source, as_json: bool) -> None:
    """What trains what."""
    with result_stream() as stream:
        captured = source.read(load("gradviz.cuts.training:training"))
        found, table = captured.result, load("gradviz.cuts.training:training_table")
        write_result(stream, as_json, found.as_data, lambda: table(found))
    captured.raise_failure()


def explained(live: LiveOutputs, name: str, place: str) -> Why:
    """The answer for a tensor by its name. Raises what `named_tensor` raises."""
    from gradviz.explanation import explain

    name = name.removesuffix(".grad")
    return explain(live, named_tensor(name, live, place), name)


def named_tensor(name: str, live: LiveOutputs, place: str) -> torch.Tensor:
    """The tensor of a name. Raises TargetError or NotATensorError, which say what to
    name.
    """
    import torch

    from gradviz.run.outputs import tensor_called

    value = tensor_called(name, live.variables, place)
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, torch.nn.Module):
        names = [f"{name}.{parameter}" for parameter, _ in value.named_parameters()]
        hint = f" Name a parameter, such as {names[0]}." if names else ""
        raise NotATensorError(f"{name} in {place} is a module, not a tensor.{hint}")
    raise NotATensorError(
        f"{name} in {place} is not a tensor; its type is {type(value).__name__}."
    )
