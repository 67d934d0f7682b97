"""Writes backward-names.md from the formulas: `python docs/make_backward_names.py`, in an environment with gradviz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gradviz.formulas.lookup import keeps
from gradviz.formulas.notation import plain
from gradviz.formulas.table import FORMULAS, OTHERS

PAGE = Path(__file__).parent / "backward-names.md"
TOP = """# What the backward names mean

<!-- Written by `python docs/make_backward_names.py`. -->

Autograd names a backward function after the op of torch whose gradient it computes: capitals, then `Backward`, then a number that
counts the overloads of that op. Pictures show the op itself, `addmm`, and the backward function in its tooltip; `--names backward`
shows `AddmmBackward0`.

`g` is the gradient that arrives and `out` the result of the op. An input that was broadcast receives the sum over the repeated
dimensions. *Keeps* lists what backward needs of the forward pass: this is what `gradviz saved` counts. The tests check every
formula against torch. `gradviz formula softmax` prints one of them; for ops that are not in the table it prints torch's own text.

"""
END = """
"Unsafe" is torch's word for an internal shortcut that is safe where torch uses it; nothing is wrong with your code. A custom
`autograd.Function` called `Exp` appears as `ExpBackward`, without a number.
"""


def rows() -> Iterator[str]:
    """The table, a row for each formula, then what has none."""
    yield "| node | you write | out | sends | keeps |"
    yield "|---|---|---|---|---|"
    for formula in sorted(FORMULAS):
        sends = "; ".join(
            f"to {name}: {plain(text)}" for name, text in formula.gradients.items()
        )
        terms = "".join(
            f", where {name} = {plain(text)}" for name, text in formula.terms.items()
        )
        note = f" ({formula.note})" if formula.note else ""
        yield f"| `{formula.op}` | `{formula.code}` | {plain(formula.result)} | {sends}{terms}{note} | {keeps(formula)} |"
    yield from (
        "",
        "These move gradients without a formula:",
        "",
        "| node | what it is |",
        "|---|---|",
    )
    yield from (f"| `{op}` | {words} |" for op, words in sorted(OTHERS.items()))


def text() -> str:
    """The whole page."""
    return TOP + "\n".join(rows()) + "\n" + END


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
