"""What FSDP2 and DTensor know of a tensor that the graph holds in pieces. Reads live objects through `capture.private`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradviz.capture.private import fsdp_parameters


def sharded_parameters(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The shards that this process holds of a model's parameters, and the whole ones that are gathered right now."""
    for one in fsdp_parameters(model):
        yield one.shard
        if one.whole is not None:  # of no bytes while it is not gathered
            yield one.whole
