"""One compiled region as plain records: what its backward computes, from which inputs, and what it gives to whom.

A region is the backward of one graph that `torch.compile` made: `CompiledFunctionBackward` runs it as one function. Which of
its operations lie on the way of a gradient is told by what they depend on, not by their names. Knows nothing of torch.
"""

from __future__ import annotations

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


class ModuleCall(NamedTuple):
    """One `nn.Module` around an operation: its identity, the expression that torch names it by, its class, and which call."""

    identity: int
    expression: str  # "L['self'].mlp.0"
    type: str
    call: int = 1


class Place(NamedTuple):
    """Where in the forward pass something comes from, as far as the compiler noted it."""

    modules: tuple[ModuleCall, ...] = ()  # outermost first
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
    place: Place = Place()
    forward_call: int | None = None  # number of the call in the forward pass that made it


class Operation(NamedTuple):
    """One call in the backward. `uses` are the tensors that it reads, in the order of its arguments, some perhaps twice."""

    name: str  # "mm_1"
    op: str  # "aten.mm"
    uses: tuple[Use, ...]
    results: tuple[TensorInfo | None, ...] = (None,)
    place: Place = Place()
    forward: bool = False  # marked by the partitioner as an operation of the forward pass
    view: bool = False
    meeting: bool = (
        False  # adds up gradients of a tensor that was used several times, which the engine does without a function
    )
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
        first = len(self.inputs)
        for i, operation in enumerate(self.operations, first):
            if any(use.value in carrying for use in operation.uses):
                carrying.add(i)
        return frozenset(carrying)

    def carries(self, value: int) -> bool:
        """Whether this input or operation is, or depends on, a gradient that arrives."""
        return value in self._carrying

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
        waiting = [use for i, operation in enumerate(self.operations) if self._needs(i) for use in operation.uses]
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

    def _needs(self, number: int) -> bool:
        return self.kind(number) in ("gradient", "factor")
