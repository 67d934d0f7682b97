"""What every part of the package needs is written once: no module has a copy of its own."""

from __future__ import annotations

import ast
from typing import get_args

import pytest
import torch

import gradviz
from benchmarks.size import ambiguous_names, branches, tokens, wide_functions
from gradviz.graph import Graph, Group, StorageKind
from gradviz.wording import few_lines
from tests.blocks import PACKAGE
from tests.test_structure import MODULES

_KINDS = set(get_args(StorageKind))
_COPIES = {
    "gradviz.wording.few": lambda code: '} more" if ' in code or "} more' if " in code,
    "gradviz.report.results.console": lambda code: "import Console" in code and " Console(" in code,
    "gradviz.wording.json_ready": lambda code: "isfinite(" in code and "else str(value)" in code,
    "gradviz.wording.plural or verb": lambda code: "'s' if " in code or '"s" if ' in code,
    "gradviz.graph.Graph.with_root_names": lambda code: "root._replace(name=name)" in code,
    "gradviz.graph.amounts.known_elements": lambda code: "isinstance(size, int))" in code and "prod(size for" in code,
}
"""By who owns it: what tells a copy."""
_OWNERS = {
    "gradviz.report.results",
    "gradviz.wording",
    "gradviz.graph.model",
    "gradviz.graph.amounts",
    "gradviz.walker.tensors",
}


@pytest.mark.parametrize("owner", _COPIES)
def test_there_is_one_of_it(owner: str) -> None:
    assert not [name for name, path in MODULES.items() if name not in _OWNERS and _COPIES[owner](path.read_text())]


def test_which_kinds_of_storage_count_is_said_beside_them() -> None:
    def lists(name: str) -> bool:
        found = [
            node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, (ast.Tuple, ast.Set))
        ]
        words = [{one.value for one in node.elts if isinstance(one, ast.Constant)} for node in found]
        return any(len(one) > 1 and "activation" in one and one <= _KINDS for one in words)

    assert [name for name in MODULES if lists(name)] == ["gradviz.graph.amounts", "gradviz.graph.model"]


def test_lists_of_lines_say_how_many_more_there_are() -> None:
    assert few_lines(["a", "b", "c"], 2) == ["  a", "  b", "  ... and 1 more"]
    assert few_lines(["a", "b"], 2) == ["  a", "  b"]


def test_a_folded_graph_knows_which_nodes_are_in_each_box() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    whole = gradviz.walk(
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))(x).exp().sum()
    )
    joined = (0, 1)
    rest = [node for node in whole.nodes if node.id not in joined]
    box = whole.nodes[0]._replace(group=Group("chain", "SumBackward0 … ExpBackward0", joined))
    nodes = tuple(node._replace(id=i) for i, node in enumerate([rest[0], box, *rest[1:]]))
    folded = Graph(nodes, original=whole)
    assert [folded.inside[1], *folded.inside[2:]] == [joined, *((node.id,) for node in rest[1:])]
    assert [folded.box_of[node] for node in range(4)] == [1, 1, 0, 2]
    assert whole.box_of == {node.id: node.id for node in whole.nodes}


def test_a_class_name_means_one_thing() -> None:
    assert len(ambiguous_names(PACKAGE)) <= 3


def test_functions_are_narrow() -> None:
    """But for those of checks and fold, the page's sheets, and a few in hot loops."""
    wide = [place for place in wide_functions(PACKAGE) if not place.startswith(("checks/", "fold/", "page/"))]
    assert len(wide) <= 4, wide


def test_size_is_counted_without_comments_and_docstrings() -> None:
    code = 'def f(a):\n    """Text."""\n    # more\n    return [b for b in a if b and a] if a else ""\n'
    assert (tokens(code), branches(ast.parse(code).body[0])) == (22, 4)
