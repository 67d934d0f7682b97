"""A name belongs to the op whose result the variable is, in forward too, or to none."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import gradviz
from gradviz.cli.main import cli
from tests.command_line import CliRunner

IDIOMS = """
import torch
from torch import nn
import torch.nn.functional as F

def f(t):
    return t.exp()

def g(t):
    return t.tanh() + 1

def keeps(t):
    y = t * 2
    kept.append(y.mean())
    return y

def drops(t):
    kept.append((t * 2).mean())
    return t

def named(t):
    out = t.sin()
    out = out * 2
    return out

def inner_loop(t):
    for _ in range(2):
        t = torch.tanh(t)
    return t

def either(t, flag):
    if flag:
        return t.cos()
    return t.sin() * 2

def two(t):
    return t * 2, t.exp()

square = lambda t: t * t

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(3, 3), nn.Linear(3, 3)
        self.norm, self.aux = nn.LayerNorm(3), None
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x):
        q = self.l1(torch.relu(x))
        x = self.l2(torch.relu(self.l1(x)))
        x = x + self.norm(q * 2)
        self.aux = x.mean()
        s = self.seq(x + 1)
        z = F.layer_norm(s, (3,)).view(-1, 3)
        (
            k,
            v,
        ) = z.chunk(2, 0)
        h = (
            k
            .exp()
            .sin()
        )
        if (m := f(v + 1)).sum() > -1e9:
            h = h + m
        return h * 2

class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x, h):
        for _ in range(3):
            h = self.cell(x, h)
        for _ in range(2): h = torch.tanh(h)
        return h

kept = []
a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
block, rnn = Block(), Rnn()

def main():
    y = f(a * b)
    u = f(g(a))
    s = torch.sigmoid(f(a - b))
    i, j = f(a), g(b)
    p, o = two(a - 1)
    h = b * 1
    h = h + f(h * 2)
    h += f(h * 3)
    n = named(a * 3)
    e = either(a * 4, True)
    l = inner_loop(a * 5)
    r = keeps(a * 6)
    w = drops(a * 7)
    c = square(a + 2)
    d = {"k": f(a * 8)}
    m = a @ b.T @ a
    t = y if y.sum() > 0 else -y
    lst = [f(a * t2) for t2 in (1, 2)]
    z = sum(lst)
    out = torch.zeros(2, 3)
    out[0] = f(a[0] + 1)
    q = block(a + b)
    rr = rnn(a, b)
    total = (y + u + s + i + j + p + o + h + n + e + l + r + w + c + d["k"] + m + t + z + out).sum()
    loss = total + q.sum() + rr.sum() + sum(kept) + block.aux
    return loss
"""


class Tracer:
    """What each variable held after each line, by the node that made it: `sys.settrace`, in the test alone."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.names: dict[int, set[str]] = {}
        self.kept: list[Any] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        self._note(frame)
        return self

    def _note(self, frame: FrameType) -> None:
        for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
            self._held(name, value)
            if isinstance(value, torch.nn.Module):
                for attribute, inside in list(vars(value).items()):
                    self._held(f"{name}.{attribute}", inside)

    def _held(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            self.kept.append(value.grad_fn)
            self.names.setdefault(id(value.grad_fn), set()).add(name)


def names_and_truth(path: Path, code: str) -> tuple[list[tuple[str, str, set[str]]], gradviz.Graph]:
    """The name of each op of what `main` returns, its op, and the variables that held its result."""
    path.write_text(code)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(code, str(path), "exec"), namespace)
    tracer = Tracer(str(path))
    with gradviz.record() as recording:
        sys.settrace(tracer)
        try:
            results = [namespace["main"]()]
        finally:
            sys.settrace(None)
    graph = recording.graph(results[0])

    of_sequence = {node._sequence_nr(): id(node) for node in tracer.kept}
    found = []
    for node in graph.nodes:
        if node.assigned:
            held = tracer.names.get(of_sequence.get(node.sequence, -1), set())
            found.append((node.assigned, node.op, held))
    return found, graph


def is_true(name: str, held: set[str]) -> bool:
    return name in held or any(part.strip() in held for part in name.split(","))


def test_no_name_of_forty_idioms_is_false_and_the_plain_ones_are_there(tmp_path: Path) -> None:
    found, _ = names_and_truth(tmp_path / "idioms.py", IDIOMS)
    assert [(name, op) for name, op, held in found if not is_true(name, held)] == []
    names = [name for name, _, _ in found]
    expected = [*["y", "u", "s", "i", "j", "h", "out", "e", "t", "c", "m", "z", "q", "x", "loss", "total"], "k, v"]
    assert [name for name in expected if name not in names] == []
    ops = {(name, op) for name, op, _ in found}
    assert {("y", "ExpBackward0"), ("q", "AddmmBackward0"), ("e", "CosBackward0")} <= ops
    assert names.count("h") >= 3 + 3 + 2  # every turn of both loops


def test_a_function_that_keeps_something_else_gives_no_name(tmp_path: Path) -> None:
    code = (
        "import torch\nkept = []\na = torch.ones(2, requires_grad=True)\n"
        "def f(t):\n    y = t * 2\n    kept.append(y.mean())\n    return y\n"
        "def main():\n    z = f(a)\n    return kept[0]\n"
    )
    found, graph = names_and_truth(tmp_path / "kept.py", code)
    assert len(graph.nodes) == 3 and "z" not in [name for name, _, _ in found]


def assigned(path: Path, body: str) -> dict[str, str]:
    """The variable of each op, by the op."""
    code = f"{CODE_HEAD}def main():\n    " + "\n    ".join(body.splitlines()) + "\n"
    found, _ = names_and_truth(path / "program.py", code)
    assert [(name, op) for name, op, held in found if not is_true(name, held)] == []
    return {op.partition("Backward")[0]: name for name, op, _ in found}


CODE_HEAD = """
import torch
from torch import nn
a = torch.ones(2, 3, requires_grad=True)
lin, net = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
def f(t):
    y = t.sin()
    return y.to(t.device)
"""


@pytest.mark.parametrize("call", ["contiguous()", "to('cpu')", "float()", "to(torch.float32).cpu()", "type_as(a)"])
def test_a_call_that_may_do_nothing_hands_the_name_on(call: str, tmp_path: Path) -> None:
    body = f"y = a.exp().{call}\nz = f(y)\nw = z.cos().{call} if True else z\nreturn w.sum()"
    assert assigned(tmp_path, body) == {"Exp": "y", "Sin": "y", "Cos": "w"}


@pytest.mark.parametrize(
    ("call", "op"), [("t().contiguous()", "Clone"), ("double()", "ToCopy"), ("to(torch.float64)", "ToCopy")]
)
def test_where_it_does_something_the_name_is_its_own(call: str, op: str, tmp_path: Path) -> None:
    assert assigned(tmp_path, f"y = a.exp().{call}\nz = y.sin()\nreturn z.sum()") == {op: "y", "Sin": "z"}


@pytest.mark.parametrize(
    ("hook", "named"),
    [
        ("lambda m, i, o: kept.append(o)", True),
        ("lambda m, i, o: kept.append(o.detach())", True),
        ("lambda m, i, o: None", True),
        ("print", False),  # which nobody can read
        ("lambda m, i, o: kept.append(o) or lin(i[0])", False),
        ("lambda m, i, o: (kept.append(o), lin(i[0]))[1]", False),
        ("lambda m, i, o: 0 if kept.append(o) else lin(o)", False),
    ],
)
def test_a_hook_that_returns_something_takes_the_name(hook: str, named: bool, tmp_path: Path) -> None:
    hooked = f"kept = [a.sum()]\nhandle = net.register_forward_hook({hook})"
    body = f"{hooked}\nh = net(a)\nhandle.remove()\nreturn h.sum() + kept[-1].sum()"
    assert (assigned(tmp_path, body).get("Tanh") == "h") == named


@pytest.mark.parametrize(
    "line",
    [
        "p, q = map(lambda row: row * 2, a)",
        "p, q = (row * 2 for row in a)",
        "p, q = [row * 2 for row in a]",
        "p, q = sorted(a, key=lambda row: -float(row.sum()))",
        "p = q = max(a, key=lambda row: float(row.sum()))",
        "(_, p), (_, q) = enumerate(a)",
    ],
)
def test_a_function_of_pythons_that_goes_over_a_tensor_gives_its_rows_no_names(line: str, tmp_path: Path) -> None:
    assert "Unbind" not in assigned(tmp_path, f"{line}\nreturn (p + q).sum()")


GOING_OVER = ("sorted(a, key=float)", "map(torch.exp, a)", "zip(a)", "list(reversed(a))")


@pytest.mark.parametrize("call", GOING_OVER)
def test_the_op_is_torchs_where_python_goes_over_a_tensor(call: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    made = "import torch\na = torch.tensor([3.0, 1.0], requires_grad=True)"
    path.write_text(
        f"{made}\np, q = {call}\ntorch.stack([*p, *q] if isinstance(p, tuple) else [p, q]).sum().backward()\n"
    )
    tree = CliRunner().invoke(cli, ["tree", str(path)]).stdout
    assert "  unbind  " in tree and " = " not in tree.split("\n\n")[0], tree


def test_two_results_of_an_op_are_no_names_of_one() -> None:
    a = torch.tensor([3.0, 1.0], requires_grad=True)
    low, high = sorted(a, key=float)
    alias = high
    graph = gradviz.walk(low * 2 + high * 5 + alias)
    assert [node.names for node in graph.nodes if node.op == "UnbindBackward0"] == [("high", "alias", "low")]
    assert {"high", "low"} <= {*re.findall(r">([^<]+)<", graph.to_svg())} and alias is high


no_tuples = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells no tuple that is unpacked")


@pytest.mark.parametrize("line", [pytest.param("p, q = a", marks=no_tuples), "p, q = list(a)", "p, q = a.unbind(0)"])
def test_rows_in_their_order_have_names(line: str, tmp_path: Path) -> None:
    assert assigned(tmp_path, f"{line}\nreturn (p + q).sum()")["Unbind"] == "p, q"


def test_what_a_change_in_place_replaced_has_given_its_name_to_nothing_else(tmp_path: Path) -> None:
    body = "y = lin(a[None] * 2)\nz = torch.relu_(y)\nreturn z.sum()"
    assert "Addmm" not in assigned(tmp_path, body)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Random programs of nested calls, tuples, loops and attributes."""
    names = ["a", "b"]
    functions = [
        "def f0(t):\n    return t.exp()",
        "def f1(t):\n    y = t * 2\n    return y",
        "def f2(t):\n    box.kept = t.mean()\n    return t + 1",
        "def f3(t):\n    return f0(f1(t)) + t",
        "def f4(t):\n    y = f1(t)\n    box.kept = y.sum()\n    y = f0(y)\n    return y",
        "def f5(t):\n    return t",
        "def f6(t):\n    for _ in range(2):\n        t = f1(t)\n    return t",
        "def f7(t):\n    y = t.sin()\n    z = y.cos()\n    box.kept = z.sum()\n    return y",
    ]
    lines = []

    def expression(depth: int) -> str:
        kind = draw(st.integers(0, 5 if depth else 0))
        if kind == 0:
            return draw(st.sampled_from(names))
        if kind == 1:
            return f"({expression(depth - 1)} * {expression(depth - 1)})"
        if kind == 2:
            return f"torch.tanh({expression(depth - 1)})"
        if kind == 3:
            return f"({expression(depth - 1)} + {draw(st.integers(1, 3))})"
        return f"f{draw(st.integers(0, 7))}({expression(depth - 1)})"

    for i in range(draw(st.integers(1, 6))):
        form = draw(st.integers(0, 4))
        if form == 0:
            lines.append(f"    v{i}, w{i} = {expression(2)}, {expression(2)}")
            names += [f"v{i}", f"w{i}"]
        elif form == 1:
            lines.append(f"    box.v{i} = {expression(3)}")
            names.append(f"box.v{i}")
        elif form == 2:
            name = draw(st.sampled_from(names))
            lines.append(f"    for _ in range(2):\n        v{i} = {expression(2)} + {name}")
            names.append(f"v{i}")
        else:
            lines.append(f"    v{i} = {expression(3)}")
            names.append(f"v{i}")
    used = " + ".join(f"{name}.sum()" for name in names)
    body = "\n".join(lines)
    kept = draw(st.sampled_from(["", " + (box.kept if box.kept is not None else 0)"]))
    return (
        "import torch\nclass Box(torch.nn.Module):\n    kept = None\nbox = Box()\n"
        "a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)\n"
        + "\n".join(functions)
        + f"\ndef main():\n{body}\n    return {used}{kept}\n"
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(code=programs())
def test_no_name_of_a_random_program_is_false(code: str, tmp_path: Path) -> None:
    path = tmp_path / f"program{hash(code) & 0xFFFFFFFF}.py"
    found, _ = names_and_truth(path, code)
    assert [(name, op) for name, op, held in found if not is_true(name, held)] == [], code


def test_what_stands_at_the_head_of_an_inner_function_is_read_past(tmp_path: Path) -> None:
    body = "def g(t=a.sin().sum()):\n    return t * 2\ny = g().exp()\nreturn y"
    assert assigned(tmp_path, body)["Exp"] == "y"


def test_a_sample_is_not_what_it_was_drawn_from(tmp_path: Path) -> None:
    body = (
        "dist = torch.distributions.Categorical(logits=a * 2)\nx = dist.sample()\n"
        "return dist.log_prob(x) + dist.entropy() + x"
    )
    assert "x" not in assigned(tmp_path, body).values()


def test_a_mask_that_is_drawn_with_a_graph_is_the_variable(tmp_path: Path) -> None:
    body = "def f(t):\n    m = torch.bernoulli(t.sigmoid())\n    return m.sum()\nreturn f(a) + f(a * 2)"
    assert assigned(tmp_path, body)["Bernoulli"] == "m"
