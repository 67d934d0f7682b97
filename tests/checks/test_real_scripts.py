"""Scripts as people write them, on which checks once said something wrong, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written
from tests.walker.graphs import needs_raw

HIGHER_ORDER = {
    "physics-informed": """
    import torch
    net = torch.nn.Linear(1, 1)
    def d(y, x):
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]
    for step in range(3):
        x = torch.rand(10, 1, requires_grad=True)
        u = net(x).tanh()
        slope = d(u, x)
        curve = d(slope, x)
        (slope + u * curve).pow(2).mean().backward()
    """,
    "meta-learning": """
    import torch
    w = torch.ones(3, requires_grad=True)
    for task in range(3):
        fast = {"w": w}
        for inner in range(2):
            loss = (fast["w"] * torch.rand(3)).pow(2).sum()
            (grad,) = torch.autograd.grad(loss, fast["w"], create_graph=True)
            fast = {"w": fast["w"] - 0.1 * grad}
        fast["w"].sum().backward()
    """,
    "hessian before the loop": """
    import torch
    H = torch.autograd.functional.hessian(lambda x: x.pow(3).sum(), torch.ones(3))
    w = torch.ones(3, requires_grad=True)
    for step in range(3):
        (H @ w).sum().backward()
    """,
    "torch.func": """
    import torch
    from torch.func import functional_call, grad, vmap
    net = torch.nn.Linear(3, 1)
    params = {name: parameter.detach() for name, parameter in net.named_parameters()}
    def loss(params, x):
        return functional_call(net, params, (x,)).pow(2).sum()
    per_sample = vmap(grad(loss), (None, 0))(params, torch.ones(4, 3))
    net(torch.ones(4, 3)).sum().backward()
    """,
}


@pytest.mark.parametrize("values", [[], ["--values"]], ids=["", "values"])
@pytest.mark.parametrize("name", HIGHER_ORDER)
def test_gradients_of_gradients_do_not_grow(name: str, values: list[str], tmp_path: Path) -> None:
    """A call with create_graph is a part of a step; one inside a transform of torch.func is none of the user's."""
    found, code = check(written(tmp_path, HIGHER_ORDER[name]), *values)
    assert {one["id"] for one in found if one["severity"] != "note"} == set() and code == 0


@needs_raw
def test_a_state_in_a_dict_is_cut_as_a_dict(tmp_path: Path) -> None:
    text = """
    import torch
    cell, x = torch.nn.GRUCell(2, 3), torch.ones(1, 2)
    state = {"h": torch.zeros(1, 3)}
    for step in range(3):
        # HERE
        state = {"h": cell(x, state["h"])}
        state["h"].sum().backward()
    """
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "freed-graph"]
    cut = "state['h'] = state['h'].detach()"
    assert code == 1 and f": {cut}." in finding["fix"]
    found, code = check(written(tmp_path, text.replace("# HERE", cut)))
    assert code == 0


def test_a_loss_that_was_made_a_leaf(tmp_path: Path) -> None:
    text = """
    import torch
    model = torch.nn.Linear(3, 1)
    for step in range(2):
        loss = torch.tensor(model(torch.ones(2, 3)).mean().item(), requires_grad=True)
        loss.backward()
    """
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["severity"] == "error"]
    assert code == 1 and finding["id"] == "no-graph" and "loss is a leaf" in finding["summary"]


def test_a_loss_from_a_helper_is_not_said_to_come_from_itself(tmp_path: Path) -> None:
    text = """
    import torch
    net = torch.nn.Linear(3, 2)
    def criterion(x):
        return net(x).argmax(1).float().mean()
    loss = criterion(torch.ones(4, 3))
    loss.backward()
    """
    found, _ = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "no-graph"]
    assert "computed from loss" not in finding["why"] and "requires_grad_()" not in finding["fix"]
    assert finding["where"].endswith("script.py:5") and "cross_entropy" in finding["fix"]


def test_weights_that_a_reentrant_checkpoint_reads_without_a_call_are_not_unused(tmp_path: Path) -> None:
    text = """
    import torch
    from torch.utils.checkpoint import checkpoint
    attention = torch.nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 4, requires_grad=True)
    loss = checkpoint(lambda a: attention(a, a, a)[0], x, use_reentrant=True).sum()
    loss.backward()
    """
    found, code = check(written(tmp_path, text))
    assert code == 0 and not [one for one in found if one["id"] == "unused-parameter"]  # backward has filled them
    found, _ = check(written(tmp_path, text.replace("loss.backward()", "torch.autograd.grad(loss, x)")))
    unused = [one for one in found if one["id"] == "unused-parameter"]
    assert len(unused) == 1 and "unknown" in unused[0]["summary"]


def test_a_module_that_raised_gave_no_result(tmp_path: Path) -> None:
    text = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(5, 1)
        def forward(self, x):
            return self.second(self.first(x))
    net = Net()
    net(torch.ones(2, 3)).sum().backward()
    """
    found, code = check(written(tmp_path, text))
    assert code == 1 and not [one for one in found if one["id"] == "unused-parameter"]


@pytest.mark.parametrize(
    ("start", "add", "name"),
    [("0", "self.kept += loss", "trainer.kept"), ("[]", "self.kept.append(loss)", "trainer.kept")],
    ids=["total", "list"],
)
def test_a_running_total_that_an_object_keeps(start: str, add: str, name: str, tmp_path: Path) -> None:
    text = f"""
    import torch
    class Trainer:
        def __init__(self):
            self.w, self.kept = torch.ones(1, requires_grad=True), {start}
        def step(self, k):
            loss = (self.w * k - 1).square().sum()
            loss.backward()
            {add}
    trainer = Trainer()
    for k in range(5):
        trainer.step(k)
    """
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["severity"] != "note"]
    assert code == 1 and finding["id"] == "growing-graph" and finding["names"] == [name]
    detached = add.replace("loss", "loss.detach()")
    assert ".item()" in finding["fix"]
    assert check(written(tmp_path, text.replace(add, detached)))[1] == 0
    assert check(written(tmp_path, text.replace("loss)", "loss.item())").replace("+= loss", "+= loss.item()")))[1] == 0


@needs_raw
def test_only_an_optimizer_that_holds_the_parameter_is_blamed(tmp_path: Path) -> None:
    text = """
    import torch
    G, D = torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    og, od = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
    score = D(G(torch.ones(3, 4)))
    D(torch.ones(3, 2)).mean().backward()
    od.step()
    score.mean().backward()
    og.step()
    """
    found, _ = check(written(tmp_path, text))
    stale = [one for one in found if one["id"] == "stale-saved"]
    assert stale and all("od.step()" in one["why"] and "og.step()" not in one["why"] for one in stale)


@pytest.mark.parametrize(
    ("container", "code"), [("[{}]", 1), ("torch.nn.ModuleList([{}])", 0)], ids=["list", "ModuleList"]
)
def test_layers_in_a_plain_list_are_never_updated(container: str, code: int, tmp_path: Path) -> None:
    text = f"""
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(3, 1)
            self.layers = {container.format("torch.nn.Linear(3, 3) for _ in range(2)")}
        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return self.head(x)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(2):
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    found, exit_code = check(written(tmp_path, text))
    assert exit_code == code and len(found) == code
    for one in found:
        assert (
            one["id"] == "nonleaf-parameter"
            and one["summary"].startswith("4 parameters")
            and "ModuleList" in one["fix"]
        )


@pytest.mark.parametrize("adding", ["kept.append(loss)", "kept.insert(0, loss)", "kept[step] = loss"])
def test_a_container_that_grows_is_told_with_the_line_that_adds_to_it(adding: str, tmp_path: Path) -> None:
    text = f"""
    import torch
    w = torch.ones(3, requires_grad=True)
    kept = {"{}" if "=" in adding else "[]"}
    for step in range(4):
        loss = (w * step).square().sum()
        loss.backward()
        {adding}
    """
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "growing-graph"]
    assert code == 1 and "script.py:8" in finding["where"] and adding in finding["why"]


@pytest.mark.parametrize("change", ["h += 1", "h.add_(1)", "h[0] = 1", "torch.relu_(h)"])
@needs_raw
def test_a_change_inside_a_module_is_told_with_its_line(change: str, tmp_path: Path) -> None:
    """The tensor has no name any more when backward is called; the graph has the line."""
    text = f"""
    import torch
    class Net(torch.nn.Module):
        def forward(self, x):
            h = x.exp()
            y = torch.zeros(2, 3)
            y += h
            {change}
            return (h * y).sum()
    loss = Net()(torch.ones(2, 3, requires_grad=True))
    loss.backward()
    """
    found, code = check(written(tmp_path, text))
    (finding,) = [one for one in found if one["id"] == "stale-saved"]
    assert code == 1 and "script.py:8" in finding["where"]
    assert change in finding["why"] and "y += h" not in finding["why"]
    assert ("h = h.clone()" if "[" in change else f"instead of {change}.") in finding["fix"]


@pytest.mark.parametrize("change", ["torch.relu_(h)", "h.relu_()"])
@needs_raw
def test_a_change_under_no_grad_is_told_with_its_line(change: str, tmp_path: Path) -> None:
    """No node has the line, only the text does."""
    text = f"""
    import torch
    h = torch.ones(3, requires_grad=True).exp()
    loss = h.sin().sum()
    with torch.no_grad():
        {change}
    loss.backward()
    """
    (finding,) = [one for one in check(written(tmp_path, text))[0] if one["id"] == "stale-saved"]
    assert "script.py:6" in finding["where"] and change in finding["why"]


def test_a_variable_that_only_ages_does_not_grow(tmp_path: Path) -> None:
    """The sum of two losses has a node that is younger than both, and is old two calls later."""
    text = """
    import torch
    model, critic = torch.nn.Linear(3, 1), torch.nn.Linear(1, 1)
    for step in range(3):
        real = critic(torch.ones(2, 1)).mean()
        real.backward()
        fake = critic(model(torch.ones(2, 3)).detach()).mean()
        fake.backward()
        both = real + fake
        critic(model(torch.ones(2, 3))).mean().backward()
    """
    found, code = check(written(tmp_path, text), "--steps", "9")
    assert "growing-graph" not in {one["id"] for one in found} and code == 0


SELF = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.head = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    def fit(self):
        for step in range(2):
            self.used(torch.ones(2, 3)).sum().backward()
Net().fit()
"""


def test_a_model_in_its_own_method_is_called_by_its_class(tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, SELF))
    assert [one["names"] for one in found] == [["Net.head.weight", "Net.head.bias"]]
    assert found[0]["where"].startswith("Net.head (Linear)")
