"""What an operation does to the graph of what it is given, by its name: keeps it, cuts
it off, or takes nothing of its value at all.
"""

from __future__ import annotations

import ast
import re
from ast import AST, Call
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gradviz.source.bindings import dotted
from gradviz.source.cut import COMPARISONS, METHODS, DetachKind
from gradviz.source.statements import called

if TYPE_CHECKING:
    from gradviz.cuts.dataflow import CodeFile


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WITHOUT_VALUE = _words(
    """
    size dim numel element_size stride storage_offset data_ptr type_as_string
    zeros_like ones_like empty_like rand_like randn_like randint_like
    new_zeros new_ones new_empty is_floating_point is_complex print len isinstance issubclass type id repr str format hasattr
    callable range backward step zero_grad register_hook retain_grad
    save manual_seed info debug warning set_description set_postfix writerow
    """
)
"""Functions and methods of which the result has nothing of a value."""
_OPTIMIZERS = frozenset(
    name for name, value in vars(torch.optim).items() if isinstance(value, type)
)
_FACTS = _words(
    """
    shape dtype device ndim layout grad requires_grad is_leaf grad_fn names
    is_cuda itemsize nbytes training
    """
)
"""Attributes of a tensor that have nothing of its value."""
WITH_INDICES = _words("max min topk sort median mode kthvalue cummax cummin")
"""Functions that return values and indices."""
_NEW = _words("tensor Tensor FloatTensor LongTensor DoubleTensor as_tensor")
_FILLING = _words("full full_like new_full new_tensor")
"""Functions that fill a new tensor, but for the last with their second argument."""
_NUMBERS = {
    "float": "__float__",
    "int": "__int__",
    "complex": "__complex__",
    "bool": "__bool__",
    "round": "__round__",
}
_CONTAINERS = _words(
    """
    list tuple dict set zip enumerate reversed sorted map filter next iter
    values items keys get pop copy getattr float contiguous to cuda cpu double
    half type requires_grad_ parameters named_parameters children modules
    state_dict
    """
)
"""Calls that may well return what they are given, so that no node is made."""
_INTEGERS = re.compile(
    r"(torch\.)?(u?int\d*|long|short|bool|(Long|Int|Bool|Byte)Tensor)\b"
)
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Gt: "gt",
    ast.Lt: "lt",
    ast.GtE: "ge",
    ast.LtE: "le",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


class Inflow(NamedTuple):
    """A value that goes into another one. `kind`: its graph does not, and how it is lost.

    `argument_of` is the call that it is given to, `result_of` the call that returns it,
    and `element` which one of the values that this returns.
    """

    value: AST
    kind: DetachKind | None = None
    argument_of: Call | None = None
    result_of: Call | None = None
    element: int | None = None


class Effect(NamedTuple):
    """`inflows` are the values that go in. `operation` is what cuts, as torch calls it.

    `computes`: where one of them has a graph, a node is made.
    """

    inflows: Sequence[Inflow] = ()
    operation: str = ""
    computes: bool = False


_PARTS: dict[type[AST], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"),
    ast.AugAssign: ("value",),
    ast.UnaryOp: ("operand",),
    ast.IfExp: ("body", "orelse"),
    ast.BoolOp: ("values",),
    ast.Dict: ("values",),
    ast.DictComp: ("value",),
    ast.ListComp: ("elt",),
    ast.SetComp: ("elt",),
    ast.GeneratorExp: ("elt",),
    ast.Tuple: ("elts",),
    ast.List: ("elts",),
    ast.Set: ("elts",),
    ast.Starred: ("value",),
    ast.NamedExpr: ("value",),
    ast.Await: ("value",),
    ast.Yield: ("value",),
}
"""The parts of an expression that go into its value."""


def effect(node: Any, code: CodeFile) -> Effect:
    """What an expression does."""
    if isinstance(node, Call):
        return _of_call(node, code)
    if isinstance(node, ast.Compare):
        operation = COMPARED.get(type(node.ops[0]), "")
        sides = [node.left, *node.comparators] if operation else []
        return Effect(_inflows(sides, "integer"), operation)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return _of_part(node)

    parts: list[Any] = []
    for name in _PARTS.get(type(node), ()):
        part = getattr(node, name)
        parts += part if isinstance(part, list) else [part]
    negates = isinstance(getattr(node, "op", None), ast.Not)
    return Effect(
        _inflows([] if negates else parts), computes=isinstance(node, _COMPUTE)
    )


_COMPUTE = (ast.BinOp, ast.AugAssign, ast.UnaryOp)


def _inflows(parts: Iterable[Any], kind: DetachKind | None = None) -> list[Inflow]:
    return [Inflow(part, kind) for part in parts if part is not None]


def _of_part(node: ast.Attribute | ast.Subscript) -> Effect:
    """Of `x.data`, `x.shape`, `x[0]`, and of the indices that a call returns."""
    holder = called(node.value)
    if isinstance(node, ast.Attribute):
        is_indices = node.attr == "indices"
        if node.attr == "data":
            return Effect(_inflows([node.value], "data"), "data")
        parts: list[AST] = [] if node.attr in _FACTS else [node.value]
    else:
        is_indices = ast.unparse(node.slice) in ("1", "-1")
        parts = [node.value, *_index(node.slice)]

    if is_indices and holder in WITH_INDICES:
        return Effect(_inflows([node.value], "integer"), holder)
    return Effect(_inflows(parts))


def _index(part: AST) -> Iterator[AST]:
    """The values in an index."""
    for index in getattr(part, "elts", [part]):
        if isinstance(index, ast.Slice):
            yield from filter(None, (index.lower, index.upper))
        elif not isinstance(index, ast.Constant):
            yield index


class _Called(NamedTuple):
    """What a call is of: `x` and `f` of `x.f(y)`, "torch" and `f` of `torch.f(x)`.
    `values` are what it is about, and its other arguments.
    """

    name: str
    owner: AST | None
    root: str
    values: Sequence[AST]

    @property
    def is_plain(self) -> bool:
        """Whether it is of a name, as `float(x)`."""
        return self.owner is None and not self.root


def _read_call(call: Call, code: CodeFile) -> _Called:
    owner: Any = getattr(call.func, "value", None)
    named = [keyword.value for keyword in call.keywords]
    values: list[AST] = [*call.args, *named]
    if owner is not None and code.is_module(owner):
        root = dotted(owner).partition(".")[0]
        return _Called(called(call), None, root, values)
    if owner is not None:
        values.insert(0, owner)
        return _Called(called(call), owner, "", values)
    # `from torch.autograd import grad as torch_grad`
    module, original = code.imports.get(called(call), ("", ""))
    name = original if module.partition(".")[0] == "torch" else ""
    return _Called(name or called(call), None, "", values)


def _of_call(call: Call, code: CodeFile) -> Effect:
    read = _read_call(call, code)
    name, values = read.name, read.values
    if name in _WITHOUT_VALUE or name in _OPTIMIZERS or code.adds(call):
        return Effect()
    if name == "grad" and read.owner is None:
        return _of_grad(call, values)
    if name in _FILLING:
        return _of_filling(call, name)

    kind = _kind(read)
    if kind is not None:
        is_of_all = kind == "numpy" or name in COMPARISONS
        lost = _inflows(values if is_of_all else values[:1], kind)
        return Effect(lost, _NUMBERS.get(name, name))

    computes = name not in _CONTAINERS and not read.is_plain
    operation = name if name in WITH_INDICES else ""
    return Effect(_inflows(values), operation, computes)


def _of_filling(call: Call, name: str) -> Effect:
    """Nothing goes in of what the new tensor is like."""
    copies = name == "new_tensor"
    values = [*call.args[not copies :], *(part.value for part in call.keywords)]
    return Effect(_inflows(values, "new" if copies else None), name)


def _kind(read: _Called) -> DetachKind | None:
    """How a call cuts, by its name and that of the module that has it."""
    name, first = read.name, next(iter(read.values), None)
    if read.root in _MODULES:
        return _MODULES[read.root]
    if read.is_plain and name in _NUMBERS:
        return "number"
    if name in METHODS:
        return METHODS[name] if not read.is_plain or name in _TORCH else None

    if name in ("to", "type", "astype"):
        texts = map(ast.unparse, read.values[1:])
        return "integer" if any(map(_INTEGERS.fullmatch, texts)) else None
    if name in _NEW and first is not None:
        joins = isinstance(first, (ast.List, ast.Tuple))
        return "new" if joins or name != "as_tensor" else None
    return _BY_NAME.get((name, read.owner is not None))


_MODULES: dict[str, DetachKind] = {"np": "numpy", "numpy": "numpy", "math": "number"}
_BY_NAME: dict[tuple[str, bool], DetachKind] = {
    ("Parameter", False): "parameter",
    ("sample", True): "sample",
}
"""By the name, and whether it is a method."""
_TORCH = frozenset(
    ("argmax", "argmin", "argsort", "detach", "bernoulli", "multinomial")
)
"""Functions that scripts import by name."""


def _of_grad(call: Call, values: Sequence[AST]) -> Effect:
    """Of `torch.autograd.grad`: a gradient has a graph where that is asked for."""
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    outputs = [options["outputs"]] if "outputs" in options else values[:1]

    asked = options.get("create_graph")
    is_off = asked is None or getattr(asked, "value", True) is False
    is_positional = len(call.args) > 4  # outputs, inputs, grad_outputs, retain, create
    kind: DetachKind | None = "grad" if is_off and not is_positional else None
    return Effect(_inflows(outputs, kind), "grad")
