"""Sees calls that run without an error and do something else than they look like: broadcasts, reshapes, and modes.

Looks at shapes, modes and identities, reads no number, and keeps tensors weakly.
"""

from __future__ import annotations

import ast
import re
from math import prod
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.calls import LOSSES, Facts, Observer, TorchCall, reads
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.collect.numbers import is_readable
from gradviz.cuts.torch_calls import PLAIN, is_real
from gradviz.formulas.dimensions import PRODUCTS, cuts_samples, flattens_classes, order_before
from gradviz.packages import Place, is_foundation, package_of
from gradviz.recording.session import running
from gradviz.source.statements import expressions_at, nodes_of
from gradviz.variables.objects import parameters, submodules
from gradviz.variables.scanner import first_argument, local_variables
from gradviz.walker.isolation import isolated, unrecorded
from gradviz.walker.tensors import version_of

_LOOKS = 50  # how often the module around a line that drops out is asked for its mode
_ELEMENTWISE = (
    *("add", "sub", "rsub", "mul", "div", "truediv", "eq", "ne", "gt", "lt", "ge", "le", "pow", "maximum", "minimum"),
)
_JOINS = ("add", "mul")
_COUNTED = ("arange", "linspace", "logspace")
_OTHERS = PRODUCTS | {"linear"}  # what they make of data is no error, whatever its shape
_REDUCES = ("mean", "sum")
_RESHAPES = ("view", "reshape")
_KEEP = ("sum", "mean", "std", "var", "norm", "linalg_norm", "linalg_vector_norm", "logsumexp", "amax", "amin")
_SCALES = ("mul", "div", "truediv")
_COLUMNS = ("unsqueeze", "getitem", "view", "reshape")
_READ, _EXACT, _KEPT = 100_000, 2**24, 0.9  # elements, integers that float32 has exactly, and numbers that stay apart
_ROUNDED, _SEVERAL = 8, 16  # how often rounding is looked at, and elements at least
_BY = "dropout in eval", "dropout apart"  # a function drops out, or a module
_TRAINS = {"dropout": 2, "feature_dropout": 2, "alpha_dropout": 2, "batch_norm": 5}
"""Functions that take `training`, and at which place."""


class MisuseWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._spread = Facts[tuple[str, Place, tuple[object, ...]]]()  # what is wrong if all of it is averaged
        self._columns = Facts[int]()  # made of rows, and in which line
        self._positions = Facts[bool]()  # which were counted and are no samples
        self._sources = Facts[bool]()  # that batches are picked from
        self._versions = Facts[int | None]()  # of frozen models, by their first weight
        self._wholes = Facts[tuple[str, tuple[int, ...]]]()  # single numbers, and what was reduced to them

    @reads(*_COUNTED, *_ELEMENTWISE)
    def _count(self, call: TorchCall) -> None:
        """Positions are counted, and computed with."""
        counted = call.name in _COUNTED or self._positions.of(call.first)
        if counted and type(call.result) in PLAIN and call.result.dim() == 1:
            self._positions.put(call.result, True)

    @reads("broadcast_tensors")
    def _compared(self, call: TorchCall) -> None:
        """A loss of torch gives its input and its target one shape."""
        given, loss = call.first if type(call.first) is tuple else call.arguments, call.frame.f_back
        if loss is not None and len(given) == 2 and loss.f_code.co_name.endswith("_loss"):
            words = _spreads(*given)
            if words and local_variables(loss).get("reduction") != "none":
                self._note("broadcast", self._place(loss), loss.f_code.co_name, words)

    @reads("getitem")
    def _picked(self, call: TorchCall) -> None:
        if torch.is_grad_enabled() and call.makes and call.first.is_leaf:
            self._sources.put(call.first, True)

    @reads("invert", "bitwise_not")
    def _inverted(self, call: TorchCall) -> None:
        """A mask of bytes is inverted bit by bit."""
        if call.makes and call.result.dtype == torch.uint8 and self._looks(call.line, 1) and is_readable(call.first):
            with unrecorded():
                mask = bool((call.first <= 1).all())
            self._note("bytes inverted", call.place if mask else None)

    @reads(*_RESHAPES)
    def _reshaped(self, call: TorchCall) -> None:
        """A new shape with the sizes of the old one in another order, in the user's own code: elements stay where they are."""
        if not call.makes or call.first.dim() < 2:
            return
        old, new = tuple(call.first.shape), tuple(call.result.shape)
        if not (is_real(call.first) or old == new[::-1]):
            return
        file = call.frame.f_code.co_filename
        if not (is_foundation(file) or package_of(file)) and cuts_samples(old, new):
            kind = "reshape" if sorted(old) == sorted(new) else "cut anew"
            place = call.place
            what = "what is in each sample" if old[0] == new[0] else "the samples"
            self._note(kind, place, call.name, old, new, _moved(call.name, old, new, place), what)

    @reads(*_COLUMNS, *_KEEP)
    def _column(self, call: TorchCall) -> None:
        """A column is made of a row, or by a reduction that keeps the dimension, as for distances of all pairs."""
        if not call.makes or call.result.shape[1:2] != (1,):
            return
        rank = call.first.dim()
        reduced = rank == 2 and call.first.shape[1] > 1 and call.name in _KEEP
        if reduced or (rank == call.result.dim() - 1 and call.name in _COLUMNS):
            self._columns.put(call.result, 0 if reduced else call.frame.f_lineno or 0)

    @reads(*_REDUCES, *LOSSES)
    def _ends(self, call: TorchCall) -> None:
        """A loss of several samples becomes one number."""
        if call.makes and call.result.requires_grad and call.result.dim() == 0 < call.first.dim():
            self._wholes.put(call.result, (call.name, tuple(call.first.shape)))

    @reads("add", "radd", "iadd", "sub", "rsub")
    def _joined(self, call: TorchCall) -> None:
        """A sum over all samples is added to what each of them has."""
        for one, other in call.pairs:
            whole = self._wholes.of(one)
            if whole is None or whole[0] != "sum":
                continue
            shape: tuple[int, ...] = whole[1]
            if type(other) not in PLAIN or self._wholes.of(other) == whole:
                self._wholes.put(call.result, whole)
            elif tuple(other.shape) == shape[:1] and len(shape) > 1 < shape[0]:
                self._note("summed too far", call.place, shape, other.shape)

    @reads(*_SCALES, "neg")
    def _scaled(self, call: TorchCall) -> None:
        """One number is scaled: by a number, or by one for each sample, for which it comes too late."""
        for one, other in call.pairs:
            whole = self._wholes.of(one)
            if whole is not None and type(other) not in PLAIN:
                self._wholes.put(call.result, whole)
            elif whole is not None and not other.requires_grad and _counts_samples(tuple(other.shape), whole[1]):
                place, words = call.place, (*whole, other.shape)
                if place is not None:
                    self._spread.put(call.result, ("reduced too early", place, words))

    @reads(*_ELEMENTWISE)
    def _meets(self, call: TorchCall) -> None:
        """Two tensors are computed with each other, element by element."""
        words = _spreads(*call.arguments[:2]) if call.makes and len(call.arguments) > 1 else ""
        place = call.place if words else None
        if place is None or any(map(self._positions.of, call.arguments[:2])):
            return
        if self._columns.of(max(call.arguments[:2], key=torch.Tensor.dim)) in (0, call.frame.f_lineno):  # it is meant
            return
        if call.result.dim() == 2:
            self._spread.put(call.result, ("broadcast", place, (call.name, words)))
        elif call.name in _JOINS and call.result.requires_grad:
            self._note("joins all", place, call.name, words, call.result.shape)

    @reads()
    def _follow(self, call: TorchCall) -> None:
        """What became of tensors that were spread: all of them averaged, as a loss is, or computed with others."""
        if not self._spread or not call.makes or call.name.endswith("_like") or call.name in _OTHERS:
            return
        for given in call.arguments[:2]:
            known = self._spread.of(given)
            if known is not None and call.name in _REDUCES and call.result.dim() == 0:
                self._note(known[0], known[1], *known[2])
            elif known is not None and given.shape == call.result.shape and known[0] == "broadcast":
                self._spread.put(call.result, known)

    def ran(self) -> None:
        for facts in (self._spread, self._wholes):
            facts.clear()
        self._columns.clear()

    # -- modes ------------------------------------------------------------------------------------------------------------

    @reads(*_TRAINS)
    def _switched(self, call: TorchCall) -> None:
        """Something that depends on the mode runs: as in training, inside of a model in eval mode, or where nothing is recorded."""
        drops, users = call.name != "batch_norm", users_frame(call.frame)
        if call.arguments[_TRAINS[call.name] :][:1] != (True,) or (drops and not call.arguments[1]) or users is None:
            return
        looks = self._looks((call.name, call.users_line, torch.is_grad_enabled()), _LOOKS)
        model, calling, given = model_around(call.frame) if looks else (None, None, None)
        if model is None or calling is None:
            return
        if model.training:
            if (drops or not self._sources.of(given)) and not _in_training():
                self._unswitched(model, calling, drops)
        elif drops and not _mixed(model):
            place = self._place(users)
            outer: Any = call.frame.f_back
            kind = _BY[outer.f_code.co_filename == torch.nn.modules.dropout.__file__]
            self._note(kind, None if _is_told(place) else place, type(model).__name__)

    def _unswitched(self, model: torch.nn.Module, calling: FrameType, drops: bool) -> None:
        """A model runs in training mode where nothing is recorded: one that is trained, or one that stays as it is."""
        with isolated():
            weights = list(parameters(model))
            held = frozenset(id(weight) for weight in weights if weight.requires_grad)
        place = self._place(calling)
        if held and not _is_for_itself(model, calling, place):
            self._note("train in evaluation", place, type(model).__name__, _DOES[drops], tensors=held)
        for first in weights[:1] if drops and not held else ():  # one that follows another network draws on purpose
            version, known = version_of(first), self._versions.of(first)
            self._versions.put(first, version)
            self._note("frozen and random", place if version == known else None, type(model).__name__, _DOES[drops])


_DOES = "batch normalization takes its statistics from this data", "dropout leaves out elements at random"
_IN_WORDS = (
    "Reshape only neighbouring dimensions, and leave dimension 0, the batch, whole: split dimensions first, bring them into "
    "the order of the result with transpose() or permute(), and merge them last"
)


def _moved(name: str, old: tuple[int, ...], new: tuple[int, ...], place: Place | None) -> str:
    """The advice: calls that move the dimensions, which are split before and merged after; words where none are certain."""
    order, back = order_before(old, new), order_before(new, old)
    sizes = _sizes(name, new, place)
    if flattens_classes(old, new):
        last = ", ".join(map(str, (0, *range(2, len(old)), 1)))
        return f"Bring dimension 1 to the end first: .permute({last}).reshape(-1, {sizes[1]}) in place of .{name}(...)"
    if order and len(old) == len(new):
        return f"Swap the dimensions: .permute({', '.join(map(str, order))}) in place of .{name}(...)"
    if order:
        return f"Swap first, then merge: {_swap(order)}.reshape({', '.join(sizes)}) in place of .{name}(...)"
    if back:
        split = ", ".join(sizes[dim] for dim in back)
        there = tuple(sorted(range(len(back)), key=back.__getitem__))
        return f"Split first, then swap: .reshape({split}){_swap(there)} in place of .{name}(...)"
    return _IN_WORDS


def _swap(order: tuple[int, ...]) -> str:
    """The call that brings dimensions into an order."""
    moved = [dim for dim, source in enumerate(order) if dim != source]
    call, dims = ("transpose", moved) if len(moved) == 2 else ("permute", order)
    return f".{call}({', '.join(map(str, dims))})"


def _sizes(name: str, new: tuple[int, ...], place: Place | None) -> list[str]:
    """The sizes that a line asks for, as its code has them; as numbers where it has other calls, or none that can be read."""
    found = re.findall(rf"\.{name}\(\(?([^()\[]*)\)", line_at(place).text if place is not None else "")
    written = found[0].split(", ") if len(found) == 1 else []
    return written if len(written) == len(new) else [*map(str, new)]


def _is_told(place: Place | None) -> bool:
    """Whether a line passes `training` to a dropout: it is meant, then."""
    source = line_at(place) if place is not None else None
    calls = expressions_at(source.file, source.line) if source is not None else ()
    drops = (call for call in calls if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("dropout"))
    return any(len(call.args) > 2 or any(one.arg == "training" for one in call.keywords) for call in drops)


def _counts_samples(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a tensor has one number for each sample of a larger one, or for each step of it."""
    return prod(shape) > 1 and shape == whole[: len(shape)]


def _is_for_itself(model: torch.nn.Module, calling: FrameType, place: Place | None) -> bool:
    """Whether a line calls a model and drops what that gives, as those do that collect the statistics of batch norms."""
    source = line_at(place) if place is not None else None
    if source is None:
        return False
    calls = [node.value for node in nodes_of(source.file, ast.Expr) if node.lineno == source.line]
    names = {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    known = {**calling.f_globals, **local_variables(calling)} if names else {}
    return any(known.get(name) is model for name in names)


def _in_training() -> bool:
    """Whether something is recorded here or by a module around, as where a network computes its own targets without recording."""
    session = running()
    calls = session.event_log().stack if session is not None else ()
    return torch.is_grad_enabled() or any(call.module.recording for call in calls)


def _mixed(model: torch.nn.Module) -> bool:
    """Whether a part of a model in eval mode was put into training mode, as for Monte Carlo dropout."""
    return any(module.training for _, module in submodules(model))


_CALLS = {torch.nn.Module._call_impl.__code__, torch.nn.Module._wrapped_call_impl.__code__}


def model_around(frame: FrameType | None) -> tuple[torch.nn.Module | None, FrameType | None, object]:
    """The outermost module whose call this runs in, the frame that called it, and the first that it was given."""
    model, calling, given = None, None, None
    while frame is not None:
        if frame.f_code in _CALLS:
            model, calling = first_argument(frame), frame.f_back
            given = next(iter(local_variables(frame).get("args", ())), None)  # type: ignore[call-overload]
        frame = frame.f_back
    return model, users_frame(calling), given


def _spreads(first: Any, second: Any) -> str:
    """Whether a column meets a row of the same length, so that each element meets each: both shapes, else ""."""
    if type(first) not in PLAIN or type(second) not in PLAIN:
        return ""
    shapes = tuple(first.shape), tuple(second.shape)
    row, column = sorted(shapes, key=len)
    spread = bool(row) and column == (row[0], 1, *row[1:]) and row[0] > 1
    return f"{shapes[0]} and {shapes[1]}" if spread else ""
