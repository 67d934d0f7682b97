"""Lines at which a tensor loses its graph, as plain data."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gradviz.graph import SourceLine
from gradviz.source.statements import written_at

DetachKind = Literal[
    "detach",
    "data",
    "number",
    "numpy",
    "new",
    "integer",
    "no_grad",
    "inference",
    "sample",
    "parameter",
    "grad",
    "written",
]
"""How a tensor can lose its graph: `.detach()`; `.data`; `.item()` and its like;
`.numpy()`; `torch.tensor(...)` of something; an integer or boolean result; made under
`torch.no_grad()`; made in `torch.inference_mode()`; `.sample()` of a distribution;
wrapped in `nn.Parameter`; a gradient that `torch.autograd.grad` computed without
`create_graph`; written into a leaf.
"""

_COMPARED = ("gt", "lt", "ge", "le", "eq", "ne")
COMPARISONS = (*_COMPARED, *(f"__{name}__" for name in _COMPARED))
"""What torch calls a comparison."""

METHODS: dict[str, DetachKind] = {
    "detach": "detach",
    "detach_": "detach",
    "numpy": "numpy",
    **dict.fromkeys(("item", "tolist"), "number"),
    **dict.fromkeys(("__float__", "__int__", "__index__", "__complex__"), "number"),
    **dict.fromkeys(("argmax", "argmin", "argsort", *COMPARISONS), "integer"),
    **dict.fromkeys(("long", "int", "short", "byte", "bool"), "integer"),
    **dict.fromkeys(("bernoulli", "multinomial"), "sample"),
}
"""Methods and operators of tensors that cut, and how."""


class Cut(NamedTuple):
    """A line that drops a graph.

    `operation` is what is called. `behind` are the names of the leaves that what was cut
    off led to. `of` is the expression that loses it and `part` what cuts it, as the code
    spells them, and `off` the block or decorator that had switched recording off.

    `term` is the operand of an op of the graph that lacks one because of it, and `times`
    how often such an op ran.
    """

    kind: DetachKind
    source: SourceLine
    operation: str = ""
    behind: frozenset[str] = frozenset()
    of: str = ""
    part: str = ""
    off: SourceLine | None = None
    term: str = ""
    times: int = 1

    @property
    def asks_for_graph(self) -> bool:
        """Whether the line passes create_graph=True, so that a backward function on the
        way computed without a graph.
        """
        return self.kind == "grad" and "create_graph=True" in written_at(self.source)


class Origin(NamedTuple):
    """How outputs without a graph came about: the line that computes them, and the
    tensors that do not require grad which they were computed from.
    """

    made: SourceLine | None = None
    plain: tuple[str, ...] = ()


NO_ORIGIN = Origin()
