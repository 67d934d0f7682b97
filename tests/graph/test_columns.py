"""Records in columns are the records: equal, in the same order, whichever way they are read."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch

import gradviz
from gradviz.graph import Graph, column
from gradviz.graph.columns import EdgeColumns, NodeColumns, StorageColumns
from gradviz.graph.files import load
from gradviz.walker import walk
from tests.walker.graphs import leaf, needs_raw


class Twice(torch.autograd.Function):
    """Saves a tensor on `ctx` itself and has a result without a gradient."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.scale = torch.tensor([2.0])
        index = x.argmax()
        ctx.mark_non_differentiable(index)
        return x * 2, index

    @staticmethod
    def backward(ctx, grad, _):  # type: ignore[no-untyped-def]
        return grad * ctx.scale


def freed() -> torch.Tensor:
    y = (leaf().exp() * 3).sum()
    y.backward()
    return y


def modified() -> torch.Tensor:
    hidden = leaf().exp()
    y = hidden.sum()
    hidden.add_(1)
    return y


def hooked() -> torch.Tensor:
    with torch.autograd.graph.save_on_cpu():
        y = leaf().tanh()
    y.register_hook(lambda grad: grad)
    return y


MAKE: dict[str, Callable[[], object]] = {
    "chain": lambda: leaf().tanh().sin().exp(),
    "net": lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))(torch.ones(2, 3)),
    "several outputs": lambda: torch.stack(leaf(4).split(2)).unbind(),
    "list of tensors": lambda: leaf()[torch.tensor([0, 1])],
    "custom": lambda: Twice.apply(leaf()),
    "shared": lambda: (lambda x: x * x + x)(leaf()),
    "output is a leaf": lambda: [leaf(), leaf() * 2],
    "nothing required": lambda: torch.ones(3) * leaf(),
    "freed": freed,
    "modified": modified,
    "hooked": hooked,
}


def both(make: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, saved: bool = True) -> tuple[Graph, Graph]:
    """The same outputs walked into records and into columns."""
    outputs = make()
    records = gradviz.walk(outputs, saved=saved)
    monkeypatch.setattr(walk, "RECORDS_UP_TO", -1)
    return records, gradviz.walk(outputs, saved=saved)


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", MAKE)
def test_a_graph_in_columns_equals_the_graph_of_records(
    name: str, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, columns = both(MAKE[name], monkeypatch, saved=saved)
    assert type(records.nodes) is tuple and type(columns.nodes) is NodeColumns
    assert type(columns.edges) is EdgeColumns and (not saved or type(columns.storages) is StorageColumns)
    assert columns == records and records == columns and repr(columns) == repr(records)
    for mine, theirs in zip(
        (columns.nodes, columns.edges, columns.storages), (records.nodes, records.edges, records.storages)
    ):
        count = len(theirs)
        assert [type(one) for one in mine] == [type(one) for one in theirs]
        assert [mine[i] for i in range(-count, count)] == [theirs[i] for i in range(-count, count)]
        for piece in (slice(None), slice(1, 3), slice(2, None), slice(None, -1), slice(None, None, -1), slice(3, 1)):
            assert mine[piece] == theirs[piece]
        for outside in (count, -count - 1):
            with pytest.raises(IndexError):
                mine[outside]
    assert [columns.inputs(i) for i in range(len(columns.nodes))] == [
        records.inputs(i) for i in range(len(records.nodes))
    ]


def test_columns_differ_where_the_graphs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    one, columns = both(lambda: leaf().tanh().sin(), monkeypatch)
    other = gradviz.walk(leaf().tanh().cos())
    assert columns.nodes != other.nodes and columns.nodes != one.nodes[:-1] and columns.nodes != list(one.nodes)


@pytest.mark.parametrize("name", MAKE)
def test_columns_survive_a_file_and_a_pickle(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    records, columns = both(MAKE[name], monkeypatch)
    assert pickle.loads(pickle.dumps(columns)) == records
    assert load(columns.save(str(tmp_path / "graph.json"))) == records


@needs_raw
def test_what_nodes_share_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain() -> torch.Tensor:
        y = leaf()
        for _ in range(100):
            y = y.tanh()
        return y

    _, graph = both(chain, monkeypatch)
    assert isinstance(graph.nodes, NodeColumns)
    tanh = range(100)
    assert len({id(graph.nodes.type[i]) for i in tanh}) == len({id(graph.nodes.outputs[i]) for i in tanh}) == 1
    forms = graph.nodes.saved.form  # the first is read the long way
    assert len(forms) == 100 and len({id(form) for form in forms[1:]}) == 1
    assert [slot.storage for node in graph.nodes for slot in node.saved] == list(range(100))


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("name", MAKE)
def test_one_field_of_all_records_is_that_of_each(name: str, saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for graph in both(MAKE[name], monkeypatch, saved=saved):
        for records in (graph.nodes, graph.edges, graph.storages):
            for field in type(records[0])._fields if records else ():
                read = column(records, field)
                assert len(read) == len(records)
                assert list(read) == [getattr(record, field) for record in records], field
                assert read[len(records) - 1] == getattr(records[-1], field)
