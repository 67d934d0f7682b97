"""What a line does that cuts, in a sentence."""

from __future__ import annotations

from gradviz.source.cut import Cut, DetachKind
from gradviz.wording import line_text, one_line

CUT: dict[DetachKind, str] = {
    "detach": "detaches {of}",
    "data": "takes .data of {of}, which has no graph",
    "number": "turns {of} into a Python number, which has no graph",
    "numpy": "passes {of} to NumPy, which autograd does not record",
    "new": "copies the values of {of} into a new tensor without a graph",
    "integer": "turns {of} into integers or booleans, which have no gradient",
    "no_grad": "computes with {of} while gradients are off ({switch}{off})",
    "inference": "computes with {of} under torch.inference_mode(){off}, which records no graph",
    "sample": "draws from {of} with sample(), which records no graph",
    "parameter": "wraps {of} in nn.Parameter: a new leaf without the history of {of}",
    "written": "writes the values of {of} into a parameter: a leaf without the history of {of}",
    "grad": "computes a gradient of {of} without create_graph=True, so the gradient is a constant",
}
"""What a line does that cuts; `of` is what it cuts off, `off` the line of `switch`."""


_SECOND = "computes a gradient of {of} through a backward() that uses what has no graph"


def switch(cut: Cut) -> str:
    """What had switched gradients off."""
    by_call = cut.off is not None and "set_grad_enabled" in cut.off.text
    return f"torch.{'set_grad_enabled(False)' if by_call else 'no_grad()'}"


def doing(cut: Cut, of: str) -> str:
    """What the line of a cut does with `of`."""
    if cut.operation == "set_grad_enabled":
        return "switches gradients off, and nothing switches them on again"
    if cut.operation == "yield" and cut.off is not None:
        return (
            f"hands a value out of a block of {switch(cut)}, line {cut.off.line}: the loop that takes it runs with gradients "
            "off, too"
        )
    off = f", line {cut.off.line}" if cut.off is not None else ""
    template = _SECOND if cut.asks_for_graph else CUT[cut.kind]
    words = template.format(of=one_line(of), off=off, switch=switch(cut))
    return f"{words}, in {cut.times} calls" if cut.times > 1 else words


def cut_words(cut: Cut, of: str) -> str:
    """The same with its line."""
    return f"{line_text(cut.source.file, cut.source.line)} {doing(cut, of)}"
