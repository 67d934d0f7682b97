"""What to do about a cut, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gradviz.checks.registry import Row
from gradviz.checks.words import code, line, listed
from gradviz.cuts.words import doing
from gradviz.graph import SourceLine
from gradviz.source.cut import COMPARISONS, Cut
from gradviz.source.statements import body_around, written_at
from gradviz.wording import one_line

MEND: dict[str, str] = {
    "detach": "remove .detach()",
    "straight through": "keep .detach(), which passes the gradient straight to {other}, and train {lost} by a term of its own: "
    "({lost} - {other}.detach()).pow(2).mean()",
    "data": "use the tensor itself instead of .data",
    "number": "compute the loss from the tensors themselves, and call .item() only on what is printed; to join several, "
    "torch.stack keeps their graphs",
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
    "grad": "pass create_graph=True to torch.autograd.grad",
    "second grad": "leave create_graph=True as it is; in backward() of the custom Function on the way, compute from "
    "ctx.saved_tensors, of inputs that forward() gives to ctx.save_for_backward()",
    "set_grad_enabled": "switch gradients on again afterwards: torch.set_grad_enabled(True). Or use `with torch.no_grad():`",
    "yield": "end the block before the value is handed out: move the line out of it",
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
"""What to do, by the kind of cut; for some kinds by the operation, too."""


_SWITCHES = "set_grad_enabled", "yield"
_UPDATE = re.compile(r"(\S+) = \1 - |.*\b([\w.]+) - .*\b\2\.grad\b")
"""A step by hand that makes a new tensor."""
_HANDED_ON = re.compile(r"\.detach\(\)(?:\.\w+\(\))*\.(numpy|tolist|item)\(")


_DIFFERENCE = re.compile(r"\(?(.+?) - (.+?)\)?")


def _straight_through(cut: Cut) -> tuple[str, str]:
    """`q` and `z` of `z + (q - z).detach()`, else "" and ""."""
    match = _DIFFERENCE.fullmatch(cut.of) if cut.kind in ("detach", "data") else None
    if match is None or f"{match[2]} + {cut.part}" not in written_at(cut.source):
        return "", ""
    return match[1], match[2]


def _manner(cut: Cut) -> str:
    """The row of MEND that a cut is of, as its line spells it."""
    text = written_at(cut.source)
    handed = _HANDED_ON.search(text) if cut.kind == "detach" else None
    # the detach() is there for what follows, which cannot do without
    if handed is not None:
        return "numpy" if handed[1] == "numpy" else "number"
    if cut.asks_for_graph:
        return "second grad"

    by_operation = cut.kind == "integer" or cut.operation in _SWITCHES
    return cut.operation if by_operation and cut.operation in MEND else cut.kind


def mend(cut: Cut) -> str:
    """What to do about a cut, as the continuation of "In line, ..."."""
    update = _UPDATE.match(written_at(cut.source)) if cut.kind == "no_grad" else None
    if update is not None:
        name = update[1] or update[2]
        return f"change {name} in place, so that it stays a leaf: {name} -= ..."
    if cut.off is None:
        lost, other = _straight_through(cut)
        if lost:
            return MEND["straight through"].format(lost=lost, other=other)
        return MEND[_manner(cut)]

    inner = line(cut.source)
    if cut.off.text.startswith("@"):
        return (
            f"remove {one_line(cut.off.text)}: {inner} has to be recorded; where no gradient is needed, as in an evaluation, make "
            "the call inside `with torch.no_grad():`"
        )
    if cut.off.text.startswith("torch.set_grad_enabled"):
        return "move the line to where gradients are on: torch.set_grad_enabled(True)"
    if to_change(cut) == cut.off:
        return f"make the call that leads to {inner} outside of this block"
    return MEND[_manner(cut)]


def to_change(cut: Cut) -> SourceLine:
    """The line that has to change: the decorator, or the block around a call, that
    switches recording off in another function.
    """
    off, inner = cut.off, cut.source
    if off is None:
        return inner
    elsewhere = body_around(off.file, off.line) != body_around(inner.file, inner.line)
    return off if elsewhere or off.text.startswith("@") else inner


BARE = Row(
    "",
    "{code} runs the module in a reentrant checkpoint (use_reentrant=True), and no input of that requires grad: such a checkpoint "
    "records nothing then, whatever the parameters inside require, and backward() never gets to compute it again",
    "Pass use_reentrant=False to the checkpoint in {line} (with transformers: "
    'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{"use_reentrant": False}})). Else let its input require '
    "grad: model.enable_input_require_grads(), or requires_grad_() on what the frozen embedding returns.",
)
"""What is said of a reentrant checkpoint of which no input requires grad."""


def cut_words(cut: Cut) -> str:
    """One place, and how sure it is that the graph ends there."""
    return f"{code(cut.source)} {doing(cut, cut.of or 'a tensor')}"


def all_cut_words(cuts: Iterable[Cut]) -> str:
    """The same for several, each once."""
    words = {(cut.source, cut.kind): cut_words(cut) for cut in cuts}
    return "; ".join(words.values())


def mend_all(cuts: Sequence[Cut]) -> str:
    """What to do about cuts, once for all lines where it is the same."""
    lines: dict[str, dict[str, None]] = {}
    for cut in cuts:
        lines.setdefault(mend(cut), {})[line(to_change(cut))] = None
    sentences = (f"In {listed(places)}, {advice}." for advice, places in lines.items())
    return " ".join(sentences)
