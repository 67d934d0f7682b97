"""The pytest plugin and the assertions, in a pytest of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz
from gradviz.testing import assert_all_get_gradients, assert_no_findings, assert_saved_at_most
from gradviz.testing.golden import golden_text

pytest_plugins = ["pytester"]

TESTS = """
import pytest, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        return self.second({act}(self.first(x)))

@pytest.mark.parametrize("batch", [2, 3])
def test_net(gradviz_graph, batch):
    net = Net()
    loss = net(torch.ones(batch, 4)).mean()
    gradviz_graph.matches(loss, model=net, level="{level}")
    gradviz_graph.matches(loss, model=net, level="loose", name="modules")
"""


def made(pytester: pytest.Pytester, act: str = "torch.relu", level: str = "strict") -> None:
    pytester.makepyfile(test_it=TESTS.format(act=act, level=level))


_OTHERS = "cacheprovider", "hypothesispytest", "anyio"  # plugins that each start of pytest would pay for


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-q", *(f"-pno:{name}" for name in _OTHERS), *arguments)


@pytest.mark.slow
def test_written_once_then_compared_and_a_change_is_shown(pytester: pytest.Pytester) -> None:
    made(pytester)
    first = run(pytester)
    first.assert_outcomes(failed=2)
    assert "run pytest --gradviz-update once" in first.stdout.str()
    run(pytester, "--gradviz-update").assert_outcomes(passed=2)
    texts = sorted(path.name for path in (pytester.path / "gradviz_graphs" / "test_it").iterdir())
    assert texts == ["test_net-2.modules.txt", "test_net-2.txt", "test_net-3.modules.txt", "test_net-3.txt"]
    run(pytester, "-n", "2").assert_outcomes(passed=2)
    made(pytester, "torch.sigmoid")
    changed = run(pytester)
    changed.assert_outcomes(failed=2)
    told = changed.stdout.str()
    assert "-  ReluBackward0 (2, 8) float32" in told and "+  SigmoidBackward0 (2, 8) float32" in told
    assert "pytest --gradviz-update" in told
    made(pytester, "torch.sigmoid", "loose")
    assert "ReluBackward0" in run(pytester).stdout.str()  # the text of the other level stands there


@pytest.mark.slow
def test_two_graphs_never_share_a_text(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import torch

        def test_x(gradviz_graph):
            x = torch.ones(1, requires_grad=True)
            gradviz_graph.matches(x.exp(), name="y")
            gradviz_graph.matches(x.sin(), name="y")
        """
    )
    failed = run(pytester, "--gradviz-update")
    failed.assert_outcomes(failed=1)
    assert "give each graph another name=" in failed.stdout.str()


@pytest.mark.slow
def test_a_failure_has_the_report_of_the_checks(pytester: pytest.Pytester) -> None:
    made(pytester)
    run(pytester, "--gradviz-update").assert_outcomes(passed=2)
    pytester.makepyfile(test_it=TESTS.format(act="torch.relu", level="strict").replace("= net(", "= net.first("))
    told = run(pytester).stdout.str()
    assert "2 parameters of net.second (Linear) are not in the graph" in told
    assert "names:  net.second.weight, net.second.bias" in told and "<Findings" not in told


@pytest.mark.slow
@pytest.mark.fresh
def test_nothing_is_imported_before_a_test_asks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_nothing():
            for name in ("torch", "rich", "gradviz.graph", "gradviz.api", "gradviz.checks"):
                assert name not in sys.modules, name
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_a_text_has_no_number_that_differs_between_two_walks() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    texts = {golden_text(gradviz.walk(net(torch.ones(2, 4)).sum(), net)) for _ in range(3)}
    assert len(texts) == 1


def test_a_loose_text_has_no_ops() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    text = golden_text(gradviz.walk(net(torch.ones(2, 4)).sum(), net), "loose")
    assert "Backward" not in text and "0 Linear" in text and "0.weight (8, 4) float32" in text
    assert "parameters: 160 bytes" in text  # (8 * 4 + 8) * 4
    with pytest.raises(ValueError, match="level cannot be 'lose'"):
        golden_text(gradviz.walk(net(torch.ones(2, 4)).sum(), net), "lose")  # type: ignore[arg-type]


def test_assertions_say_what_is_wrong() -> None:
    net = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    loss = net["used"](torch.ones(2, 4)).exp().sum()
    with pytest.raises(AssertionError, match=r"no gradient reaches 2 of 4 parameters: unused.weight, unused.bias"):
        assert_all_get_gradients(loss, net)
    assert_all_get_gradients(loss, net["used"])
    with pytest.raises(
        AssertionError, match=r"the graph keeps 64 B for backward, 54 B more than 10 B\n\n(?s:.*)held for backward"
    ):
        assert_saved_at_most(loss, 10)
    assert_saved_at_most(loss, "1 KiB")
    with pytest.raises(ValueError, match="'ten' is no size"):
        assert_saved_at_most(loss, "ten")
    with pytest.raises(ValueError, match=r"100\.5 is no size: write a whole number"):
        assert_saved_at_most(loss, 100.5)  # type: ignore[arg-type]
    assert_no_findings(net["used"](torch.ones(2, 4)).sum(), model=net["used"])
    with pytest.raises(
        AssertionError, match=r"gradviz found something\n\n1. warning: (?s:.*)names:  net.unused.weight"
    ):
        assert_no_findings(loss, model=net)
    loss.backward()
    with pytest.raises(AssertionError, match=r"backward\(\) has freed"):
        assert_saved_at_most(loss, "1 KiB")


def test_another_tensor_of_the_same_name_is_not_taken_for_a_parameter() -> None:
    net, weight = nn.Linear(4, 4), torch.ones(4, requires_grad=True)
    with pytest.raises(AssertionError, match="no gradient reaches 2 of 2 parameters: weight, bias"):
        assert_all_get_gradients(weight.sum(), net)


def test_a_tied_parameter_is_reached_by_any_of_its_names() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    assert_all_get_gradients(net(torch.ones(2, 4)).sum(), net)
