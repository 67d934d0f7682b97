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
from pathlib import Path
from typing import Any, NamedTuple

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


def test_control_flow_takes_the_branch_that_the_argument_asks_for(run_sample: RunSample) -> None:
    positive = run_sample("control_flow.py")
    assert "branch square, 3 turns" in positive.printed  # 1 + 4 + 9 = 14, doubled three times
    assert "ExpBackward0" not in operations(positive.names["loss"])
    negative = run_sample("control_flow.py", "--negative")
    start = sum(math.exp(-value) for value in (1, 2, 3))
    assert f"branch exp, {math.ceil(math.log2(100 / start))} turns" in negative.printed
    assert "ExpBackward0" in operations(negative.names["loss"])
    assert run_sample("control_flow.py", "--limit", "1000").names["turns"] == 7


# Functions of one's own and saved tensors


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


def test_checkpoint_modes_agree_and_differ_in_the_graph(run_sample: RunSample) -> None:
    kept = run_sample("checkpoint.py")
    hidden = run_sample("checkpoint.py", "--mode", "reentrant")
    assert kept.names["loss"].item() == hidden.names["loss"].item()
    assert operations(hidden.names["loss"]).count("CheckpointFunctionBackward") == 2
    assert operations(kept.names["loss"]).count("TanhBackward0") == 2
    assert "TanhBackward0" not in operations(hidden.names["loss"])


# Models


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


# Scripts with company


def test_train_uses_its_neighbour_and_its_folder() -> None:
    done = run_alone("train.py", SAMPLES / "helpers_demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "after 100 steps: slope 2.000, intercept 1.000\n"  # the points lie on y = 2 x + 1


def test_exits_prints_and_leaves_with_status_zero() -> None:
    done = run_alone("helpers_demo/exits.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "loss 9.0\n", "")
