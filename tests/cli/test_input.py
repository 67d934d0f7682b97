"""`--input`: a model that no script runs backward through is drawn all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(self.conv(x).relu().mean((2, 3)))

def make():
    return Net(5)

def energy(x):
    return net(x).square().sum()

net = Net().eval()
with torch.no_grad():
    answer = net(torch.ones(1, 3, 8, 8))
batch = torch.ones(2, 3, 8, 8)

def main():
    hidden = Net()
    hidden(batch).sum().backward()
    print("trained")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("name", ["Net", "net", "make", "energy", "net.forward"])
def test_a_class_an_instance_or_a_function(gradviz: Gradviz, tmp_path: Path, name: str) -> None:
    script(tmp_path, MODEL, "model.py")
    said = gradviz("tree", f"model.py:{name}", "--input", "1,3,8,8")
    assert f"model.py:{name} --input 1,3,8,8" in said.stdout
    assert "conv Conv2d" in said.stdout and "fc Linear" in said.stdout
    assert "trained" not in said.output


@pytest.mark.parametrize("suffix", ["svg", "html", "json"])
def test_a_picture_and_a_page(gradviz: Gradviz, tmp_path: Path, suffix: str) -> None:
    script(tmp_path, MODEL, "model.py")
    gradviz("render", "model.py:Net", "--input", "1,3,8,8", "-o", f"net.{suffix}")
    text = (tmp_path / f"net.{suffix}").read_text(encoding="utf-8")
    assert len(text) > 3000 and ("Conv2d" in text or suffix == "html")


def test_lines_are_those_of_the_file(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, MODEL, "model.py")
    said = gradviz("saved", "model.py:Net", "--input", "1,3,8,8", "--by", "line").stdout
    assert "return self.fc(self.conv(x).relu().mean((2, 3)))" in said


@pytest.mark.parametrize("given", ["model.py:batch", "other.py:batch", "other.py:loader.0", "other.py:get"])
def test_a_value_of_a_file(gradviz: Gradviz, tmp_path: Path, given: str) -> None:
    script(tmp_path, MODEL, "model.py")
    script(
        tmp_path,
        "import torch\nbatch = torch.ones(2, 3, 8, 8)\nloader = [batch]\ndef get(): return batch\n",
        "other.py",
    )
    assert "(2, 10)" in gradviz("tree", "model.py:net", "--input", given).stdout


def test_a_script_that_trains_stops_at_its_first_backward(gradviz: Gradviz, tmp_path: Path) -> None:
    code = """
        import torch
        net = torch.nn.Linear(2, 1)
        for i in range(9):
            net(torch.ones(1, 2)).sum().backward()
            print("step", i)
        """
    script(tmp_path, code)
    said = gradviz("tree", "script.py:net", "--input", "5,2")
    assert "(5, 1)" in said.stdout and "step" not in said.output


def test_a_local_variable_of_a_script_that_runs(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, MODEL, "model.py")
    refused = gradviz("tree", "model.py:hidden", "--input", "1,3,8,8", code=2).stderr
    assert "--at 1 runs it" in refused
    assert "hidden Net" in gradviz("tree", "model.py:hidden", "--input", "1,3,8,8", "--at", 1).stdout


def test_a_script_that_fails_may_have_made_the_model(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, MODEL + "\nopen('no such data')\n", "model.py")
    said = gradviz("tree", "model.py:Net", "--input", "1,3,8,8", code=3)
    assert "conv Conv2d" in said.stdout and "FileNotFoundError" in said.stderr
    script(tmp_path, "import no_such_package\nclass Net: ...\n", "model.py")
    assert "no_such_package" in gradviz("tree", "model.py:Net", "--input", "1", code=3).stderr


def test_an_error_of_forward_is_the_users_own(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, MODEL, "model.py")
    said = gradviz("tree", "model.py:Net", "--input", "1,4,8,8", code=3).stderr
    assert "The model failed with --input 1,4,8,8." in said
    assert "self.conv(x)" in said and "contextlib" not in said and "gradviz/" not in said


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("model.py", "1,3,8,8", "model.py:NAME. The models are: Net, net."),
        ("model.py:Ned", "1,3,8,8", "Did you mean Net"),
        ("model.py:batch", "1,3,8,8", "is a Tensor, not a model"),
        ("model.py:Net", "1x3", "Give a shape"),
    ],
)
def test_mistakes_have_a_next_step(gradviz: Gradviz, tmp_path: Path, target: str, given: str, words: str) -> None:
    script(tmp_path, MODEL, "model.py")
    assert words in gradviz("tree", target, "--input", given, code=2).stderr


def test_a_class_without_input_is_told_of_it(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, MODEL, "model.py")
    assert "--input 1,3,224,224" in gradviz("render", "model.py:Net", code=2).stderr
