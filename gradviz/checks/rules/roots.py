"""Checks on the outputs themselves: whether backward can begin at them."""

from __future__ import annotations

from gradviz.checks.call import BackwardCall, all_frozen
from gradviz.checks.edit import before
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.mending import (
    BARE,
    MEND,
    all_cut_words,
    asks_for_a_graph,
    bare_fix,
    expression,
    mend_all,
    uncut,
)
from gradviz.checks.words import code, line, listed, verb
from gradviz.graph import Root, SourceLine
from gradviz.source.provenance import Provenance
from gradviz.wording import one_line


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
    yield from _leaves(context)
    missing = [root for root in context.graph.roots if root.node is None]
    some = len(missing) < len(context.graph.roots)
    for root in missing:
        # a count or an index beside the loss is nothing to wonder about
        if not some or root.tensor.dtype.startswith(_REAL):
            yield _without_graph(context, root)._replace(
                severity="note" if some else None
            )


def _without_graph(context: BackwardCall, root: Root) -> Diagnosis:
    name, provenance = (
        one_line(root.name),
        context.provenances.get(root.name, Provenance()),
    )
    summary, bare = f"{name} has no graph", _bare_checkpoint(context)
    if bare is not None and all(cut.kind == "no_grad" for cut in provenance.cuts):
        module, at = bare
        why = f"{name} has no grad_fn; {BARE.format(line=code(at), what=module)}"
        return Diagnosis(
            summary,
            (root.name,),
            why,
            bare_fix(at),
            source=at,
        )

    asked = _asked(context, provenance)
    # where the chain broke for certain comes first
    places = sorted(provenance.cuts, key=lambda cut: not cut.alive)
    return Diagnosis(
        summary,
        (root.name,),
        _why(context, root, provenance),
        _fix(context, root, provenance),
        source=places[0].source if places else context.frozen_at or provenance.made,
        part=expression(places[0]) if places else "",
        follows=("wrong-backward",)
        if any(cut.kind == "grad" and asks_for_a_graph(cut) for cut in places)
        else (),
        where=listed(dict.fromkeys(line(cut.source) for cut in places[:3])),
        edit=uncut(places)
        or before(provenance.made, f"{asked}.requires_grad_()" if asked else ""),
    )


def _asked(context: BackwardCall, provenance: Provenance) -> str:
    """A leaf that an output was computed from, and whose .grad the code reads; "" where
    there is none.
    """
    read = {
        name
        for tensor in context.named_tensors
        if tensor.grad_read and tensor.leaf
        for name in tensor.names
    }
    return next(
        (
            name
            for name in provenance.plain
            if name in read and provenance.made is not None
        ),
        "",
    )


_REAL = ("float", "bfloat", "complex")


def _bare_checkpoint(context: BackwardCall) -> tuple[str, SourceLine] | None:
    """A module whose parameters should be trained, and the line of the checkpoint in
    which it ran without being recorded.
    """
    ran = (
        (one_line(parameter.module), parameter.run)
        for parameter in context.parameters
        if parameter.requires_grad
    )
    bare = (
        (module, run.checkpoint)
        for module, run in ran
        if run is not None and run.began >= context.since
    )

    return next(
        ((module, source) for module, source in bare if source is not None), None
    )


def _leaves(context: BackwardCall) -> Diagnoses:
    """Outputs that nothing was computed for, when backward begins at nothing else."""
    graph = context.graph
    if context.call is None or not all(
        root.node in graph.leaf_of for root in graph.roots
    ):
        return

    names = tuple(root.name for root in graph.roots)
    them, whose = (
        verb(names, "it", "them"),
        verb(names, "its own .grad", "their own .grad"),
    )
    cuts = [
        cut
        for name in names
        for cut in context.provenances.get(name, Provenance()).cuts
        if cut.operation
    ]
    why, fix = f"no operation leads to {them}, so", mend_all(cuts)

    if cuts:
        why = f"{'; '.join(all_cut_words(cuts))}; {them} {verb(names, 'was', 'were')} told to require grad afterwards, and"
    elif all_frozen(context.parameters):
        why = f"{_frozen_words(context)}, and {them} {verb(names, 'was', 'were')} told to require grad, so"
        fix = f"{_unfreeze(context)} Then leave out what tells {listed(names)} to require grad."
    else:
        fix = "Compute the loss from what the model returned. A new tensor made of numbers, such as torch.tensor(loss.item(), "
        fix += "requires_grad=True), and requires_grad_() on a tensor without a graph do not bring the history back."

    yield Diagnosis(
        f"{listed(names)} {verb(names, 'is a leaf', 'are leaves')}: no parameter gets a gradient from {them}",
        names,
        f"{why} backward() fills {whose} and nothing else",
        fix,
        where=listed(dict.fromkeys(line(cut.source) for cut in cuts)),
        source=cuts[0].source if cuts else context.frozen_at,
        part=expression(cuts[0]) if cuts else "",
        edit=uncut(cuts),
    )


def _why(context: BackwardCall, root: Root, provenance: Provenance) -> str:
    plain = root.tensor.dtype.startswith(_REAL) and "inference" not in root.why
    parts = [
        f"{one_line(root.name)} {'has no grad_fn' if provenance.cuts and plain else root.why}"
    ]
    if not context.grad_enabled:
        parts.append(
            "gradients are off at this point: torch.no_grad(), set_grad_enabled(False) or inference_mode is active"
        )

    parts += all_cut_words(provenance.cuts)
    if not provenance.cuts and provenance.made is not None:
        parts.append(f"it was computed in {code(provenance.made)}")

    if not provenance.cuts and provenance.plain:
        parts.append(
            f"it was computed from {listed(provenance.plain)}, which {verb(provenance.plain, 'does', 'do')} not require grad"
        )

    if all_frozen(context.parameters):
        parts.append(_frozen_words(context))

    return "; ".join(parts)


def _frozen_words(context: BackwardCall) -> str:
    by = f" by {code(context.frozen_at)}" if context.frozen_at is not None else ""
    return f"all {len(context.parameters):,} parameters of the model are frozen (requires_grad=False){by}"


def _unfreeze(context: BackwardCall) -> str:
    if context.frozen_at is None:
        return "Unfreeze what should be trained: parameter.requires_grad_(True)."
    return f"In {line(context.frozen_at)}, do not freeze what should be trained, such as the last layers."


def _fix(context: BackwardCall, root: Root, provenance: Provenance) -> str:
    if provenance.cuts:
        return mend_all(provenance.cuts)
    if not context.grad_enabled:
        return "Compute the output, and call backward(), outside the block that switches recording off."
    if all_frozen(context.parameters):
        return _unfreeze(context)
    if not root.tensor.dtype.startswith(_REAL):
        return f"{MEND['integer'].capitalize()}."

    asked = _asked(context, provenance)
    if asked:
        return f"The code reads {asked}.grad: call {asked}.requires_grad_() before {line(provenance.made)}."

    if provenance.plain and not context.parameters:
        return (
            f"Create what should be trained as a leaf: torch.nn.Parameter(...). Data and targets need no gradient "
            f"({listed(provenance.plain)})."
        )

    if provenance.plain:
        return (
            f"Compute it from what {listed([model.name for model in context.models], 3)} returned, not from data and targets alone "
            f"({listed(provenance.plain)})."
        )

    if provenance.made is not None:
        seen = f"Look in what {line(provenance.made)} calls."
    else:
        seen = ""

    return (
        "Compute it outside no_grad() and inference_mode(), from tensors that require grad, without .detach(), .data, "
        ".item(), .numpy(), argmax or a comparison on the way. "
        + (
            seen
            or "gradviz names the line when it sees the code: gradviz check SCRIPT."
        )
    )
