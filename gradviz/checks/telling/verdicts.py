"""What is said of a parameter that takes no part in a graph, by the kind of answer that
there is to why.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.checks.call import BackwardCall, Parameter
from gradviz.checks.registry import Diagnosis, Row
from gradviz.checks.telling.mending import BARE, cut_words, mend, to_change
from gradviz.checks.words import Names, all_names, code, line, nodes_of
from gradviz.cuts.answers import Answer
from gradviz.graph import SourceLine

ROWS = {
    "frozen": Row(
        "{is_} frozen",
        "{answer}, so no gradient is computed",
        "No change needed if this is intentional. Otherwise call requires_grad_(True) on it, and give it to the optimizer.",
    ),
    "checkpoint": Row(
        "{do} not get a gradient: a reentrant checkpoint hides {them}",
        BARE.why,
        BARE.fix,
    ),
    "hidden": Row(
        "may be used inside a checkpoint: unknown",
        "{answer}, not unused",
        "To see inside, use torch.utils.checkpoint with use_reentrant=False.",
    ),
    "beside": Row(
        "{is_} in no output that was checked",
        "the graph uses no parameter of this model at all",
        "No change needed if another loss trains it. Otherwise compute the loss from its output.",
    ),
    "cut": Row(
        "{do} not get a gradient: the graph is cut behind {them}",
        "{cut}, and no gradient comes back through it",
        "{mend} If nothing is to be learned there, freeze it: requires_grad_(False).",
    ),
    "unrecorded": Row(
        "{is_} not in the graph of any output",
        "no path leads from the outputs to them; whether their module ran is unknown, because that was not recorded",
        "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
        "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.",
    ),
    "unread": Row(
        "{do} not reach the output: its result is not used",
        "{answer}",
        "Use that result in the loss, or remove what computes it.",
    ),
    "uncalled": Row(
        "{is_} unused: the module did not run",
        "the module was not called in this step",
        "Call the module in forward(), or remove it from the model{made}. No change is needed if a branch skips it on purpose "
        "(DistributedDataParallel then needs find_unused_parameters=True).",
    ),
    "unused": Row(
        "{is_} unused, although the module's other operations are in the graph",
        "the module ran, and its forward() never reads this parameter",
        "Use the parameter in forward(), which begins in {begins}, or remove it{made}.",
    ),
    "open": Row(
        "{do} not reach the output",
        "the module ran in {call}, and no gradient comes back to it; from there it was not followed",
        "Look where that line's result goes: an index (argmax, topk, sort), a comparison, .detach(), .item(), no_grad() and "
        "NumPy give something without a graph.",
    ),
}
QUIET = "frozen", "hidden", "beside"
"""Kinds that are no alarm."""


class Case(NamedTuple):
    """A parameter that takes no part, and what kind of answer there is to why."""

    parameter: Parameter
    answer: Answer
    kind: str

    @property
    def source(self) -> SourceLine | None:
        """The line to change."""
        if self.kind == "cut" and self.answer.cut is not None:
            return to_change(self.answer.cut)
        if self.kind in ("uncalled", "unused"):
            return self.answer.made
        told = self.kind in ("checkpoint", "unread")
        return self.answer.source if told else self.parameter.run.source

    def told(self, names: Names) -> Diagnosis:
        """What is said of it."""
        answer, cut = self.answer, self.answer.cut
        return ROWS[self.kind].filled(
            names,
            self.source,
            made=f" ({line(answer.made)})" if answer.made else "",
            begins=line(answer.source),
            call=code(self.parameter.run.source),
            answer=answer.words,
            cut=cut_words(cut) if cut is not None else "",
            mend=f"In {line(self.source)}, {mend(cut)}." if cut is not None else "",
            part=cut.part if cut is not None else "",
        )


class Cases:
    """Of one call. What is asked of it for all parameters."""

    def __init__(self, context: BackwardCall) -> None:
        self._context = context
        parameters = context.parameters
        self._reached = {p.model for p in parameters if p.node is not None}
        self._compiled = any("compiled" in flags for flags in context.graph.flags)
        # tensors that an optimizer holds beside some that this graph has
        self._trained = set[str]()
        for optimizer in context.optimizers:
            if {*nodes_of(optimizer.tensors)} != {None}:
                self._trained.update(all_names(optimizer.tensors))

    def of(self, parameter: Parameter) -> Case:
        """What is known of a parameter that takes no part."""
        told = self._context.answers.get(parameter.names[0])
        answer = told or Answer("open", "")
        return Case(parameter, answer, self._kind(parameter, answer))

    def _kind(self, parameter: Parameter, answer: Answer) -> str:
        if answer.kind in ("frozen", "checkpoint", "hidden"):
            return answer.kind
        if self._is_beside(parameter, answer):
            return "beside"
        calls = parameter.run.calls
        unknown = calls < 0 or (self._compiled and not calls)
        return "unrecorded" if unknown and answer.kind != "cut" else answer.kind

    def _is_beside(self, parameter: Parameter, answer: Answer) -> bool:
        """Whether nothing shows that the model should take part."""
        if parameter.model in self._reached:
            return False
        ran = parameter.run.calls > 0 and answer.kind != "uncalled"
        leads = self._trained.intersection(parameter.names) and (answer.cut or ran)
        return not (self._context.models[parameter.model].certain or leads)
