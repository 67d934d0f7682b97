"""Checks live outputs or a TARGET: reads the context, runs the checks on it, and
returns the findings.

The one place that puts reading and checks together; the command line and
`gradviz.check` both call it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from gradviz.armour.isolation import isolated
from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.computed import compute_gradients
from gradviz.checks.finding import Findings
from gradviz.checks.registry import chosen, run
from gradviz.checks.watched import WatchedRun
from gradviz.graph.given import refuse_graph
from gradviz.packages import users_frame
from gradviz.rank import rank
from gradviz.recording.record import Recording, open_recording
from gradviz.run.ending import RunResult
from gradviz.run.outputs import LiveOutputs
from gradviz.run.run import Run
from gradviz.run.target import Target
from gradviz.variables.scanner import Namespace, namespaces

STEPS = 3
"""Backward calls that are read in full unless told otherwise: growth shows from the
third on.
"""


def check(
    outputs: object,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    recording: Recording | None = None,
    values: bool = False,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Findings:
    """What is wrong with the graph behind `outputs`, where, and what to do.

    Parameters
    ----------
    outputs
        a tensor, or any nesting of tensors; one without a graph is a finding,
        not an error.
    model
        whose parameters should all take part. Without it, the modules among the
        caller's variables.
    optimizer
        whose tensors should be in the graph. Without it, those among the
        caller's variables.
    recording
        of `gradviz.record()` around the code that made the outputs: findings
        then know modules and lines. Without it, the one that is open.
    values
        also read numbers and compute gradients, for NaN, Inf and gradients that
        explode.
    only, ignore
        ids of checks to run, or to leave out.

    Returns
    -------
    Findings
        one for each fault, the worst first; it prints as a report.

    Raises
    ------
    NotATensorError
        there is no tensor in `outputs`.
    FormatError
        `only` or `ignore` has an unknown id.

    Notes
    -----
    Without `values` no number is read. Never runs a hook, writes a `.grad`, frees the
    graph or keeps memory. Source:
    https://docs.pytorch.org/docs/stable/notes/autograd.html

    Examples
    --------
    >>> import torch, gradviz
    >>> net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1), "b": torch.nn.Linear(2, 1)})
    >>> loss = net["a"](torch.ones(1, 2)).sum()
    >>> [(finding.id, finding.names) for finding in gradviz.check(loss, model=net)]
    [('unused-parameter', ('net.b.weight', 'net.b.bias'))]
    """
    refuse_graph(outputs, "check(loss)")
    frame = users_frame(sys._getframe(1))
    chosen(only, ignore)
    recording = recording or open_recording()

    variables: Sequence[Namespace] = namespaces(frame)
    if recording is not None:
        variables = recording.with_modules(variables)

    live = LiveOutputs(outputs, variables, "", recording=recording, frame=frame)
    collector = Collector(model, optimizer, values=values)
    call = collector.read(live)
    if values:
        compute_gradients(call, live, model)

    with isolated():
        findings = run([call], only=only, ignore=ignore, values=values)
    skipped = (*findings.skipped, *collector.recorder.dropped.items())
    return replace(findings, skipped=skipped)


def check_target(
    target: Target,
    arguments: Sequence[str] = (),
    *,
    at: int | Sequence[int] | None = None,
    keep_going: bool = False,
    steps: int | None = None,
    to_end: bool = False,
    values: bool = False,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
    cuts: bool = False,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> RunResult[Findings]:
    """The same for a TARGET of the command line. Raises what `Run.captured` raises.

    Reads `steps` backward calls; without that number `STEPS`, and then watches on,
    `to_end` without a limit of time. `around` is put around what is not the user's.
    """
    chosen(only, ignore)
    # ranks that stop at different calls wait for each other
    runs_on = steps is None and at is None and rank() is None
    watched = WatchedRun(target, runs_on=runs_on, values=values, cuts=cuts)
    with watched.watching():
        captured = Run(
            target,
            watched.read,
            arguments,
            at=at,
            keep_going=keep_going,
            around=around,
            steps=steps or STEPS,
            to_end=to_end,
            **watched.hooks(),
        ).captured()

    with around():
        calls = watched.finish(captured, steps or STEPS)
        findings = run(calls, only=only, ignore=ignore, values=values)

    return RunResult(
        watched.told(findings, captured), captured.target, captured.failure
    )
