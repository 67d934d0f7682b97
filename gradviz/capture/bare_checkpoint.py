"""Whether a module runs in a reentrant checkpoint that records nothing, because no input of it requires grad.

Such a checkpoint runs its function without recording and makes no node, so backward never comes to compute it again. Looks at
frames only and calls nothing.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from gradviz.capture.variables import local_variables

_FORWARD = getattr(CheckpointFunction.forward, "__code__", None)


def bare_checkpoint(frame: FrameType | None, outer: int) -> FrameType | None:
    """The innermost such checkpoint between a module's call and the call around it, which runs in frame `outer`."""
    while frame is not None and id(frame) != outer:
        if frame.f_code is _FORWARD:
            inputs: Any = local_variables(frame).get("args", ())
            with torch._C.DisableTorchFunction():
                bare = not any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs)
            return frame if bare else None
        frame = frame.f_back
    return None
