"""Why backward gives a tensor no gradient: it is frozen, a line cut it off, its module
was never called, or nothing uses it.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from gradviz.graph import Absent, Graph, SourceLine
from gradviz.packages import code_line, with_text
from gradviz.variables.objects import class_attribute, members
from gradviz.variables.scanner import Namespace
from gradviz.walker.names import below, outermost_modules
from gradviz.walker.places import Attribution
from gradviz.walker.tensors import grad_fn_of, tensor_info
from gradviz.walker.walk import Walked

if TYPE_CHECKING:
    from gradviz.recording.record import Recording


class Reason(NamedTuple):
    """`words` complete "it gets no gradient because"; `source` is the line that they
    are about.
    """

    words: str
    source: SourceLine | None = None


class SeenCuts(Protocol):
    """What knows the lines that cut tensors off, where a feature watched for them
    (`gradviz.cuts`).
    """

    def reason(
        self,
        tensor: torch.Tensor,
        name: str,
    ) -> Reason | None:
        """The line that cut a tensor off; None when none was seen."""

    def joined(
        self,
        walked: Walked,
        attribution: Attribution | None,
        frame: FrameType | None,
    ) -> Graph:
        """A graph that was walked, with what was cut off beside it."""


class Reasons:
    """Of one moment of a program. Hold it no longer than its tensors. `cuts` and
    `recording` tell more where they are there.
    """

    def __init__(
        self,
        variables: Sequence[Namespace],
        recording: Recording | None,
        cuts: SeenCuts | None = None,
    ) -> None:
        self._recording, self._cuts = recording, cuts
        self._modules = dict(below(outermost_modules(None, variables)))
        self._owner = {
            id(tensor): path
            # the first path of a module that several lead to wins
            for path, module in reversed(self._modules.items())
            for table in ("_parameters", "_buffers")
            for _, tensor in members(module, table)
        }

    def owner(
        self,
        tensor: torch.Tensor,
    ) -> tuple[str, torch.nn.Module] | None:
        """The module that registered a tensor, and its path."""
        path = self._owner.get(id(tensor))
        return None if path is None else (path, self._modules[path])

    def reason(self, tensor: torch.Tensor, name: str) -> Reason:
        """Why a tensor that the loss does not lead to gets no gradient. `name` is what
        the caller calls it.
        """
        cut = self._cuts.reason(tensor, name) if self._cuts is not None else None
        if not tensor.requires_grad:
            frozen = "frozen: " if isinstance(tensor, torch.nn.Parameter) else ""
            # a line that was seen to cut it off tells more than the flag
            return cut or Reason(f"{frozen}requires_grad is False")
        unused = Reason("no path leads to it from the loss")
        return self._of_module(tensor, cut is not None) or cut or unused

    def _of_module(
        self,
        tensor: torch.Tensor,
        cut: bool,
    ) -> Reason | None:
        owner = self.owner(tensor)
        if owner is None or self._recording is None:
            return None

        path, module = owner
        run = self._recording.run_of(module)
        called_at = with_text(run.source) if run.source is not None else None
        name = path or type(module).__name__
        if not run.calls and not cut:
            return Reason(f"{name} was never called", self._created(path))
        if run.calls and not run.recording:
            return Reason(f"{name} ran with gradients off (torch.no_grad())", called_at)

        if run.calls and not cut:
            return Reason(
                f"{name} ran, but the loss does not use its result", called_at
            )

        return None

    def _created(self, path: str) -> SourceLine | None:
        """The line that makes a module an attribute of the one around it."""
        outer, _, attribute = path.rpartition(".")
        code = getattr(
            class_attribute(type(self._modules.get(outer)), "__init__"),
            "__code__",
            None,
        )
        return _stored(code, attribute) if code is not None else None


def without_gradient(walked: Walked, reasons: Reasons) -> Iterator[Absent]:
    """Parameters, and leaves that require grad, to which a graph does not lead."""
    inside = {id(leaf) for leaf in walked.variables.values()}
    for tensor, names in walked.names.named():
        could = tensor.requires_grad or walked.names.kind(tensor) == "parameter"
        is_leaf = could and grad_fn_of(tensor) is None and not tensor._is_view()
        if is_leaf and id(tensor) not in inside:
            yield Absent(
                names,
                tensor_info(tensor),
                *reasons.reason(tensor, names[0]),
            )


def _stored(code: Any, attribute: str) -> SourceLine | None:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR" and instruction.argval == attribute:
            lines = (
                line
                for start, end, line in code.co_lines()
                if start <= instruction.offset < end
            )
            line = next(lines, None)
            return with_text(code_line(code, line)) if line else None
    return None
