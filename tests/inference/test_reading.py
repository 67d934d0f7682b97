"""Code of forwards is read, and nothing of it runs, however it is written."""

from __future__ import annotations

import time
import types
from pathlib import Path

import pytest
import torch
from torch import nn

import gradviz
from gradviz import errors
from gradviz.graph import Graph

BUG_TOLD = errors.bug_told
HEAD = """
import torch
from torch import nn

class Lazy(type(torch)):
    def __getattr__(self, name):
        raise SystemError(f"{name} was looked for in a module")

class Meta(type):
    def __getattr__(cls, name):
        raise SystemError(f"{name} was looked for in a class")

class Wrapper:
    def __getattr__(self, name):
        raise SystemError(f"{name} was looked for in an object")
    def __call__(self, x):
        return x * 2

lib, double = Lazy("lib"), Wrapper()

class Net(nn.Module, metaclass=Meta):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 1)
    def forward(self, x, never=False):
        h = self.first(x)
"""
END = """
        return self.second(h)

net = Net()
loss = net(torch.ones(2, 3)).sum()
"""
NEST = "\n".join(
    f"def f{i}(x):\n" + 14 * f"    x = {f'f{i - 1}(x)' if i else 'x * 2'}\n" + "    return x\n" for i in range(7)
)
LONG = "\n        ".join(["h = h.sin()"] * 2100)
DEEP = LONG.replace("\n", "\n    ")
MANNERS = {
    "a module that imports what it is asked for": ("", "if never: h = lib.kernel(h)"),
    "an object that is called": ("", "h = double(h)"),
    "functions that call functions many times": (NEST, "if never: h = f6(h)"),
    "more than is read": ("", LONG),
    "a branch that is longer than what is read": (
        "",
        f"if len(h):\n            h = self.second(self.first(h)) * h\n        else:\n            {DEEP}",
    ),
    "a sum of hundreds of terms": ("", "if never: h = " + " + ".join(["h"] * 400)),
}


def walked(folder: Path, head: str, body: str) -> Graph:
    path = folder / "script.py"
    path.write_text(f"{HEAD.replace('class Net', f'{head}{chr(10)}class Net')}        {body}{END}")
    scope = types.ModuleType("script")
    exec(compile(path.read_text(), str(path), "exec"), vars(scope))
    return gradviz.walk(scope.loss, model=scope.net)


@pytest.mark.parametrize("manner", MANNERS)
def test_a_forward_is_read_whatever_is_in_it(manner: str, tmp_path: Path) -> None:
    head, body = MANNERS[manner]
    began = time.process_time()
    graph = walked(tmp_path, head, body)
    assert time.process_time() - began < 5
    made = {node.op: graph.scopes[node.scope].path for node in graph.nodes if node.scope is not None}
    products = {graph.scopes[n.scope].path for n in graph.nodes if n.op == "AddmmBackward0" and n.scope is not None}
    assert sorted(path.rpartition(".")[2] for path in products) == ["first", "second"], made


class Kept(nn.Module):
    """Ends with what is given a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> None:
        self.out = x * self.weight
        Wrapped(self.weight)


class Wrapped:
    def __init__(self, value: torch.Tensor) -> None:
        pass


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept, self.last = Kept(), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept(x)
        return torch.Tensor(self.last(self.kept.out.exp()))


def test_a_forward_may_end_with_a_parameter() -> None:
    net = Around()
    graph = gradviz.walk(net(torch.ones(2, 3)).sum(), model=net)
    places = {node.op: graph.scopes[node.scope].path for node in graph.nodes if node.scope is not None}
    assert places["MulBackward0"] == "net.kept" and places["AddmmBackward0"] == "net.last"


def test_modules_that_cannot_be_inferred_cost_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise LookupError("no such thing")

    net = Around()
    loss = net(torch.ones(2, 3)).sum()
    monkeypatch.setattr("gradviz.inference.find_calls", fails)
    with pytest.raises(LookupError):  # of a test, so that no bug is hidden
        gradviz.walk(loss, model=net)

    monkeypatch.setattr(errors, "bug_told", BUG_TOLD)
    graph = gradviz.walk(loss, model=net)
    assert {leaf.names[0] for leaf in graph.leaves} == {"net.kept.weight", "net.last.weight", "net.last.bias"}
    assert not graph.scopes and "not be inferred" in graph.notes[-1] and "LookupError" in graph.notes[-1]
