"""Why a parameter takes no part in a graph: a table, of which the first row that holds
is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, Parameter
from gradviz.checks.registry import Diagnosis, Row
from gradviz.checks.rules.mending import BARE, cut_words, mend_all, of_cuts, to_change
from gradviz.checks.words import Names, all_names, code, line, nodes_of, title
from gradviz.graph import Node, SourceLine
from gradviz.source.cut import Cut
from gradviz.source.provenance import unrecorded


class Facts:
    """What is asked of a context for all parameters."""

    def __init__(self, context: BackwardCall) -> None:
        graph, self.context = context.graph, context
        flagged = [graph.nodes[i] for i, flags in enumerate(graph.flags) if flags]
        self.hiding = next(filter(_hides, flagged), None)
        self.compiled = any("compiled" in node.flags for node in flagged)
        self.paths = {scope.path for scope in graph.scopes}

        # a number that was read may come in anywhere
        self.cuts = [*context.cuts, *context.numbers]
        used = [
            parameter for parameter in context.parameters if parameter.node is not None
        ]
        self.reached = {parameter.model for parameter in used}

        # tensors that an optimizer holds beside some that this graph has
        self.trained = set[str]()
        for optimizer in context.optimizers:
            if {*nodes_of(optimizer.tensors)} != {None}:
                self.trained.update(all_names(optimizer.tensors))


class Case(NamedTuple):
    """A parameter that takes no part, and the cut behind it.

    `ran`: its module, in this step; `records`: that it was recorded then.
    """

    facts: Facts
    parameter: Parameter
    cut: Cut | None
    ran: bool
    records: bool

    @property
    def beside(self) -> bool:
        """Whether nothing shows that the model should take part."""
        facts, parameter = self.facts, self.parameter
        if parameter.model in facts.reached:
            return False
        leads = facts.trained.intersection(parameter.names) and (self.cut or self.ran)
        return not (facts.context.models[parameter.model].certain or leads)

    @property
    def called(self) -> bool:
        return self.parameter.run is not None and bool(self.parameter.run.calls)

    @property
    def call(self) -> SourceLine | None:
        return self.parameter.run.source if self.parameter.run is not None else None

    @property
    def checkpoint(self) -> SourceLine | None:
        return self.parameter.run.checkpoint if self.parameter.run is not None else None


class Verdict(NamedTuple):
    """Why parameters take no part. {is_}, {do}, {them} and what `told_of` makes are
    filled in; `source` is the line to change.
    """

    holds: Callable[[Case], object]
    row: Row
    alarming: bool = True
    source: Callable[[Case], SourceLine | None] = lambda case: None


CUT = Verdict(
    lambda case: case.cut and case.records,
    Row(
        "{do} not get a gradient: the graph is cut behind {them}",
        "{cut}, and the output is computed from what comes after it",
        "{mend} If nothing is to be learned there, freeze it: requires_grad_(False).",
    ),
    source=lambda case: to_change(case.cut) if case.cut is not None else None,
)
# the order matters: what is certain comes first, and the last one always holds
VERDICTS = (
    Verdict(
        lambda case: not case.parameter.requires_grad,
        Row(
            "{is_} frozen",
            "requires_grad is False, so no gradient is computed",
            "No change needed if this is intentional. Otherwise call requires_grad_(True) on it, and give it to the optimizer.",
        ),
        False,
    ),
    Verdict(
        lambda case: case.parameter.sharded and not case.parameter.gathered,
        Row(
            "{is_} sharded: whether the output depends on them is unknown",
            "the graph holds gathered copies in their place, which cannot be told apart from here",
            "Check the model before it is sharded.",
        ),
        False,
    ),
    Verdict(
        lambda case: case.facts.context.unfinished,
        Row(
            "{is_} not reached: the script failed first",
            "the forward pass did not finish",
            "Fix the error above, then run check again.",
        ),
        False,
    ),
    Verdict(
        lambda case: case.parameter.compiled is not None,
        Row(
            "{do} not get a gradient inside the compiled function",
            "the compiled function takes them, and its backward returns no gradient for them: inside, their result is cut or "
            "dropped",
            "Look in {forward}, for .detach(), .data, argmax, no_grad() and a result that is not used{made}. "
            "The model uncompiled tells the line. If nothing is to be learned there, freeze it: requires_grad_(False).",
        ),
        source=lambda case: case.parameter.forward,
    ),
    Verdict(
        lambda case: case.checkpoint,
        Row(
            "{do} not get a gradient: a reentrant checkpoint hides {them}",
            BARE.why,
            BARE.fix,
        ),
        source=lambda case: case.checkpoint,
    ),
    Verdict(
        lambda case: case.facts.hiding,
        Row(
            "may be used inside {hidden}: unknown",
            "{hiding} is {hidden}, which hides what it uses: unknown, not unused",
            "To see inside, use torch.utils.checkpoint with use_reentrant=False, or check the model uncompiled.",
        ),
        False,
    ),
    Verdict(
        lambda case: case.beside,
        Row(
            "{is_} in no output that was checked",
            "the graph uses no parameter of this model at all",
            "No change needed if another loss trains it. Otherwise compute the loss from its output.",
        ),
        False,
    ),
    CUT._replace(holds=lambda case: case.cut and case.cut.leaf),
    Verdict(
        lambda case: case.parameter.replaced,
        Row(
            "{is_} not used: functional_call ran the module with other tensors",
            "{code} puts other tensors in their place while the module runs, and the output depends on those",
            "No change needed if you train the tensors that functional_call was given, as with a hypernetwork.",
        ),
        False,
        lambda case: case.parameter.replaced,
    ),
    Verdict(
        lambda case: case.parameter.run is None,
        Row(
            "{is_} not in the graph of any output",
            "no path leads from the outputs to them; whether their module ran is unknown, because nothing was recorded",
            "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
            "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.",
        ),
    ),
    Verdict(
        lambda case: not case.called and not case.facts.compiled,
        Row(
            "{is_} unused: the module never ran",
            "the module was never called",
            "Call the module in {forward}, or remove it from the model{made}.",
        ),
        source=lambda case: case.parameter.made,
    ),
    Verdict(
        lambda case: not case.called and case.parameter.module not in case.facts.paths,
        Row(
            "{is_} unused: no compiled function takes {them}",
            "a compiled function takes every parameter that it uses as an input, and none of this graph takes this one",
            "Use the module in forward(), or remove it from the model.",
        ),
    ),
    Verdict(
        lambda case: case.called and not case.ran,
        Row(
            "{is_} unused: the module did not run in this step",
            "the module's forward ran before the previous backward call, and not since",
            "No change needed if a branch skips it on purpose (DistributedDataParallel then needs find_unused_parameters=True).",
        ),
    ),
    Verdict(
        lambda case: case.ran and not case.records,
        Row(
            "{is_} unused: the module ran without recording",
            "recording was off (torch.no_grad() or inference_mode) when the module was called in {call}",
            "{mend_off} If it is not to be trained, freeze it instead.",
        ),
        source=lambda case: to_change(unrecorded(case.call)) if case.call else None,
    ),
    CUT,
    Verdict(
        lambda case: case.parameter.module in case.facts.paths,
        Row(
            "{is_} unused, although the module's other operations are in the graph",
            "the module ran and the output depends on what it did, but not on this parameter",
            "Use the parameter in {forward}, or remove it{made}.",
        ),
        source=lambda case: case.parameter.made,
    ),
    Verdict(
        lambda case: True,
        Row(
            "{do} not reach the output",
            "the module ran in {call}, and no gradient comes back to it: its result is cut off somewhere between that line and the "
            "output, or not used",
            "Use the module's result in the loss, as it is: an index (argmax, topk, sort), a comparison, .detach(), .item(), "
            "no_grad() and NumPy give something without a graph. Or remove the module.",
        ),
        source=lambda case: case.call,
    ),
)


def _hides(node: Node) -> bool:
    """Whether a node does not tell what it uses. A compiled function takes it as an
    input, unless this torch cannot be read.
    """
    unread = "compiled" in node.flags and "operations" not in node.attributes
    return "checkpoint" in node.flags or unread


def case_of(facts: Facts, parameter: Parameter) -> Case:
    """What is known of a parameter that takes no part."""
    run = parameter.run
    ran = run is not None and bool(run.calls) and run.began >= facts.context.since
    records = run is not None and run.recording
    return Case(facts, parameter, _cut_behind(facts, parameter), ran, records)


def verdict_of(case: Case) -> Verdict:
    """The first that holds."""
    return next(verdict for verdict in VERDICTS if verdict.holds(case))


def told_of(case: Case, names: Names) -> Diagnosis:
    """What is said of a case: the words about its lines, the cut, and what hides it."""
    parameter, cut, hiding = case.parameter, case.cut, case.facts.hiding
    verdict = verdict_of(case)
    forward, origin, call = parameter.forward, parameter.made, case.call
    checkpoint = hiding is not None and "checkpoint" in hiding.flags
    graph, cuts = case.facts.context.graph, [cut] if cut is not None else []
    begins = f", which begins in {line(forward)}" if forward else ""

    diagnosis = verdict.row.filled(
        names,
        verdict.source(case),
        forward=f"forward(){begins}",
        made=f" ({line(origin)})" if origin else "",
        call=code(call),
        module="the module",
        hiding=title(graph, hiding.id) if hiding is not None else "",
        hidden=f"a {'reentrant checkpoint' if checkpoint else 'compiled function'}",
        cut="".join(map(cut_words, cuts)),
        mend=mend_all(cuts),
        mend_off=mend_all([unrecorded(call)]) if call is not None else "",
    )
    # by row, since CUT stands in the table twice
    if verdict.row == CUT.row:
        return diagnosis._replace(part=of_cuts(cuts)["part"])
    return diagnosis


def _cut_behind(facts: Facts, parameter: Parameter) -> Cut | None:
    """The cut that leads to a parameter, else the first one that its module's call of
    this step came before; a value before an index or a draw.
    """
    names, run, since = {*parameter.names}, parameter.run, facts.context.since
    for cut in facts.cuts:
        if names.intersection(cut.leaf):
            return cut
    if run is None or not run.calls or not run.recording or run.began < since:
        return None

    after = [cut for cut in facts.context.cuts if cut.at >= run.began and not cut.leaf]
    leading = [cut for cut in after if names & cut.behind]
    return min(
        leading or [cut for cut in after if not cut.behind],
        key=lambda cut: (cut.kind in ("integer", "sample"), cut.at),
        default=None,
    )
