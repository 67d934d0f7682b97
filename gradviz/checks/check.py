"""Checks live outputs or a TARGET: reads the context, runs the checks on it, and returns the findings.

The one place that puts reading, gradients and checks together; the command line and `gradviz.check` both call it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from gradviz.checks.collect.collector import Collector
from gradviz.checks.collect.lines import Variables, raised
from gradviz.checks.collect.replay import FunctionReplay
from gradviz.checks.collect.watches import CallWatch, EvaluationWatch, RetainedWatch
from gradviz.checks.context import CheckContext, Gradients, LeafGradient
from gradviz.checks.finding import Findings
from gradviz.checks.registry import chosen, run
from gradviz.errors import GradvizError, reason_of
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph, stopped_note
from gradviz.graph import Graph
from gradviz.rank import rank
from gradviz.recording.record import Recording, open_recording
from gradviz.run.ending import RunResult
from gradviz.run.engine import EngineCall
from gradviz.run.outputs import LiveOutputs
from gradviz.run.program import Target
from gradviz.run.run import Run
from gradviz.variables.scanner import namespaces
from gradviz.wording import one_line, plural

STEPS = 3
"""Backward calls that are read in full unless told otherwise: growth shows from the third on."""


def check(
    outputs: object,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    recording: Recording | None = None,
    values: bool = False,
    vanishing: float = Gradients().vanishing,
    exploding: float = Gradients().exploding,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
    run_custom: bool = False,
) -> Findings:
    """What is wrong with the graph behind `outputs`, where, and what to do.

    Args:
        outputs: a tensor, or any nesting of tensors; one without a graph is a finding, not an error.
        model: whose parameters should all take part. Without it, the modules among the caller's variables.
        optimizer: whose tensors should be in the graph. Without it, those among the caller's variables.
        recording: of `gradviz.record()` around the code that made the outputs: findings then know modules and lines. Without
            it, the one that is open.
        values: also read numbers and compute gradients, for NaN, Inf and gradients that vanish, explode or are zero.
        vanishing, exploding: a module's gradient below this part of that of modules nearer to the output, or above this
            multiple of the nearest one, is reported.
        only, ignore: ids of checks to run, or to leave out.
        run_custom: with `values`, call the backward of custom Functions, too, which may keep state.

    Without `values` no number is read. Never runs a hook, writes a `.grad`, frees the graph or keeps memory. Raises
    NotATensorError when there is no tensor, and FormatError for an unknown id.

    >>> import torch, gradviz
    >>> net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1), "b": torch.nn.Linear(2, 1)})
    >>> loss = net["a"](torch.ones(1, 2)).sum()
    >>> [(finding.id, finding.names) for finding in gradviz.check(loss, model=net)]
    [('unused-parameter', ('b.weight', 'b.bias'))]

    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html
    """
    frame = sys._getframe(1)
    chosen(only, ignore)
    recording = recording or open_recording()
    variables = namespaces(frame) if recording is None else recording.with_modules(namespaces(frame))
    live = LiveOutputs(outputs, variables, "", recording=recording, frame=frame)
    collector = Collector(model, optimizer, values=values)
    context = collector.read(live)
    if values:
        limits = Gradients(vanishing=vanishing, exploding=exploding)
        context = _with_gradients(context, live, model, limits, run_custom)
    return _of_one(context, collector, only=only, ignore=ignore, values=values)


def check_live(live: LiveOutputs) -> Findings:
    """What one reading of live tensors tells: nothing is measured, no number is read, and the script is not watched."""
    collector = Collector()
    return _of_one(collector.read(live), collector)


def _of_one(context: CheckContext, collector: Collector, **options: Any) -> Findings:
    findings = _completed([context], run([context], **options))
    return replace(findings, skipped=(*findings.skipped, *collector.dropped.items()))


def check_target(
    target: Target,
    arguments: Sequence[str] = (),
    *,
    at: int | Sequence[int] | None = None,
    keep_going: bool = False,
    record: bool = True,
    steps: int | None = None,
    values: bool = False,
    vanishing: float = Gradients().vanishing,
    exploding: float = Gradients().exploding,
    only: Iterable[str] = (),
    ignore: Iterable[str] = (),
    run_custom: bool = False,
    cuts: bool = False,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    process: Callable[[Graph, LiveOutputs], Graph] | None = None,
    seen: Callable[[Graph], None] | None = None,
) -> RunResult[Findings]:
    """The same for a TARGET of the command line. Raises what `Run.captured` raises.

    Reads `steps` backward calls in a row; without that number `STEPS` of them, and then lets the script run on, with a time
    limit, until it ends, fails or has a loss or gradient that is not finite. `around` makes a context for whatever is not the
    user's code. `process` puts the process, one of several, into each graph. `seen` is given each graph before the script goes on.
    With `cuts` the graphs of the findings have what was cut off, to be drawn.
    """
    chosen(only, ignore)
    limits = Gradients(vanishing=vanishing, exploding=exploding)
    reader = Collector(values=values, limits=limits, cuts=cuts)
    recorder, run_record = reader.recorder, reader.recorder.record
    calls, replaced, replay = reader.calls, reader.replaced, FunctionReplay(run_custom)
    if target.kind == "script" and not target.is_notebook:
        reader.results.reads(os.path.join(os.getcwd(), target.place))  # as Python calls it
    evaluations, histories = EvaluationWatch(calls.paused), RetainedWatch(lambda: run_record.updates, calls.paused)

    def passed(number: int, call: EngineCall, reading: bool) -> None:
        recorder.backward(number, call.frame)
        reader.passed(number, reading)
        evaluations.backward(call.outputs, call.frame)
        histories.backward(number, call.frame, call.create_graph)

    def ended(variables: Variables) -> None:
        evaluations.ended(variables)
        histories.ended(variables)

    watch = CallWatch(lambda: run_record.scaled, passed, calls.paused)
    runs_on = steps is None and at is None and rank() is None  # ranks that stop at different calls wait for each other

    def read(live: LiveOutputs) -> CheckContext:
        with calls.paused():
            guessed = live.call is None and not target.name
            context = reader.read(live, scaled=run_record.scaled)
            graph = process(context.graph, live) if process is not None else context.graph
            unfinished = guessed and bool(live.notes)
            losses = tuple(watch.losses[:-1])
            context = replace(
                context, graph=graph, guessed=guessed, unfinished=unfinished, losses=losses, in_step=recorder.in_step
            )
            if seen is not None:
                seen(graph)
            told = context.values is not None and not live.ran
            return _with_gradients(context, live, None, limits, run_custom) if values or told else context

    def afterwards(context: CheckContext, filled: bool | None) -> CheckContext:
        context = reader.afterwards(context, filled)
        watch.seen_enough |= _is_broken(context) and not run_record.scaled
        return context

    with (
        recorder.watching(),
        reader.effects.watching(),
        reader.warned.watching(),
        replay.watching(),
        replaced.watching(),
        calls.watching(),
    ):
        captured = Run(
            target,
            read,
            arguments,
            at=at,
            keep_going=keep_going,
            record=record,
            around=around,
            steps=steps or STEPS,
            look=watch if runs_on else None,
            afterwards=afterwards,
            ended=ended if runs_on else None,
            nothing=CheckContext(Graph()),
        ).captured()
    failure = captured.failure if captured.failure is not None and captured.failure.exit_code is None else None
    reader.labels.ended()
    with around():
        every = [captured.result, *captured.later]
        stopped = captured.timed_out or watch.seen_enough if runs_on else len(every) >= (steps or STEPS)
        last = replace(
            every[-1],
            record=recorder.result(failure is None and not stopped),
            evaluations=evaluations.result(),
            held=histories.result([history for context in every for history in context.retained]),
            lost=reader.results.dropped(),
            misuses=(*reader.misuse.result(reader.cuts.lines_entered()), *reader.dimensions.result()),
            replayed=tuple(replay.found),
            raised=raised(failure.error) if failure is not None else None,
        )
        awake = {name: call for key, call in watch.nonzero.items() for name in reader.leaf_names.get(key, ())}
        used = {name for key in watch.reached for name in run_record.names.get(key, ())}
        every = with_other_calls([*every[:-1], last], used, awake, watch.looked)
        findings = _completed(every, run(every, only=only, ignore=ignore, values=values))
    skipped, notes = (*findings.skipped, *reader.dropped.items()), findings.notes
    if captured.unread:
        skipped = (*skipped, ("later calls", one_line(captured.unread)))
    if runs_on and captured.calls > len(every):
        notes = (*notes, _watched(captured.calls - len(every), captured, watch.seen_enough))
    failed = one_line(reason_of(failure.error)) if failure is not None else ""
    findings = replace(findings, skipped=skipped, notes=notes, failed=failed)
    return RunResult(findings, captured.target, captured.failure)


def _watched(calls: int, captured: RunResult[CheckContext], seen_enough: bool) -> str:
    """What the run was like after the calls that were read."""
    end = "to the end of the script"
    if captured.failure is not None:
        end = "until the script failed"
    elif seen_enough:
        end = "until a loss was not finite"
    elif captured.timed_out:
        end = "until the time limit"
    return f"Also watched {plural(calls, 'later backward call')}, {end}."


def with_other_calls(
    every: Sequence[CheckContext], used: set[str], awake: Mapping[str, int], looked: Sequence[int]
) -> list[CheckContext]:
    """Each with what is known of the other backward calls: the parameters that they use, and those that get a gradient there.

    `used` and `awake` are those of calls that were not read, with the last call; `looked` are those of which gradients are known.
    """
    users = [
        {name for parameter in context.parameters if parameter.node is not None for name in parameter.names}
        for context in every
    ]
    zero = next((_names(context, zero=True) for context in every if context.gradients is not None), frozenset[str]())
    nonzero = [_names(context, zero=False) for context in every]
    return [
        replace(
            context,
            used_later=frozenset(used).union(*users[:i], *users[i + 1 :]),
            nonzero_later=frozenset(awake).union(*nonzero[:i], *nonzero[i + 1 :]),
            nonzero_after=frozenset(
                name for name, call in awake.items() if context.call is None or call > context.call
            ).union(*nonzero[i + 1 :]),
            looked_after=sum(context.call is not None and call > context.call for call in looked),
            zero_at_first=zero,
            broken_before=any(map(_is_broken, every[:i])),
            before=last.graph if last is not None else None,
            loss_before=last.loss if last is not None else None,
        )
        for i, (context, last) in enumerate(zip(every, [None, *every]))
    ]


def _is_broken(context: CheckContext) -> bool:
    """Whether a call has left gradients that are not finite."""
    return any(leaf.nonfinite for leaf in context.leaf_gradients)


def _names(context: CheckContext, *, zero: bool) -> frozenset[str]:
    """Names of the leaves with a gradient that is all zero, or that is not."""
    leaves = (context.graph.leaf_of[leaf.node] for leaf in context.leaf_gradients if (leaf.zeros == 1.0) == zero)
    return frozenset(name for leaf in leaves for name in leaf.names)


def _with_gradients(
    context: CheckContext, outputs: LiveOutputs, model: torch.nn.Module | None, limits: Gradients, run_custom: bool
) -> CheckContext:
    """The context with what backward would compute, or with why it is not computed: that takes no other finding away."""
    graph = context.graph
    if all(root.node is None for root in graph.roots):
        return context
    # computing them would run code of the user's that may not bear it
    packed = (
        f"saved tensors are packed by a hook, which would have to run ({slot.note})"
        for node in graph.nodes
        for slot in node.saved
        if slot.state == "packed" and slot.packing != "offload"
    )
    problem = next(packed, "")
    if not problem:
        try:
            live = open_graph(outputs.outputs, model=model, variables=outputs.variables)
            flow = measure(live, run_custom=run_custom)
        except GradvizError as error:
            problem = str(error)
        except Exception as error:  # out of memory, or an operation that a class of tensors does not have
            problem = f"computing them raised {reason_of(error)}"
    if problem:
        return replace(context, gradients=limits._replace(problem=problem))
    leaves = tuple(LeafGradient(leaf.node, leaf.norm, leaf.zeros, leaf.nonfinite) for leaf in flow.leaves)
    leaving = {
        measured.edge.consumer for measured in flow.edges if measured.size is not None and measured.size.nonfinite
    }
    arriving = {node for node, size in flow.incoming.items() if not size.nonfinite}
    broken = tuple(node for node in flow.order if node in leaving & arriving)
    stopped = "; ".join(stopped_note(flow.graph, flow.stopped, flow.unmeasured, flow.closed))
    gradients = limits._replace(leaves=leaves, nonfinite=broken, problem=stopped)
    return replace(context, gradients=gradients)


def _completed(every: Sequence[CheckContext], findings: Findings) -> Findings:
    """The findings with the reasons why gradients could not be computed, and the process that found them."""
    problems = dict.fromkeys(context.gradients.problem for context in every if context.gradients is not None)
    reasons = tuple(("gradients", one_line(problem)) for problem in problems if problem)
    here = rank()
    if here is not None:
        findings = replace(findings, found=tuple(replace(finding, rank=here.number) for finding in findings))
    graphs = tuple(_drawn(context) for context in every)
    return replace(findings, skipped=(*findings.skipped, *reasons), graphs=graphs)


def _drawn(context: CheckContext) -> Graph:
    """The graph with what was cut off, where that is to be drawn."""
    graph, drawn = context.graph, context.drawn
    return graph if drawn is None else replace(drawn, backward=graph.backward, process=graph.process)
