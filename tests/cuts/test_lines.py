"""Watching for cuts: what is seen of them, and that nothing else notices."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from gradviz.cuts.lines import CutWatch
from gradviz.cuts.torch_calls import TorchCalls
from gradviz.packages import UserCode


@contextmanager
def watching() -> Iterator[CutWatch]:
    seen = CutWatch(UserCode().place)
    with TorchCalls(seen.seen).watching():
        yield seen


CUTS = {
    "argmax": ("integer", lambda y: y.argmax(1)),
    "an index of max": ("integer", lambda y: torch.max(y, 1)[1]),
    "topk": ("integer", lambda y: y.topk(2).indices),
    "a comparison": ("integer", lambda y: (y > 0).float()),
    "a cast": ("integer", lambda y: y.long() * 2),
    "detach": ("detach", lambda y: y.detach() + 1),
    "data": ("data", lambda y: y.data.exp()),
    "tensor": ("new", lambda y: torch.tensor(y)),
    "a number": ("number", lambda y: torch.tensor(y.sum().item())),
    "a list of numbers": ("number", lambda y: torch.tensor([*y.flatten().tolist()[:1], y.max().item()])),
    "NumPy": ("detach", lambda y: torch.from_numpy(y.detach().numpy() * 2)),
    "a draw": ("sample", lambda y: torch.distributions.Normal(y, 1.0).sample()),
    "a parameter": ("parameter", lambda y: torch.nn.Parameter(y)),
    "a gradient": ("grad", lambda y: torch.autograd.grad(y.exp().sum(), y)[0]),
    "in place": ("integer", lambda y: torch.zeros(2, 3).copy_(y > 0)),
    "an entry": ("detach", lambda y: _set(torch.zeros(2, 3), y.detach())),
}


def _set(into: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    into[:] = value
    return into


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_is_seen_and_followed_to_where_it_enters_again(name: str) -> None:
    kind, cut = CUTS[name]
    w = torch.ones(2, 3, requires_grad=True)
    with watching() as seen:
        lost = cut(w * 2)
        loss = (w * lost.float().mean()).sum()
    assert {one.where.kind for one in seen.cuts_of(lost)} == {kind}
    assert loss.requires_grad and kind in {one.where.kind for cuts in seen.entered.values() for one in cuts}


def test_what_has_a_graph_or_never_had_one_is_no_cut() -> None:
    w = torch.ones(2, 3, requires_grad=True)
    with watching() as seen:
        kept = [
            w.round(),
            w[0],
            torch.stack([w, w]),
            w.clone(),
            torch.zeros_like(w),
            torch.ones(3) > 0,
            w.shape,
            w.grad,
        ]
        (w * torch.ones(2, 3)).sum().backward()
    assert not any(seen.cuts_of(one) for one in kept) and not seen.entered


@pytest.mark.slow
def test_nothing_is_kept_alive_and_nothing_left_behind() -> None:
    with watching():
        w = torch.ones(3, requires_grad=True)
        lost = (w * 2).detach()
        died = weakref.ref(lost)
        del lost, w
    gc.collect()
    assert died() is None and not _get_current_function_mode_stack()


@pytest.mark.slow
def test_a_long_chain_that_is_cut_at_every_step_can_be_deleted() -> None:
    h = torch.ones(1, requires_grad=True)
    with watching():
        for _ in range(60_000):
            h = h * 1.0
            h.detach()
    del h  # a node whose Python object was made on the way would end the process here


def test_it_gives_way_to_the_compiler() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()
    with watching():

        @torch.compile(backend="eager")
        def f(x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * 2).detach()

        assert torch.equal(f(torch.ones(2)), (torch.ones(2).sin() * 2))
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1


def test_a_mode_of_the_users_that_was_entered_meanwhile_stays() -> None:
    with watching():
        device = torch.device("cpu")
        device.__enter__()
    assert len(_get_current_function_mode_stack()) == 1
    device.__exit__(None, None, None)
