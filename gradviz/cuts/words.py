"""Which line cut a tensor off, in a sentence: for commands that find no path to it.
Knows no check.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from gradviz.cuts.lines import CutWatch, SeenCut
from gradviz.cuts.seen import CutCalls
from gradviz.packages import with_text
from gradviz.recording.reasons import Reason
from gradviz.source.code_line import assigned
from gradviz.source.cut import DetachKind
from gradviz.wording import line_text

CUT: dict[DetachKind, str] = {
    "detach": "detaches {of}",
    "data": "takes .data of {of}, which has no graph",
    "number": "turns {of} into a Python number, which has no graph",
    "numpy": "passes {of} to NumPy, which autograd does not record",
    "new": "copies the values of {of} into a new tensor without a graph",
    "integer": "turns {of} into integers or booleans, which have no gradient",
    "no_grad": "computes {of} with gradients off (torch.no_grad())",
    "inference": "computes {of} under torch.inference_mode(), which records no graph",
    "sample": "draws from {of} with sample(), which records no graph",
    "parameter": "wraps {of} in nn.Parameter: a new leaf without the history of {of}",
    "written": "writes the values of {of} into a parameter: a leaf without the history of {of}",
    "grad": "computes a gradient of {of} without create_graph=True, so the gradient is a constant",
}
"""What a line does that cuts; `of` is what it cuts off."""


class CutLines(CutWatch):
    """The lines that cut while a script runs. Begin it when torch is there."""

    def watching(self) -> AbstractContextManager[None]:
        """Inside, calls that cut are seen."""
        return CutCalls(self).watching()

    def reason(
        self,
        tensor: torch.Tensor,
        name: str,
    ) -> Reason | None:
        """The last line that cut off this leaf, or what was computed from it; None when
        none was seen.
        """
        found = list(self.cutting_off(tensor))
        computed, result = "a tensor computed from it", ""
        if not found and not tensor.requires_grad:
            # it may be what comes of a cut
            given = [seen for seen in self.every if _gives(seen, name)]
            found = [(seen, False) for seen in given]
            computed, result = "a tensor", " to compute it"
        if not found:
            return None

        cut, same = max(found, key=lambda each: each[0].number)
        words = CUT[cut.kind].format(of="it" if same else computed)
        place = line_text(cut.source.file, cut.source.line)
        return Reason(f"{place} {words}{result}", cut.source)


def _gives(cut: SeenCut, name: str) -> bool:
    """Whether a line of the script's top level, where a name means one thing, gives it
    what was cut off.
    """
    return any(
        line.function == "<module>" and name in assigned(with_text(line))
        for line in cut.via
    )
