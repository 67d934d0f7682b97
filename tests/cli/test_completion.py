"""What the shell completes, read from text alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from gradviz.checks.registry import checks
from gradviz.cli.completion import check_ids, module_paths, ops
from gradviz.cli.main import COMMANDS, cli
from tests.builders import GRAPHS
from tests.cli.scripts import environment

SCRIPT = """
class Block(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)

class Net(nn.Module):
    def __init__(self):
        self.first, self.size = Block(), 3
        self.block = Block()
        self.again = Net()

model = Net()
optimizer = torch.optim.SGD(model.parameters())
x = 3
"""


def completed(complete: Callable[..., list[str]], word: str, target: str = "") -> list[str]:
    context = click.Context(click.Command("one"))
    context.params["target"] = target
    return complete(context, click.Option(["--focus"]), word)


def test_ids_of_all_checks() -> None:
    assert completed(check_ids, "") == sorted(check.id for check in checks())
    assert completed(check_ids, "stale") == ["stale-saved"]


def test_ops_of_formulas() -> None:
    assert "softmax" in completed(ops, "soft") and completed(ops, "zz") == []


def test_modules_that_a_script_assigns(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    names = completed(module_paths, "", str(file))
    assert {"model", "model.block", "model.block.fc", "optimizer"} <= {*names}
    assert len(names) < 50 and max(name.count(".") for name in names) <= 6
    assert completed(module_paths, "model.b", str(file)) == ["model.block", "model.block.fc"]
    file.write_text("class (")
    assert completed(module_paths, "", str(file)) == completed(module_paths, "") == []


def test_modules_of_a_saved_graph(tmp_path: Path) -> None:
    name, graph = next((name, graph) for name, graph in GRAPHS.items() if graph.scopes and graph.leaves)
    path = graph.save(str(tmp_path / f"{name}.json"))
    assert {scope.path for scope in graph.scopes if scope.path} <= {*completed(module_paths, "", path)}


@pytest.mark.parametrize(
    ("command", "parameter"),
    [
        ("render", "focus"),
        ("render", "expand"),
        ("paths", "name"),
        ("why", "names"),
        ("formula", "op"),
        ("check", "only"),
        ("check", "ignore"),
    ],
)
def test_the_commands_ask_for_it(command: str, parameter: str) -> None:
    made: Any = cli.get_command(click.Context(cli), command)
    (one,) = [one for one in made.params if one.name == parameter]
    assert command in COMMANDS and one._custom_shell_complete is not None


@pytest.mark.slow
@pytest.mark.fresh
def test_completing_imports_no_torch() -> None:
    ask = "from gradviz.cli.completion import *; check_ids(None, None, ''); ops(None, None, '')"
    program = f"import sys; {ask}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], env=environment(), check=False).returncode == 0
