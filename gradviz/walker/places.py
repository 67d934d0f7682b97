"""What a walk found, and what an attribution answers: where each node was made, and
what data and operands are called there.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import torch

from gradviz.graph import Construct, Edge, Scope, SourceLine


class BareGraph(NamedTuple):
    """What a walk found: sequence numbers by node id, edges, and the tensor behind each
    AccumulateGrad by node id.

    `checkpoints` are the modules that a reentrant checkpoint may have run, by the id of
    its node; `kinds` the types of all nodes, `modules` the outermost ones that the
    caller knows, with their names; `none_inputs` counts inputs that need no gradient.
    """

    sequences: Sequence[int]
    edges: Sequence[Edge]
    variables: Mapping[int, torch.Tensor]
    checkpoints: Mapping[int, Sequence[torch.nn.Module]] = MappingProxyType({})
    kinds: Sequence[Hashable] = ()
    modules: Sequence[tuple[str, torch.nn.Module]] = ()
    none_inputs: Mapping[int, int] = MappingProxyType({})


class Operand(NamedTuple):
    """What the code gave an op that needs no gradient: its `text`.

    `position` is that in `next_functions`, None where autograd has no entry, as for an
    index; `slot` what torch calls it. `key` is equal for what is the same value, `of`
    are the variables in the text. `value` is what an attribute of a module holds;
    `stays`: a variable of the script, which still holds it. `inner`: it was written in
    a function, by the call `function` of one, in the call `scope` of a module, -1 for
    none. `is_mask`: it compares, so it has no gradient whoever holds it; `is_doubtful`:
    it may be a number, or None; `is_result`: a function's variable, which it computes.
    """

    text: str
    position: int | None = None
    slot: str = ""
    key: Hashable = None
    of: tuple[Operand, ...] = ()
    value: torch.Tensor | None = None
    inner: bool = False
    stays: bool = False
    scope: int | None = None
    is_mask: bool = False
    is_doubtful: bool = False
    function: int | None = None
    is_result: bool = False

    @property
    def is_own(self) -> bool:
        """Whether a module has it: a buffer, and what is computed from it."""
        return self.scope not in (None, -1) and self.text.startswith("self.")


GivenToCall = tuple[tuple[int, ...], Mapping[int, int], Operand]
"""The nodes that a call made, how many inputs without gradient each has, and what the
code gave the call that no op tells.
"""


class Argument(NamedTuple):
    """The parameter of a module's forward that data was passed as, and whether another
    module called that module. `operand`: what the code gave.
    """

    name: str
    inner: bool
    operand: Operand | None = None


class Places(NamedTuple):
    """Scopes, and for every node the id of its scope, its source line and the script's
    own line, where known.

    `names` are those of leaves by node id, for the leaves that no variable of the
    caller leads to; `assigned` are names that lines of code give what their last ops
    make; `arguments` are parameters of modules that data was passed as, by its
    identity; `operands` are what the code gave ops, by the node's id; `program` is what
    was written, `written` what it calls single nodes; `module_inputs` is data that the
    module of a node was called with. `numbers`: how many entries without gradient are no
    tensors; `in_torch` are nodes that a module of torch's made, `passed` what the code
    gave that module first. `calls` is what calls were given.
    """

    scopes: tuple[Scope, ...] = ()
    scope_of: Iterable[int | None] = repeat(None)
    source_of: Iterable[SourceLine | None] = repeat(None)
    script_line_of: Iterable[SourceLine | None] = repeat(None)
    notes: tuple[str, ...] = ()
    names: Mapping[int, str] = MappingProxyType({})
    assigned: Mapping[int, str] = MappingProxyType({})
    arguments: Mapping[int, Argument] = MappingProxyType({})
    operands: Mapping[int, Sequence[Operand]] = MappingProxyType({})
    program: tuple[Construct, ...] = ()
    written: Mapping[int, str] = MappingProxyType({})
    module_inputs: Mapping[int, tuple[torch.Tensor, ...]] = MappingProxyType({})
    numbers: Mapping[int, int] = MappingProxyType({})
    in_torch: Collection[int] = ()
    passed: Mapping[int, Operand] = MappingProxyType({})
    calls: Sequence[GivenToCall] = ()


class Attribution(Protocol):
    """Knows where nodes were made."""

    @property
    def kind(self) -> Literal["", "recorded", "inferred"]: ...

    def places(self, bare: BareGraph) -> Places: ...
