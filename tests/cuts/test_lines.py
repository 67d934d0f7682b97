"""Watching for cuts: what is seen of them, which nodes take in what they gave, and that nothing is kept."""

from __future__ import annotations

import gc
import textwrap
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import gradviz
from gradviz.cuts.lines import CutWatch
from gradviz.cuts.seen import CutCalls
from gradviz.graph import Graph
from tests.checks.advice import alarms


@contextmanager
def watching() -> Iterator[CutWatch]:
    seen = CutWatch()
    with CutCalls(seen).watching():
        yield seen


def _set(into: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    into[:] = value
    return into


CUTS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "argmax": ("integer", lambda y: y.argmax(1)),
    "a comparison": ("integer", lambda y: (y > 0).float()),
    "a comparison the other way round": ("integer", lambda y: (y > 0).float()),
    "a cast": ("integer", lambda y: y.long() * 2),
    "detach": ("detach", lambda y: y.detach() + 1),
    "detach in place": ("detach", lambda y: y.clone().detach_()),
    "data": ("data", lambda y: y.data.exp()),
    "tensor": ("new", lambda y: torch.tensor(y)),
    "as_tensor": ("new", lambda y: torch.as_tensor([y.sum(), y.sum()])),
    "a number": ("number", lambda y: torch.tensor(y.sum().item())),
    "float": ("number", lambda y: torch.tensor(float(y.sum()))),
    "a list of numbers": ("number", lambda y: torch.tensor(y.flatten().tolist())),
    "a draw": ("sample", lambda y: torch.distributions.Normal(y, 1.0).sample()),
    "a draw inside of another": (
        "sample",
        lambda y: torch.distributions.Independent(torch.distributions.Normal(y, 1.0), 1).sample(),
    ),
    "bernoulli": ("sample", lambda y: (y / 4).bernoulli()),
    "a parameter": ("parameter", lambda y: torch.nn.Parameter(y)),
    "a gradient": ("grad", lambda y: torch.autograd.grad(y.exp().sum(), y)[0]),
    "in place": ("integer", lambda y: torch.zeros(2, 3).copy_(y > 0)),
    "an entry": ("detach", lambda y: _set(torch.zeros(2, 3), y.detach())),
}


def entered(seen: CutWatch, graph: Graph) -> set[str]:
    """How lines cut whose result goes into a graph."""
    return {where.kind for where in seen.entering(graph)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_is_seen_and_followed_to_where_it_enters_again(name: str) -> None:
    kind, cut = CUTS[name]
    w = torch.ones(2, 3, requires_grad=True)
    with gradviz.record(), watching() as seen:
        lost = cut(w * 2)
        scale = lost.float().mean()
        loss = (w * scale).sum()
        graph = gradviz.walk(loss)
        found = entered(seen, graph)
    assert {one.kind for one in seen.every} == {kind}
    assert found == {kind} or (kind == "parameter" and not found)  # that one has a graph of its own
    if not name.startswith(("a draw", "a parameter")):
        (one,) = [each.cut(lambda leaf: ("w",) if leaf is w else ()) for each in seen.every]
        assert one.behind == {"w"} and one.via[-1].line > one.via[0].line  # the lambda above, and this test


class Two(torch.nn.Module):
    """Returns what has a graph, and what has none."""

    def forward(self, x: torch.Tensor) -> Any:
        h = x * 2
        aux = h.detach()
        return h * 3, aux


def test_a_result_that_is_not_used_is_not_blamed() -> None:
    w, net = torch.ones(2, 3, requires_grad=True), Two()
    with gradviz.record(), watching() as seen:
        out, _ = net(w)
        found = entered(seen, gradviz.walk((out * torch.ones(2, 3)).sum()))
    assert not found


@pytest.mark.parametrize("line", ["lost = w.detach(); out = w * ones", "lost = w.detach()\nout = w * ones"])
def test_of_two_statements_none_is_blamed_for_the_other(line: str, tmp_path: Path) -> None:
    path, w = tmp_path / "code.py", torch.ones(2, 3, requires_grad=True)
    path.write_text(line + "\n")
    variables = {"w": w, "ones": torch.ones(2, 3)}
    with gradviz.record(), watching() as seen:
        exec(compile(line, str(path), "exec"), variables)
        found = entered(seen, gradviz.walk(variables["out"]))
    assert not found and len(seen.every) == 1


def test_what_has_a_graph_or_never_had_one_is_no_cut() -> None:
    w, plain = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with gradviz.record(), watching() as seen:
        w.round(), w[0], w.clone(), torch.zeros_like(w), w.shape, w.grad, repr(w), f"{w[0, 0]:.2f}"
        plain.detach(), plain > 0, plain.sum().item(), plain.tolist(), torch.tensor([1.0]), plain.data
        assert torch.as_tensor(w) is w and hasattr(w, "detach") and hasattr(w, "data") and callable(w.item)
        loss = (w * plain).sum()
        found = entered(seen, gradviz.walk(loss))
        loss.backward()
    assert not seen.every and not found


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    with watching():
        w = torch.ones(3, requires_grad=True)
        lost = (w * 2).detach()
        died = weakref.ref(lost)
        del lost, w
    gc.collect()
    assert died() is None


@pytest.mark.slow
def test_a_long_chain_that_is_cut_at_every_step_can_be_deleted() -> None:
    h = torch.ones(1, requires_grad=True)
    with watching():
        for _ in range(60_000):
            h = h * 1.0
            h.detach()
    del h  # a node whose Python object was made on the way would end the process here


RANGES = {
    "a name that was imported before": """
        import torch
        cut = torch.Tensor.detach
        a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        for step in range(3):
            h = a(torch.randn(4, 3))
            h = cut(h)
            loss = b(h).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "what is computed with recording off": """
        import torch
        a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
        for step in range(3):

            h = a(torch.randn(4, 3))
            with torch.no_grad(): h = h.exp()
            loss = b(h).square().mean()
            opt.zero_grad(); loss.backward()
            opt.step()
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("script", RANGES.values(), ids=list(RANGES))
def test_a_cut_that_nobody_saw_is_told_as_a_range_of_lines(script: Any, tmp_path: Path) -> None:
    (found,) = alarms(script, tmp_path)
    assert found["id"] == "unused-parameter"
    first = next(i for i, line in enumerate(textwrap.dedent(script).splitlines(), 1) if "h = a(" in line)
    assert f"script.py:{first}, and no gradient" in found["why"]
    assert "cut off somewhere between that line and the output, or not used" in found["why"]
