"""Where a node comes from, as its reader knows it: the module calls around it, the line
of code, and the op of the forward pass.

`Node.source` is the line that called torch, `Node.script_line` the script's own where
that is a library's: where a library called torch, the script's own line says more to
its author. Where no call of a module was recorded, it matters who owns which leaf.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple, Protocol

from gradviz.graph.amounts import forward_order
from gradviz.graph.model import Graph
from gradviz.graph.records import Data, Node, Scope, SourceLine

# -- modules ---------------------------------------------------------------------------


class Registered(NamedTuple):
    """One module that can be called. Modules are numbered so that each comes before
    those inside it, which follow at once.
    """

    path: str
    type: str
    # the class of torch.nn whose `forward` it runs: "Sequential"; "" when it has a
    # forward of its own
    base: str
    parent: int | None
    parameters: int | None = None
    key: str = ""  # under which path the module around holds it
    # what its forward does: paths of modules that it calls, or names of operations
    steps: tuple[tuple[str, str], ...] | None = None


class Ownership(NamedTuple):
    """The modules of a model, and by leaf of a graph (id of the AccumulateGrad node)
    those that hold its parameter.
    """

    modules: tuple[Registered, ...]
    owners: Mapping[int, tuple[int, ...]]
    # by leaf under which name the module has it
    names: Mapping[int, str] = {}


class _Nested(Protocol):
    @property
    def parent(self) -> int | None: ...


def around(records: Sequence[_Nested], index: int | None) -> Iterator[int]:
    """A record, by its index, and all that it is inside of, inner first."""
    while index is not None:
        yield index
        index = records[index].parent


def common(records: Sequence[_Nested], some: Iterable[int]) -> int | None:
    """The innermost record that all of these are, or are inside of."""
    first, *rest = (list(around(records, index)) for index in sorted(some))
    others = [set(outer) for outer in rest]
    for index in first:
        if all(index in outer for outer in others):
            return index
    return None


def module_path(scopes: Sequence[Scope], scope: int | None) -> str:
    """The path of the innermost module that a scope is, or lies in; "" for none."""
    inside = (scopes[outer] for outer in around(scopes, scope))
    return next((record.path for record in inside if record.kind == "module"), "")


def outer_paths(path: str) -> list[str]:
    """A module's path and those of the modules around it, outermost first.

    >>> outer_paths("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    return list(accumulate(path.split(".") if path else [], "{}.{}".format))


class ScopeTree:
    """Reads `Graph.scopes` as a tree. A scope is one call of one module, given by its
    id.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.scopes: tuple[Scope, ...] = graph.scopes

    @cached_property
    def children(self) -> list[list[int]]:
        """Ids of the calls made directly inside each call."""
        children: list[list[int]] = [[] for _ in self.scopes]
        for i, scope in enumerate(self.scopes):
            if scope.parent is not None:
                children[scope.parent].append(i)
        return children

    @cached_property
    def outermost(self) -> list[int]:
        """Ids of the calls that no other call is around."""
        return [i for i, scope in enumerate(self.scopes) if scope.parent is None]

    @cached_property
    def top_down(self) -> list[int]:
        """All scopes, every one after the scope around it."""
        order = list(self.outermost)
        for scope in order:  # grows while it is read
            # appended behind, so parents come before their children
            order.extend(self.children[scope])
        return order

    def where_written(self, scope: int | None, data: Data) -> int | None:
        """The innermost scope around this one in which data was written: in no module whose
        code did not write it.
        """
        if not data.inner or data.scope is None:
            return scope if data.inner else None
        own = set(self.around(data.scope)) if data.scope >= 0 else set()
        home: int | None = None
        for outer in reversed(list(self.around(scope))):
            if self.scopes[outer].kind == "module" and outer not in own:
                break
            home = outer
        return home

    @cached_property
    def depth(self) -> list[int]:
        """Nesting depth: 1 for an outermost call."""
        depths = [1] * len(self.scopes)
        for i in self.top_down:
            parent = self.scopes[i].parent
            if parent is not None:
                depths[i] = depths[parent] + 1
        return depths

    @cached_property
    def members(self) -> list[list[int]]:
        """Ids of the nodes inside each call, inner calls included, in forward order;
        AccumulateGrad nodes left out.
        """
        nodes: list[list[int]] = [[] for _ in self.scopes]
        for node in self._graph.fact(forward_order):
            record = self._graph.nodes[node]
            # an AccumulateGrad ran nothing: its parameter was there before
            if record.sequence is not None:
                for scope in self.around(record.scope):
                    nodes[scope].append(node)
        return nodes

    @cached_property
    def place(self) -> list[int]:
        """Where each call begins among all nodes in forward order; calls without nodes
        come last.
        """
        return [
            self.position[inside[0]] if inside else len(self.position)
            for inside in self.members
        ]

    @cached_property
    def position(self) -> list[int]:
        """Where each node stands in forward order."""
        position = [0] * len(self._graph.nodes)
        for i, node in enumerate(forward_order(self._graph)):
            position[node] = i
        return position

    def module_path(self, scope: int | None) -> str:
        """The path of the innermost module that a scope is, or lies in; "" for none."""
        return module_path(self.scopes, scope)

    def around(self, scope: int | None) -> Iterator[int]:
        """The scope itself and every scope around it, inner first."""
        return around(self.scopes, scope)

    def common(self, scopes: set[int | None]) -> int | None:
        """The innermost scope that contains all of these; None stands for outside every
        module.
        """
        scope_ids = [scope for scope in scopes if scope is not None]
        if scope_ids and len(scope_ids) == len(scopes):
            return common(self.scopes, scope_ids)
        return None


# -- lines of code ---------------------------------------------------------------------


def own_line(node: Node) -> SourceLine | None:
    """The script's line that made a node, directly or through a library; the library's
    where no script was running.
    """
    return node.script_line or node.source


def op_line(node: Node) -> SourceLine | None:
    """The line that called torch, a library's perhaps."""
    return node.source


class Lines(NamedTuple):
    """Which line stands for a node, and what a reader must know about that."""

    of: Callable[[Node], SourceLine | None]
    note: str = ""


def telling_lines(nodes: Iterable[Node]) -> Lines:
    """The script's lines where more than half of these nodes were made by a library's,
    else the lines that called torch.
    """
    packages: Counter[str] = Counter()
    located = 0

    for node in nodes:
        located += node.source is not None
        if node.source is not None and node.script_line is not None:
            packages[node.source.package] += 1

    library = sum(packages.values())
    # most ops were made by the script itself, and a library's lines are worth seeing
    # beside them
    if 2 * library <= located:
        return Lines(op_line)

    names = " and ".join(name for name, _ in packages.most_common(2))
    return Lines(
        own_line,
        f"lines are the script's own: {library:,} of {located:,} ops were made in lines of {names}",
    )


def calls_from(graph: Graph) -> dict[int, SourceLine]:
    """The script's line that each scope's ops come from, where a library made them all
    and one line of the script is behind.
    """
    lines: dict[int, SourceLine | None] = {}

    for node in graph.nodes:
        if node.sequence is None:
            continue  # a leaf was made by no line
        scope, line = node.scope, node.script_line
        while scope is not None and not (scope in lines and lines[scope] is None):
            if scope in lines and lines[scope] == line:
                # and so for every scope around it, or that one is told to differ
                # already
                break
            # a second line: no single one stands for this scope
            lines[scope] = line if scope not in lines else None
            line = lines[scope]
            scope = graph.scopes[scope].parent

    return {scope: line for scope, line in lines.items() if line is not None}


# -- ops of the forward pass -----------------------------------------------------------

# Names of forward ops in place of backward functions: `AddmmBackward0` becomes `addmm`.
# Autograd names a backward function after the op of torch that it differentiates, in
# capitals, with `Backward` and a number for the overload. This writes the op's own name
# again. A custom Function keeps the name of its class.

_NAMESPACE = re.compile(r"(?:\b\w+|\(anonymous namespace\))::")  # of C++
_BACKWARD = re.compile(r"Backward\d*$")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_DIMENSIONS = re.compile(r"(\d)D")


def forward_name(node: Node) -> str:
    """The op that a node is the backward of.

    >>> forward_name(Node(0, "NativeLayerNormBackward0"))
    'native_layer_norm'
    >>> forward_name(Node(0, "MaxPool2DWithIndicesBackward0"))
    'max_pool2d_with_indices'
    >>> forward_name(Node(0, "torch::jit::(anonymous namespace)::DifferentiableGraphBackward"))
    'differentiable_graph'
    >>> forward_name(Node(0, "torch::autograd::CppNode<vision::ops::(anonymous namespace)::ROIAlignFunction>"))
    'ROIAlignFunction'
    """
    if node.function is not None:
        return node.function.name.rpartition(".")[2]
    return op_of(node.op)


@lru_cache
def op_of(backward: str) -> str:
    """The op of the forward pass behind the name of a backward function."""
    if backward == "CopySlices":
        return "copy_ into a view"

    op = _NAMESPACE.sub("", backward)
    if op != backward and op.endswith(">"):  # of a Function in C++
        op = op.partition("<")[2].removesuffix(">")

    name = _BACKWARD.sub("", op)
    if name == op:  # AccumulateGrad, and names that are not made by autograd's rule
        return op

    return _WORD_STARTS.sub("_", _DIMENSIONS.sub(r"\1d", name)).lower()


def op_text(node: Node) -> str:
    """The op as code has it: `matmul` for any product of matrices, `[1:5]` for a slice,
    `** 2`, `/ 2.83`, else its name.

    >>> op_text(Node(0, "SliceBackward0", attributes={"dim": 1, "start": 2, "end": 2**63 - 1, "step": 1}))
    '[:, 2:]'
    >>> op_text(Node(0, "BmmBackward0")), op_text(Node(0, "PowBackward0", attributes={"exponent": 2}))
    ('matmul', '** 2')
    >>> op_text(Node(0, "MulBackward0", attributes={"other": 2})), op_text(Node(0, "AddBackward0", written="+ 1"))
    ('* 2', '+ 1')
    >>> op_text(Node(0, "ScaledDotProductFlashAttentionForCpuBackward0"))
    'scaled_dot_product_attention'
    """
    if node.written:
        return node.written
    name = forward_name(node)
    if name in _OPERATORS:
        value = saved_number(node)
        return name if value is None else _OPERATORS[name].format(_number(value))
    written = _WRITTEN.get(name)
    if written is not None and node.attributes:
        try:
            return written(**node.attributes)
        except (TypeError, ValueError):  # an older file, or a size that is a symbol
            return name
    name = _KERNEL.sub("", name)
    return _USUAL.get(name, name)


_USUAL = {"mm": "matmul", "bmm": "matmul", "convolution": "conv"}
"""Ops that torch calls by another name than a user does."""
_KERNEL = re.compile(
    r"^(?:native|unsafe|safe|cudnn|miopen|mkldnn)_|_with_indices$|_for_cpu$|"
    r"(?<=scaled_dot_product)_(?:flash|efficient|fused|cudnn)(?=_attention)"
)
"""What names of ops say of how they are computed."""


def _place(dim: int, inside: str, sizes: Sequence[int]) -> str:
    return f"[{':, ' * (dim + len(sizes) if dim < 0 else dim)}{inside}]"


def _slice(
    dim: int, start: int, end: int, step: int, self_sym_sizes: Sequence[int] = ()
) -> str:
    reaches_end = end >= (self_sym_sizes[dim] if self_sym_sizes else 2**63 - 1)
    inside = (
        f"{start or ''}:{'' if reaches_end else end}{f':{step}' if step != 1 else ''}"
    )
    return _place(dim, inside, self_sym_sizes)


def _select(dim: int, index: int, self_sym_sizes: Sequence[int] = ()) -> str:
    return _place(dim, str(index), self_sym_sizes)


def _power(exponent: float) -> str:
    return f"** {_number(exponent)}"


def _number(value: complex) -> str:
    """
    >>> _number(5000.0), _number(2.8284), _number(4e9)
    ('5000', '2.83', '4e+09')
    """
    if isinstance(value, (int, float)) and value == value // 1 and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}"


_WRITTEN: dict[str, Callable[..., str]] = {
    "slice": _slice,
    "select": _select,
    "pow": _power,
}

_OPERATORS = {
    "mul": "* {}",
    "div": "/ {}",
    "add": "+ {}",
    "sub": "- {}",
    "rsub": "{} -",
}
"""How an op on a number is written."""


def saved_number(node: Node) -> int | float | complex | None:
    """The number that an op of two operands was given, where the node keeps it."""
    value = node.attributes.get("other")
    is_plain = node.attributes.get("alpha", 1) == 1
    return value if isinstance(value, (int, float, complex)) and is_plain else None
