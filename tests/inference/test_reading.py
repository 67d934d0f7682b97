"""Code of forwards is read, and nothing of it runs, however it is written."""

from __future__ import annotations

import time
import types
from pathlib import Path

import pytest

import gradviz
from gradviz.graph import Graph

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
MANNERS = {
    "a module that imports what it is asked for": ("", "if never: h = lib.kernel(h)"),
    "an object that is called": ("", "h = double(h)"),
    "functions that call functions many times": (NEST, "if never: h = f6(h)"),
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
    products = [graph.scopes[n.scope].path for n in graph.nodes if n.op == "AddmmBackward0" and n.scope is not None]
    assert sorted(path.rpartition(".")[2] for path in products) == ["first", "second"], made
