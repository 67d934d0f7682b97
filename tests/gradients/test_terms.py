"""`flow --by term`: the gradient of each term of a loss, against `torch.autograd.grad` of that term."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradviz.gradients.live import open_graph
from gradviz.gradients.terms import measure_terms
from tests.cli.conftest import Gradviz, gradviz as gradviz, unchanged as unchanged
from tests.cli.scripts import script


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Linear(4, 6)


def losses(model: Coder) -> dict[str, torch.Tensor]:
    x = torch.linspace(-1, 1, 30).view(5, 6)
    code = model.encoder(x)
    return {
        "reconstruction": (model.decoder(code) - x).pow(2).mean(),
        "sparsity": code.abs().mean(),
        "decay": torch.stack([p.pow(2).sum() for p in model.parameters()]).sum(),
    }


def norm(term: torch.Tensor, parameters: Any) -> float:
    gradients = torch.autograd.grad(term, list(parameters), retain_graph=True, allow_unused=True)
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients if g is not None))


def test_norm_and_share_are_those_of_each_term_alone() -> None:
    torch.manual_seed(0)
    model = Coder()
    found = losses(model)
    reconstruction, sparsity, decay = found.values()
    loss = reconstruction + 0.3 * sparsity - decay / 100
    terms = measure_terms(open_graph(loss, variables=[{"model": model, **found}]))
    expected = {"reconstruction": reconstruction, "sparsity * 0.3": 0.3 * sparsity, "decay / 100": decay / 100}
    assert len(terms.terms) == 3
    for module, part in (("model", model), ("model.encoder", model.encoder), ("model.decoder", model.decoder)):
        norms = [norm(term, part.parameters()) for term in expected.values()]
        rows = [row for row in terms.rows if row.module == module]
        assert sorted(row.norm or 0.0 for row in rows) == pytest.approx(sorted(norms), rel=1e-5)
        assert sorted(row.share or 0.0 for row in rows) == pytest.approx(
            sorted(n / sum(norms) for n in norms), rel=1e-5
        )
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()


TRAIN = """
import torch
class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
first = (w * 3).sum()
second = Keeps.apply(v).sum()
loss = first + 0.5 * second
loss.backward()
"""


def test_the_command_names_terms_and_the_option_for_custom_functions(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAIN)
    told = json.loads(gradviz("flow", path, "--by", "term", "--json").stdout)
    assert [term.split()[0] for term in told["terms"]] == ["first", "second"]
    norms = {(row["module"], row["term"].split()[0]): row["norm"] for row in told["rows"]}
    assert norms["w", "first"] == pytest.approx(3 * math.sqrt(3)) and norms["w", "second"] == 0
    assert norms["v", "first"] is norms["v", "second"] is None  # not known, and not 0
    assert any("--run-custom" in note for note in told["notes"])
    whole = json.loads(gradviz("flow", path, "--by", "term", "--run-custom", "--json").stdout)
    norms = {(row["module"], row["term"].split()[0]): row["norm"] for row in whole["rows"]}
    assert norms["v", "second"] == pytest.approx(math.sqrt(3)) and norms["v", "first"] == 0
    assert "share" in gradviz("flow", path, "--by", "term").stdout
