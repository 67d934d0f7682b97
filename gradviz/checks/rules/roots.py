"""The check on the outputs themselves: whether backward can begin at them."""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.telling.mending import BARE, all_cut_words, mend_all, to_change
from gradviz.checks.words import all_names, code, line, listed
from gradviz.graph import Root, SourceLine
from gradviz.source.search import freezes
from gradviz.wording import one_line

# why outputs have no graph, and what to do
_OFF = Row(
    "",
    "gradients are off at this point: torch.no_grad(), set_grad_enabled(False) or inference_mode is active",
    "Compute the output, and call backward(), outside the block that switches recording off.",
)
_FROZEN = Row(
    "",
    "all {count:,} parameters of the model are frozen (requires_grad=False){by}",
    "In {line}, do not freeze what should be trained, such as the last layers. Or call requires_grad_(True) on it.{then}",
)
_LEAF = Row(
    "",
    "no operation leads to it",
    "Compute the loss from what the model returned. A new tensor made of numbers, such as torch.tensor(loss.item(), "
    "requires_grad=True), and requires_grad_() on a tensor without a graph do not bring the history back.",
)
_UNREAD = Row(
    "",
    "{name}, which an optimizer holds, does not reach it: {words}",
    "Use {name} where the loss is computed.",
)
_PLAIN = Row(
    "",
    "it was computed in {code}; it was computed from {plain}, which do not require grad",
    "Compute it from what the model returned, not from data and targets alone; or create what should be trained as a leaf, "
    "torch.nn.Parameter(...), or call requires_grad_() on it before {line}.",
)
_UNKNOWN = Row(
    "",
    "it was computed in {code}",
    "Compute it outside no_grad() and inference_mode(), from tensors that require grad, without .detach(), .data, .item(), "
    ".numpy(), argmax or a comparison on the way. Look in what {line} calls.",
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
    still has its graph, proves the place. Where a loop takes values from a generator that
    hands them out inside `no_grad()`, that line is named.

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


def _reason(context: BackwardCall, root: Root) -> Diagnosis:
    """The first of these that holds: causes come before guesses."""
    cuts, origin = context.cuts_before, context.origin
    bare = _bare_checkpoint(context)
    if bare is not None and all(cut.kind == "no_grad" for cut in cuts):
        return BARE.filled((), bare)
    if cuts:
        source = to_change(cuts[0])
        return Diagnosis("", (), all_cut_words(cuts), mend_all(cuts), source=source)
    if not context.grad_enabled:
        return _OFF.filled((), origin.made)

    found = _unread(context) or _frozen(context, root)
    if found is not None:
        return found
    if root.node is not None:
        return _LEAF.filled((), origin.made)
    row = _PLAIN if origin.plain else _UNKNOWN
    return row.filled((), origin.made, plain=listed(origin.plain))


def _unread(context: BackwardCall) -> Diagnosis | None:
    """A tensor that an optimizer holds, of which a line says why it does not reach the
    output.
    """
    for name in all_names(t for one in context.optimizers for t in one.tensors):
        answer = context.answers.get(name)
        if answer is not None and answer.kind == "unread":
            words = answer.words
            return _UNREAD.filled((), answer.source, name=one_line(name), words=words)
    return None


def _frozen(context: BackwardCall, root: Root) -> Diagnosis | None:
    """All parameters are frozen."""
    parameters = context.parameters
    if not parameters or any(each.requires_grad for each in parameters):
        return None
    at, then = freezes(context.body.file), ""
    if root.node is not None:
        then = f" Then leave out what tells {one_line(root.name)} to require grad."
    return _FROZEN.filled(
        (),
        at or context.origin.made,
        count=len(parameters),
        by=f" by {code(at)}" if at else "",
        line=line(at) or "the model",
        then=then,
    )


def _bare_checkpoint(context: BackwardCall) -> SourceLine | None:
    """A reentrant checkpoint of this step of which no input requires grad."""
    for parameter in context.parameters:
        run = parameter.run
        if parameter.requires_grad and run.began >= context.since and run.checkpoint:
            return run.checkpoint
    return None


def _told(context: BackwardCall, root: Root) -> Diagnosis:
    name, cuts = one_line(root.name), context.cuts_before
    summary, seen = f"{name} has no graph", f"{name} {root.why}"
    if cuts and _is_real(root):
        seen = f"{name} has no grad_fn"
    if root.node is not None:
        summary = f"{name} is a leaf: no parameter gets a gradient from it"
        seen = f"backward() fills .grad of {name} and nothing else"

    reason = _reason(context, root)
    why = f"{seen}; {reason.why}"
    told = reason._replace(summary=summary, names=(root.name,), why=why)
    if not cuts or reason.source != to_change(cuts[0]):
        return told
    second = any(cut.asks_for_graph for cut in cuts)
    follows = ("wrong-backward",) if second else ()
    return told._replace(part=cuts[0].part, follows=follows)
