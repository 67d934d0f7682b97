"""Every formula against torch: what the op computes, what it sends to each input, and what its backward function keeps."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from gradviz.cli.main import cli
from gradviz.formulas.derivatives import derivatives
from gradviz.formulas.lookup import UnknownOpError, find, lines
from gradviz.formulas.notation import kept, mathml, plain
from gradviz.formulas.table import FORMULA_OF, FORMULAS, MIXES
from tests.command_line import CliRunner
from tests.formulas.cases import CASES, Case, functions


def run(op: str) -> tuple[Case, dict[str, Any], torch.Tensor, dict[str, torch.Tensor]]:
    """The case on fresh leaves: names for the notation, the result, and the gradients that torch computes."""
    case = CASES[op]
    leaves = {name: value.clone().requires_grad_() for name, value in case.inputs.items()}
    torch.manual_seed(0)
    out = case.op(*leaves.values())
    arriving = torch.linspace(0.5, 2, out.numel(), dtype=out.dtype).view(out.shape)
    expected = dict(zip(leaves, torch.autograd.grad(out, list(leaves.values()), arriving, retain_graph=True)))
    plain_values = {name: value.detach() for name, value in leaves.items()}
    names = {**functions(case, out.detach()), **case.names, **plain_values, "out": out.detach(), "g": arriving}
    if "mask" in case.names:
        names["mask"] = case.names["mask"]
    for name, expression in FORMULA_OF[op].terms.items():
        names[name] = _value(expression, names, case)
    return case, names, out, expected


def _value(expression: str, names: dict[str, Any], case: Case) -> Any:
    if FORMULA_OF.get("NativeBatchNormBackward0") and "w" in names and isinstance(names.get("dim"), tuple):
        names = {**names, **{name: names[name].view(1, -1, 1, 1) for name in ("w", "b")}}  # one number for each channel
    return eval(expression, {"__builtins__": {}}, names)


@pytest.mark.parametrize("op", FORMULA_OF)
def test_a_formula_computes_what_torch_computes(op: str) -> None:
    case, names, out, expected = run(op)
    assert out.grad_fn is not None and out.grad_fn.name() == op
    formula = FORMULA_OF[op]
    torch.testing.assert_close(_value(formula.result, names, case).reshape(out.shape), out.detach(), check_dtype=False)
    assert formula.gradients.keys() == expected.keys()
    for name, expression in formula.gradients.items():
        computed = _value(expression, names, case)
        torch.testing.assert_close(computed.reshape(expected[name].shape), expected[name], check_dtype=False)


@pytest.mark.parametrize("op", FORMULA_OF)
def test_what_a_formula_needs_is_what_torch_saves(op: str) -> None:
    """A formula that reads no numbers belongs to an op that saves none, and the other way round."""
    _, _, out, _ = run(op)
    node: Any = out.grad_fn
    saves = any(
        isinstance(getattr(node, name), (torch.Tensor, tuple)) and _tensors(getattr(node, name))
        for name in dir(node)
        if name.startswith("_saved_")
    )
    assert bool(kept(FORMULA_OF[op])) == (saves and "only its shape is needed" not in FORMULA_OF[op].note)


@pytest.mark.parametrize("op", FORMULA_OF)
def test_gradients_are_in_the_order_of_the_inputs(op: str) -> None:
    """Readers of the formula tell by the place which of the neighbours receives what."""
    case = CASES[op]
    leaves = {name: value.clone().requires_grad_() for name, value in case.inputs.items()}
    node: Any = case.op(*leaves.values()).grad_fn
    letters = list(FORMULA_OF[op].gradients)
    for place, (following, _) in enumerate(node.next_functions):
        if following is not None and following.name().endswith("AccumulateGrad"):
            assert following.variable is leaves[letters[place]]


def _tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or any(isinstance(one, torch.Tensor) for one in value)


def test_each_is_typeset() -> None:
    from xml.etree import ElementTree

    assert len(FORMULA_OF) == len(FORMULAS) and {row.dims for row in FORMULAS} <= set(MIXES)
    for formula in FORMULAS:
        for expression in (formula.result, *formula.gradients.values(), *formula.terms.values()):
            assert plain(expression) and ElementTree.fromstring(mathml(expression)).tag == "math"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a - (b - c)", "a − (b − c)"),
        ("(a + b) * c", "(a + b) · c"),
        ("(-x) ** 2", "(−x)²"),
        ("sum(x + y, dim) * z", "(Σ_dim (x + y)) · z"),
        ("g - sum(g * y, dim)", "g − Σ_dim g · y"),
    ],
)
def test_brackets_stand_where_they_are_needed(expression: str, text: str) -> None:
    assert plain(expression) == text


def test_the_page_of_names_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs"
    module = runpy.run_path(str(page / "make_backward_names.py"))
    assert (page / "backward-names.md").read_text(encoding="utf-8") == module["text"](), (
        "python docs/make_backward_names.py"
    )


def test_every_backward_function_of_torch_that_it_names_exists() -> None:
    """Names that are made from the file of derivatives are those that autograd gives."""
    known = set(derivatives())
    assert len(known) > 500 and not set(FORMULA_OF) - known - {"UnsafeViewBackward0"}


def test_an_op_without_a_formula_of_ours_has_torchs_own_text() -> None:
    (found,) = [known for known in find("lerp") if known.op == "LerpBackward1"]
    assert dict(lines(found))["op"] == "lerp(self, end, weight)" and found.gradients["end"] == "grad * weight.conj()"


def test_an_unknown_op_gets_near_names() -> None:
    with pytest.raises(UnknownOpError, match=r"no formula for 'sofmax'. Did you mean softmax"):
        find("sofmax")


def test_the_command_prints_what_a_reader_needs() -> None:
    said = CliRunner().invoke(cli, ["formula", "softmax"]).output
    assert "x receives out · (g − Σ_dim g · out)" in said and "keeps     out, for the gradient of x" in said
    data = json.loads(CliRunner().invoke(cli, ["formula", "F.linear", "--json"]).output)
    assert data["formulas"][0]["keeps"] == {"w": ["x"], "x": ["w"]}
    assert data["formulas"][0]["mathml"]["gradient of x"].startswith("<math>")
    assert "adds the gradient" in CliRunner().invoke(cli, ["formula", "AccumulateGrad"]).output
