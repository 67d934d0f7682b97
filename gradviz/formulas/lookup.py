"""Finds what is known of an op by any of its names, and says it as text and as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gradviz.errors import GradvizError, did_you_mean
from gradviz.formulas.derivatives import Derivative, derivatives
from gradviz.formulas.notation import kept, mathml, plain
from gradviz.formulas.table import FORMULA_OF, FORMULAS, MIXES, OTHERS, Formula


class UnknownOpError(GradvizError, ValueError):
    """No formula is known by this name."""


def find(name: str) -> list[Formula | Derivative]:
    """What is known by this name: of a backward function, of an op, or of what a user
    writes. Our own formulas come first.

    >>> [formula.op for formula in find("softmax")], [formula.op for formula in find("TBackward0")]
    (['SoftmaxBackward0'], ['TBackward0'])
    """
    ours: list[Formula | Derivative] = [
        formula
        for formula in FORMULAS
        if _plain(name) in _names(formula.op, formula.code)
    ]
    if ours:
        return ours

    theirs = [
        entry
        for entry in derivatives().values()
        if _plain(name) in _names(entry.op, entry.call)
    ]
    if theirs:
        return [*theirs]

    every = (
        *FORMULA_OF,
        *derivatives(),
        *(word for formula in FORMULAS for word in _called(formula.code)),
    )
    raise UnknownOpError(
        f"there is no formula for {name!r}. {did_you_mean(name, every, what='ops')}"
    )


def formula_of(op: str) -> Formula | Derivative | None:
    """What is known of a backward function by its exact name."""
    return FORMULA_OF.get(op) or derivatives().get(op)


def lines(formula: Formula | Derivative) -> Iterator[tuple[str, str]]:
    """What is known, as a word and a sentence for each line."""
    if isinstance(formula, Derivative):
        yield "op", formula.call
        for name, text in formula.gradients.items():
            yield "backward", f"{name} receives {text}"
        yield (
            "source",
            "torch's own file of derivatives; grad is the gradient that arrives",
        )
        return

    yield "code", formula.code
    yield "computes", f"out = {plain(formula.result)}"
    for name, expression in formula.gradients.items():
        yield "backward", f"{name} receives {plain(expression)}"

    for name, expression in formula.terms.items():
        yield "where", f"{name} = {plain(expression)}"

    yield "keeps", keeps(formula)
    yield "elements", MIXES[formula.dims]
    if formula.note:
        yield "note", formula.note


def keeps(formula: Formula) -> str:
    """What backward needs of the forward pass, and why.

    >>> keeps(FORMULA_OF["SoftmaxBackward0"]), keeps(FORMULA_OF["AddBackward0"])
    ('out, for the gradient of x', 'nothing')
    """
    needs: dict[tuple[str, ...], list[str]] = {}
    for used, names in kept(formula).items():
        needs.setdefault(names, []).append(used)
    each = (
        f"{' and '.join(used)}, for the gradient of {' and '.join(names)}"
        for names, used in needs.items()
    )
    return "; ".join(each) or "nothing"


def as_data(formula: Formula | Derivative) -> dict[str, Any]:
    """For JSON; `mathml` only where the formula is ours."""
    if isinstance(formula, Derivative):
        return {
            "op": formula.op,
            "call": formula.call,
            "gradients": dict(formula.gradients),
            "source": "torch",
        }

    expressions = {
        "out": formula.result,
        **formula.terms,
        **{f"gradient of {name}": text for name, text in formula.gradients.items()},
    }

    return {
        "op": formula.op,
        "code": formula.code,
        "result": plain(formula.result),
        "gradients": {
            name: plain(expression) for name, expression in formula.gradients.items()
        },
        "terms": {
            name: plain(expression) for name, expression in formula.terms.items()
        },
        "keeps": {name: list(inputs) for name, inputs in kept(formula).items()},
        "dims": formula.dims,
        "note": formula.note,
        "mathml": {
            name: mathml(expression) for name, expression in expressions.items()
        },
        "source": "gradviz",
    }


def facts_of(op: str) -> dict[str, Any]:
    """What an op computes, sends back and keeps, and which entries it mixes; empty
    where nobody knows.
    """
    formula = formula_of(op)
    if formula is None:
        return {"note": sentence(op)} if sentence(op) else {}
    mixes = {"mixes": MIXES[formula.dims]} if isinstance(formula, Formula) else {}
    return {**as_data(formula), **mixes}


def sentence(op: str) -> str:
    """What is said of a backward function that has no formula; "" where nothing is
    known.
    """
    return OTHERS.get(op, "")


def _names(op: str, call: str) -> set[str]:
    return {
        _plain(op),
        _plain(re.sub(r"Backward\d*$", "", op)),
        *map(_plain, _called(call)),
    }


def _called(code: str) -> list[str]:
    """The names of the functions that a piece of code calls."""
    return re.findall(r"(\w+)(?=\()", code) + re.findall(r"^nn\.\w+$", code)


def _plain(name: str) -> str:
    """A name without what writers may vary: `torch.nn.functional.log_softmax`,
    `LogSoftmax`, `log_softmax_`.
    """
    return name.rpartition(".")[2].replace("_", "").casefold()
