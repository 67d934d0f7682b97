"""Which graph a target leads to."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from gradviz.graph import Graph
from gradviz.graph.files import loads
from tests.cli.conftest import Gradviz
from tests.cli.scripts import GRAPH, TRAINING, gradviz as run_gradviz, script

pytestmark = pytest.mark.slow


def roots(graph: Graph) -> list[tuple[str, str]]:
    return [(root.name, graph.nodes[root.node].op) for root in graph.roots if root.node is not None]


def leaves(graph: Graph) -> set[str]:
    return {name for leaf in graph.leaves for name in leaf.names}


# -- backward ----------------------------------------------------------------------------------------------------------


def test_the_first_backward_is_read_and_the_script_stops_there(gradviz: Gradviz, tmp_path: Path) -> None:
    result = gradviz(*GRAPH, script(tmp_path, TRAINING))
    graph = loads(result.stdout)
    assert roots(graph) == [("loss", "MulBackward0")]
    assert leaves(graph) == {"model.weight", "model.bias"}
    assert not any(leaf.has_grad for leaf in graph.leaves)  # the engine has not run
    assert result.stderr == ""


@pytest.mark.parametrize(("at", "printed"), [(1, []), (2, ["step 0"]), (3, ["step 0", "step 1"])])
def test_at_reads_the_kth_call(gradviz: Gradviz, tmp_path: Path, at: int, printed: list[str]) -> None:
    result = gradviz(*GRAPH, "--at", at, script(tmp_path, TRAINING))
    assert result.stderr.splitlines() == printed
    assert all(leaf.has_grad is (at > 1) for leaf in loads(result.stdout).leaves)


@pytest.mark.parametrize(
    ("calls", "said"), [(0, "called no backward()"), (1, "called backward() once"), (3, "called backward() 3 times")]
)
def test_too_few_calls(gradviz: Gradviz, tmp_path: Path, calls: int, said: str) -> None:
    path = script(tmp_path, TRAINING.replace("train(3)", f"train({calls})"))
    assert f"{said}, so there is no call 4" in gradviz("tree", path, "--at", 4, code=2).stderr


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("y.backward()", [("y", "MulBackward0")]),
        ("torch.autograd.backward([y, z])", [("y", "MulBackward0"), ("z", "ExpBackward0")]),
        ("torch.autograd.grad([z, y * 2], [w])", [("z", "ExpBackward0"), ("output[1]", "MulBackward0")]),
        ("from torch.autograd import grad; grad(y, w, create_graph=True)", [("y", "MulBackward0")]),
        ("torch.autograd.functional.jacobian(torch.exp, w)", [("outputs[0][0]", "SelectBackward0")]),
        ("(y + z).backward()", [("output", "AddBackward0")]),
    ],
)
def test_every_way_to_call_backward(
    gradviz: Gradviz, tmp_path: Path, call: str, expected: list[tuple[str, str]]
) -> None:
    path = script(
        tmp_path,
        f"""
        import torch
        w = torch.tensor(2.0, requires_grad=True)
        y, z = w * w, w.exp()
        {call}
        print("reached")
        """,
    )
    result = gradviz(*GRAPH, path)
    assert [op for _, op in roots(loads(result.stdout))] == [op for _, op in expected]
    if "functional" not in call:  # what torch calls its own variables is torch's affair
        assert roots(loads(result.stdout)) == expected
    assert result.stderr == ("" if "backward(" in call else "reached\n")  # after `grad` a backward() may follow


def test_a_recomputing_checkpoint_is_not_a_call(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch
        from torch.utils.checkpoint import checkpoint
        w = torch.ones(1, requires_grad=True)
        for turn in range(2):
            loss = checkpoint(torch.exp, w, use_reentrant=True) * (turn + 1)
            loss.backward()
        """,
    )
    assert "called backward() 2 times" in gradviz("tree", path, "--at", 3, code=2).stderr


def test_a_compiler_that_traces_is_not_a_call(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch
        @torch.compile(backend="aot_eager")
        def square(x):
            return (x * x).sum()
        w = torch.ones(3, requires_grad=True)
        loss = square(w)
        loss.backward()
        """,
    )
    graph = loads(gradviz(*GRAPH, path).stdout)
    assert roots(graph) == [("loss", "CompiledFunctionBackward")]
    assert leaves(graph) == {"w"}


THREADS = {
    "joined": "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n",
    "busy main": "threading.Thread(target=work).start()\nwhile True: pass\n",
    "several": "threads = [threading.Thread(target=work) for _ in range(4)]\n"
    "for thread in threads: thread.start()\nfor thread in reversed(threads): thread.join()\n",
}


@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX"), reason="needs real-time signals to stop a waiting main thread")
@pytest.mark.parametrize("name", THREADS)
def test_backward_in_a_thread_stops_the_whole_script(tmp_path: Path, name: str) -> None:
    text = """
        import queue, threading, torch
        from concurrent import futures
        w = torch.ones(1, requires_grad=True)
        def work():
            loss = w * 3
            loss.backward()
            print("not reached")
    """
    path = script(tmp_path, text)
    path.write_text(path.read_text() + THREADS[name] + "print('not reached either')\n")
    result = run_gradviz(*GRAPH, path, cwd=tmp_path, timeout=60)
    assert result.returncode == 0, result.stderr
    assert roots(loads(result.stdout)) == [("loss", "MulBackward0")]
    said = set(result.stderr.splitlines())
    others = name in ("several", "pool")  # when the script has ended, its other threads run on
    assert said <= ({"not reached"} if others else set())


@pytest.mark.parametrize(
    "around",
    [
        "try:\n    y.backward()\nexcept Exception as error:\n    print('caught', error)",
        "try:\n    y.backward()\nexcept BaseException:\n    raise RuntimeError('another in its place')",
        "import sys\ntry:\n    y.backward()\nexcept BaseException:\n    sys.exit(9)",
        "try:\n    y.backward()\nexcept:\n    pass\n(y * 2).backward()\nprint('not reached')",
    ],
)
def test_code_that_catches_everything_does_not_spoil_it(gradviz: Gradviz, tmp_path: Path, around: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import torch\nw = torch.ones(1, requires_grad=True)\ny = w * w\n{around}\n")
    result = gradviz(*GRAPH, path)
    assert roots(loads(result.stdout)) == [("y", "MulBackward0")]
    assert result.stderr == ""


def test_backward_on_a_tensor_without_graph_says_why(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\nx = torch.ones(1)\ntry:\n    x.sum().backward()\nexcept ValueError: pass\n")
    assert "does not require grad" in gradviz("tree", path, code=2).stderr


# -- a name ------------------------------------------------------------------------------------------------------------

NAMES = """
import torch
from dataclasses import dataclass
from functools import partial

@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor

w = torch.ones(2, requires_grad=True)
loss = (w * 2).sum()
out = Output(loss, w * 2)
outs = [loss, {"deep": (w.exp(),)}]
def make(scale=3):
    return w.cos() * scale
def pair(a, b, *, c, d=1):
    return a
def nothing():
    pass
model = torch.nn.Linear(2, 2)
bound = partial(make, scale=4)
holder = type("Holder", (), {})()
holder.make = make
number = 3
ids = torch.ones(2, dtype=torch.long)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loss", [("loss", "SumBackward0")]),
        ("out", [("out.loss", "SumBackward0"), ("out.logits", "MulBackward0")]),
        ("outs", [("outs[0]", "SumBackward0"), ("outs[1]['deep'][0]", "ExpBackward0")]),
        ("outs.1.deep", [("outs.1.deep[0]", "ExpBackward0")]),
        ("make", [("make()", "MulBackward0")]),
        ("bound", [("bound()", "MulBackward0")]),
    ],
)
def test_a_name(gradviz: Gradviz, tmp_path: Path, name: str, expected: list[tuple[str, str]]) -> None:
    graph = loads(gradviz(*GRAPH, f"{script(tmp_path, NAMES)}:{name}").stdout)
    assert roots(graph) == expected
    assert leaves(graph) == {"w"}
    assert graph.title == f"script.py:{name}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("los", "script.py has no variable 'los'. Did you mean loss?"),
        (
            "zzz",
            "The variables are: bound, dataclass, holder, ids, loss, make, model, nothing, number, out, outs, pair, w.",
        ),
        ("out.logit", "out in script.py is a Output and has no 'logit'. Did you mean logits?"),
        ("nothing", "nothing() in script.py: there is no tensor in this NoneType"),
        ("number", "this is a Python int"),
        ("model", "this is a module (Linear)"),
        ("w", "is a leaf"),
        ("ids", "is int64: only floating point and complex"),
    ],
)
def test_a_wrong_name_says_what_it_is(gradviz: Gradviz, tmp_path: Path, name: str, said: str) -> None:
    result = gradviz("tree", f"{script(tmp_path, NAMES)}:{name}", code=2)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_module(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, "", "package/__init__.py")
    script(
        tmp_path,
        "import torch\nfrom package import other\ny = other.w * 3\nassert __name__ == 'package.made'\n",
        "package/made.py",
    )
    script(tmp_path, "import torch\nw = torch.ones(1, requires_grad=True)\n", "package/other.py")
    assert roots(loads(gradviz(*GRAPH, "package.made:y").stdout)) == [("y", "MulBackward0")]
    assert "there is no module 'package.none'" in gradviz("tree", "package.none:y", code=2).stderr
    assert "there is no module 'nowhere'" in gradviz("tree", "nowhere.none:y", code=2).stderr


# -- neither backward nor a name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("y = w * 2\nz = y.exp()\nq = w.cos()", ["z", "q"]),
        ("a, b = (w * 2).split(1)\ny = a.sum()", ["b", "y"]),
        ("y = w * 2\nouts = [y.exp()]", ["y"]),
        ("y = w * 2\ny += 1\nx = y[0]", ["x"]),
        ("y = w * 2\nz = y.detach()\nw2 = torch.ones(1)", ["y"]),
        ("def f():\n    y = w * 2\n    return y.sum()\nresult = f()", ["result"]),
        ("import sys\ny = w * 2\nsys.exit(0)", ["y"]),
    ],
)
def test_the_final_tensors_that_nothing_depends_on(
    gradviz: Gradviz, tmp_path: Path, code: str, expected: list[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import torch\nw = torch.ones(2, requires_grad=True)\n{code}\n")
    assert [name for name, _ in roots(loads(gradviz(*GRAPH, path).stdout))] == expected


def test_nothing_found_lists_each_tensor_and_why(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch
        w = torch.ones(2, requires_grad=True)
        cut = (w * 2).detach()
        count = torch.arange(3)
        mask = w > 0
        with torch.inference_mode():
            quick = w * 2
        """,
    )
    said = gradviz("tree", path, code=2).stderr.splitlines()
    assert said[0] == "Error: script.py called no backward() and has no global tensor with a graph. Seen:"
    assert [line.split()[0] for line in said[1:-2]] == ["w", "cut", "count", "mask", "quick"]
    for line, why in zip(said[1:-2], ("leaf", "detach", "int64", "bool", "inference_mode")):
        assert why in line
    assert "script.py:NAME" in said[-2] and "child processes" in said[-1]


def test_a_script_that_only_has_a_model_is_told_how_it_is_run_once(gradviz: Gradviz, tmp_path: Path) -> None:
    text = """
        import torch
        class Net(torch.nn.Linear):
            pass
        with torch.no_grad():
            net = Net(3, 2).eval()
            out = net(torch.ones(1, 3))
        """
    path = script(tmp_path, text)
    said = gradviz("tree", path, code=2).stderr
    assert "script.py:net --input 1,3,224,224" in said
    assert "net Net" in gradviz("tree", f"{path}:net", "--input", "1,3").stdout
    assert "script" not in sys.modules


# -- two scripts in one process ----------------------------------------------------------------------------------------


def test_each_script_finds_its_own_neighbours(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch, neighbour\ny = torch.ones(1, requires_grad=True).{0}()\nassert neighbour.name == '{0}'\n"
    for name in ("exp", "cos"):
        script(tmp_path, f"name = '{name}'\n", f"{name}/neighbour.py")
        path = script(tmp_path, text.format(name), f"{name}/script.py")
        assert roots(loads(gradviz(*GRAPH, path).stdout)) == [("y", f"{name.title()}Backward0")]


def test_what_the_script_changes_is_put_back(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import os, sys, threading, torch
        os.mkdir("deeper")
        os.chdir("deeper")
        sys.argv.append("more")
        sys.path = ["/nowhere"]
        sys.excepthook = threading.excepthook = print
        sys.stdout = open("out.txt", "w")
        y = torch.ones(1, requires_grad=True) * 2
        sys.modules["__main__"] = os
        """,
    )
    assert [op for _, op in roots(loads(gradviz(*GRAPH, path).stdout))] == [
        "MulBackward0"
    ]  # the rest is the fixture's to prove


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("render train.py --epochs 3", "gradviz render train.py -- --epochs 3"),
        ("render --epochs=3 train.py -o a.svg", "gradviz render train.py -o a.svg -- --epochs=3"),
        ("render --lr 3 train.py", "gradviz render train.py -- --lr 3"),
        ("train.py --epochs 3", "gradviz check train.py -- --epochs 3"),
        ("render train.py --dept 3", "Did you mean --depth?"),
        ("render train.py 3", "Arguments of the script go after --"),
    ],
)
def test_arguments_of_the_script_go_after_the_dashes(gradviz: Gradviz, tmp_path: Path, line: str, instead: str) -> None:
    script(tmp_path, TRAINING, "train.py")
    assert instead in gradviz(*line.split(), code=2).stderr


def test_a_script_that_lacks_an_argument_says_where_they_go(gradviz: Gradviz, tmp_path: Path) -> None:
    code = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', required=True)\np.parse_args()\n"
    assert "go after --" in gradviz("render", script(tmp_path, code), code=3).stderr


def test_an_option_of_another_command_names_that(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\n(torch.ones(2, requires_grad=True) * 2).sum().backward()\n")
    assert "saved has no --html, an option of check. " in gradviz("saved", path, "--html", "a.html", code=2).stderr
    assert "--epochs is not gradviz's. " in gradviz("saved", path, "--epochs", "3", code=2).stderr
