"""Small graphs made by hand, for tests that need no torch."""

from __future__ import annotations

import random
from collections.abc import Iterable

import networkx

from gradviz.graph import (
    Base,
    Edge,
    Function,
    Graph,
    Group,
    Leaf,
    Node,
    Root,
    SavedTensor,
    Scope,
    SourceLine,
    Storage,
    TensorInfo,
)

ODD_NAMES = (
    "<lambda>",
    "a:b",
    "x\\",
    "</script>",
    'say "hi"',
    "{}|<>&;",
    "two\nlines\r\n",
    "👩‍🔬 lab",
    "שלום",
    "a\u202eb",
    "zero\u200bwidth\ufeff \U000e0041tag \x9b31m fill\u3164er",
    "\x00\x1b[31m",
    "\\N\\l",
    "#35;&amp;]]>",
    "```",
    "%s{0}",
    "\udc80",
    "",
    " ",
)
"""Text that a name may hold and that breaks careless writers of some format."""


def tensor(*shape: int | str, dtype: str = "float32", device: str = "cpu") -> TensorInfo:
    return TensorInfo(shape, dtype, device)


def leaf(node: int, *names: str, shape: tuple[int | str, ...] = (3, 4)) -> Leaf:
    return Leaf(node, names, tensor(*shape), "parameter")


def accumulate(node: int) -> Node:
    return Node(node, "AccumulateGrad", (tensor(3, 4),))


def chain(length: int, op: str = "MulBackward0") -> Graph:
    """`length` ops in a row from the output down to one leaf."""
    nodes = [Node(i, op, (tensor(3, 4),), length - i) for i in range(length)]
    edges = [Edge(i, i + 1, 0, 0) for i in range(length)]
    return Graph(
        nodes=(*nodes, accumulate(length)),
        edges=tuple(edges),
        leaves=(leaf(length, "x"),),
        roots=(Root(0, 0, "loss", tensor(3, 4)),),
    )


def diamond() -> Graph:
    """One leaf, two branches that meet again: `exp(x) + sin(x)`."""
    ops = ("AddBackward0", "ExpBackward0", "SinBackward0")
    nodes = (*(Node(i, op, (tensor(3, 4),), 3 - i) for i, op in enumerate(ops)), accumulate(3))
    edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1), Edge(1, 3, 0, 0), Edge(2, 3, 0, 0))
    return Graph(nodes, edges, (leaf(3, "x"),), (Root(0, 0, "y", tensor(3, 4)),))


def squared() -> Graph:
    """Two parallel edges: `a * a`."""
    nodes = (Node(0, "MulBackward0", (tensor(3, 4),), 0), accumulate(1))
    return Graph(nodes, (Edge(0, 1, 0, 0), Edge(0, 1, 0, 1)), (leaf(1, "a"),), (Root(0, 0, "y", tensor(3, 4)),))


def multi_output() -> Graph:
    """`unbind` makes three tensors; two of them are added, the third is an output of its own."""
    nodes = (
        Node(0, "AddBackward0", (tensor(4),), 1),
        Node(1, "UnbindBackward0", (tensor(4), tensor(4), tensor(4)), 0),
        accumulate(2),
    )
    edges = (Edge(0, 1, 0, 0), Edge(0, 1, 2, 1), Edge(1, 2, 0, 0))
    roots = (Root(0, 0, "sum", tensor(4)), Root(1, 1, "middle", tensor(4)))
    return Graph(nodes, edges, (leaf(2, "x"),), roots)


def shared_leaf(uses: int) -> Graph:
    """A chain of `uses` ops that all use one weight, as a recurrent cell does."""
    nodes = [Node(i, "MmBackward0", (tensor(3, 4),), uses - i) for i in range(uses)]
    edges = []
    for i in range(uses):
        edges += [Edge(i, i + 1 if i + 1 < uses else uses + 1, 0, 0), Edge(i, uses, 0, 1)]
    return Graph(
        nodes=(*nodes, accumulate(uses), accumulate(uses + 1)),
        edges=tuple(edges),
        leaves=(leaf(uses, "weight"), leaf(uses + 1, "x")),
        roots=(Root(0, 0, "h", tensor(3, 4)),),
    )


def views() -> Graph:
    """An output that is a view of another tensor of the graph, one whose base is a leaf, and one without a graph."""
    nodes = (
        Node(0, "ViewBackward0", (tensor(12),), 2),
        Node(1, "ExpBackward0", (tensor(3, 4),), 1),
        Node(2, "SelectBackward0", (tensor(4),), 0),
        accumulate(3),
    )
    edges = (Edge(0, 1, 0, 0), Edge(1, 3, 0, 0), Edge(2, 3, 0, 0))
    roots = (
        Root(0, 0, "flat", tensor(12), Base(tensor(3, 4), 1, 0, ("e",))),
        Root(2, 0, "row", tensor(4), Base(tensor(3, 4), 3)),
        Root(None, 0, "constant", tensor(), None, "it was made under torch.no_grad()"),
    )
    return Graph(nodes, edges, (leaf(3, "w"),), roots)


def folded() -> Graph:
    """A group of one module and one of a module called again, with several edges drawn as one."""
    nodes = (
        Node(0, "fc", (tensor(2, 2),), group=Group("module", "net.fc", (0, 1, 2), 1, 3, 1024, 4096)),
        Node(1, "cell", (tensor(2, 2),), group=Group("repeat", "net.cell", (3, 4), 12, 24)),
        accumulate(2),
    )
    edges = (Edge(0, 1, 0, 0, 3), Edge(1, 2, 0, 0, 12))
    return Graph(nodes, edges, (leaf(2, "w"),), (Root(0, 0, "y", tensor(2, 2)),), notes=("5 nodes were folded",))


def everything() -> Graph:
    """Every field of every record holds something."""
    where = SourceLine("/src/train.py", 12, "forward", "  h = self.fc(x)", "nets")
    script_line = SourceLine("/src/main.py", 3, "<module>", "loss = net(x)")
    float16 = TensorInfo(("s93", 4), "float16", "cuda:0", "jagged")
    saved = (
        SavedTensor("self", float16, 1, "activation", "live", 64, True, None, 3, "seen", parts=(1, 0)),
        SavedTensor("weight", tensor(3, 4), 0, "parameter", "live", 48, False, 1),
        SavedTensor("other", None, None, None, "freed", note="backward() has run", packing="hook"),
    )
    node = Node(
        0,
        "ScaleBackward",
        (float16, None),
        5,
        1,
        where,
        {
            "alpha": float("nan"),
            "dims": (1, -2),
            "big": 10**40,
            "infinite": float("-inf"),
            "mode": None,
            "b": b"\x00\xff",
        },
        saved,
        ("custom", "hooks"),
        ("h", "hidden"),
        2,
        Function("Scale", SourceLine("/src/ops.py", 3)),
        script_line=script_line,
    )
    return Graph(
        nodes=(node, accumulate(1)),
        edges=(Edge(0, 1, 0, 1),),
        leaves=(Leaf(1, ("w", "tied.w"), tensor(3, 4), "parameter", True, 1, 0, Base(tensor(12), None, 0, ("flat",))),),
        roots=(Root(0, 1, "out['y'][0]", float16, Base(tensor(2), 0, 0, ())),),
        scopes=(Scope("", "Net", 0, None, 12), Scope("fc", "Linear", 0, 0, 12, tensor(3, 4))),
        storages=(Storage(0, 48, "parameter"), Storage(1, None, "activation")),
        title="train.py:loss",
        torch="2.13.0",
        attribution="recorded",
        notes=("one saved tensor could not be read",),
    )


def freed() -> Graph:
    """A graph after backward(): the only node that saved something lost it."""
    saved = (SavedTensor("result", None, None, None, "freed"),)
    nodes = (
        Node(0, "AddBackward0", (tensor(3, 4),), 1),
        Node(1, "ExpBackward0", (tensor(3, 4),), 0, saved=saved, flags=("freed",)),
        accumulate(2),
    )
    return Graph(nodes, (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0)), (leaf(2, "x"),), (Root(0, 0, "y", tensor(3, 4)),))


def odd_names() -> Graph:
    """A chain whose ops, leaves, outputs, modules, files and notes bear every odd name."""
    count = len(ODD_NAMES)
    nodes = [
        Node(i, name, (TensorInfo((name, 2), name, name, name),), i, i, SourceLine(name, i, name, name), {name: name})
        for i, name in enumerate(ODD_NAMES)
    ]
    nodes = [
        node._replace(names=(node.op, "plain"), saved=(SavedTensor(node.op, None, None, None, "unknown"),))
        for node in nodes
    ]
    leaves = [leaf(count + i, name, "tied " + name) for i, name in enumerate(ODD_NAMES)]
    edges = [Edge(i, i + 1, 0, 0) for i in range(count - 1)] + [Edge(i, count + i, 0, 1) for i in range(count)]
    return Graph(
        nodes=(*nodes, *(accumulate(count + i) for i in range(count))),
        edges=tuple(sorted(edges, key=lambda edge: (edge.consumer, edge.position))),
        leaves=tuple(leaves),
        roots=tuple(Root(0, 0, name, tensor(3, 4)) for name in ODD_NAMES),
        scopes=tuple(Scope(name, name, 0, None) for name in ODD_NAMES),
        title=" ".join(ODD_NAMES),
        notes=ODD_NAMES,
    )


def random_dag(seed: int, size: int) -> Graph:
    """`size` nodes; each but the last uses one to three later ones, and those without inputs are leaves."""
    chance = random.Random(seed)
    edges = []
    for node in range(size - 1):
        if node and chance.random() < 0.2:
            continue  # no inputs: a leaf
        for position in range(chance.randint(1, 3)):
            edges.append(Edge(node, min(size - 1, node + 1 + int(chance.expovariate(0.3))), 0, position))
    inner = {edge.consumer for edge in edges}
    used = {edge.producer for edge in edges}
    nodes = [
        Node(i, f"Op{i % 7}Backward0", (tensor(i % 5, 2),), size - i) if i in inner else accumulate(i)
        for i in range(size)
    ]
    roots = [Root(i, 0, f"out{i}", tensor(2)) for i in range(size) if i not in used]
    return Graph(
        tuple(nodes), tuple(edges), tuple(leaf(i, f"w{i}") for i in range(size) if i not in inner), tuple(roots)
    )


def single_leaf() -> Graph:
    """The output is the leaf itself."""
    return Graph((accumulate(0),), (), (leaf(0, "w"),), (Root(0, 0, "w", tensor(3, 4)),))


GRAPHS = {
    "empty": Graph(),
    "single_leaf": single_leaf(),
    "chain": chain(3),
    "diamond": diamond(),
    "squared": squared(),
    "multi_output": multi_output(),
    "shared_leaf": shared_leaf(6),
    "views": views(),
    "folded": folded(),
    "everything": everything(),
    "freed": freed(),
    "odd_names": odd_names(),
    "random": random_dag(1, 40),
}
"""One graph of each kind that every renderer must draw."""


def cycles(edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Sets of at least two boxes that lie on a cycle together (strongly connected components)."""
    graph = networkx.DiGraph(pair for pair in edges if pair[0] != pair[1])
    return sorted(sorted(loop) for loop in networkx.strongly_connected_components(graph) if len(loop) > 1)
