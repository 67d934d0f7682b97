"""No command lets through what a terminal obeys or a reader cannot see, whatever the script calls its things."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.wording import visible
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

HOSTILE = r"a\u202eb\u200b\x9b31m\U000e0041\nc"
SOURCE = f"""
import torch
x = torch.ones(3, requires_grad=True)
outs = {{"{HOSTILE}": (x * 2).exp()}}
net = torch.nn.Linear(3, 1)
net.register_module("{HOSTILE}", torch.nn.Linear(3, 3))
outs["loss"] = net(net.get_submodule("{HOSTILE}")(list(outs.values())[0])).sum()
if __name__ == "__main__":
    torch.autograd.backward(list(outs.values()), [torch.ones(3), None])
"""


@pytest.mark.parametrize(
    "command",
    ["tree", "saved", "flow", "check", "tensors", "paths --to x", "diff --at 1 --at 1", "render -o - --format md"],
)
def test_a_report(gradviz: Gradviz, tmp_path: Path, command: str) -> None:
    words = command.split()
    at = ["--at", "1"] if words[0] == "tensors" else []
    source = SOURCE.replace("list(outs.values()), [torch.ones(3), None]", 'outs["loss"]') if "--to" in words else SOURCE
    result = gradviz(words[0], script(tmp_path, source), *words[1:], *at)
    for text in (result.stdout, result.stderr):
        assert visible(text, keep="\n") == text
    if words[0] in ("tree", "tensors", "render"):
        assert r"a\u202eb\u200b" in result.stdout or r"a#92;u202eb" in result.stdout


def test_an_error(gradviz: Gradviz, tmp_path: Path) -> None:
    said = gradviz("tree", f"{tmp_path}/\u202e\x9b.py", code=2).stderr + gradviz("tree", "--no\u202e", code=2).stderr
    assert visible(said, keep="\n") == said and r"\u202e" in said
