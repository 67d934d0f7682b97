"""`gradviz why`: why one tensor gets a gradient, or none, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

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
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs

T = TypeVar("T")


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

    def is_complete(answers: list[Why]) -> bool:
        return all(why.step is not None for why in answers)

    with result_stream() as stream:
        captured = _read_turn(source, read, is_complete)
        calls = zip(captured.result, *captured.later)
        answers = list(map(_best, calls))
        table = load("gradviz.explanation:why_table")
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
    training, merged, table = (
        load(f"gradviz.cuts.training:{name}")
        for name in ("training", "merged", "training_table")
    )
    with result_stream() as stream:
        captured = _read_turn(source, training, attrgetter("is_complete"))
        found = merged([captured.result, *captured.later])
        write_result(stream, as_json, found.as_data, lambda: table(found))
    captured.raise_failure()


def _best(calls: Sequence[Why]) -> Why:
    """The answer of the first call that reaches a tensor, else of all."""
    from gradviz.explanation import all_reasons

    reached = [why for why in calls if why.step is not None]
    best = min(reached, key=lambda why: bool(why.reason), default=calls[-1])
    reasons = all_reasons((why.outputs, why.reason) for why in calls)
    return best if reached else best._replace(reason=reasons)


def _read_turn(
    source: Source, read: Callable[[LiveOutputs], T], is_complete: Callable[[T], bool]
) -> RunResult[T]:
    """Read the first backward call, and each that another line makes, until an answer
    is complete; only what is asked for by name or number, if it is.
    """
    from gradviz.run.selection import OneTurn

    if source.at is not None or source.target.name or source.keep_going:
        return source.read(read)
    turn = OneTurn()

    def reading(live: LiveOutputs) -> T:
        found = read(live)
        turn.seen_enough = is_complete(found)
        return found

    captured = source.read(reading, steps=1, watch=turn)
    # what comes behind the first call was only to add to the answer
    return replace(captured, failure=None) if captured.calls else captured


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
