"""Checks live outputs or a TARGET: reads the context, runs the checks on it, and returns the findings.

The one place that puts reading, gradients and checks together; the command line and `gradviz.check` both call it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from gradviz.checks.collect.collector import Collector, Subject
from gradviz.checks.collect.detach_watch import DetachWatch
from gradviz.checks.collect.lines import raised
from gradviz.checks.collect.loop import OrderWatch
from gradviz.checks.collect.parameters import Replaced
from gradviz.checks.collect.watches import CallWatch, EvaluationWatch, RetainedWatch
from gradviz.checks.context import CheckContext, Gradients, LeafGradient
from gradviz.checks.finding import Findings
from gradviz.checks.registry import chosen, run
from gradviz.errors import GradvizError, reason_of
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph, stopped_note
from gradviz.graph import Graph
from gradviz.packages import UserCode
from gradviz.rank import rank
from gradviz.recording.record import Recording
from gradviz.run.ending import Captured
from gradviz.run.engine import EngineCall
from gradviz.run.outputs import LiveOutputs
from gradviz.run.program import Target
from gradviz.run.run import Run
from gradviz.variables.scanner import Namespace, namespaces
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
        recording: of `gradviz.record()` around the code that made the outputs: findings then know modules and lines.
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
    reader = Collector(model, optimizer, recording, values=values)
    subject = Subject(outputs, namespaces(frame), frame=frame)
    context = reader.read(subject)
    if values:
        context = _with_gradients(
            context, subject, model, Gradients(vanishing=vanishing, exploding=exploding), run_custom
        )
    return _completed([context], run([context], only=only, ignore=ignore, values=values))


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
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    process: Callable[[Graph, LiveOutputs], Graph] | None = None,
    seen: Callable[[Graph], None] | None = None,
) -> Captured[Findings]:
    """The same for a TARGET of the command line. Raises what `Run.captured` raises.

    Reads `steps` backward calls in a row; without that number `STEPS` of them, and then lets the script run on, with a time
    limit, until it ends, fails or has a loss or gradient that is not finite. `around` makes a context for whatever is not the
    user's code. `process` puts the process, one of several, into each graph. `seen` is given each graph before the script goes on.
    """
    chosen(only, ignore)
    limits = Gradients(vanishing=vanishing, exploding=exploding)
    reader, order = Collector(values=values, limits=limits), OrderWatch()

    def passed(number: int, call: EngineCall, reading: bool) -> None:
        order.backward(number, call.frame)
        reader.passed(number, reading)
        evaluations.backward(call.outputs, call.frame)
        histories.backward(number, call.frame, call.create_graph)

    def ended(variables: Sequence[Namespace]) -> None:
        evaluations.ended(variables)
        histories.ended(variables)

    place = UserCode().place
    cuts, replaced = DetachWatch(place), Replaced(place)
    reader.cuts, reader.replaced = cuts, replaced
    if target.kind == "script":
        cuts.reads(os.path.join(os.getcwd(), target.place))  # as Python calls it
    evaluations, histories = EvaluationWatch(cuts.paused), RetainedWatch(lambda: order.updates, cuts.paused)
    watch = CallWatch(lambda: order.scaled, passed, cuts.paused)
    runs_on = steps is None and at is None and rank() is None  # ranks that stop at different calls wait for each other

    def read(live: LiveOutputs) -> CheckContext:
        with cuts.paused():
            return read_quietly(live)

    def read_quietly(live: LiveOutputs) -> CheckContext:
        reader.recording = live.recording
        subject = Subject(
            live.outputs,
            live.variables,
            live.title,
            live.names,
            live.frame,
            live.call,
            live.create_graph,
            live.ran,
            order.scaled,
        )
        guessed = live.call is None and not target.name
        context = replace(reader.read(subject), guessed=guessed, unfinished=guessed and bool(live.notes))
        context = replace(context, losses=tuple(watch.losses[:-1]))
        if process is not None:
            context = replace(context, graph=process(context.graph, live))
        if seen is not None:
            seen(context.graph)
        told = context.values is not None and not live.ran
        return _with_gradients(context, subject, None, limits, run_custom) if values or told else context

    def afterwards(context: CheckContext, filled: bool | None) -> CheckContext:
        context = reader.afterwards(context, filled)
        watch.seen_enough |= _is_broken(context) and not order.scaled
        return context

    with (
        reader.leaf_watch.optimizers_watched(),
        reader.ledger.watching(),
        order.watched(),
        replaced.watching(),
        cuts.watching(),
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
    with around():
        every = _with_other_calls([captured.result, *captured.later])
        awake = frozenset(name for key in watch.nonzero for name in reader.leaf_names.get(key, ()))
        used = frozenset(name for key in watch.reached for name in reader.ledger.names_of(key))
        every = [
            replace(context, nonzero_later=context.nonzero_later | awake, used_later=context.used_later | used)
            for context in every
        ]
        stopped = captured.timed_out or watch.seen_enough if runs_on else len(every) >= (steps or STEPS)
        ledger = reader.ledger.ledger(failure is None and not stopped)
        known = [history for context in every for history in context.retained]
        every[-1] = replace(
            every[-1],
            ledger=ledger,
            events=order.told(),
            evaluations=evaluations.told(),
            held=histories.told(known),
            lost=cuts.dropped(),
        )
        if failure is not None:
            every[-1] = replace(every[-1], raised=raised(failure.error))
        findings = run(every, only=only, ignore=ignore, values=values)
    findings = _completed(every, findings)
    if captured.unread:
        findings = replace(findings, skipped=(*findings.skipped, ("later calls", one_line(captured.unread))))
    if failure is not None:
        findings = replace(findings, failed=one_line(reason_of(failure.error)))
    if runs_on and captured.calls > len(every):
        note = _watched(captured.calls - len(every), captured, watch.seen_enough)
        findings = replace(findings, notes=(*findings.notes, note))
    return Captured(findings, captured.target, captured.failure)


def _watched(calls: int, captured: Captured[CheckContext], seen_enough: bool) -> str:
    """What the run was like after the calls that were read."""
    end = "until the script ended"
    if captured.failure is not None:
        end = "until the script failed"
    elif seen_enough:
        end = "until one was not finite"
    elif captured.timed_out:
        end = "until the time limit"
    return f"Watched {plural(calls, 'more backward call')} {end}."


def _with_other_calls(every: Sequence[CheckContext]) -> list[CheckContext]:
    """Each with the parameters that the other backward calls use, and those that get a gradient there."""
    used = [
        {name for parameter in context.parameters if parameter.node is not None for name in parameter.names}
        for context in every
    ]
    zero = frozenset(_zero(next((context for context in every if context.gradients is not None), None)))
    nonzero = [set(_nonzero(context)) for context in every]

    def others(names: Sequence[set[str]], i: int) -> frozenset[str]:
        return frozenset().union(*(other for j, other in enumerate(names) if j != i))

    before = [None, *every[:-1]]
    return [
        replace(
            context,
            used_later=others(used, i),
            nonzero_later=others(nonzero, i),
            zero_at_first=zero,
            broken_before=any(_is_broken(earlier) for earlier in every[:i]),
            before=last.graph if last is not None else None,
            loss_before=last.loss if last is not None else None,
        )
        for i, (context, last) in enumerate(zip(every, before))
    ]


def _nonzero(context: CheckContext) -> Iterator[str]:
    """Names of the leaves with a gradient that is not all zero."""
    for leaf in context.gradients.leaves if context.gradients else ():
        if leaf.zeros < 1.0:
            yield from context.graph.leaf_of[leaf.node].names


def _is_broken(context: CheckContext) -> bool:
    """Whether a call has left gradients that are not finite."""
    return context.gradients is not None and any(leaf.nonfinite for leaf in context.gradients.leaves)


def _zero(context: CheckContext | None) -> Iterator[str]:
    """Names of the leaves with a gradient that is all zero."""
    for leaf in context.gradients.leaves if context is not None and context.gradients is not None else ():
        if leaf.zeros == 1.0 and context is not None:
            yield from context.graph.leaf_of[leaf.node].names


def _with_gradients(
    context: CheckContext, subject: Subject, model: torch.nn.Module | None, limits: Gradients, run_custom: bool
) -> CheckContext:
    """The context with what backward would compute, or with why it is not computed: that takes no other finding away."""
    graph = context.graph
    if all(root.node is None for root in graph.roots):
        return context
    problem = _packed(graph)
    if not problem:
        try:
            live = open_graph(subject.outputs, model=model, variables=subject.variables)
            flow = measure(live, run_custom=run_custom)
        except GradvizError as error:
            problem = str(error)
        except Exception as error:  # out of memory, or an operation that a class of tensors does not have
            problem = f"computing them raised {reason_of(error)}"
    if problem:
        return replace(context, gradients=limits._replace(problem=problem))
    leaves = tuple(LeafGradient(leaf.node, leaf.norm, leaf.max, leaf.zeros, leaf.nonfinite) for leaf in flow.leaves)
    leaving = {
        measured.edge.consumer for measured in flow.edges if measured.size is not None and measured.size.nonfinite
    }
    arriving = {node for node, size in flow.incoming.items() if not size.nonfinite}
    broken = tuple(node for node in flow.order if node in leaving & arriving)
    stopped = "; ".join(stopped_note(flow.graph, flow.stopped, flow.unmeasured, flow.closed))
    gradients = limits._replace(leaves=leaves, nonfinite=broken, problem=stopped)
    return replace(context, gradients=gradients)


def _packed(graph: Graph) -> str:
    """Why gradients are left alone: computing them would run code of the user's that may not bear it."""
    for node in graph.nodes:
        for slot in node.saved:
            if slot.state == "packed" and slot.packing != "offload":
                return f"saved tensors are packed by a hook, which would have to run ({slot.note})"
    return ""


def _completed(every: Sequence[CheckContext], findings: Findings) -> Findings:
    """The findings with the reasons why gradients could not be computed, and the process that found them."""
    problems = dict.fromkeys(
        context.gradients.problem for context in every if context.gradients is not None and context.gradients.problem
    )
    reasons = tuple(("gradients", one_line(problem)) for problem in problems)
    here = rank()
    completed = (
        tuple(replace(finding, rank=here.number) for finding in findings) if here is not None else findings.found
    )
    return replace(findings, found=completed, skipped=(*findings.skipped, *reasons))
