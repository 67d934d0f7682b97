"""`gradviz fit`: the peak memory of a training step, the largest batch that fits, and what would make more fit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.options import ByteSize, Form, form_option, write_result
from gradviz.cli.progress import progress
from gradviz.cli.streams import complain, result_stream
from gradviz.cli.target import Source, TargetCommand, target_argument
from gradviz.errors import TargetError
from gradviz.features import load
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.memory.fit.prediction import Prediction

OVER = 1
"""Exit code when the step does not fit."""


@click.command("fit", cls=TargetCommand)
@click.option("--memory", type=ByteSize(), required=True, metavar="SIZE", help="What the device has, such as 24GiB.")
@click.option(
    "--batch",
    metavar="NAME",
    default="",
    help="What sets the batch: an option of the script's (--batch=--batch-size) or a name that it assigns. Without it: batch_size "
    "of the first DataLoader.",
)
@click.option("--once", is_flag=True, help="Run the script once, with its own batch; no largest batch is given then.")
@click.option(
    "--fake", is_flag=True, help="Run with fake tensors, which take no memory; numbers read from them are made up."
)
@click.option(
    "--cpu", is_flag=True, help="The device is a CPU: no blocks of 512 B, and optimizers step tensor by tensor."
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 0.9),
    help="Share of the memory to leave for what is not seen: workspaces of kernels, fragmentation, the CUDA context. "
    "[default: 0.1; 0.2 for convolutions and LSTMs on a CPU]",
)
@form_option("Print exact bytes as JSON.")
@target_argument
def command(
    source: Source, memory: int, batch: str, once: bool, fake: bool, cpu: bool, margin: float | None, form: Form
) -> None:
    """Predict the peak memory of a step and the batch that fits.

    Runs the script in child processes until its second optimizer step, with tiny batches, in a copy of the folder.
    Exit code 1 when the script's own batch does not fit.
    """
    from gradviz.memory.fit.prediction import predict
    from gradviz.memory.fit.runs import Specification

    if source.target.kind not in ("script", "main") or source.target.name:
        raise TargetError("fit runs a whole script: give script.py or -m package.module, without a name.")
    if batch and not batch.startswith("-") and source.target.kind != "script":
        raise TargetError(
            f"{batch!r} is looked for in a script, not with -m. Name an option, such as --batch=--batch-size."
        )
    if source.at is not None or source.keep_going:
        raise click.UsageError("fit runs to the second optimizer step: leave out --at and --continue.")
    short = one_line(source.target.short)
    complain(f"running {short} {'once' if once else 'a few times'} in child processes, in a copy of this folder")
    wanted = Specification(source.target, source.arguments, batch, fake=fake, gpu=not cpu)
    with result_stream() as stream, terminable():
        with progress("measuring tiny batches"):
            result = predict(wanted, memory, margin=margin, once=once)
        title, table = source.target.title, load("gradviz.memory.fit.table:fit_table")
        write_result(stream, form, lambda: as_data(result, title), lambda: table(result), title)
    if not result.fits:
        click.get_current_context().exit(OVER)


@contextmanager
def terminable() -> Iterator[None]:
    """A signal to end ends the block as Ctrl-C does, so that children and copies go with it."""

    ended: list[int] = []

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        ended.append(number)
        sys.exit(128 + number)

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if os.name == "posix" else [])]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except SystemExit:
        for number in ended:
            complain(f"Ended by {signal.Signals(number).name}; nothing was written.")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def as_data(result: Prediction, title: str) -> dict[str, Any]:
    """Everything for `--json`, in bytes."""
    from gradviz.memory.fit.table import module_text

    peak, trace = result.peak, result.sizes.trace
    return {
        "title": title,
        "fits": result.fits,
        "memory": result.memory,
        "limit": result.limit,
        "peak": {"total": peak.total, **peak.kinds},
        "at": {
            "phase": peak.phase,
            "source": trace.place_of(peak.last),
            "module": module_text(result, trace.storages[peak.last].call),
        },
        "phases": {name: {"total": moment.total, **moment.kinds} for name, moment in result.phases.items()},
        "batch": {"now": result.now, "largest": result.largest, "why": result.why},
        "changes": result.changes,
        "notes": result.notes,
    }
