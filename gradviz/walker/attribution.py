"""Where each node of a walk came from: the one thing that a walk asks of whoever knows it.

The walker hands over what it found while it is alive and writes the answer into its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import torch

from gradviz.graph import Edge, Scope, SourceLine


class Found(NamedTuple):
    """What a walk found: sequence numbers by node id, edges, and the tensor behind each AccumulateGrad by node id.

    `checkpoints` are the modules that a reentrant checkpoint may have run, by the id of its node.
    """

    sequences: Sequence[int]
    edges: Sequence[Edge]
    variables: Mapping[int, torch.Tensor]
    checkpoints: Mapping[int, Sequence[torch.nn.Module]] = MappingProxyType({})


class Places(NamedTuple):
    """Scopes, and for every node the id of its scope, its source line and the script's own line, where known.

    `names` are those of leaves by node id, for the leaves that no variable of the caller leads to.
    """

    scopes: tuple[Scope, ...]
    scope_of: Iterable[int | None]
    source_of: Iterable[SourceLine | None]
    script_line_of: Iterable[SourceLine | None]
    notes: tuple[str, ...] = ()
    names: Mapping[int, str] = MappingProxyType({})


class Attribution(Protocol):
    """Knows where nodes were made."""

    @property
    def kind(self) -> Literal["", "recorded", "inferred"]: ...

    def places(self, found: Found) -> Places: ...
