"""Every script in `samples/` runs as it is and computes what it says.

Scripts run inside the test process, as `__main__` and with their own arguments, because importing torch costs far more
than any of them. What they made is then compared with a computation that does not use the script's way. The few things
that only a process of its own shows (exit status, current folder, neighbour modules) get one.
"""

from __future__ import annotations

import gc
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parent.parent / "samples"
SCRIPTS = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*.py") if path.name != "model.py")
REFUSED_QUESTIONS = {
    "questions/argmax.py": "does not require grad",
    "questions/carried_state.py": "backward through the graph a second time",
    "questions/ddp_unused.py": "did not receive grad for rank 0: 4 5",
    "questions/inplace.py": "modified by an inplace operation",
    "questions/not_scalar.py": "only for scalar outputs",
    "questions/not_used.py": "appears? to not have been used in the graph",
    "questions/out_of_memory.py": "can't allocate memory|not enough memory",
}
ALONE = {"helpers_demo/train.py", "helpers_demo/exits.py", "problems/forward_error.py"}  # need their own process
ELSEWHERE = {*ALONE, *REFUSED_QUESTIONS}
CHEAP: dict[str, list[str]] = {"llama_size.py": ["--layers", "2"]}


class Run(NamedTuple):
    """What a script left behind: its global names and what it printed."""

    names: dict[str, Any]
    printed: str


RunSample = Callable[..., Run]


@pytest.fixture
def run_sample(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[RunSample]:
    def run(script: str, *arguments: str) -> Run:
        path = str(SAMPLES / script)
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch.distributed replaces it
        names = runpy.run_path(path, run_name="__main__")
        return Run(names, capsys.readouterr().out)

    default = torch.get_default_dtype()
    with torch.random.fork_rng():  # the scripts seed the global generator
        yield run
    assert torch.get_default_dtype() == default


def run_alone(script: str, folder: Path = SAMPLES, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, script, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def operations(tensor: torch.Tensor) -> list[str]:
    """Names of all nodes below a tensor; for small graphs only."""
    seen, waiting = {}, [tensor.grad_fn]
    while waiting:
        function = waiting.pop()
        if function is not None and function not in seen:
            seen[function] = function.name()
            waiting += [following for following, _ in function.next_functions]
    return list(seen.values())


# What holds for all of them


@pytest.mark.parametrize("script", SCRIPTS)
def test_sample_knows_nothing_of_gradviz_and_says_how_to_try_it(script: str) -> None:
    text = (SAMPLES / script).read_text()
    explanation = text.split('"""')[1]
    code = text.split('"""', 2)[2]
    assert "gradviz" not in code
    start = (
        r"^    (?:torchrun --nproc-per-node \d -m )?gradviz (render|tree|tensors|saved|check|paths|flow|diff|info|why) "
    )
    command = start + r"\S*" + re.escape(Path(script).name)
    assert re.search(command, explanation, re.MULTILINE)
    assert len(explanation) > 150


def test_readme_lists_every_sample_and_nothing_else() -> None:
    listed = re.findall(r"^\| `(\S+\.py)` \|", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == SCRIPTS


def test_readme_commands_name_scripts_that_are_there() -> None:
    text = (SAMPLES / "README.md").read_text()
    targets = re.findall(r"gradviz \w+ samples/(\S+?\.py)", text)
    assert len(targets) > 20
    assert [target for target in targets if target not in SCRIPTS] == []


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script not in ELSEWHERE])
def test_sample_prints_the_same_every_time(script: str, run_sample: RunSample) -> None:
    arguments = CHEAP.get(script, [])
    first = run_sample(script, *arguments).printed
    second = run_sample(script, *arguments).printed
    assert first == second
    assert 1 <= len(first.splitlines()) <= 8


# First steps


def test_add(run_sample: RunSample) -> None:
    names, _ = run_sample("add.py")
    a, b, c = (names[name].detach().numpy() for name in "abc")
    assert numpy.array_equal(c, a + b)
    assert operations(names["c"]) == ["AddBackward0", *["torch::autograd::AccumulateGrad"] * 2]


def test_chain_rule_prints_the_table_of_the_worked_example(run_sample: RunSample) -> None:
    names, printed = run_sample("chain_rule.py")
    assert [line.split() for line in printed.splitlines()[1:]] == [
        ["w", "1.0", "True", "5.0", "None"],
        ["x", "2.0", "True", "2.0", "None"],
        ["a", "3.0", "False", "None", "AddBackward0"],
        ["b", "2.0", "False", "None", "AddBackward0"],
        ["y", "6.0", "False", "None", "MulBackward0"],
    ]
    assert torch.autograd.grad(names["y"], names["w"])[0].item() == 5  # the graph is still usable


def test_both_kinds_of_sgd_follow_the_same_numbers(run_sample: RunSample) -> None:
    right, wrong = run_sample("sgd.py"), run_sample("naive_sgd.py")
    x1, x2 = 2.0, 3.0
    for step in range(4):
        expected = f"step {step}: v {x1 * x2:.4f}"
        assert expected in wrong.printed
        assert step == 3 or expected in right.printed
        x1, x2 = x1 - 0.1 * x2, x2 - 0.1 * x1
    assert len(operations(right.names["v"])) == 3
    assert len(operations(wrong.names["v"])) == 3 + 2 * 4  # four recorded updates of each factor
    assert operations(wrong.names["v"]).count("SubBackward0") == 8


def test_control_flow_takes_the_branch_that_the_argument_asks_for(run_sample: RunSample) -> None:
    positive = run_sample("control_flow.py")
    assert "branch square, 3 turns" in positive.printed  # 1 + 4 + 9 = 14, doubled three times
    assert "ExpBackward0" not in operations(positive.names["loss"])
    negative = run_sample("control_flow.py", "--negative")
    start = sum(math.exp(-value) for value in (1, 2, 3))
    assert f"branch exp, {math.ceil(math.log2(100 / start))} turns" in negative.printed
    assert "ExpBackward0" in operations(negative.names["loss"])
    assert run_sample("control_flow.py", "--limit", "1000").names["turns"] == 7


def test_grad_modes_only_the_recorded_way_counts(run_sample: RunSample) -> None:
    names, printed = run_sample("grad_modes.py")
    assert names["x"].grad.tolist() == [4 * value for value in names["x"].tolist()]
    assert "Inference tensors cannot be saved for backward" in printed


def test_views_agree_with_numpy(run_sample: RunSample) -> None:
    names, _ = run_sample("views.py")
    table = numpy.arange(48, dtype=numpy.float32).reshape(6, 8)
    window = table[1:5:2, 1:4]
    start = window.__array_interface__["data"][0] - table.__array_interface__["data"][0]
    assert names["window"].stride() == tuple(step // 4 for step in window.strides) == (16, 1)
    assert names["window"].storage_offset() == start // 4 == 9
    assert tuple(names["window"].shape) == window.shape == (2, 3)
    assert names["window"].tolist() == window.tolist()


def test_inplace_view(run_sample: RunSample) -> None:
    names, printed = run_sample("inplace_view.py")
    assert operations(names["loss"]).count("torch::autograd::CopySlices") == 2
    assert "[[0.0, 1.0, 1.0, 1.0], [0.0, 3.0, 3.0, 3.0], [0.0, 1.0, 1.0, 1.0]]" in printed


def test_nested_outputs_hold_the_same_two_tensors_in_every_container(run_sample: RunSample) -> None:
    names, _ = run_sample("nested_outputs.py")
    pair = [names["logits"], names["features"]]
    for name in ("list", "tuple", "named", "dict", "dataclass", "plain_dataclass", "model"):
        container = names[f"outputs_{name}"]
        if isinstance(container, dict):
            found = list(container.values())
        else:
            found = list(container) if isinstance(container, (list, tuple)) else list(vars(container).values())
        assert all(one is other for one, other in zip(found, pair, strict=True)), name
    returned = names["predict"]()
    assert returned["states"][1][0].grad_fn.name() == "MeanBackward0"


# Functions of one's own and saved tensors


def test_exp_function(run_sample: RunSample) -> None:
    names, _ = run_sample("exp_function.py")
    assert names["x"].grad.tolist() == pytest.approx([math.exp(value) for value in names["x"].tolist()])
    assert "ExpBackward" in operations(names["total"])
    exact = names["x"].detach().double().requires_grad_()
    assert torch.autograd.gradcheck(names["Exp"].apply, (exact,))


def test_saved_hooks_leave_no_file_behind(
    run_sample: RunSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names, printed = run_sample("saved_hooks.py")
    assert "after the first backward: {'pack': 3, 'unpack': 3} files on disk: 3" in printed
    assert "after the second backward: {'pack': 3, 'unpack': 6} files on disk: 0" in printed
    assert [path.parent for path in names["files"]] == [tmp_path] * 4
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_save_on_cpu(run_sample: RunSample) -> None:
    names, _ = run_sample("save_on_cpu.py")
    last_bias = names["offloaded"][-1]
    assert last_bias.item() == pytest.approx(2 * names["prediction"].mean().item())  # derivative of the mean square


def test_checkpoint_modes_agree_and_differ_in_the_graph(run_sample: RunSample) -> None:
    kept = run_sample("checkpoint.py")
    hidden = run_sample("checkpoint.py", "--mode", "reentrant")
    assert kept.names["loss"].item() == hidden.names["loss"].item()
    assert operations(hidden.names["loss"]).count("CheckpointFunctionBackward") == 2
    assert operations(kept.names["loss"]).count("TanhBackward0") == 2
    assert "TanhBackward0" not in operations(hidden.names["loss"])


def test_double_backward_graph_holds_the_backward_pass(run_sample: RunSample) -> None:
    names, _ = run_sample("double_backward.py")
    assert "TanhBackwardBackward0" in operations(names["penalty"])
    assert "TanhBackwardBackward0" not in operations(names["score"])
    assert names["by_hand"] == pytest.approx(names["weight"].grad[0, 0].item(), abs=1e-3)


# Models


def test_mlp_learns_the_circle(run_sample: RunSample) -> None:
    names, _ = run_sample("mlp_training.py")
    with torch.no_grad():
        inside, outside = names["model"](torch.tensor([[0.0, 0.0], [0.95, -0.95]])).tolist()
    assert inside > 0 > outside


def test_lstm_equals_the_built_in_one(run_sample: RunSample) -> None:
    names, _ = run_sample("lstm.py", "--steps", "7", "--layers", "2")
    built_in = torch.nn.LSTM(8, 8, num_layers=2)
    with torch.no_grad():
        for layer, cell in enumerate(names["model"].cells):
            for name, parameter in cell.named_parameters():
                getattr(built_in, f"{name}_l{layer}").copy_(parameter)
        last = built_in(names["sequence"])[0][-1]
        assert torch.allclose(names["model"].output(last).squeeze(1), names["prediction"], atol=1e-6)


@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (50, 25_557_032)])
def test_resnet_has_the_published_number_of_parameters(run_sample: RunSample, depth: int, parameters: int) -> None:
    arguments = ["--depth", str(depth), "--width", "64", "--classes", "1000", "--batch", "2"]
    names, printed = run_sample("resnet.py", *arguments)
    assert f"ResNet-{depth}: {parameters} parameters" in printed
    assert operations(names["loss"]).count("ConvolutionBackward0") == depth - 1 + (3 if depth < 50 else 4)


@pytest.mark.parametrize("layers", [4, 12, 48, 200])
def test_gpt_of_any_depth(run_sample: RunSample, layers: int) -> None:
    names, printed = run_sample("gpt.py", "--layers", str(layers))
    width, length, vocabulary = 32, 16, 64
    block = 12 * width**2 + 13 * width
    assert f"{layers * block + (vocabulary + length + 2) * width} parameters" in printed
    assert operations(names["loss"]).count("SoftmaxBackward0") == layers
    assert names["loss"].item() == pytest.approx(math.log(vocabulary), rel=0.05)  # untrained: all tokens equally likely


def test_gpt_does_not_look_into_the_future(run_sample: RunSample) -> None:
    names, _ = run_sample("gpt.py")
    tokens = names["tokens"][:1, :-1]
    changed = tokens.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 64
    with torch.no_grad():
        before, after = names["model"](tokens)[0], names["model"](changed)[0]
    assert torch.allclose(before[:9], after[:9], atol=1e-6)
    assert not torch.allclose(before[9:], after[9:], atol=1e-3)


def test_llama_size_allocates_nothing(run_sample: RunSample) -> None:
    names, printed = run_sample("llama_size.py")
    block = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert 32 * block + 2 * 32000 * 4096 + 4096 == 6_738_415_616
    assert "6738415616 parameters" in printed
    parameters = list(names["model"].parameters())
    assert {type(parameter.data).__name__ for parameter in parameters} == {"FakeTensor"}
    assert {parameter.dtype for parameter in parameters} == {torch.bfloat16}
    assert {parameter.device.type for parameter in parameters} == {"cpu"}
    assert any("FlashAttention" in name for name in operations(names["loss"]))


def test_llama_size_on_meta(run_sample: RunSample) -> None:
    names, printed = run_sample("llama_size.py", "--device", "meta", "--layers", "2", "--checkpoint")
    assert "Tensor on meta" in printed
    assert {parameter.grad.device.type for parameter in names["model"].parameters()} == {"meta"}


def test_llama_size_with_numbers(run_sample: RunSample) -> None:
    kept = run_sample("llama_size.py", "--real")
    again = run_sample("llama_size.py", "--real", "--checkpoint")
    assert kept.names["loss"].item() == again.names["loss"].item()
    assert kept.names["loss"].item() == pytest.approx(math.log(128), rel=0.1)
    x = torch.randn(1, 1, 5, 16)
    cosine, sine = kept.names["rotary_angles"](5, 16)
    pairs = torch.complex(*x.chunk(2, dim=-1)) * torch.complex(cosine, sine)  # the rotation, as complex numbers
    assert torch.allclose(kept.names["rotate"](x, cosine, sine), torch.cat([pairs.real, pairs.imag], dim=-1), atol=1e-6)


# Problems


REFUSED = [
    ("problems/no_graph.py", "does not require grad"),
    ("problems/inplace_saved.py", "modified by an inplace operation"),
    ("problems/second_backward.py", "backward through the graph a second time"),
]


@pytest.mark.parametrize(("script", "message"), REFUSED)
def test_backward_is_refused(script: str, message: str, run_sample: RunSample) -> None:
    assert message in run_sample(script).printed


def test_unused_parameters_are_not_in_the_graph(run_sample: RunSample) -> None:
    names, _ = run_sample("problems/unused_parameter.py")
    assert operations(names["loss"]).count("torch::autograd::AccumulateGrad") == 2  # used.weight and used.bias


def test_growing_loss_keeps_every_step(run_sample: RunSample) -> None:
    names, _ = run_sample("problems/growing_loss.py")
    assert operations(names["total_loss"]).count("AddmmBackward0") == names["steps"] == 8


def test_nan_is_born_in_the_backward_of_a_finite_loss(run_sample: RunSample) -> None:
    names, _ = run_sample("problems/nan.py")
    assert names["loss"].item() == pytest.approx(math.hypot(1, 1) / 2)  # the points differ by (-2, 1), summed: (-1, -1)
    difference = (names["first"] - names["second"]) @ names["weight"]
    squares = difference.square().sum(dim=1)
    at_the_root, below = torch.autograd.grad(torch.sqrt(squares).mean(), [squares, difference])
    assert at_the_root[0].isfinite() and at_the_root[1].isinf()  # only the pair of equal points
    assert below[0].isfinite().all() and below[1].isnan().all()


def test_vanishing_gradient_gets_smaller_at_every_layer(run_sample: RunSample) -> None:
    norms = run_sample("problems/vanishing.py").names["norms"]
    assert all(lower < upper for lower, upper in pairwise(norms))
    assert norms[0] < 1e-8


def test_forward_error_ends_with_the_error_of_pytorch() -> None:
    done = run_alone("problems/forward_error.py")
    assert done.returncode == 1
    assert done.stdout == "before the forward pass\n"
    assert done.stderr.rstrip().endswith("mat1 and mat2 shapes cannot be multiplied (2x16 and 32x1)")


# Questions


@pytest.mark.parametrize("script", REFUSED_QUESTIONS)
def test_a_question_about_an_error_raises_it(script: str, run_sample: RunSample) -> None:
    with pytest.raises(RuntimeError, match=REFUSED_QUESTIONS[script]):
        run_sample(script)


def test_cut_number_and_plain_list_leave_parameters_without_training(run_sample: RunSample) -> None:
    temperature = run_sample("questions/none_grad.py").names["temperature"]
    assert temperature.grad is None and temperature.item() == 2
    assert len(list(run_sample("questions/python_list.py").names["net"].parameters())) == 2  # of 8


def test_nan_comes_from_the_empty_row_and_from_the_branch_that_was_not_chosen(run_sample: RunSample) -> None:
    average = run_sample("questions/first_nan.py").names["average"]
    assert average[:2].isfinite().all() and average[2].isnan().all()
    where = run_sample("questions/where.py").names
    assert where["loss"].isfinite() and where["scale"].grad.isfinite().tolist() == [False, True, True, True]


def test_the_custom_backward_lacks_a_term(run_sample: RunSample) -> None:
    swish = run_sample("questions/custom_backward.py").names["Swish"]
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    (given,) = torch.autograd.grad(swish.apply(x).sum(), x)
    (right,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)
    s = torch.sigmoid(x)
    assert torch.allclose(given + x * s * (1 - s), right)


def test_frozen_layers_train_one_bias(run_sample: RunSample) -> None:
    trained = [
        one for one in run_sample("questions/frozen_encoder.py").names["encoder"].parameters() if one.requires_grad
    ]
    assert [tuple(one.shape) for one in trained] == [(256,)]


# Scripts with company


def test_train_uses_its_neighbour_and_its_folder() -> None:
    done = run_alone("train.py", SAMPLES / "helpers_demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "after 100 steps: slope 2.000, intercept 1.000\n"  # the points lie on y = 2 x + 1


def test_exits_prints_and_leaves_with_status_zero() -> None:
    done = run_alone("helpers_demo/exits.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "loss 9.0\n", "")


def test_plain_and_no_gradient(run_sample: RunSample) -> None:
    plain = run_sample("helpers_demo/plain.py").names
    assert plain["distance"].item() == math.hypot(3, 4)
    assert not set(operations(plain["distance"])) & {"MeanBackward0"}
    assert all(tensor.grad_fn is None for tensor in run_sample("helpers_demo/no_gradient.py").names["tensors"])
