"""Sees calls that run without an error and do something else than they look like: broadcasts, reshapes, and modes.

Is told of each call by `recording/torch_calls`. Looks at shapes, modes and identities, reads no number, and keeps tensors weakly.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Container
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.record import Misuse
from gradviz.formulas.dimensions import PRODUCTS, cuts_samples, order_before
from gradviz.packages import Place, PlaceOf, is_foundation, package_of
from gradviz.recording.torch_calls import PLAIN, Given, is_real
from gradviz.source.statements import expressions_at
from gradviz.variables.objects import parameters, submodules
from gradviz.variables.scanner import first_argument, local_variables
from gradviz.walker.isolation import isolated

MOST = 100
"""Lines that are noted, and results that are followed until they are reduced."""
_LOOKS = 20  # how often the module around a line that drops out is asked for its mode
_ELEMENTWISE = frozenset(
    ["add", "sub", "rsub", "mul", "div", "truediv", "eq", "ne", "gt", "lt", "ge", "le", "pow", "maximum", "minimum"]
)
_JOINS = frozenset(("add", "mul"))
_COUNTED = frozenset(("arange", "linspace", "logspace"))
_OTHERS = PRODUCTS | {"linear"}  # what they make of data is no error, whatever its shape
_REDUCES = frozenset(("mean", "sum"))
_RESHAPES = frozenset(("view", "reshape"))
_KEEP = frozenset(["sum", "mean", "norm", "linalg_norm", "linalg_vector_norm", "logsumexp", "amax", "amin"])
_COLUMNS = frozenset(("unsqueeze", "getitem", "view", "reshape"))
_ROUNDS = frozenset(("floor_divide", "floordiv", "rfloordiv", "to", "type", "int", "long", "byte", "short"))
_ROUNDED, _SEVERAL = 8, 16  # how often rounding is looked at, and elements at least
_TRAINS = {"dropout": 2, "feature_dropout": 2, "alpha_dropout": 2, "batch_norm": 5}
"""Functions that take `training`, and at which place."""


class MisuseWatch:
    """Of one run, in one thread. `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf) -> None:
        self._place = place
        self._found: dict[tuple[str, str, int], Misuse] = {}
        self._spread: dict[int, tuple[weakref.ref[torch.Tensor], tuple[str, Place, str]]] = {}
        self._columns: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}  # made of rows, and in which line
        self._positions: dict[int, weakref.ref[torch.Tensor]] = {}
        self._looked: dict[object, int] = {}
        self._sources: dict[int, Callable[[], torch.Tensor | None]] = {}  # that batches are picked from

    def result(self, trained_with: Container[tuple[str, int]] = ()) -> tuple[Misuse, ...]:
        """All that was found, one for each line. What a loss is computed from is no evaluation: `trained_with` are such lines."""
        evaluated = "train in evaluation"
        return tuple(
            misuse
            for (kind, *line), misuse in self._found.items()
            if kind != evaluated or tuple(line) not in trained_with
        )

    def note(self, kind: str, place: Place | None, *words: str, tensors: frozenset[int] = frozenset()) -> None:
        if place is not None and len(self._found) < MOST:
            source = line_at(place)
            key = kind, source.file, source.line
            times = self._found[key].times if key in self._found else 0
            self._found[key] = Misuse(kind, source, words, times + 1, tensors)

    # -- calls of torch -------------------------------------------------------------------------------------------------

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        name = function.__name__.strip("_")
        counted = name in _COUNTED or (
            name in _ELEMENTWISE and type(arguments[0]) in PLAIN and self._counts(arguments[0])
        )
        if counted and type(result) in PLAIN and result.dim() == 1 and len(self._positions) < MOST:
            self._positions[id(result)] = weakref.ref(result)
        if name in _TRAINS:
            self._switched(name, arguments, frame)
        elif name == "broadcast_tensors" and frame.f_back is not None:
            given, loss = arguments[0] if type(arguments[0]) is tuple else arguments, frame.f_back
            words = _spreads(*given) if len(given) == 2 and loss.f_code.co_name.endswith("_loss") else ""
            if words and local_variables(loss).get("reduction") != "none":
                self.note("broadcast", self._place(loss), loss.f_code.co_name, words)
        elif type(result) in PLAIN and arguments and type(arguments[0]) in PLAIN:
            if name == "getitem" and torch.is_grad_enabled() and arguments[0].is_leaf and len(self._sources) < MOST:
                self._sources[id(arguments[0])] = weakref.ref(arguments[0])
            if name in _RESHAPES:
                self._reshaped(name, arguments[0], result, frame)
            if result.dim() > 1 and result.shape[1] == 1 and (name in _COLUMNS or arguments[0].dim() == 2):
                self._column(name, arguments[0], result, frame)
            if name in _ELEMENTWISE and len(arguments) > 1 and result.dim() > 1:
                self._meets(name, arguments, result, frame)
            if self._spread:
                self._follow(name, arguments, result)
            if name in _ROUNDS and not result.requires_grad and result.numel() >= _SEVERAL:
                self._rounded(name, arguments[0], result, frame)

    def _rounded(self, name: str, before: torch.Tensor, result: torch.Tensor, frame: FrameType) -> None:
        """Data is rounded; whether nothing but zeros is left of it each time that it is looked at."""
        if before.dtype == result.dtype and name in ("to", "type"):
            return
        key = name, frame.f_code, frame.f_lineno
        self._looked[key] = self._looked.get(key, 0) + 1
        place = self._place(frame) if self._looked[key] <= _ROUNDED else None
        if place is None:
            return
        with isolated(), torch.no_grad():
            gone = bool(before.any()) and not bool(result.any())
        if gone:
            self.note("rounds to zero", place, name, str(tuple(before.shape)))
        else:
            self._looked[key] = _ROUNDED
            source = line_at(place)
            self._found.pop(("rounds to zero", source.file, source.line), None)

    def _reshaped(self, name: str, before: torch.Tensor, after: torch.Tensor, frame: FrameType) -> None:
        """A new shape with the sizes of the old one in another order, in the user's own code: elements stay where they are."""
        old, new = tuple(before.shape), tuple(after.shape)
        moved = len(old) > 1 and is_real(before) and cuts_samples(old, new)
        users = not (is_foundation(frame.f_code.co_filename) or package_of(frame.f_code.co_filename))
        if users and moved:
            kind = "reshape" if sorted(old) == sorted(new) else "cut anew"
            place = self._place(frame)
            self.note(kind, place, name, str(old), str(new), _moved(name, old, new, place))

    def _column(self, name: str, before: torch.Tensor, result: torch.Tensor, frame: FrameType) -> None:
        """A column is made of a row, or by a reduction that keeps the dimension, as for distances of all pairs."""
        reduced = before.dim() == 2 and before.shape[1] > 1 and name in _KEEP
        if reduced or (before.dim() == result.dim() - 1 and name in _COLUMNS):
            self._columns[id(result)] = weakref.ref(result), 0 if reduced else frame.f_lineno or 0

    def _meets(self, name: str, arguments: Given, result: torch.Tensor, frame: FrameType) -> None:
        """Two tensors are computed with each other, element by element."""
        first, second = arguments[:2]
        if type(first) not in PLAIN or type(second) not in PLAIN or len(self._spread) >= MOST:
            return
        words = _spreads(first, second)
        place = self._place(frame) if words else None
        column = max(first, second, key=torch.Tensor.dim)
        ref, at = self._columns.get(id(column), (lambda: None, 0))
        if self._counts(first) or self._counts(second):
            return
        if place is None or (ref() is column and at in (0, frame.f_lineno or 0)):  # it is meant
            return
        if result.dim() == 2:
            self._spread[id(result)] = weakref.ref(result), (name, place, words)
        elif name in _JOINS and result.requires_grad:
            self.note("joins all", place, name, words, str(tuple(result.shape)))

    def _counts(self, tensor: object) -> bool:
        """Whether a tensor has positions, which were counted and are no samples."""
        return id(tensor) in self._positions and self._positions[id(tensor)]() is tensor

    def _follow(self, name: str, arguments: Given, result: torch.Tensor) -> None:
        """What became of tensors that were spread: all of them averaged, as a loss is, or computed with others."""
        if name.endswith("_like") or name in _OTHERS:
            return
        for given in arguments[:2]:
            same = id(given) in self._spread and self._spread[id(given)][0]() is given
            if not same:
                continue
            known = self._spread[id(given)][1]
            if name in _REDUCES and result.dim() == 0:
                self.note("broadcast", known[1], known[0], known[2])
            elif given.shape == result.shape and len(self._spread) < MOST:
                self._spread[id(result)] = weakref.ref(result), known

    def next_step(self) -> None:
        """A backward call has run."""
        self._spread.clear()
        self._columns.clear()

    # -- modes ------------------------------------------------------------------------------------------------------------

    def _switched(self, name: str, arguments: Given, frame: FrameType) -> None:
        """Something that depends on the mode runs: as in training, inside of a model in eval mode, or where nothing is recorded."""
        at = _TRAINS[name]
        if len(arguments) <= at or arguments[at] is not True or (name != "batch_norm" and not arguments[1]):
            return
        users = users_frame(frame)
        if users is None:
            return
        key = name, users.f_code, users.f_lineno
        self._looked[key] = self._looked.get(key, 0) + 1
        if self._looked[key] > _LOOKS:
            return
        model, calling, given = _model_around(frame)
        if model is None:
            return
        if not model.training and name != "batch_norm" and not _mixed(model):
            self.note("dropout in eval", self._place(users), type(model).__name__)
        elif name == "batch_norm" and self._sources.get(id(given), lambda: None)() is given is not None:
            return  # it looks at the data that it is trained with, and learns no other statistics from that
        elif model.training and not torch.is_grad_enabled() and calling is not None:
            held = frozenset(map(id, parameters(model)))
            self.note("train in evaluation", self._place(calling), type(model).__name__, name, tensors=held)


_IN_WORDS = (
    "Reshape only neighbouring dimensions, and leave dimension 0, the batch, whole: split dimensions first, bring them into "
    "the order of the result with transpose() or permute(), and merge them last"
)


def _moved(name: str, old: tuple[int, ...], new: tuple[int, ...], place: Place | None) -> str:
    """The advice: calls that move the dimensions, which are split before and merged after; words where none are certain."""
    order, back = order_before(old, new), order_before(new, old)
    sizes = _sizes(name, new, place)
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
    source = line_at(place) if place is not None else None
    found = set[tuple[str, ...]]()
    for node in expressions_at(source.file, source.line) if source is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            given = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
            found.add(tuple(map(ast.unparse, given)))
    written = found.pop() if len(found) == 1 else ()
    return [*written] if len(written) == len(new) else [*map(str, new)]


def _mixed(model: torch.nn.Module) -> bool:
    """Whether a part of a model in eval mode was put into training mode, as for Monte Carlo dropout."""
    return any(module.training for _, module in submodules(model))


_CALLS = {torch.nn.Module._call_impl.__code__, torch.nn.Module._wrapped_call_impl.__code__}


def _model_around(frame: FrameType | None) -> tuple[torch.nn.Module | None, FrameType | None, object]:
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
