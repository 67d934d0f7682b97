"""Custom Functions, replayed in a child: wrong ones are found at their line and healed, chosen gradients are left alone."""

from __future__ import annotations

import re
import textwrap
import threading
from pathlib import Path

import pytest
import torch

from gradviz.armour.taps import all_tapped
from gradviz.checks.collect import functions
from gradviz.checks.collect.functions import APPLY, FunctionReplay
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.cli.main import cli
from tests.checks.advice import Fault, alarms, shows_and_heals, skip_unread
from tests.checks.test_scripts import check, written
from tests.cli.scripts import gradviz
from tests.command_line import CliRunner
from tests.rows import every_other

PATIENT = 60.0
"""Seconds that a child has: on a busy machine the usual ones are over before it has run."""
PATIENTLY = f"""
import os, signal, torch
from gradviz.checks.collect import functions
functions.SECONDS = {PATIENT}
"""

UNSEEN = "this torch shows a custom Function where it saves tensors, and only there"


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("long") is None:  # which waits for a child that hangs
        monkeypatch.setattr(functions, "SECONDS", PATIENT)


def script(forward: str, backward: str, apply: str = "Mine.apply(net(x))") -> str:
    """A training with a custom Function of these bodies."""
    head = "import torch\nclass Mine(torch.autograd.Function):\n"
    forward = textwrap.indent(textwrap.dedent(forward).strip(), "    ")
    backward = textwrap.indent(textwrap.dedent(backward).strip(), "    ")
    loop = f"""
net = torch.nn.Linear(3, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(3):
    x = torch.randn(8, 3)
    loss = {apply}.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    method = "    @staticmethod\n"
    return f"{head}{method}{forward}\n{method}{backward}\n{loop}"


SAVES = "def forward(ctx, x):\n    ctx.save_for_backward(x)\n    return "
LOADS = "def backward(ctx, g):\n    (x,) = ctx.saved_tensors\n    return "
FAULTS = {
    "a power that was derived wrongly": Fault(
        "wrong-backward", "return 2 * g * x", "grad_output times the derivative", "2 * g * x", "3 * g * x.square()",
        script(f"{SAVES}x**3", f"{LOADS}2 * g * x"),
    ),
    "a chain rule without what comes in": Fault(
        "wrong-backward", "return x.cos()", "grad_output times the derivative", "return x.cos()", "return g * x.cos()",
        script(f"{SAVES}x.sin()", f"{LOADS}x.cos()"),
    ),
    "a learned step that a chosen gradient leaves out": Fault(
        "none-grad", "return g, None", "return the gradient of that input", "g, None", "g, (g * (q - x / step)).sum()",
        script("def forward(ctx, x, step):\n    q = (x / step).round()\n    ctx.save_for_backward(x, step, q)\n    return q * step",
               "def backward(ctx, g):\n    x, step, q = ctx.saved_tensors\n    return g, None", "Mine.apply(net(x), net.step)")
        .replace("opt =", "net.step = torch.nn.Parameter(torch.tensor(0.1))\nopt ="),
    ),
    "a sign": Fault(
        "wrong-backward", "return g * x.exp()", "grad_output times the derivative", "g * x.exp()", "-g * (-x).exp()",
        script(f"{SAVES}(-x).exp()", f"{LOADS}g * x.exp()"),
    ),
    "a mean whose gradient is that of a sum": Fault(
        "wrong-backward", "return g.unsqueeze(1).expand(x.shape)", "grad_output times", "expand(x.shape)",
        "expand(x.shape) / x.shape[1]",
        script(f"{SAVES}x.mean(1)", f"{LOADS}g.unsqueeze(1).expand(x.shape)"),
    ),
    "a mean that is taken off, and forgotten": Fault(
        "wrong-backward", "return g  # same", "grad_output times", "return g  # same", "return g - g.mean(1, keepdim=True)",
        script("def forward(ctx, x):\n    return x - x.mean(1, keepdim=True)", "def backward(ctx, g):\n    return g  # same"),
    ),
    "a second output with the wrong sign": Fault(
        "wrong-backward", "b * x.sin()", "grad_output times", "a * x.cos() + b", "a * x.cos() - b",
        script(
            f"{SAVES}x.sin(), x.cos()",
            "def backward(ctx, a, b):\n    (x,) = ctx.saved_tensors\n    return a * x.cos() + b * x.sin()",
            "sum(Mine.apply(net(x)))",
        ),
    ),
    "a number of which more is computed": Fault(
        "wrong-backward", "return x.cos()", "grad_output times what is returned", "return x.cos()", "return g * x.cos()",
        script(f"{SAVES}x.sin().sum()", f"{LOADS}x.cos()", "-Mine.apply(net(x))").replace(".square().mean()", ""),
    ),
    "numbers that are stacked": Fault(
        "wrong-backward", "return x.cos()", "grad_output times what is returned", "return x.cos()", "return g * x.cos()",
        script(f"{SAVES}x.sin().sum()", f"{LOADS}x.cos()", "torch.stack([Mine.apply(row) for row in net(x)])"),
    ),
}  # fmt: skip
RIGHT = {
    "a table that forward() fills": script(
        "def forward(ctx, x):\n    best = torch.full((4,), -1e30)\n    best[:] = x.logsumexp(0)\n"
        "    ctx.save_for_backward(x)\n    return best.sum()",
        "def backward(ctx, g):\n    return g * ctx.saved_tensors[0].softmax(0)",
    ),
    "single precision inside": script(
        "def forward(ctx, x):\n    ctx.save_for_backward(x)\n    return x.float().sin().to(x.dtype)",
        "def backward(ctx, g):\n    return g * ctx.saved_tensors[0].cos()",
    ),
    "a derivative": script(f"{SAVES}x.tanh()", f"{LOADS}g * (1 - x.tanh().square())"),
    "straight through a sign": script(
        "def forward(ctx, x):\n    return x.sign()", "def backward(ctx, g):\n    return g"
    ),
    "straight through a clamp": script(
        "def forward(ctx, x):\n    return x.clamp(-0.3, 0.3)", "def backward(ctx, g):\n    return g"
    ),
    "a slope in the flat part": script(f"{SAVES}x.relu()", f"{LOADS}torch.where(x > 0, g, 0.01 * g)"),
    "a gradient that is reversed": script(
        "def forward(ctx, x, factor):\n    ctx.factor = factor\n    return x.view_as(x)",
        "def backward(ctx, g):\n    return -ctx.factor * g, None",
        "Mine.apply(net(x), 0.5)",
    ),
    "a step size that is learned": script(
        "def forward(ctx, x, s):\n    ctx.save_for_backward(x, s)\n    return (x / s).round() * s",
        "def backward(ctx, g):\n    x, s = ctx.saved_tensors\n    return g, (g * ((x / s).round() - x / s)).sum()",
        "Mine.apply(net(x), net.bias.abs().mean() + 0.1)",
    ),
    "a scale of the input that is no parameter": script(
        "def forward(ctx, x, s):\n    return (x / s).round() * s",
        "def backward(ctx, g):\n    return g, None",
        "Mine.apply(y := net(x), y.abs().max())",
    ),
    "a loss that is the last thing": script(
        "def forward(ctx, x):\n    ctx.save_for_backward(x)\n    return x.square().sum()",
        "def backward(ctx, g):\n    return 2 * ctx.saved_tensors[0]",
    ).replace(".square().mean()", ""),
    "a term of the loss": script(
        "def forward(ctx, x):\n    ctx.save_for_backward(x)\n    return x.square().sum()",
        "def backward(ctx, g):\n    return 2 * ctx.saved_tensors[0]",
    ).replace(".square().mean()", " + 0.1 * net.weight.square().sum()"),
    "a loss beside the output": script(
        "def forward(ctx, x, s):\n    ctx.shape = s.shape\n    return x.clone()",
        "def backward(ctx, g):\n    return g, torch.ones(ctx.shape)",
        "Mine.apply(y := net(x), y.square().mean())",
    ),
    "noise that is drawn": script(
        "def forward(ctx, x):\n    noise = torch.rand_like(x)\n    ctx.save_for_backward(noise)\n    return x * noise",
        "def backward(ctx, g):\n    return g * ctx.saved_tensors[0]",
    ),
    "a gradient that is guided": script(f"{SAVES}x.relu()", f"{LOADS}g.clamp(min=0) * (x > 0)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    if APPLY is None and "save_for_backward" not in FAULTS[name].script:
        pytest.skip(UNSEEN)
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(RIGHT))
def test_a_chosen_gradient_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)


@pytest.mark.slow  # it waits for a child that hangs
@pytest.mark.long
def test_nothing_of_the_users_runs_twice_in_its_process(tmp_path: Path) -> None:
    counted = script(
        f"def forward(ctx, x):\n    with open('{tmp_path}/calls', 'a') as f: print(torch.get_rng_state().sum().item(), file=f)\n"
        "    ctx.save_for_backward(x)\n    return x * 2",
        "def backward(ctx, g):\n    return g * 2",
    )
    counted += f"\nopen('{tmp_path}/ran', 'w').write(str(i))\n"
    hung = counted.replace(
        "return x * 2", "import os, time\n        time.sleep(60 * (os.getpid() != PID))\n        return x * 2"
    )
    before = children()
    found, code = check(written(tmp_path, f"import os\nPID = os.getpid()\n{hung}"))
    assert (found, code) == ([], 0) and (tmp_path / "ran").read_text() == "2"
    assert children() == before  # nobody is left behind
    said = CliRunner().invoke(cli, ["check", str(tmp_path / "script.py")]).output
    assert "wrong-backward skipped: Mine gave no answer in 5 s." in " ".join(said.split())


@pytest.mark.slow
def test_both_slopes_are_told(tmp_path: Path) -> None:
    (found,) = check(written(tmp_path, script(f"{SAVES}x * 4", f"{LOADS}g * 2")))[0]
    given, measured = map(float, re.findall(r"-?\d+\.\d+", found["why"].replace("float64", "")))
    assert measured == pytest.approx(2 * given, rel=1e-2)


def children() -> str:
    """The processes that this one has started and not waited for, where the system tells."""
    told = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    return told.read_text() if told.exists() else ""


@pytest.mark.slow
def test_one_that_cannot_be_replayed_is_told(tmp_path: Path) -> None:
    single = script(f"{SAVES}x * torch.ones((), dtype=x.dtype if x.dtype == torch.float else 1 / 0)", f"{LOADS}g * 3")
    written(tmp_path, single)
    said = CliRunner().invoke(cli, ["check", str(tmp_path / "script.py")]).output
    assert "wrong-backward skipped: Mine raises ZeroDivisionError in double precision." in " ".join(said.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("next(iter(torch.utils.data.DataLoader(range(4), num_workers=1)))", ""),
        (
            "signal.signal(signal.SIGCHLD, print)",
            "Mine would need a child process, which this system or script forbids",
        ),
        ("os.environ.update(RANK='0', WORLD_SIZE='2')", "Mine is not replayed beside CUDA or several ranks"),
    ],
    ids=["workers", "a handler", "ranks"],
)
def test_what_speaks_against_a_child_is_told(line: str, told: str, tmp_path: Path) -> None:
    """A DataLoader with workers does not, though it has a handler of its own."""
    folder = written(tmp_path, f"{PATIENTLY}\n{line}\n{script(f'{SAVES}x.exp()', f'{LOADS}g')}")
    said = " ".join(gradviz("check", "script.py", cwd=folder.parent).stdout.split())
    assert (f"wrong-backward skipped: {told}" if told else "backward() of Mine is not the derivative") in said, said


SETS_UP = (
    "def forward(x):\n    return x * x\ndef setup_context(ctx, inputs, output):\n    ctx.save_for_backward(*inputs)"
)


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        (f"{SAVES}x * x", "backward() of Mine is not the derivative"),
        (SETS_UP.replace("\ndef", "\n@staticmethod\ndef"), "backward() of Mine is not the derivative"),
        ("def forward(ctx, x):\n    ctx.x = x\n    return x * x", "wrong-backward skipped: Mine was not seen"),
        ("def forward(ctx, x):\n    keep(ctx, x)\n    return x * x", "wrong-backward skipped: Mine was not seen"),
    ],
    ids=["saves", "setup_context", "keeps on ctx", "a helper saves"],
)
def test_where_torch_does_not_show_apply(
    forward: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in torch 2.14.1: what saves tensors itself is seen, and others are named."""
    skip_unread("wrong-backward")
    monkeypatch.setattr("gradviz.checks.collect.functions.APPLY", None)
    helper = "def keep(ctx, x): ctx.save_for_backward(x)\n"
    backward = "def backward(ctx, g):\n    return g * (ctx.saved_tensors or (ctx.x,))[0]"
    written(tmp_path, helper + script(forward, backward))
    said = CliRunner().invoke(cli, ["check", str(tmp_path / "script.py")]).output
    assert told in " ".join(said.split())


@pytest.mark.skipif(APPLY is None, reason=UNSEEN)
def test_a_function_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return g

    children: list[object] = []
    monkeypatch.setattr("gradviz.checks.collect.functions._in_a_child", lambda judge: children.append(judge) or judge())
    recorder = Recorder()
    seen = FunctionReplay(recorder)
    with all_tapped(seen.listeners()):
        for size in (2, 3):
            Twice.apply(torch.ones(size, requires_grad=True))
        Twice.apply(torch.ones(4))
    assert not seen.unknown
    assert len(children) == 1 and [(one.kind, one.times) for one in recorder.run.log] == [(Kind.OTHER_SLOPE, 1)]


AGAIN = """
import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.double = x * 2
        return ctx.double * x
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * {slope}
x = torch.rand(3, requires_grad=True)
(g,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph={again})
loss = (g * x.detach() if {again} else Square.apply(x)).sum()
loss.backward()
"""


@pytest.mark.parametrize(
    ("slope", "again", "expected"),
    [
        ("(ctx.double + 2 * x)", True, ["wrong-backward"]),
        ("2 * ctx.double", True, ["wrong-backward"]),
        ("4 * x", True, []),
        ("2 * ctx.double", False, []),
    ],
)
def test_a_backward_that_is_differentiated_needs_a_graph(
    slope: str, again: bool, expected: list[str], tmp_path: Path
) -> None:
    """Half of the second derivative, or all of it, is lost with what has no graph; and create_graph=True is there."""
    skip_unread("wrong-backward")
    found, _ = check(written(tmp_path, AGAIN.format(slope=slope, again=again)))
    assert [one["id"] for one in found if one["severity"] != "note"] == expected, found
    for one in found if expected else ():
        assert "return gradient * " in one["code"] and "ctx.saved_tensors" in one["fix"]
        assert "without create_graph" not in one["why"]


def test_it_is_found_where_calls_are_counted(tmp_path: Path) -> None:
    skip_unread("wrong-backward")
    script = written(tmp_path, AGAIN.format(slope="2 * ctx.double", again=True))
    found, _ = check(script, "--steps", "2")
    assert [one["id"] for one in found if one["severity"] != "note"] == ["wrong-backward"]
