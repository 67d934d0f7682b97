"""`gradviz.check`: what it returns, what it needs to know, and that it leaves everything as it was."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.checks.call import BackwardCall, LeafGradient, Model, NamedTensor, Parameter
from gradviz.checks.finding import Finding, Findings
from gradviz.checks.registry import checks, run
from gradviz.errors import FormatError, NotATensorError
from gradviz.recording.record import ModuleRun
from gradviz.source.statements import body_around
from tests.builders import GRAPHS, chain, freed
from tests.walker.graphs import needs_raw


def ids(findings: Findings) -> list[str]:
    return [finding.id for finding in findings]


def one(findings: Findings, id: str) -> Finding:
    (found,) = [finding for finding in findings if finding.id == id]
    return found


class Two(nn.Module):
    """Two layers, of which `forward` uses what it is told to."""

    def __init__(self, use: Callable[[Two, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(self, x)


# -- the findings ------------------------------------------------------------------------------------------------------


def test_findings_are_a_sequence_and_print_themselves() -> None:
    net = Two(lambda self, x: self.a(x))
    found = gradviz.check(net(torch.ones(1, 4)).sum(), model=net)
    assert len(found) == 1 and found[0] is next(iter(found)) and found[:1] == (found[0],)
    assert found.as_data() == {"findings": [found[0].as_data()]}
    assert "b.weight" in str(found) and "1 warning" in str(found)
    assert found.reach("warning") and found.reach("note") and not found.reach("error")


@needs_raw
def test_the_worst_comes_first() -> None:
    net = Two(lambda self, x: self.a(x))
    net.c = nn.Linear(4, 1).requires_grad_(False)
    hidden = net(torch.randn(1, 4)).exp()
    hidden.add_(1)
    assert [one.severity for one in gradviz.check(hidden.sum(), model=net)] == ["error", "warning", "note"]


def test_only_and_ignore_choose_checks() -> None:
    net = Two(lambda self, x: self.a(x))
    loss = net(torch.ones(1, 4)).detach().sum()
    assert ids(gradviz.check(loss, net, only=["no-graph"])) == ["no-graph"]
    assert "no-graph" not in ids(gradviz.check(loss, net, ignore=["no-graph"]))
    with pytest.raises(FormatError, match="Did you mean no-graph"):
        gradviz.check(loss, only=["no-grap"])


def test_no_tensor_is_an_error() -> None:
    with pytest.raises(NotATensorError):
        gradviz.check({"loss": 3.0})


# -- nothing is disturbed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [False, True])
def test_nothing_is_disturbed(values: bool) -> None:
    calls: list[str] = []
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    unpack = calls.append if not values else lambda packed: None
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: calls.append("hook"))
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: (unpack("unpack"), one)[1]):
        hidden = net[0](torch.ones(2, 3))
    loss = net[2](net[1](hidden)).sum()
    random = torch.get_rng_state()
    versions = [parameter._version for parameter in net.parameters()]
    gradviz.check(loss, model=net, values=values)
    assert not calls
    assert all(parameter.grad is None for parameter in net.parameters())
    assert versions == [parameter._version for parameter in net.parameters()]
    assert torch.equal(random, torch.get_rng_state())
    loss.backward()
    assert all(parameter.grad is not None for parameter in net.parameters()) and calls.count("hook") == 4


def test_a_hook_named_as_torchs_is_left_alone_too() -> None:
    calls: list[str] = []

    def save_on_cpu(packed: tuple[torch.Tensor]) -> torch.Tensor:
        calls.append("unpack")
        return packed[0]

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), save_on_cpu):
        loss = torch.ones(2, requires_grad=True).exp().sum()
    gradviz.check(loss, values=True)
    assert not calls


@pytest.mark.slow
def test_nothing_is_kept_alive() -> None:
    net = Two(lambda self, x: self.a(x))
    loss = net(torch.ones(1, 4)).sum()
    findings = gradviz.check(loss, model=net, values=True)
    gone = [weakref.ref(loss), weakref.ref(net), weakref.ref(net.a.weight)]
    del loss, net
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3 and len(findings) == 1


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _detached(self: Two, x: torch.Tensor) -> torch.Tensor:
    return self.a(x) + self.b(x).detach()


def _no_grad(self: Two, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        extra = self.b(x)
    return self.a(x) + extra


def _frozen(self: Two, x: torch.Tensor) -> torch.Tensor:
    self.b.requires_grad_(False)
    return self.a(x) + self.b(x)


@pytest.mark.parametrize(
    ("use", "severity", "words"),
    [
        (lambda self, x: self.a(x), "warning", "did not run"),
        (_detached, "warning", "do not reach the output"),
        (_no_grad, "warning", "the graph is cut behind them"),
        (_frozen, "note", "frozen"),
        (
            lambda self, x: self.a(x) + checkpoint(self.b, x, use_reentrant=True),
            "note",
            "may be used inside a checkpoint",
        ),
    ],
)
def test_unused_parameters_have_a_verdict(use: Any, severity: str, words: str) -> None:
    net = Two(use)
    x = torch.ones(1, 4, requires_grad=True)
    with gradviz.record() as recording:
        loss = net(x).sum()
    found = one(gradviz.check(loss, net, recording=recording), "unused-parameter")
    assert found.names == ("net.b.weight", "net.b.bias")
    assert found.severity == severity and words in found.summary


def test_a_recording_that_is_open_is_found() -> None:
    net = Two(lambda self, x: self.a(x))
    with gradviz.record():
        loss = net(torch.ones(1, 4)).sum()
        found = one(gradviz.check(loss, net), "unused-parameter")
        assert "did not run" in found.summary and "recorded" not in found.why
        assert {line.path for line in gradviz.flow(loss, model=net).graph.scopes} == {"net", "net.a"}
    assert "unknown" in one(gradviz.check(loss, net), "unused-parameter").why


def test_a_module_that_ran_is_not_named_as_one_that_never_did() -> None:
    net = Two(lambda self, x: self.a(x))
    net.a = torch.nn.Sequential(net.a, torch.nn.ReLU())
    net.a[1].forgotten = torch.nn.Linear(4, 4)
    with gradviz.record():
        found = one(gradviz.check(net(torch.ones(1, 4)).sum(), net), "unused-parameter")
    assert "a.1.forgotten (Linear)" in found.summary and "b (Linear)" in found.summary


def test_the_outer_one_of_two_open_recordings_knows_more() -> None:
    net = Two(lambda self, x: self.a(x) + self.b(x).detach())
    with gradviz.record():
        loss = net(torch.ones(1, 4)).sum()
        with gradviz.record():
            assert "did not run" not in str(gradviz.check(loss, net))


def test_without_a_recording_nobody_claims_to_know_what_ran() -> None:
    net = Two(lambda self, x: self.a(x))
    found = one(gradviz.check(net(torch.ones(1, 4)).sum(), net), "unused-parameter")
    assert "unknown" in found.why and "did not run" not in str(found)


def test_a_whole_part_of_a_model_is_named_once() -> None:
    net = nn.ModuleDict({"used": nn.Linear(2, 1), "head": nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))})
    found = one(gradviz.check(net["used"](torch.ones(1, 2)).sum(), net), "unused-parameter")
    assert len(found.names) == 40 and found.where == "net.head"


class Nothing(torch.autograd.Function):
    """Passes on no gradient for its second input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return gradient, None


def test_none_grad_of_a_parameter_in_the_graph() -> None:
    net = Two(lambda self, x: Nothing.apply(self.a(x), self.b(x)))
    loss = net(torch.ones(1, 4)).sum()
    loss.backward()
    found = one(gradviz.check(loss, net), "none-grad")
    assert found.names == ("net.b.weight", "net.b.bias") and "in the graph" in found.why


# -- outputs without a graph -------------------------------------------------------------------------------------------


def _item(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.sum().item())


def _numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy())


@torch.no_grad()
def _decorated(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("function", [_item, _numpy, _decorated])
def test_a_chain_that_broke_inside_a_function_is_named_by_the_line_that_calls_it(function: Any) -> None:
    """Where nothing was watched, only the code around is read."""
    x = torch.ones(3, requires_grad=True) * 2
    loss = function(x)
    found = one(gradviz.check(loss), "no-graph")
    assert "`loss = function(x)`" in found.why and found.fix.endswith(".") and "Look in what" in found.fix
    assert found.code is not None and found.code.line == sys._getframe().f_lineno - 3


def test_the_broken_line_is_proven_by_a_variable_that_has_its_graph() -> None:
    x = torch.ones(3, requires_grad=True) * 2
    labels = x.argmax()
    loss = labels.float() + 1
    found = one(gradviz.check(loss), "no-graph")
    assert "turns x into integers" in found.why


def test_nothing_required_grad() -> None:
    x, target = torch.ones(3), torch.zeros(3)
    loss = (x - target).square().sum()
    found = one(gradviz.check(loss), "no-graph")
    assert "x and target, which do not require grad" in found.why and found.severity == "error"


def test_an_output_without_graph_beside_one_with_a_graph_is_a_note() -> None:
    x = torch.ones(3, requires_grad=True)
    outputs = {"loss": x.sum(), "mean": x.detach().mean(), "index": x.argmax()}
    found = gradviz.check(outputs)
    assert [(finding.id, finding.severity, finding.names) for finding in found] == [
        ("no-graph", "note", ("outputs['mean']",))
    ]


def test_recording_switched_off_is_said() -> None:
    w = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        found = one(gradviz.check(w.sum() + 0), "no-graph")
        loss = w.sum()
        assert "while gradients are off" in one(gradviz.check(loss), "no-graph").why
    assert "gradients are off at this point" in found.why


# -- optimizers --------------------------------------------------------------------------------------------------------


def test_an_optimizer_of_a_copied_model() -> None:
    import copy

    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(copy.deepcopy(net).parameters(), lr=0.1)
    found = one(gradviz.check(net(torch.ones(1, 2)).sum(), net, optimizer), "nonleaf-parameter")
    assert "2 tensors" in found.summary and set(found.names) == {"net.weight", "net.bias"}
    right = torch.optim.SGD(net.parameters(), lr=0.1)
    assert "nonleaf-parameter" not in ids(gradviz.check(net(torch.ones(1, 2)).sum(), net, right))


@needs_raw
def test_a_weight_that_the_optimizer_changed_before_backward() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first, second = net(torch.ones(1, 2)).sum(), net(torch.ones(1, 2)).sum()
    first.backward()
    optimizer.step()
    found = [finding for finding in gradviz.check(second, net, optimizer) if finding.id == "stale-saved"]
    assert [finding.names[0] for finding in found] == ["net.1.weight"]
    assert "optimizer.step()" in found[0].why + found[0].fix
    with pytest.raises(RuntimeError, match="inplace"):
        second.backward()


# -- checks on facts made by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_every_check_takes_every_graph(name: str) -> None:
    found = run([BackwardCall(GRAPHS[name])], values=True)
    assert found.checked == tuple(one.id for one in checks())


def test_hand_made_facts_are_enough(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\ny = h.grad\n")
    held = NamedTensor(("h",), node=1, leaf=False)
    parameter = Parameter(("w",), "net", "Linear", 0, ModuleRun(0))
    found = run(
        [
            BackwardCall(
                chain(3),
                body=body_around(str(script), 0),
                named_tensors=(held,),
                parameters=(parameter,),
                models=(Model("net", "Net", True),),
            )
        ]
    )
    assert [(one.id, one.where) for one in found] == [
        ("unused-parameter", "net (Linear)"),
        ("none-grad", f"{script}:2"),
    ]


def test_a_graph_freed_as_a_whole_is_left_alone_until_backward_is_called_again() -> None:
    assert not run([BackwardCall(freed())], only=["freed-graph"])
    assert [one.severity for one in run([BackwardCall(freed(), call=2)], only=["freed-graph"])] == ["error"]


def test_every_check_is_documented() -> None:
    for check in checks():
        assert len(check.summary) < 90 and check.function.__doc__ and "```python" in check.function.__doc__


def test_leaf_gradients_are_plain() -> None:
    assert LeafGradient(0, 1.0, 0).norm == 1.0
