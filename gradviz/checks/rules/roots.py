"""The check on the outputs themselves: whether backward can begin at them."""

from __future__ import annotations

from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.mending import BARE, all_cut_words, mend_all, to_change
from gradviz.checks.words import all_names, code, line, listed
from gradviz.graph import Root, SourceLine
from gradviz.source.search import freezes
from gradviz.wording import one_line


class _Reason(NamedTuple):
    """Why outputs have no graph, what to do, and the line to look at."""

    why: str
    fix: str
    source: SourceLine | None


_OFF = (
    "gradients are off at this point: torch.no_grad(), set_grad_enabled(False) or inference_mode is active",
    "Compute the output, and call backward(), outside the block that switches recording off.",
)
_FROZEN = (
    "all {0:,} parameters of the model are frozen (requires_grad=False){1}",
    "In {0}, do not freeze what should be trained, such as the last layers. Or call requires_grad_(True) on it.",
)
_LEAF = (
    "no operation leads to it",
    "Compute the loss from what the model returned. A new tensor made of numbers, such as torch.tensor(loss.item(), "
    "requires_grad=True), and requires_grad_() on a tensor without a graph do not bring the history back.",
)
_PLAIN = (
    "it was computed in {0}; it was computed from {1}, which do not require grad",
    "Compute it from what the model returned, not from data and targets alone; or create what should be trained as a leaf, "
    "torch.nn.Parameter(...), or call requires_grad_() on it before {0}.",
)
_UNKNOWN = (
    "it was computed in {0}",
    "Compute it outside no_grad() and inference_mode(), from tensors that require grad, without .detach(), .data, .item(), "
    ".numpy(), argmax or a comparison on the way. Look in what {0} calls.",
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
    computed from requires grad. The finding names the line where it is
    proved. An output that has no graph beside
    others that have one is a note. `torch.tensor(..., requires_grad=True)` only
    silences the error: such an output is a leaf, and `backward()` fills nothing but its
    own `.grad`. A reentrant checkpoint of which no input requires grad, as behind a
    frozen embedding, drops the graph of the parameters inside: the finding says so.

    How it is found: The output has no `grad_fn`. The code as it is written is followed
    backwards from it to the lines that drop a graph; the recording, or a variable that
    still has its graph, proves the place.

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
    ends = {root.node for root in graph.roots}
    if context.call is not None and graph.leaf_of.keys() >= ends:
        missing = list(graph.roots)

    some = len(missing) < len(graph.roots)
    for root in missing:
        # a count or an index beside the loss is nothing to wonder about
        if not some or _is_real(root):
            yield _told(context, root)._replace(severity="note" if some else None)


def _is_real(root: Root) -> bool:
    return root.tensor.dtype.startswith(("float", "bfloat", "complex"))


def _reason(context: BackwardCall, root: Root) -> _Reason:
    """The first of these that holds: causes come before guesses."""
    cuts, origin = context.cuts_before, context.origin
    bare = _bare_checkpoint(context)
    if bare is not None and all(cut.kind == "no_grad" for cut in cuts):
        row = BARE.filled((), bare)
        return _Reason(row.why, row.fix, bare)
    if cuts:
        return _Reason(all_cut_words(cuts), mend_all(cuts), to_change(cuts[0]))
    if not context.grad_enabled:
        return _Reason(*_OFF, origin.made)

    found = _unread(context) or _frozen(context, root)
    if found is not None:
        return found
    if root.node is not None:
        return _Reason(*_LEAF, origin.made)
    why, fix = _PLAIN if origin.plain else _UNKNOWN
    why = why.format(code(origin.made), listed(origin.plain))
    return _Reason(why, fix.format(line(origin.made)), origin.made)


def _unread(context: BackwardCall) -> _Reason | None:
    """A tensor that an optimizer holds, of which a line says why it does not reach the
    output.
    """
    for name in all_names(t for one in context.optimizers for t in one.tensors):
        answer = context.answers.get(name)
        if answer is not None and answer.kind == "unread":
            name = one_line(name)
            why = f"{name}, which an optimizer holds, does not reach it: {answer.words}"
            fix = f"Use {name} where the loss is computed."
            return _Reason(why, fix, answer.source)
    return None


def _frozen(context: BackwardCall, root: Root) -> _Reason | None:
    """All parameters are frozen."""
    parameters = context.parameters
    if not parameters or any(each.requires_grad for each in parameters):
        return None
    at = freezes(context.body.file)
    by = f" by {code(at)}" if at else ""
    fix = _FROZEN[1].format(line(at) or "the model")
    if root.node is not None:
        fix += f" Then leave out what tells {one_line(root.name)} to require grad."
    why = _FROZEN[0].format(len(parameters), by)
    return _Reason(why, fix, at or context.origin.made)


def _bare_checkpoint(context: BackwardCall) -> SourceLine | None:
    """A reentrant checkpoint of this step of which no input requires grad."""
    for parameter in context.parameters:
        run = parameter.run
        if parameter.requires_grad and run.began >= context.since and run.checkpoint:
            return run.checkpoint
    return None


def _told(context: BackwardCall, root: Root) -> Diagnosis:
    reason, name, cuts = (
        _reason(context, root),
        one_line(root.name),
        context.cuts_before,
    )
    summary, seen = f"{name} has no graph", f"{name} {root.why}"
    if cuts and _is_real(root):
        seen = f"{name} has no grad_fn"
    if root.node is not None:
        summary = f"{name} is a leaf: no parameter gets a gradient from it"
        seen = f"backward() fills .grad of {name} and nothing else"

    why = f"{seen}; {reason.why}"
    told = Diagnosis(summary, (root.name,), why, reason.fix, source=reason.source)
    if not cuts or reason.source != to_change(cuts[0]):
        return told
    second = any(cut.asks_for_graph for cut in cuts)
    follows = ("wrong-backward",) if second else ()
    return told._replace(part=cuts[0].part, follows=follows)
