"""Why a parameter takes no part in a graph: a table, of which the first row that holds
is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, Parameter
from gradviz.checks.rules.mending import BARE, bare_fix, cut_words, mend_all, to_change
from gradviz.checks.words import all_names, code, line, nodes_of, title
from gradviz.graph import Node, SourceLine
from gradviz.source.cut import Cut
from gradviz.source.provenance import unrecorded
from gradviz.wording import one_line


class Facts(NamedTuple):
    """What is asked of a context for each parameter."""

    context: BackwardCall
    reached: set[int]  # models of which some parameter is in the graph
    hiding: Node | None  # a node that nobody can look into
    compiled: bool  # calls inside of a compiled function are not seen
    paths: set[str]  # of modules with operations in the graph
    cuts: Sequence[Cut]
    held: set[str]  # tensors that an optimizer holds
    trained: set[str]  # those whose optimizer also holds some that this graph has


class Case(NamedTuple):
    """A parameter that takes no part, the cut behind it, and the lines about it.

    `recorded`: whether it is known if its module was called; `ran`: in this step;
    `records`, `gave`: that it was recorded then, and gave something with a graph.
    """

    facts: Facts
    parameter: Parameter
    cut: Cut | None
    lines: Mapping[str, SourceLine | None]
    recorded: bool
    called: bool
    ran: bool
    records: bool
    gave: bool

    @property
    def beside(self) -> bool:
        """Whether nothing shows that the model should take part."""
        facts, parameter = self.facts, self.parameter
        model = parameter.model
        if model in facts.reached or facts.context.models[model].certain:
            return False
        leads = self.cut or (self.ran and (self.gave or not self.records))
        return facts.trained.isdisjoint(parameter.names) or not leads


class Verdict(NamedTuple):
    """Why parameters take no part. {is_}, {do}, {them} and what `words_of` makes are
    filled in; `line` is that of the case to change.
    """

    holds: Callable[[Case], object]
    summary: str
    why: str
    fix: str
    alarming: bool = True
    line: str = ""


CUT = Verdict(
    lambda case: case.cut and case.records,
    "{do} not get a gradient: the graph is cut behind {them}",
    "{cut}, and the output is computed from what comes after it",
    "{mend} If nothing is to be learned there, freeze it: requires_grad_(False).",
    line="cut",
)
VERDICTS = (
    Verdict(
        lambda case: not case.parameter.requires_grad,
        "{is_} frozen",
        "requires_grad is False, so no gradient is computed",
        "No change needed if this is intentional. Otherwise call requires_grad_(True) on it, and give it to the optimizer.",
        False,
    ),
    Verdict(
        lambda case: case.parameter.sharded and not case.parameter.gathered,
        "{is_} sharded: whether the output depends on them is unknown",
        "the graph holds gathered copies in their place, which cannot be told apart from here",
        "Check the model before it is sharded.",
        False,
    ),
    Verdict(
        lambda case: case.facts.context.unfinished,
        "{is_} not reached: the script failed first",
        "the forward pass did not finish",
        "Fix the error above, then run check again.",
        False,
    ),
    Verdict(
        lambda case: case.parameter.compiled is not None,
        "{do} not get a gradient inside the compiled function",
        "the compiled function takes them, and its backward returns no gradient for them: inside, their result is cut or dropped",
        "Look in {forward}, for .detach(), .data, argmax, no_grad() and a result that is not used{made}. "
        "The model uncompiled tells the line. If nothing is to be learned there, freeze it: requires_grad_(False).",
        line="forward",
    ),
    Verdict(
        lambda case: case.lines["bare"],
        "{do} not get a gradient: a reentrant checkpoint hides {them}",
        "{bare}",
        "{bare_fix}",
        line="bare",
    ),
    Verdict(
        lambda case: case.facts.hiding,
        "may be used inside {hidden}: unknown",
        "{hiding} is {hidden}, which hides what it uses: unknown, not unused",
        "To see inside, use torch.utils.checkpoint with use_reentrant=False, or check the model uncompiled.",
        False,
    ),
    Verdict(
        lambda case: case.beside,
        "{is_} in no output that was checked",
        "the graph uses no parameter of this model at all",
        "No change needed if another loss trains it. Otherwise compute the loss from its output.",
        False,
    ),
    CUT._replace(holds=lambda case: case.cut and case.cut.leaf),
    Verdict(
        lambda case: case.parameter.replaced,
        "{is_} not used: functional_call ran the module with other tensors",
        "{replaced} puts other tensors in their place while the module runs, and the output depends on those",
        "No change needed if you train the tensors that functional_call was given, as with a hypernetwork.",
        False,
        "replaced",
    ),
    Verdict(
        lambda case: not case.recorded,
        "{is_} not in the graph of any output",
        "no path leads from the outputs to them; whether their module ran is unknown, because nothing was recorded",
        "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
        "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.",
    ),
    Verdict(
        lambda case: not case.called and not case.facts.compiled,
        "{is_} unused: the module never ran",
        "the module was never called",
        "Call the module in {forward}, or remove it from the model{made}.",
        line="made",
    ),
    Verdict(
        lambda case: not case.called and case.parameter.module not in case.facts.paths,
        "{is_} unused: no compiled function takes {them}",
        "a compiled function takes every parameter that it uses as an input, and none of this graph takes this one",
        "Use the module in forward(), or remove it from the model.",
    ),
    Verdict(
        lambda case: case.called and not case.ran,
        "{is_} unused: the module did not run in this step",
        "the module's forward ran before the previous backward call, and not since",
        "No change needed if a branch skips it on purpose (DistributedDataParallel then needs find_unused_parameters=True).",
    ),
    Verdict(
        lambda case: case.ran and not case.records,
        "{is_} unused: the module ran without recording",
        "recording was off (torch.no_grad() or inference_mode) when the module was called in {call}",
        "{off_fix}",
        line="off",
    ),
    CUT,
    Verdict(
        lambda case: case.parameter.module in case.facts.paths,
        "{is_} unused, although the module's other operations are in the graph",
        "the module ran and the output depends on what it did, but not on this parameter",
        "Use the parameter in {forward}, or remove it{made}.",
        line="made",
    ),
    Verdict(
        lambda case: not case.gave,
        "{is_} unused: the module's result has no graph",
        "the module was called in {call} while recording, but its result does not require grad: its forward() detaches it, turns "
        "it into integers, or switches gradients off",
        "Look in the forward() of {type} for .detach(), .data, .item(), argmax and no_grad().",
        line="call",
    ),
    Verdict(
        lambda case: True,
        "{do} not reach the output",
        "the module ran in {call}, and no gradient comes back to it: its result is cut off somewhere between that line and the "
        "output, or not used",
        "Use the module's result in the loss, as it is: an index (argmax, topk, sort), a comparison, no_grad() and NumPy give "
        "something without a graph. Or remove the module.",
        line="call",
    ),
)


def facts_of(context: BackwardCall) -> Facts:
    """What is asked of a context for each parameter."""
    graph = context.graph
    flagged = [graph.nodes[i] for i, flags in enumerate(graph.flags) if flags]
    training = [
        optimizer.tensors
        for optimizer in context.optimizers
        if {*nodes_of(optimizer.tensors)} - {None}
    ]
    return Facts(
        context,
        {one.model for one in context.parameters if one.node is not None},
        next(filter(_hides, flagged), None),
        any("compiled" in node.flags for node in flagged),
        {scope.path for scope in graph.scopes},
        # a number that was read may come in anywhere
        [*sorted(set(context.cuts), key=lambda cut: cut.at), *context.numbers],
        {*chain.from_iterable(all_names(one.tensors) for one in context.at_work)},
        {*chain.from_iterable(map(all_names, training))},
    )


def _hides(node: Node) -> bool:
    """Whether a node does not tell what it uses. A compiled function takes it as an
    input, unless this torch cannot be read.
    """
    unread = "compiled" in node.flags and "operations" not in node.attributes
    return "checkpoint" in node.flags or unread


def case_of(facts: Facts, parameter: Parameter) -> Case:
    """What is known of a parameter that takes no part."""
    run, cut = parameter.run, _cut_behind(facts, parameter)
    ran = run is not None and bool(run.calls) and run.began >= facts.context.since
    records = run is not None and run.recording
    call = run.source if run is not None else None
    off = unrecorded(call) if call is not None and not records else None
    lines = {
        "made": parameter.made,
        "forward": parameter.forward,
        "replaced": parameter.replaced,
        "call": call,
        "bare": run.checkpoint if run is not None else None,
        "off": to_change(off) if off is not None and off.off is not None else call,
        "cut": to_change(cut) if cut is not None else None,
    }
    return Case(
        facts,
        parameter,
        cut,
        lines,
        run is not None,
        run is not None and bool(run.calls),
        ran,
        records,
        run is not None and bool(run.gave_graph),
    )


def words_of(case: Case) -> dict[str, str]:
    """What is filled in of a parameter."""
    lines, cut, hiding = case.lines, case.cut, case.facts.hiding
    forward, made, bare = lines["forward"], lines["made"], lines["bare"]
    hidden = "a compiled function"
    if hiding is not None and "checkpoint" in hiding.flags:
        hidden = "a reentrant checkpoint"
    off = unrecorded(lines["call"]) if case.ran and lines["call"] else None
    switched = off is not None and off.off is not None

    return {
        "forward": f"forward(){f', which begins in {line(forward)}' if forward else ''}",
        "made": f" ({line(made)})" if made is not None else "",
        "call": code(lines["call"]),
        "type": one_line(case.parameter.type),
        "replaced": code(lines["replaced"]),
        "bare": BARE.format(line=code(bare), what="the module"),
        "bare_fix": bare_fix(bare) if bare is not None else "",
        "hiding": title(case.facts.context.graph, hiding.id) if hiding else "",
        "hidden": hidden,
        "cut": cut_words(cut) if cut is not None else "",
        "mend": mend_all([cut]) if cut is not None else "",
        "off_fix": mend_all([off]) if off is not None and switched else _OUTSIDE,
    }


_OUTSIDE = "Call the module outside no_grad() and inference_mode(); if it is not to be trained, freeze it instead."


def _cut_behind(facts: Facts, parameter: Parameter) -> Cut | None:
    """The cut that leads to a parameter, else the first one that its module's call of
    this step came before; a value before an index or a draw.
    """
    names, run = {*parameter.names}, parameter.run
    own = next((cut for cut in facts.cuts if names & {*cut.leaf}), None)
    if own is not None or run is None or not run.calls or not run.recording:
        return own
    if run.began < facts.context.since:
        return None

    after = [cut for cut in facts.context.cuts if cut.at >= run.began and not cut.leaf]
    leading = [cut for cut in after if names & cut.behind]
    return min(
        leading or [cut for cut in after if not cut.behind],
        key=lambda cut: (cut.kind in ("integer", "sample"), cut.at),
        default=None,
    )
