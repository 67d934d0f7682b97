"""One compiled region as plain records, and reading it from text: what its backward computes, and what it gives to whom.

A region is the backward of one graph that `torch.compile` made: `CompiledFunctionBackward` runs it as one function. Which of
its operations lie on the way of a gradient is told by what they depend on, not by their names. Knows nothing of torch.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from gradviz.graph import SourceLine, TensorInfo

InputKind = Literal["saved", "size", "gradient", "other"]
OperationKind = Literal["gradient", "factor", "recomputed", "view"]
"""Passes a gradient on; computes a local derivative from saved tensors; computes a result of the forward again; looks at
a saved tensor in another shape, which costs nothing."""


class GraphBreak(NamedTuple):
    """A line at which `torch.compile` gave up on a function and began another one after it, and why."""

    source: SourceLine
    reason: str
    hint: str = ""


class TracedModule(NamedTuple):
    """One `nn.Module` around an operation: its identity, the expression that torch names it by, its class, and which call."""

    identity: int
    expression: str  # "L['self'].mlp.0"
    type: str
    call: int = 1


class ForwardPlace(NamedTuple):
    """Where in the forward pass something comes from, as far as the compiler noted it."""

    modules: tuple[TracedModule, ...] = ()  # outermost first
    source: SourceLine | None = None
    script_line: SourceLine | None = None  # where `source` is a library's


class Use(NamedTuple):
    """One value: input or operation number `value` (inputs are counted first), and which result of it."""

    value: int
    result: int = 0


class Input(NamedTuple):
    """One argument of the backward. `tensor` is None where nobody noted its shape, and for what is no tensor."""

    name: str
    kind: InputKind
    tensor: TensorInfo | None = None
    symbol: str = ""  # of a size: "s93"
    place: ForwardPlace = ForwardPlace()
    forward_call: int | None = None  # number of the call in the forward pass that made it


class Operation(NamedTuple):
    """One call in the backward. `uses` are the tensors that it reads, in the order of its arguments, some perhaps twice."""

    name: str  # "mm_1"
    op: str  # "aten.mm"
    uses: tuple[Use, ...]
    results: tuple[TensorInfo | None, ...] = (None,)
    place: ForwardPlace = ForwardPlace()
    forward: bool = False  # marked by the partitioner as an operation of the forward pass
    view: bool = False
    # adds up gradients of a tensor that was used several times, which the engine does without a function
    meeting: bool = False
    forward_call: int | None = None  # number of the call in the forward pass whose gradient this computes
    called: str = ""  # what that call was: "log"


@dataclass(frozen=True)
class Region:
    """The backward of one compiled graph. `gradients` are what it returns for each input of the forward; None: no gradient.

    Not `described` when torch has dropped shapes, modules and lines, as it does once the region is in its cache on disk.

    >>> square = Operation("mul", "aten.mul", (Use(1), Use(0)))
    >>> region = Region((Input("x", "saved"), Input("tangents_1", "gradient")), (square,), (Use(2), None))
    >>> region.kind(0), region.carries(2)
    ('gradient', True)
    """

    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    gradients: tuple[Use | None, ...]
    described: bool = True

    @cached_property
    def _carrying(self) -> frozenset[int]:
        """The values that a gradient went into."""
        carrying = {i for i, argument in enumerate(self.inputs) if argument.kind == "gradient"}
        for i, operation in enumerate(self.operations, len(self.inputs)):
            if any(use.value in carrying for use in operation.uses):
                carrying.add(i)
        return frozenset(carrying)

    def carries(self, value: int) -> bool:
        """Whether this input or operation is, or depends on, a gradient that arrives."""
        return value in self._carrying

    def carrying(self, number: int) -> list[Use]:
        """The gradients that operation `number` reads."""
        return [use for use in self.operations[number].uses if self.carries(use.value)]

    def kind(self, number: int) -> OperationKind:
        """What operation `number` is there for."""
        operation = self.operations[number]
        if self.carries(len(self.inputs) + number):
            return "gradient"
        if operation.view:
            return "view"
        return "recomputed" if operation.forward else "factor"

    @cached_property
    def kept_alive_by(self) -> dict[int, tuple[int, ...]]:
        """For every recomputed operation, its results that a gradient or a factor reads, perhaps as a view.

        They are what would have been saved, had they not been computed again.
        """
        first = len(self.inputs)
        read: dict[int, set[int]] = {}
        needing = [i for i in range(len(self.operations)) if self.kind(i) in ("gradient", "factor")]
        waiting = [use for i in needing for use in self.operations[i].uses]
        for use in waiting:  # grows while it is read
            number = use.value - first
            if number < 0:
                continue
            kind = self.kind(number)
            if kind == "view":
                waiting.extend(self.operations[number].uses)
            elif kind == "recomputed":
                read.setdefault(number, set()).add(use.result)
        return {number: tuple(sorted(results)) for number, results in read.items()}

    def result(self, use: Use) -> TensorInfo | None:
        """The tensor that is used, as far as it was noted."""
        if use.value < len(self.inputs):
            return self.inputs[use.value].tensor
        results = self.operations[use.value - len(self.inputs)].results
        return results[use.result] if use.result < len(results) else None


# -- from text -----------------------------------------------------------------------------------------------------------


def region_of(text: str, sizes: int) -> Region | None:
    """The region whose backward is written in `text`, as torch's cache on disk keeps it; its first `sizes` inputs are sizes.

    The text is parsed, and nothing in it is imported or run. What it has is the operations, the names of the inputs and what is
    returned; shapes, modules and lines are not in it. None for text of another form.

    >>> region = region_of('''
    ... def forward(self, relu, tangents_1):
    ...     neg = torch.ops.aten.neg.default(tangents_1);  tangents_1 = None
    ...     mul = torch.ops.aten.mul.Tensor(neg, relu);  neg = relu = None
    ...     return (mul, None)
    ... ''', 0)
    >>> [operation.op for operation in region.operations], region.gradients
    (['aten.neg.default', 'aten.mul.Tensor'], (Use(value=3, result=0), None))
    """
    try:
        (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    names = [argument.arg for argument in function.args.args[1:]]
    inputs = tuple([Input(name, input_kind(name, i, sizes)) for i, name in enumerate(names)])
    known = {name: Use(i) for i, name in enumerate(names)}
    operations: list[Operation] = []
    for statement in function.body:
        match statement:
            case ast.Return(value=value):
                items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
                gradients = [known.get(item.id) if isinstance(item, ast.Name) else None for item in items]
                return Region(inputs, tuple(operations), tuple(gradients), described=False)
            case (
                ast.Assign(targets=[ast.Name(id=name), *_], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                match value:  # `x = None` lets go of x
                    case ast.Subscript(value=ast.Name(id=whole), slice=ast.Constant(value=int(index))):
                        if whole in known:
                            known[name] = Use(known[whole].value, index)
                    case ast.Call(func=called) if "'sym_" not in ast.dump(called):
                        known[name] = Use(len(inputs) + len(operations))
                        uses = [known[of] for of in _names_in(value) if of in known and known[of].value >= sizes]
                        operations.append(Operation(name, ast.unparse(called).removeprefix("torch.ops."), tuple(uses)))
    return None


def _names_in(call: ast.Call) -> list[str]:
    """The names that its arguments have, in their order."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [node.id for given in arguments for node in ast.walk(given) if isinstance(node, ast.Name)]


def input_kind(name: str, number: int, sizes: int) -> InputKind:
    """What an input is, by its place and by the name that the partitioner of torch itself goes by."""
    if number < sizes:
        return "size"
    if "tangents" in name:
        return "gradient"
    return "other" if name.startswith(("bwd_seed", "bwd_base_offset", "bwd_rng_state", "fwd_rng_state")) else "saved"


# -- symbolic sizes ------------------------------------------------------------------------------------------------------

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def sized(tensor: TensorInfo | None, sizes: Mapping[str, int]) -> TensorInfo | None:
    """The tensor with numbers for symbolic sizes, where these sizes tell them."""
    if tensor is None or tensor.shape is None or all(isinstance(size, int) for size in tensor.shape):
        return tensor
    return tensor._replace(
        shape=tuple([size if isinstance(size, int) else _size(size, sizes) for size in tensor.shape])
    )


def _size(text: str, sizes: Mapping[str, int]) -> int | str:
    """The value of a symbolic size such as "s93*8"; the text itself where it is not a sum or product of known ones.

    >>> _size("8*s93 + 1", {"s93": 5}), _size("Mod(s1, 2)", {"s1": 5})
    (41, 'Mod(s1, 2)')
    """
    try:
        return _value(ast.parse(text, mode="eval").body, sizes)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, LookupError):
        return text


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return int(_OPERATORS[type(operation)](_value(left, sizes), _value(right, sizes)))
    raise LookupError("neither a number nor a name nor one of these operators")
