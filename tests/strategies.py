"""Hypothesis strategies: graphs with arbitrary shape and arbitrary text in them."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from gradviz.graph import (
    BackwardStep,
    Base,
    Edge,
    Function,
    Graph,
    Group,
    GroupKind,
    Leaf,
    LeafKind,
    Node,
    NodeFlag,
    Packing,
    Root,
    SavedState,
    SavedTensor,
    Scope,
    SourceLine,
    Storage,
    StorageKind,
    TensorInfo,
    Uses,
)
from tests.builders import ODD_NAMES

text = st.one_of(st.sampled_from(ODD_NAMES), st.text(st.characters(), max_size=12))
"""Any text, half surrogates too."""

counts = st.integers(0, 2**64)
tensors = st.builds(
    TensorInfo, st.none() | st.lists(st.integers(0, 10**6) | text, max_size=4).map(tuple), text, text, text
)
sources = st.builds(SourceLine, text, st.integers(0, 10**6), text, text, text)
numbers = st.integers() | st.integers(10**30, 10**31) | st.floats() | st.complex_numbers(allow_subnormal=True)
plain = st.none() | st.booleans() | numbers | text | st.binary(max_size=6)
attribute_values: st.SearchStrategy[Any] = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(text, inner, max_size=3)
    ),
    max_leaves=6,
)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _below(size: int) -> st.SearchStrategy[Any]:
    """An id below `size`, or None."""
    return _maybe(st.integers(0, size - 1)) if size else st.none()


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8) -> Graph:
    """Graphs in which every reference is valid and every field may hold anything of its type."""
    size = draw(st.integers(0, max_nodes))
    scope_count, storage_count = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    storage = st.builds(lambda nbytes, kind: (nbytes, kind), _maybe(counts), st.sampled_from(get_args(StorageKind)))
    saved = st.builds(
        SavedTensor,
        text,
        _maybe(tensors),
        _below(storage_count),
        _maybe(st.sampled_from(get_args(StorageKind))),
        st.sampled_from(get_args(SavedState)),
        _maybe(counts),
        st.booleans(),
        _below(size),
        _maybe(counts),
        text,
        st.sampled_from(get_args(Packing)),
        st.lists(st.integers(0, storage_count - 1), max_size=2).map(tuple) if storage_count else st.just(()),
    )
    group = st.builds(
        Group,
        st.sampled_from(get_args(GroupKind)),
        text,
        st.lists(counts, max_size=3).map(tuple),
        counts,
        counts,
        counts,
        _maybe(counts),
        _maybe(counts),
        st.lists(st.builds(Uses, st.integers(0, size - 1), counts, counts), max_size=2).map(tuple)
        if size
        else st.just(()),
        st.lists(st.tuples(counts, counts), max_size=2).map(tuple),
        outside=counts,
    )
    flags = st.lists(st.sampled_from(get_args(NodeFlag)), max_size=3, unique=True).map(tuple)
    base = st.builds(Base, tensors, _below(size), st.integers(0, 3), st.lists(text, max_size=2).map(tuple))
    nodes, edges, leaves = [], [], []
    for i in range(size):
        node = st.builds(
            Node,
            st.just(i),
            text,
            st.lists(_maybe(tensors), max_size=3).map(tuple),
            _maybe(counts),
            _below(scope_count),
            _maybe(sources),
            st.dictionaries(text, attribute_values, max_size=2),
            st.lists(saved, max_size=2).map(tuple),
            flags,
            st.lists(text, max_size=2).map(tuple),
            st.integers(0, 3),
            _maybe(st.builds(Function, text, _maybe(sources))),
            _maybe(group),
            _maybe(sources),
            numbers=counts,
        )
        nodes.append(draw(node))
        below = st.integers(i + 1, size - 1) if i + 1 < size else st.nothing()
        for position, producer in enumerate(draw(st.lists(below, max_size=3 if i + 1 < size else 0))):
            edges.append(Edge(i, producer, draw(st.integers(0, 2)), position, draw(st.integers(1, 3))))
    inner = {edge.consumer for edge in edges}
    for i in set(range(size)) - inner:
        if draw(st.booleans()):
            made = st.builds(
                Leaf,
                st.just(i),
                st.lists(text, max_size=2).map(tuple),
                tensors,
                st.sampled_from(get_args(LeafKind)),
                st.booleans(),
                st.integers(0, 3),
                _below(storage_count),
                _maybe(base),
            )
            leaves.append(draw(made))
    roots = draw(
        st.lists(st.builds(Root, _below(size), st.integers(0, 2), text, tensors, _maybe(base), text), max_size=3)
    )
    steps = [BackwardStep(i, draw(_maybe(st.floats(0, allow_nan=False)))) for i in range(draw(st.integers(0, size)))]
    return Graph(
        backward=tuple(steps),
        nodes=tuple(nodes),
        edges=tuple(edges),
        leaves=tuple(leaves),
        roots=tuple(roots),
        scopes=tuple(
            draw(
                st.builds(
                    Scope, text, text, counts, _below(i), _maybe(counts), _maybe(tensors), turns=counts, frozen=counts
                )
            )
            for i in range(scope_count)
        ),
        storages=tuple(Storage(i, *draw(storage)) for i in range(storage_count)),
        title=draw(text),
        torch=draw(text),
        attribution=draw(st.sampled_from(("", "recorded", "inferred"))),
        notes=tuple(draw(st.lists(text, max_size=2))),
    )
