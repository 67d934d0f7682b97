"""Which functions become groups, and what their calls are."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from gradviz.fold.fold import fold
from gradviz.fold.functions import LEAST_CALLS, LEAST_OPS, with_functions
from gradviz.graph import Graph, SourceLine
from tests.fold.test_fold import Program, titles


def made(ops: list[tuple[str, str]], module: str = "") -> Graph:
    """A chain of ops, each made by the function given; inside one call of a module, if there is one."""
    program = Program()
    if module:
        program.call(module, "Module")
    x = program.op("ExpBackward0", weights=["w"])
    for name, _ in ops:
        x = program.op(name, x)
    graph = program.graph()
    functions = ["main", *(function for _, function in ops)]
    return replace(
        graph,
        nodes=tuple(
            node if node.sequence is None else node._replace(source=SourceLine("ode.py", 1, functions[node.sequence]))
            for node in graph.nodes
        ),
    )


def euler(steps: int, function: str = "func", module: str = "") -> Graph:
    """`y = y + h * func(y)` again and again, and a mean."""
    step = [("MmBackward0", function), ("TanhBackward0", function), ("AddBackward0", "main")]
    return made([*(op for _ in range(steps) for op in step), ("MeanBackward0", "main")], module)


def names(graph: Graph) -> set[str]:
    return {scope.path for scope in with_functions(graph).scopes}


def test_a_function_that_is_called_again_and_again_is_a_group_with_its_name() -> None:
    graph = euler(40)
    folded = fold(graph, depth=1)
    assert titles(folded) == [("loop", "func() + 1 op", 40)]
    assert folded.original is graph
    assert fold(folded, depth=1) == folded


def test_a_long_function_outside_of_modules_is_a_group_when_called_once() -> None:
    loss = [(f"Loss{i}Backward0", "dice") for i in range(LEAST_OPS)]
    assert names(made([*loss, ("AddBackward0", "main")])) == {"dice()"}
    assert names(made([*loss[1:], ("AddBackward0", "main")])) == set()
    assert names(made([*loss, ("AddBackward0", "main")], "net")) == {"net"}  # a module's own helpers are read with it


def test_names_that_say_nothing_are_no_groups() -> None:
    for function in ("", "<lambda>", "<listcomp>", "__call__"):
        assert names(euler(40, function)) == set()
        assert names(made([("MulBackward0", function)] * LEAST_OPS + [("SumBackward0", "main")])) == set()
    assert names(euler(40, "forward", "net")) == {"net"}
    assert names(euler(40, "forward")) == {"forward()"}  # somebody's plain function


def test_a_line_without_a_function_is_a_group_when_it_makes_many_ops_each_time() -> None:
    update = [("SubBackward0", "<listcomp>")] * LEAST_OPS + [("AddBackward0", "main")]
    assert names(made(update * LEAST_CALLS)) == {"line 1"}


def test_what_backward_made_for_one_gradient_is_a_group() -> None:
    graph = made([(f"Op{i}Backward0", "main") for i in range(12)])
    source = SourceLine("pinn.py", 7, "main", "du = torch.autograd.grad(u, x, create_graph=True)[0]")
    nodes = tuple(node._replace(source=source) if node.sequence in range(3, 9) else node for node in graph.nodes)
    assert names(replace(graph, nodes=nodes)) == {"grad() line 7"}
    few = tuple(node._replace(source=source) if node.sequence in range(3, 6) else node for node in graph.nodes)
    assert names(replace(graph, nodes=few)) == set()


def test_a_loss_on_the_line_of_its_backward_was_not_made_by_backward() -> None:
    graph = made([(f"Op{i}Backward0", "learn") for i in range(12)])
    source = SourceLine("agent.py", 7, "learn", "loss = net(x).sum(); loss.backward()")
    nodes = tuple(node._replace(source=source) if node.sequence in range(3, 9) else node for node in graph.nodes)
    assert names(replace(graph, nodes=nodes)) == set()


UPDATE = ("MulBackward0", "SubBackward0")


def meta(*, tail: tuple[str, str] = UPDATE, from_weight: bool = True) -> Graph:
    """Two gradients of four ops that have a graph, each with two ops after it, the last one on the weights before."""
    program = Program()
    weights = x = program.op("CloneBackward0", weights=["w"])
    lines: list[str] = ["copy = w.clone()"]
    for _ in range(2):
        for name in ("ForwardBackward0", *(f"Grad{i}Backward0" for i in range(4))):
            x = program.op(name, x, weights)
        gradient = program.op(tail[0], x)
        weights = program.op(tail[1], gradient, weights if from_weight else x)
        lines += [
            "loss = net(x)",
            *["g = torch.autograd.grad(loss, w, create_graph=True)[0]"] * 4,
            *["w = w - rate * g"] * 2,
        ]
        x = weights
    program.op("MeanBackward0", x)
    graph = program.graph()
    sources = [SourceLine("maml.py", i + 1, "main", line) for i, line in enumerate([*lines, "loss = y.mean()"])]
    numbers = {text: source.line for source in reversed(sources) for text in [source.text]}
    return replace(
        graph,
        nodes=tuple(
            node
            if node.sequence is None
            else node._replace(source=(own := sources[node.sequence])._replace(line=numbers[own.text]))
            for node in graph.nodes
        ),
    )


def test_a_gradient_and_the_parameters_computed_from_it_are_an_update_step() -> None:
    graph = with_functions(meta())
    steps = {graph.scopes[node.scope].path: [] for node in graph.nodes if node.scope is not None}
    for node in graph.nodes:
        if node.scope is not None:
            steps[graph.scopes[node.scope].path].append(node.op)
    assert set(steps) == {"update step 1", "update step 2"}
    assert all(len(ops) == 6 and set(UPDATE) < set(ops) for ops in steps.values())


def test_a_penalty_on_a_gradient_is_no_update() -> None:
    assert {name.split(" line")[0] for name in names(meta(tail=("MulBackward0", "MeanBackward0")))} == {"grad()"}
    assert {name.split(" line")[0] for name in names(meta(from_weight=False))} == {"grad()"}


def stepped(lines: list[int | None]) -> Graph:
    """Two ops of `step` on each of these lines, a call of a module for None; a mean in `main` before and after it all."""
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    sources = [SourceLine("ode.py", 99, "main")]
    for line in lines:
        with program.call("net", "Net") if line is None else nullcontext():
            for name in ("MulBackward0", "AddBackward0"):
                x = program.op(name, x)
                sources.append(SourceLine("ode.py", line or 50, "forward" if line is None else "step"))
    program.op("MeanBackward0", x)
    sources.append(SourceLine("ode.py", 99, "main"))
    graph = program.graph()
    nodes = (n if n.sequence is None else n._replace(source=sources[n.sequence]) for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def calls_of_step(lines: list[int | None]) -> list[int]:
    """How many calls of the module each call of `step` made."""
    graph = with_functions(stepped(lines))
    calls = [i for i, scope in enumerate(graph.scopes) if scope.path == "step()"]
    return [sum(scope.parent == call for scope in graph.scopes) for call in calls]


def test_calls_of_modules_lie_in_the_function_that_goes_on_after_them() -> None:
    step: list[int | None] = [1, None, 2, None, 3]
    assert calls_of_step(step * 4) == [2, 2, 2, 2]
    folded = fold(stepped([*step, None] * 9), depth=1)
    assert max(count for _, title, count in titles(folded) if "step()" in title) >= 8


def test_a_loop_of_module_calls_in_a_function_is_one_call_when_another_line_ends_it() -> None:
    assert calls_of_step([1, None, 1, None, 1, None, 2] * 4) == [3, 3, 3, 3]
