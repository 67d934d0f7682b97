"""Which line cut a tensor off, in a sentence: for commands that find no path to it.
Knows no check.
"""

from __future__ import annotations

from types import FrameType

import torch

from gradviz.cuts.lines import CutWatch, SeenCut
from gradviz.cuts.seen import CutCalls
from gradviz.graph import Graph
from gradviz.packages import with_text
from gradviz.recording.reasons import Reason
from gradviz.source.code_line import assigned
from gradviz.source.cut import DetachKind
from gradviz.walker.places import Attribution
from gradviz.walker.walk import Walked
from gradviz.wording import clip, line_text

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


class CutLines(CutCalls):
    """The lines that cut while a script runs. Begin it when torch is there. With
    `parts`, what they drop is walked, to be drawn.
    """

    def __init__(self, parts: bool = False) -> None:
        super().__init__(CutWatch(parts))

    def joined(
        self,
        walked: Walked,
        attribution: Attribution | None,
        frame: FrameType | None,
    ) -> Graph:
        """See `CutWatch`."""
        with self.paused():
            return self.watch.joined(walked, attribution, frame)

    def sentence(self, tensor: torch.Tensor, name: str) -> str:
        """The last line that cut off this leaf, or what was computed from it; "" when
        none was seen.
        """
        found = self.reason(tensor, name)
        if found is None or found.source is None:
            return ""
        code = clip(found.source.text.strip(), 70)
        return f"{found.words[0].upper()}{found.words[1:]}: `{code}`"

    def reason(
        self,
        tensor: torch.Tensor,
        name: str,
    ) -> Reason | None:
        """The same with its line; None when none was seen."""
        found = list(self.watch.cutting_off(tensor))
        computed, result = "a tensor computed from it", ""
        if not found and not tensor.requires_grad:
            # it may be what comes of a cut
            given = [seen for seen in self.watch.every if _gives(seen, name)]
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
