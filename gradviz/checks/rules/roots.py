"""Checks on the outputs themselves: whether backward can begin at them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gradviz.checks.context import CheckContext, all_frozen
from gradviz.checks.edit import Edit, before, instead
from gradviz.checks.excerpt import around
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import COMPARISONS, code, line, listed, verb
from gradviz.cuts.words import CUT
from gradviz.graph import Root, SourceLine
from gradviz.source.code_line import in_place, passing
from gradviz.source.cut import Cut, DetachKind
from gradviz.source.provenance import Provenance
from gradviz.source.search import changes_gradients
from gradviz.source.statements import body_around
from gradviz.wording import one_line

MEND: dict[DetachKind, str] = {
    "detach": "remove .detach()",
    "data": "use the tensor itself instead of .data",
    "number": "compute the loss from the tensors themselves, and call .item() only on what is printed",
    "numpy": "do this step with torch functions instead of NumPy",
    "new": "use the tensor itself; to join several, torch.stack keeps their graphs",
    "integer": "use a quantity that changes smoothly, such as logits with cross_entropy, instead of argmax or a comparison",
    "no_grad": "move the line out of torch.no_grad()",
    "inference": "move the line out of torch.inference_mode()",
    "sample": "use rsample(), or multiply log_prob() of the sample by its reward",
    "parameter": "use the tensor itself: torch.func.functional_call(module, {'weight': t}, x), or a function such as "
    "torch.nn.functional.linear(x, t)",
    "written": "leave the parameter as it is, and run its module with the tensor in its place: "
    "torch.func.functional_call(module, {'weight': t}, x)",
    "deepcopy": "copy nothing: run the module with other parameters, torch.func.functional_call(model, parameters, x), where "
    "parameters are dict(model.named_parameters()), less a step along torch.autograd.grad(loss, parameters.values(), "
    "create_graph=True). Or, for a gradient of first order, add that of the copy's parameters to .grad of the model's",
    "grad": "pass create_graph=True to torch.autograd.grad",
}
_INTEGERS = {
    **dict.fromkeys(
        (
            "argmax",
            "argsort",
            "max",
            "min",
            "topk",
            "sort",
            "median",
            "mode",
            "kthvalue",
        ),
        "use the scores instead of the indices: cross_entropy on them for a loss, scores.softmax(-1) as weights, or "
        "torch.nn.functional.gumbel_softmax(scores, hard=True) for a choice that lets the gradient pass",
    ),
    "argmin": "let the gradient pass around the choice: q = x + (q - x).detach(), where q is what was picked for x; or use "
    "torch.nn.functional.gumbel_softmax(-distances, hard=True) @ codes",
    **dict.fromkeys(
        COMPARISONS,
        "compute with the numbers instead of the comparison, or with a smooth step: torch.sigmoid((x - threshold) * 20)",
    ),
    **dict.fromkeys(
        ("long", "int", "to", "type", "byte", "bool", "short"),
        "remove the cast to integers",
    ),
}
"""What to do about an operation that makes integers or booleans."""
_COPIES = re.compile(r"\b(?:tensor|as_tensor|array|FloatTensor)\(.*\.(?:item|tolist)\(")
_HANDED_ON = re.compile(r"\.detach\(\)(?:\.\w+\(\))*\.(numpy|tolist|item)\(")


def and_reset(source: SourceLine | None, name: str) -> str:
    """What resets the gradient of a leaf that an update changes in place, where making
    a new one did: the next statement.
    """
    unset = (
        source is not None
        and f"{name}.grad" in source.text
        and not changes_gradients(source)
    )
    return f"; {name}.grad = None" if unset else ""


def mend(cut: Cut) -> str:
    """What to do about a cut, as the continuation of "In line, ..."."""
    name, changed = in_place(cut.source) if cut.kind == "no_grad" else ("", "")
    if changed:
        return f"change {name} so that it stays a leaf that requires grad: {changed}{and_reset(cut.source, name)}"
    if cut.operation == "set_grad_enabled":
        return "switch gradients on again afterwards: torch.set_grad_enabled(True). Or use `with torch.no_grad():`"

    if cut.off is not None and cut.off.text.startswith("@"):
        return (
            f"remove {one_line(cut.off.text)}: {line(cut.source)} has to be recorded; where no gradient is needed, as in an "
            "evaluation, make the call inside `with torch.no_grad():`"
        )

    if cut.off is not None and to_change(cut) == cut.off:
        return f"make the call that leads to {line(cut.source)} outside of this block"

    if cut.off is not None and cut.off.line != cut.source.line:
        block = f" (the block of {line(cut.off)})"
    else:
        block = ""

    return _advice(cut) + block


def to_change(cut: Cut) -> SourceLine:
    """The line that has to change: the decorator, or the block around a call, that
    switches recording off in another function.
    """
    off, inner = cut.off, cut.source
    if off is None:
        return inner
    elsewhere = body_around(off.file, off.line) != body_around(inner.file, inner.line)
    return off if elsewhere or off.text.startswith("@") else inner


def _advice(cut: Cut) -> str:
    """What to do about a cut of its kind, as its line spells it."""
    if cut.kind == "grad" and _asks_for_a_graph(cut):
        return (
            "leave create_graph=True as it is; in backward() of the custom Function on the way, compute from ctx.saved_tensors, of "
            "inputs that forward() gives to ctx.save_for_backward()"
        )

    handed = _HANDED_ON.search(cut.source.text) if cut.kind == "detach" else None
    # the detach() is there for what follows, which cannot do without
    if handed is not None:
        return MEND["numpy" if handed[1] == "numpy" else "number"]
    if cut.kind == "number" and _COPIES.search(cut.source.text):
        return f"{MEND['number']}; to join several, torch.stack keeps their graphs"

    return _INTEGERS.get(
        cut.operation if cut.kind == "integer" else "",
        MEND[cut.kind],
    )


def _asks_for_a_graph(cut: Cut) -> bool:
    """Whether a line passes create_graph=True, so that a backward function on the way
    computed without a graph.
    """
    return "create_graph=True" in cut.source.text.replace(" ", "")


def uncut(cuts: Sequence[Cut]) -> Edit | None:
    """The line of a cut without its `.detach()` or `.data`, where that is all and it is
    there once.
    """
    cut = cuts[0] if cuts else None
    if cut is not None and cut.kind == "grad" and not _asks_for_a_graph(cut):
        return instead(
            cut.source, passing(cut.source, ["grad"], "create_graph", "True")
        )

    if cut is not None and cut.kind in ("detach", "data"):
        word = _SPELLED.get(cut.kind, "")
    else:
        word = ""

    plain = (
        cut is not None
        and word
        and cut.source.text.count(word) == 1
        and not _HANDED_ON.search(cut.source.text)
    )
    if cut is not None and plain:
        return instead(
            cut.source,
            cut.source.text.replace(word, ""),
        )

    return None


_SPELLED: dict[DetachKind, str] = {
    "detach": ".detach()",
    "data": ".data",
    "number": ".item()",
}
BARE = (
    "{line} runs {what} in a reentrant checkpoint (use_reentrant=True), and no input of that requires grad: such a "
    "checkpoint records nothing then, whatever the parameters inside require, and backward() never gets to compute it again"
)


def bare_fix(source: SourceLine) -> str:
    """What to do about a reentrant checkpoint at a line of which no input requires
    grad.
    """
    if source.package:
        return (
            f"Switch the checkpoints of {source.package} on with use_reentrant=False "
            '(model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})), or call '
            "model.enable_input_require_grads() before training."
        )
    return (
        f"Pass use_reentrant=False to the checkpoint in {line(source)}. Else let its input require grad: "
        "model.enable_input_require_grads() with transformers, or requires_grad_() on what the frozen embedding returns."
    )


@check(
    "no-graph", "error", "an output has no grad_fn, so backward() cannot begin at it"
)
def no_graph(context: CheckContext) -> Diagnoses:
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


def _without_graph(context: CheckContext, root: Root) -> Diagnosis:
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
        if any(cut.kind == "grad" and _asks_for_a_graph(cut) for cut in places)
        else (),
        where=listed(dict.fromkeys(line(cut.source) for cut in places[:3])),
        edit=uncut(places)
        or before(provenance.made, f"{asked}.requires_grad_()" if asked else ""),
    )


def _asked(context: CheckContext, provenance: Provenance) -> str:
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


def expression(cut: Cut) -> str:
    """The code that drops the graph, as far as the kind of cut tells it; else what
    loses it, and what that is given to.
    """
    if cut.kind in _SPELLED:
        return f"{cut.of}{_SPELLED[cut.kind]}"
    if cut.kind in ("no_grad", "inference"):
        return cut.of
    return around(cut.source, cut.of)


def _bare_checkpoint(context: CheckContext) -> tuple[str, SourceLine] | None:
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


def _leaves(context: CheckContext) -> Diagnoses:
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


def _why(context: CheckContext, root: Root, provenance: Provenance) -> str:
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


def _frozen_words(context: CheckContext) -> str:
    by = f" by {code(context.frozen_at)}" if context.frozen_at is not None else ""
    return f"all {len(context.parameters):,} parameters of the model are frozen (requires_grad=False){by}"


def _unfreeze(context: CheckContext) -> str:
    if context.frozen_at is None:
        return "Unfreeze what should be trained: parameter.requires_grad_(True)."
    return f"In {line(context.frozen_at)}, do not freeze what should be trained, such as the last layers."


def cut_words(cut: Cut) -> str:
    """One place, and how sure it is that the graph ends there."""
    words = CUT[cut.kind].format(of=one_line(cut.of) or "a tensor")
    if cut.operation == "set_grad_enabled":
        words = "switches gradients off, and nothing switches them on again"
    if cut.kind == "grad" and _asks_for_a_graph(cut):
        words = f"computes a gradient of {one_line(cut.of) or 'a tensor'} through a backward() that uses what has no graph"
    inside = f" in {one_line(cut.inside)}" if cut.inside else ""
    text = f"{code(cut.source)}{inside} {words}"
    if cut.operation:
        return f"{text} (observed)"
    return f"{text}; its input still has a graph" if cut.alive else text


def all_cut_words(cuts: Iterable[Cut]) -> list[str]:
    """The same for several, each once."""
    return list({(cut.source, cut.kind): cut_words(cut) for cut in cuts}.values())


def mend_all(cuts: Sequence[Cut]) -> str:
    """What to do about cuts, once for all lines where it is the same."""
    lines: dict[str, dict[str, None]] = {}
    for cut in cuts:
        lines.setdefault(mend(cut), {})[line(to_change(cut))] = None
    return " ".join(
        f"In {listed(places)}, {advice}." for advice, places in lines.items()
    )


def _fix(context: CheckContext, root: Root, provenance: Provenance) -> str:
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
