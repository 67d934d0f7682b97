"""Checks on the outputs themselves: whether backward can begin at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.rules.mending import (
    BARE,
    all_cut_words,
    asks_for_a_graph,
    mend_all,
    to_change,
)
from gradviz.checks.words import all_names, code, line, listed
from gradviz.graph import Root, SourceLine
from gradviz.source.cut import Cut
from gradviz.source.provenance import Provenance
from gradviz.source.search import freezes
from gradviz.wording import one_line


class _Case(NamedTuple):
    """An output that has no graph, or that is a leaf, and what is known of it."""

    context: BackwardCall
    root: Root
    provenance: Provenance
    cuts: list[Cut]
    bare: SourceLine | None  # a reentrant checkpoint of which no input requires grad

    @property
    def trained(self) -> str:
        """The first tensor that an optimizer holds of which a line says why it does not
        reach an output.
        """
        context = self.context
        for name in all_names(t for one in context.optimizers for t in one.tensors):
            if name in context.answers and context.answers[name].kind == "unread":
                return name
        return ""

    @property
    def frozen(self) -> bool:
        """Whether there are parameters, and none of them requires grad."""
        parameters = self.context.parameters
        return bool(parameters) and not any(p.requires_grad for p in parameters)

    @property
    def frozen_at(self) -> SourceLine | None:
        """The line that froze the parameters, when all are frozen."""
        return freezes(self.context.body.file) if self.frozen else None

    @property
    def real(self) -> bool:
        return self.root.tensor.dtype.startswith(("float", "bfloat", "complex"))


class _Reason(NamedTuple):
    """Why an output has no graph. {plain} are tensors without grad that it was computed
    from, {made} and {made_line} where, {by} what froze all parameters.
    """

    holds: Callable[[_Case], object]
    why: str
    fix: str


# the first one that holds is told, so causes come before guesses
_REASONS = (
    _Reason(
        lambda case: case.bare and all(cut.kind == "no_grad" for cut in case.cuts),
        BARE.why,
        BARE.fix,
    ),
    _Reason(lambda case: case.cuts, "{cuts}", "{mend}"),
    _Reason(
        lambda case: not case.context.grad_enabled,
        "gradients are off at this point: torch.no_grad(), set_grad_enabled(False) or inference_mode is active",
        "Compute the output, and call backward(), outside the block that switches recording off.",
    ),
    _Reason(
        lambda case: case.trained,
        "{trained}, which an optimizer holds, does not reach it: {answer}",
        "Use {trained} where the loss is computed.",
    ),
    _Reason(
        lambda case: case.frozen,
        "all {count:,} parameters of the model are frozen (requires_grad=False){by}",
        "In {frozen_line}, do not freeze what should be trained, such as the last layers. Or call requires_grad_(True) on it.",
    ),
    _Reason(
        lambda case: case.root.node is not None,
        "no operation leads to it",
        "Compute the loss from what the model returned. A new tensor made of numbers, such as torch.tensor(loss.item(), "
        "requires_grad=True), and requires_grad_() on a tensor without a graph do not bring the history back.",
    ),
    _Reason(
        lambda case: case.provenance.plain,
        "it was computed in {made}; it was computed from {plain}, which do not require grad",
        "Compute it from what the model returned, not from data and targets alone; or create what should be trained as a leaf, "
        "torch.nn.Parameter(...), or call requires_grad_() on it before {made_line}.",
    ),
    _Reason(
        lambda case: True,
        "it was computed in {made}",
        "Compute it outside no_grad() and inference_mode(), from tensors that require grad, without .detach(), .data, .item(), "
        ".numpy(), argmax or a comparison on the way. Look in what {made} calls.",
    ),
)


@check(
    "no-graph", "error", "an output has no grad_fn, so backward() cannot begin at it"
)
def no_graph(context: BackwardCall) -> Diagnoses:
    """The output has no `grad_fn`: `backward()` raises "element 0 of tensors does not
    require grad".

    Somewhere between the parameters and the output the history was dropped: the output
    was made under `torch.no_grad()` or `torch.inference_mode()`, detached, led through
    an integer or boolean, through NumPy, `.data` or `.item()`, or nothing that it was
    computed from requires grad. The finding names the line when the code around the
    call shows it; a variable on the way that still has its graph proves it; without
    one, the finding only says what the line does. An output that has no graph beside
    others that have one is a note. `torch.tensor(..., requires_grad=True)` only
    silences the error: such an output is a leaf, and `backward()` fills nothing but its
    own `.grad`. A reentrant checkpoint of which no input requires grad, as behind a
    frozen embedding, drops the graph of the parameters inside: the finding says so.

    How it is found: The output has no `grad_fn`. The text of the code around the call
    is followed upwards from it to the lines that drop a graph; a variable there that
    still has its graph proves the place.

    What to do: Fix the line that is named: leave out `.detach()`, use torch functions
    in place of NumPy and Python numbers, `torch.stack` in place of
    `torch.tensor([...])`, logits in place of argmax, or move the line out of
    `no_grad()`. `requires_grad_()` on the output, on targets or on data silences the
    error, and nothing is trained.

    When to ignore it: When the output is a measure that nobody differentiates, beside a
    loss that has a graph.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    prediction = model(torch.ones(2, 3))
    loss = torch.tensor(prediction.mean().item())
    loss.backward()
    ```
    """
    graph = context.graph
    missing = [root for root in graph.roots if root.node is None]
    # all outputs are leaves: backward() runs, and fills only their own .grad
    if context.call is not None and graph.leaf_of.keys() >= {
        root.node for root in graph.roots
    }:
        missing = list(graph.roots)

    some = len(missing) < len(graph.roots)
    for root in missing:
        case = _case(context, root)
        # a count or an index beside the loss is nothing to wonder about
        if not some or case.real:
            yield _told(case)._replace(severity="note" if some else None)


def _case(context: BackwardCall, root: Root) -> _Case:
    provenance = context.provenances.get(root.name, Provenance())
    # where the chain broke for certain comes first; that a leaf was computed from
    # something has to be seen
    cuts = [*(context.cuts_before or provenance.cuts)]
    cuts.sort(key=lambda cut: not cut.alive)

    bare = None
    for parameter in context.parameters:
        run = parameter.run
        if parameter.requires_grad and run.began >= context.since:
            bare = bare or run.checkpoint
    return _Case(context, root, provenance, cuts, bare)


def _told(case: _Case) -> Diagnosis:
    context, root, origin = case.context, case.root, case.provenance.made
    reason = next(reason for reason in _REASONS if reason.holds(case))
    name = one_line(root.name)
    seen = f"{name} has no grad_fn" if case.cuts and case.real else f"{name} {root.why}"
    summary, fix = "{0} has no graph", reason.fix
    if root.node is not None:
        summary = "{0} is a leaf: no parameter gets a gradient from it"
        seen = f"backward() fills .grad of {name} and nothing else"
        fix += " Then leave out what tells {0} to require grad." * case.frozen

    answer = context.answers.get(case.trained)
    source = case.bare if reason is _REASONS[0] else case.frozen_at or origin
    if answer is not None:
        source = answer.source
    diagnosis = Row(summary, f"{{seen}}; {reason.why}", fix).filled(
        (root.name,),
        source,
        name,
        seen=seen,
        cuts=all_cut_words(case.cuts),
        mend=mend_all(case.cuts),
        count=len(context.parameters),
        by=f" by {code(case.frozen_at)}" if case.frozen_at else "",
        frozen_line=line(case.frozen_at) or "the model",
        made=code(origin),
        made_line=line(origin),
        trained=one_line(case.trained),
        answer=answer.words if answer is not None else "",
        plain=listed(case.provenance.plain),
    )
    if not case.cuts or reason is _REASONS[0]:
        return diagnosis
    second = any(map(asks_for_a_graph, case.cuts))
    return diagnosis._replace(
        source=to_change(case.cuts[0]),
        part=case.cuts[0].part,
        follows=("wrong-backward",) if second else (),
    )
