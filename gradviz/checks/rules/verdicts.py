"""Why a parameter takes no part in a graph: a table, of which the first row that holds
is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, Parameter
from gradviz.checks.registry import Diagnosis, Row
from gradviz.checks.rules.mending import BARE, cut_words, mend_all, to_change
from gradviz.checks.words import Names, all_names, code, line, nodes_of, title
from gradviz.cuts.answers import Answer
from gradviz.graph import SourceLine
from gradviz.source.cut import Cut


class Facts:
    """What is asked of a context for all parameters."""

    def __init__(self, context: BackwardCall) -> None:
        graph, self.context = context.graph, context
        flagged = [graph.nodes[i] for i, flags in enumerate(graph.flags) if flags]
        hiding = (node for node in flagged if "checkpoint" in node.flags)
        self.hiding = next(hiding, None)
        self.compiled = any("compiled" in node.flags for node in flagged)

        parameters = context.parameters
        self.reached = {p.model for p in parameters if p.node is not None}
        # tensors that an optimizer holds beside some that this graph has
        self.trained = set[str]()
        for optimizer in context.optimizers:
            if {*nodes_of(optimizer.tensors)} != {None}:
                self.trained.update(all_names(optimizer.tensors))


class Case(NamedTuple):
    """A parameter that takes no part, and why, as far as somebody found out."""

    facts: Facts
    parameter: Parameter
    answer: Answer

    @property
    def cut(self) -> Cut | None:
        """What cuts it off."""
        return self.answer.cut

    @property
    def beside(self) -> bool:
        """Whether nothing shows that the model should take part."""
        facts, parameter = self.facts, self.parameter
        if parameter.model in facts.reached:
            return False
        ran = parameter.run.calls > 0 and self.answer.kind != "uncalled"
        leads = facts.trained.intersection(parameter.names) and (self.cut or ran)
        return not (facts.context.models[parameter.model].certain or leads)


class Verdict(NamedTuple):
    """Why parameters take no part. {is_}, {do}, {them} and what `told_of` makes are
    filled in; `source` is the line to change.
    """

    holds: Callable[[Case], object]
    row: Row
    alarming: bool = True
    source: Callable[[Case], SourceLine | None] = lambda case: None


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
        lambda case: case.parameter.run.checkpoint,
        Row(
            "{do} not get a gradient: a reentrant checkpoint hides {them}",
            BARE.why,
            BARE.fix,
        ),
        source=lambda case: case.parameter.run.checkpoint,
    ),
    Verdict(
        lambda case: case.facts.hiding,
        Row(
            "may be used inside {hiding}: unknown",
            "{hiding} hides what it uses: unknown, not unused",
            "To see inside, use torch.utils.checkpoint with use_reentrant=False.",
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
    Verdict(
        lambda case: case.cut,
        Row(
            "{do} not get a gradient: the graph is cut behind {them}",
            "{cut}, and no gradient comes back through it",
            "{mend} If nothing is to be learned there, freeze it: requires_grad_(False).",
        ),
        source=lambda case: to_change(case.cut) if case.cut is not None else None,
    ),
    Verdict(
        lambda case: (
            case.parameter.run.calls < 0
            or (case.facts.compiled and not case.parameter.run.calls)
        ),
        Row(
            "{is_} not in the graph of any output",
            "no path leads from the outputs to them; whether their module ran is unknown, because that was not recorded",
            "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
            "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.",
        ),
    ),
    Verdict(
        lambda case: case.answer.kind == "unread",
        Row(
            "{do} not reach the output: its result is not used",
            "{answer}",
            "Use that result in the loss, or remove what computes it.",
        ),
        source=lambda case: case.answer.source,
    ),
    Verdict(
        lambda case: case.answer.kind == "uncalled",
        Row(
            "{is_} unused: the module did not run",
            "the module was not called in this step",
            "Call the module in {forward}, or remove it from the model{made}. No change is needed if a branch skips it on purpose "
            "(DistributedDataParallel then needs find_unused_parameters=True).",
        ),
        source=lambda case: case.parameter.made,
    ),
    Verdict(
        lambda case: case.answer.kind == "unused",
        Row(
            "{is_} unused, although the module's other operations are in the graph",
            "the module ran, and its forward() never reads this parameter",
            "Use the parameter in {forward}, or remove it{made}.",
        ),
        source=lambda case: case.parameter.made,
    ),
    Verdict(
        lambda case: True,
        Row(
            "{do} not reach the output",
            "the module ran in {call}, and no gradient comes back to it; from there it was not followed",
            "Look where that line's result goes: an index (argmax, topk, sort), a comparison, .detach(), .item(), no_grad() and "
            "NumPy give something without a graph.",
        ),
        source=lambda case: case.parameter.run.source,
    ),
)


def case_of(facts: Facts, parameter: Parameter) -> Case:
    """What is known of a parameter that takes no part."""
    return Case(facts, parameter, parameter.answer or Answer("open", ""))


def verdict_of(case: Case) -> Verdict:
    """The first that holds."""
    return next(verdict for verdict in VERDICTS if verdict.holds(case))


def told_of(case: Case, names: Names) -> Diagnosis:
    """What is said of a case: the words about its lines, the cut, and what hides it."""
    parameter, hiding = case.parameter, case.facts.hiding
    forward, origin, verdict = parameter.forward, parameter.made, verdict_of(case)
    cuts = [case.cut] if case.cut is not None else []
    begins = f", which begins in {line(forward)}" if forward else ""

    return verdict.row.filled(
        names,
        verdict.source(case),
        forward=f"forward(){begins}",
        made=f" ({line(origin)})" if origin else "",
        call=code(parameter.run.source),
        hiding=title(case.facts.context.graph, hiding.id) if hiding else "",
        answer=case.answer.words,
        cut="".join(map(cut_words, cuts)),
        mend=mend_all(cuts),
    )._replace(part=cuts[0].part if cuts else "")
