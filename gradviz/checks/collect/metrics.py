"""Sees how predictions are counted: scores taken for probabilities or classes, and counts divided by the number of batches.

Reads labels of a few batches, of 100,000 elements at most. Keeps no tensor.
"""

from __future__ import annotations

import ast
import re
import weakref
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.calls import LOSSES, ByIdentity, Facts, Observer, TorchCall, reads
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.collect.misuse import model_around
from gradviz.checks.collect.numbers import is_readable
from gradviz.checks.collect.targets import LARGEST
from gradviz.graph import SourceLine
from gradviz.recording.torch_calls import PLAIN, is_real
from gradviz.source.statements import LOOP, body_around, covers, line_of, nodes_of
from gradviz.variables.scanner import namespaces, value_of
from gradviz.walker.isolation import isolated, unrecorded

_SCORES_FIRST = re.compile(r"^(\w+), _\w* = ")
_NAMES = (ast.Name, ast.Attribute)
_FLAT = 2  # dimensions of scores that classes are chosen of, the batch included
_FEW, _FAR = 16, 10  # numbers that have no scale, and deviations that are far apart
_LOOKS = 8  # how often a line is looked at
_KEEPS = ("squeeze", "unsqueeze", "view", "reshape", "flatten", "getitem", "float", "cpu", "detach")
_MEAN = 1  # what torch calls reduction="mean" inside
_WITH_LOGITS = "binary_cross_entropy_with_logits"


class MetricWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._scores = Facts[weakref.ref[torch.Tensor]]()  # what a layer has computed, and the weight of that layer
        self._binary = ByIdentity[bool]()  # weights of layers whose scores a loss takes for logits
        self._probabilities = Facts[bool]()
        self._largest = Facts[SourceLine]()  # scores, and the line that chose them of all
        self._matches = Facts[bool]()  # whether they are counts
        self._means = Facts[bool]()
        self._known_in = 0  # the step that all this is of
        # of models: mean and deviation of what they were trained on first
        self._scale = ByIdentity[tuple[float, float]]()

    @reads("linear")
    def _scored(self, call: TorchCall) -> None:
        if self._known_in < self._step:  # a metric may stand behind the backward call of its scores
            self._known_in = self._step
            for facts in (self._scores, self._probabilities, self._largest, self._matches):
                facts.clear()
        weight = call.given(1, "weight") if call.makes and call.result.dim() <= _FLAT else None
        if isinstance(weight, torch.nn.Parameter):
            self._scores.put(call.result, weakref.ref(weight))

    @reads("linear", "conv1d", "conv2d", "conv3d")
    def _enters(self, call: TorchCall) -> None:
        """Data goes into a model: whether it has the scale of what the model is trained on."""
        if not call.makes or call.first.requires_grad:
            return
        trains = torch.is_grad_enabled()
        if not self._looks((id(call.given(1, "weight")), trains), _LOOKS):
            return
        model, calling, given = model_around(call.frame)
        scale = _scale(given) if model is not None else None
        if scale is None:
            return
        mean, deviation = self._scale.of(model) or scale
        if trains:
            self._scale.put(model, (mean, deviation))
        elif abs(scale[0] - mean) > _FAR * deviation or scale[1] > _FAR * deviation:
            words = (f"{number:.3g}" for number in (*scale, mean, deviation))
            self._note("other scale", self._place(calling), type(model).__name__, *words)

    @reads("sigmoid", "softmax")
    def _likely(self, call: TorchCall) -> None:
        if call.makes and call.result.dim() <= _FLAT:
            self._probabilities.put(call.result, True)

    @reads(*_KEEPS)
    def _kept(self, call: TorchCall) -> None:
        known: tuple[Facts[Any], ...] = self._scores, self._probabilities, self._matches
        for facts in known:
            fact = facts.of(call.first) if facts else None
            if fact is not None:
                facts.put(call.result, fact)

    @reads(*LOSSES)
    def _lost(self, call: TorchCall) -> None:
        """A loss of several samples is averaged."""
        weight = self._scores.of(call.first)
        if weight is not None and call.name == _WITH_LOGITS:
            self._binary.put(weight(), True)
        reduction = next((given for given in call.arguments[2:] if type(given) is int), _MEAN)
        if call.makes and call.result.dim() == 0 and call.first.numel() > 1 and reduction == _MEAN:
            if len(self._means) > _LOOKS:  # it is read off behind its backward call, if ever
                self._means.clear()
            self._means.put(call.result, True)

    @reads("gt", "ge", "lt", "le", "round")
    def _split(self, call: TorchCall) -> None:
        """Scores or probabilities become classes."""
        threshold = call.given(1, "other") if call.name != "round" else 0.5
        weight = self._scores.of(call.first)
        if type(threshold) not in (int, float):
            return
        if threshold == 0.5 and weight is not None and self._binary.of(weight()):
            text = line_at(call.place).text if call.place is not None else ""
            mended = text.replace("0.5", "0") if text.count("0.5") == 1 else ""
            self._note("logits as probabilities", call.place, mended=mended)
        elif threshold == 0 and self._probabilities.of(call.first):
            self._note("probabilities above zero", call.place)

    @reads("argmax")
    def _chosen(self, call: TorchCall) -> None:
        dim = call.dim
        if isinstance(dim, int) and self._scores.of(call.first) is not None and call.first.shape[dim] == 1:
            self._note("one class to choose", call.place, dim, call.first.shape)

    @reads("max")
    def _maximal(self, call: TorchCall) -> None:
        """The largest scores are scores, and no classes."""
        weight = self._scores.of(call.first)
        if isinstance(call.result, tuple) and weight is not None and call.place is not None:
            self._scores.put(call.result[0], weight)
            self._largest.put(call.result[0], line_at(call.place))

    @reads("eq")
    def _matched(self, call: TorchCall) -> None:
        """Predictions are compared with labels, one by one."""
        (first, second), made = call.pairs[0], call.result
        if type(first) not in PLAIN or type(second) not in PLAIN or first.shape != second.shape or made.numel() < 2:
            return
        self._matches.put(made, False)
        for scores, labels in call.pairs if self._scores else ():
            if self._scores.of(scores) is not None and self._looks(call.line, _LOOKS) and _are_whole(labels):
                chosen = self._largest.of(scores)
                mended = _SCORES_FIRST.sub(r"_, \1 = ", chosen.text) if chosen is not None else ""
                self._note("scores as classes", chosen or call.place, scores.dtype, labels.dtype, mended=mended)

    @reads("sum", "count_nonzero")
    def _counted(self, call: TorchCall) -> None:
        """Matches of a batch are counted."""
        if self._matches.of(call.first) is False and call.result.dim() == 0 and self._looks(call.line, _LOOKS):
            self._divides("count by batches", call.frame)

    @reads("item")
    def _read_off(self, call: TorchCall) -> None:
        if self._means.of(call.first) and self._looks(call.line, _LOOKS):
            self._divides("mean by samples", call.frame)

    def _divides(self, kind: str, calling: FrameType) -> None:
        """What a line adds up over the batches of a loader is divided by something: the wrong one of batches and samples."""
        frame = users_frame(calling)
        if frame is None or not frame.f_lineno:
            return
        file, number = frame.f_code.co_filename, frame.f_lineno
        for total, loader in _added_up(file, number):
            with isolated():
                first, _, attribute = loader.partition(".")
                known: Any = value_of(first, namespaces(frame))
                known = known if not attribute else getattr(known, "__dict__", {}).get(attribute)
                if not isinstance(known, torch.utils.data.DataLoader) or known.batch_size in (None, 1):
                    continue
            batches, samples = f"len({loader})", f"len({loader}.dataset)"
            wrong, right = (batches, samples) if kind == "count by batches" else (samples, batches)
            for division in _shares(file, total, wrong):
                source = line_of(file, division.lineno)
                if body_around(file, number) != body_around(file, source.line):
                    continue
                self._note(kind, source, total, wrong, right, mended=source.text.replace(wrong, right))


def _scale(data: Any) -> tuple[float, float] | None:
    """Mean and deviation, where it has some."""
    if type(data) not in PLAIN or not is_real(data) or not _FEW < data.numel() <= LARGEST or not is_readable(data):
        return None
    with unrecorded():
        mean, deviation = float(data.mean()), float(data.std())
        return (mean, deviation) if deviation > 0 else None


def _are_whole(labels: torch.Tensor) -> bool:
    if not is_real(labels) or not is_readable(labels) or labels.numel() > LARGEST:
        return not is_real(labels)
    with unrecorded():
        return bool((labels == labels.round()).all())


def _added_up(file: str, number: int) -> list[tuple[str, str]]:
    """The names that a line adds what it computes to, undivided, and what the loop around it goes through."""
    loops = [loop.iter for loop in nodes_of(file, *LOOP) if covers(loop, number) and hasattr(loop, "iter")]
    loaders = {ast.unparse(part) for loop in loops[-1:] for part in ast.walk(loop) if isinstance(part, _NAMES)}
    added = [
        ast.unparse(node.target)
        for node in nodes_of(file, ast.AugAssign)
        if covers(node, number) and isinstance(node.op, ast.Add) and not _has_factor(node.value)
    ]
    return [(total, loader) for total in added for loader in sorted(loaders)]


def _has_factor(value: ast.expr) -> bool:
    return any(isinstance(part, (ast.Mult, ast.Div)) for part in ast.walk(value))


def _shares(file: str, total: str, by: str) -> list[ast.BinOp]:
    """Where a total is divided by this, and by nothing else; it may be a percentage."""
    quotients = [node for node in nodes_of(file, ast.BinOp) if isinstance(node.op, ast.Div)]
    again = [id(node.left) for node in quotients]
    return [
        node
        for node in quotients
        if ast.unparse(node.right) == by
        and id(node) not in again
        and any(ast.unparse(part) == total for part in ast.walk(node.left))
    ]
