"""Every operator and module that torch tests itself: walked, written, and compared with what the engine executes.

Torch's own databases give the samples: `op_db` for operators and `module_db` for modules. Up to a dozen samples of every
entry that supports autograd are walked; the first ones are written too, and the engine's count is taken for the first.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch

from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Graph
from gradviz.graph.files import loads
from gradviz.walker.walk import capture
from tests.walker.graphs import executed

pytestmark = pytest.mark.slow


WALKED = 12  # samples of each entry
WRITTEN = 2  # of those, written as JSON
_GROUPS = 8  # entries are tested in so many groups, to see progress and to share the work

# Operators whose backward torch itself refuses for these samples.
_NO_BACKWARD = {"to_sparse", "linalg.eig"}


@cache
def databases() -> tuple[list[Any], list[Any]]:
    """Operators and modules. Imported when a test needs them, which takes seconds."""
    pytest.importorskip("expecttest")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db
    operators = [op for op in op_db if op.supports_autograd and op.supports_dtype(torch.float32, "cpu")]
    return operators, list(module_db)


def given(samples: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from islice(samples, WALKED)
    except Exception:  # torch's sample makers need packages that are not everywhere (scipy)
        return


def run_operator(op: Any, sample: Any) -> Any:
    made = op(sample.input, *sample.args, **sample.kwargs)
    return sample.output_process_fn_grad(made)


def with_graph(made: Any) -> list[torch.Tensor]:
    found = [made] if isinstance(made, torch.Tensor) else [one for one in made if isinstance(one, torch.Tensor)]
    return [one for one in found if one.requires_grad and one.grad_fn is not None]


def check(graph: Graph) -> None:
    """What holds for every graph."""
    nodes = len(graph.nodes)
    assert all(node.op and node.id == i for i, node in enumerate(graph.nodes))
    assert all(0 <= edge.producer < nodes and 0 <= edge.consumer < nodes for edge in graph.edges)
    assert len(graph.order) == nodes
    for node in graph.nodes:
        for one in node.saved:
            assert one.state == "live" and one.tensor is not None, (node.op, one)
            assert one.storage is not None or one.note, (node.op, one)
            if one.storage is not None:
                assert graph.storages[one.storage].kind == one.kind


def check_json(graph: Graph) -> None:
    written = render(graph, "json")
    assert isinstance(written, str) and len(json.loads(written)["nodes"]) == len(graph.nodes)
    assert loads(written) == graph


def check_dot(graph: Graph) -> None:
    dot = render(graph, "dot", Options(names="backward", depth="all", views="show"))
    assert isinstance(dot, str) and dot.startswith("digraph") and dot.rstrip().endswith("}")
    for name in {node.op for node in graph.nodes[:1]}:
        assert name.removesuffix("0").removesuffix("Backward") in dot


def compare(roots: list[torch.Tensor], graph: Graph) -> None:
    expected: Counter[str] = Counter()
    for name, count in executed(roots).items():
        expected[name.rpartition("::")[2]] += count
    assert Counter(node.op.rpartition("::")[2] for node in graph.nodes) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", [0, *(pytest.param(group, marks=pytest.mark.long) for group in range(1, _GROUPS))])
def test_operators(group: int) -> None:
    walked = compared = 0
    for op in databases()[0][group::_GROUPS]:
        torch.manual_seed(0)
        number = 0
        for sample in given(op.sample_inputs_func(op, "cpu", torch.float32, True)):
            made = run_operator(op, sample)
            roots = with_graph(made)
            if not roots:  # such as `contiguous`, which returns its input
                assert all(root.node is not None or root.why for root in capture(made, need_graph=False).graph.roots)
                continue
            graph = capture(roots).graph
            check(graph)
            if number < WRITTEN:
                check_json(graph)
            if number == 0:
                check_dot(graph)
                if op.name not in _NO_BACKWARD:
                    compare(roots, graph)
                    compared += 1
            number += 1
        walked += number
    assert walked > 400 and compared > 55, (walked, compared)


@pytest.mark.filterwarnings("ignore")
def test_modules() -> None:
    walked = 0
    for info in databases()[1]:
        samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        for number, sample in enumerate(given(iter(samples))):
            if sample.forward_input is None:
                continue
            try:
                torch.manual_seed(0)
                module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
                made = module(*sample.forward_input.args, **sample.forward_input.kwargs)
            except (RuntimeError, TypeError):  # a sample that torch itself does not run
                continue
            roots = with_graph(made)
            if not roots:
                continue
            graph = capture(roots, model=module).graph
            walked += 1
            check(graph)
            if number < WRITTEN:
                check_json(graph)
            names = {name for found in graph.leaves for name in found.names}
            assert names <= {name for name, _ in module.named_parameters(remove_duplicate=False)}
            if number == 0:
                check_dot(graph)
                compare(roots, graph)
    assert walked > 500, walked


def test_the_databases_are_covered() -> None:
    operators, modules = databases()
    assert len({op.name for op in operators}) > 400 and len(modules) > 100
