"""What a forward had computed when an exception ended it, as the traceback has it.

The exception holds the tensors, as long as somebody holds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from traceback import walk_tb
from types import FrameType
from typing import NamedTuple

import torch

from gradviz.errors import text_of
from gradviz.graph import SourceLine
from gradviz.packages import code_line, is_foundation, with_text
from gradviz.variables.objects import is_a, tensors_in
from gradviz.variables.scanner import Namespace, local_variables, namespaces
from gradviz.walker.names import module_paths
from gradviz.walker.tensors import has_graph

MODULE_CALL = torch.nn.Module._call_impl.__code__


class LastOutputs(NamedTuple):
    """`outputs` by name (`h`, `input of encoder.1`), only those with a graph.

    `module` is the path of the innermost module whose call failed, in the caller's
    names; None outside every module.
    """

    outputs: dict[str, torch.Tensor]
    module: str | None
    source: SourceLine | None
    error: str


def last_outputs(error: BaseException, variables: Sequence[Namespace]) -> LastOutputs:
    """The inputs of the innermost module that failed, then the variables of the user's
    function that failed. The namespaces name modules.
    """
    frames = list(walk_tb(error.__traceback__))
    users = [
        (frame, line)
        for frame, line in frames
        if not is_foundation(frame.f_code.co_filename)
    ]
    local = [namespaces(frame)[0] for frame, _ in users]

    candidates: list[tuple[str, object]] = []
    module = None
    calls = [frame for frame, _ in frames if frame.f_code is MODULE_CALL]
    if calls:
        module, inputs = _call(calls[-1], [*variables, *local])
        candidates += [(f"input of {module}", tensor) for tensor in inputs]

    source = None
    if users:
        frame, line = users[-1]
        source = with_text(code_line(frame.f_code, line))
        candidates += local[-1].items()

    outputs = _with_graph(candidates)
    return LastOutputs(
        outputs, module, source, f"{type(error).__name__}: {text_of(error)}"
    )


def _call(
    frame: FrameType, variables: Sequence[Namespace]
) -> tuple[str, list[torch.Tensor]]:
    """What the module is called that a frame of torch's calls, and what it was given."""
    call = local_variables(frame)
    module = call["self"]
    name = module_paths(None, variables).get(id(module)) or type(module).__name__
    return name, [*tensors_in(call["args"]), *tensors_in(call["kwargs"])]


def _with_graph(candidates: Sequence[tuple[str, object]]) -> dict[str, torch.Tensor]:
    """Those that are tensors with a graph, each once."""
    outputs: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in candidates:
        if is_a(tensor, torch.Tensor) and id(tensor) not in seen and has_graph(tensor):
            seen.add(id(tensor))
            numbered = f"{name} ({len(outputs)})" if name in outputs else name
            outputs[numbered] = tensor
    return outputs
