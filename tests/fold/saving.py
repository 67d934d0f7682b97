"""Graphs made by hand that save something for backward."""

from __future__ import annotations

import random

from gradviz.graph import Edge, Graph, Node, SavedTensor, Scope, SourceLine, Storage, StorageKind, TensorInfo


def slot(
    storage: int | None, nbytes: int = 8, *, kind: StorageKind = "activation", dtype: str = "float32"
) -> SavedTensor:
    """A live slot that holds one storage."""
    return SavedTensor("self", TensorInfo((nbytes,), dtype, "cpu"), storage, kind, "live", nbytes)


def chain_of(*saved: tuple[SavedTensor, ...], storages: tuple[Storage, ...]) -> Graph:
    """Ops in a row, the first one ran last; each saved what is given for it."""
    count = len(saved)
    nodes = tuple(Node(i, f"Op{i}Backward0", sequence=count - i, saved=slots) for i, slots in enumerate(saved))
    return Graph(nodes, tuple(Edge(i, i + 1, 0, 0) for i in range(count - 1)), storages=storages)


def random_saving(seed: int, size: int = 60) -> Graph:
    """A graph with modules and lines whose nodes share storages of all kinds, some of unknown size."""
    chance = random.Random(seed)
    kinds: tuple[StorageKind, ...] = ("activation", "number", "input", "output", "parameter", "buffer")
    storages = tuple(Storage(i, chance.choice((None, 0, 4, 1000, 2**33)), chance.choice(kinds)) for i in range(size))
    nodes = []
    for i in range(size):
        held = [storages[chance.randrange(size)] for _ in range(chance.randrange(4))]
        slots = tuple(slot(one.id, kind=one.kind, dtype=chance.choice(("float32", "int64"))) for one in held)
        source = (
            SourceLine("/src/train.py", chance.randrange(1, 9), "forward", "x = f(x)")
            if chance.random() < 0.8
            else None
        )
        scope = chance.randrange(4) if chance.random() < 0.8 else None
        nodes.append(Node(i, f"Op{i % 5}Backward0", sequence=size - i, saved=slots, scope=scope, source=source))
    scopes = (Scope("", "Net", 0, None), *(Scope(f"layer{i}", "Linear", 0, 0) for i in range(3)))
    return Graph(tuple(nodes), tuple(Edge(i, i + 1, 0, 0) for i in range(size - 1)), storages=storages, scopes=scopes)
