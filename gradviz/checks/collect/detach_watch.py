"""Notes every operation that takes a tensor with a graph and gives one without, and where what it gave enters a graph again.

A mode of `torch.overrides` sees each call of the torch API in the thread that entered it, also in helpers, methods, module
forwards and libraries. What came out of a cut is followed from operation to operation, held weakly, so that an output or a
term of a loss can be traced back to the line that lost its graph. Changes no result and touches no node. Gives way to
`torch.compile`, which would compile the mode into the user's function.
"""

from __future__ import annotations

import linecache
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from gradviz.checks.collect.lines import leaf_of
from gradviz.checks.collect.parameters import Switches
from gradviz.checks.collect.results import PLAIN, WITH_POLES, Given, ResultWatch, is_real
from gradviz.packages import Place, package_of
from gradviz.source.provenance import DetachKind
from gradviz.walker.private import FunctionModes, peek_sequence

MOST = 4
"""Cuts that one tensor is traced back to."""

EVENTS = 200_000
"""Cuts after which no more are noted, so that a long run costs no more."""

_SHAPE_ONLY = frozenset(
    (
        *(f"{kind}_like" for kind in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")),
        *(f"new_{kind}" for kind in ("zeros", "ones", "empty", "full", "empty_strided")),
        *("size", "dim", "is_same_size", "result_type", "_is_all_true", "isnan", "isinf", "isfinite"),
    )
)
"""Functions that take no number from their tensor, or only ask whether something is wrong with it."""
_KINDS: dict[str, DetachKind] = {
    **dict.fromkeys(("detach", "detach_"), "detach"),
    "data": "data",
    **dict.fromkeys(("numpy", "__array__"), "numpy"),
    **dict.fromkeys(("item", "tolist", "__float__", "__int__", "__index__"), "number"),
    **dict.fromkeys(("tensor", "new_tensor"), "new"),
    "grad": "grad",
}
"""Functions that drop a graph in one way, whatever they are given."""
_COPIES = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
_DRAWS = frozenset(("bernoulli", "normal", "poisson", "multinomial", "binomial"))
_TENSOR = torch.tensor
_REQUIRES_GRAD = torch.Tensor.requires_grad_
_COPY = torch.Tensor.copy_
_DECORATED = torch.no_grad()(lambda: None).__code__  # of the function that torch puts around one with a mode
_TIMES, _NODES = 4, 5000  # that one looks what is behind a line that cuts, and nodes that one goes over
_FRAMES = 20  # of the user's, in which a switch is looked for
_stack = FunctionModes()
_functorch = getattr(torch._C, "_functorch", None)


class DetachPlace(NamedTuple):
    """One place in the code that cuts: one object for all times that it runs."""

    kind: DetachKind
    operation: str
    place: Place | None
    stack: tuple[tuple[str, int, bool], ...] = ()  # where recording was off: see `_stack_of`


class DetachEvent(NamedTuple):
    """One cut: the number that the next node would have got, and the leaf that was cut off, when it was one."""

    where: DetachPlace
    at: int
    leaf: weakref.ref[torch.Tensor] | None = None
    chosen: bool = False  # what it gave has been made integers since, to choose by


Cuts = tuple[DetachEvent, ...]


class _Loose(NamedTuple):
    ref: Any
    cuts: Cuts


class DetachWatch:
    """Of one run, in one thread. `place` tells the user's line of a frame."""

    def __init__(self, place: Callable[[FrameType | None], Place | None]) -> None:
        self._place = place
        self._loose: dict[int, _Loose] = {}  # by identity of the tensor or array
        self._numbers: dict[float, Cuts] = {}
        self._arrays: Cuts = ()  # what NumPy was given since the last step
        self._places: dict[tuple[object, ...], DetachPlace] = {}
        self._behind: dict[DetachPlace, list[dict[int, weakref.ref[torch.Tensor]]]] = {}  # leaves, each time one looked
        self._left = EVENTS
        self._off = 0
        self.switches = Switches()
        self._off_at: Place | None = None  # the line that has switched recording off for good
        self.results = ResultWatch(place)
        self.numbers: dict[int, DetachEvent] = {}  # of this step, one for each place
        self.entered: dict[int, Cuts] = {}  # by the number of the node that takes in what was cut off

    # -- switching on and off -------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, operations of this thread are seen, until something is compiled."""
        mode, compile_, new, from_numpy = _Mode(self), torch.compile, torch.nn.Parameter.__new__, torch.from_numpy
        defined = vars(torch.nn.Parameter)["__new__"]
        watch = self

        @wraps(compile_)
        def compiling(*arguments: Any, **options: Any) -> Any:
            watch._off += 1
            _leave(mode)
            return compile_(*arguments, **options)

        @wraps(new)
        def parameter(cls: Any, data: Any = None, *arguments: Any, **options: Any) -> Any:
            made = new(cls, data, *arguments, **options)
            with suppress(Exception):
                watch.wrapped(made, data, sys._getframe(1))
            return made

        @wraps(from_numpy)
        def from_array(array: Any) -> torch.Tensor:
            made = from_numpy(array)
            with suppress(Exception):
                watch.copied(made, array)
            return made

        torch.compile = compiling
        torch.from_numpy = from_array  # type: ignore[assignment]
        torch.nn.Parameter.__new__ = parameter  # type: ignore[method-assign]
        mode.__enter__()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            _leave(mode)
            torch.compile, torch.from_numpy = compile_, from_numpy
            torch.nn.Parameter.__new__ = defined  # type: ignore[method-assign]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is noted: it is not the user's code."""
        self._off += 1
        try:
            yield
        finally:
            self._off -= 1

    # -- what is seen ---------------------------------------------------------------------------------------------------

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        if self._off or not self._left or (_functorch is not None and _functorch.peek_interpreter_stack() is not None):
            return
        kind = type(result)
        self.results.seen(function, arguments, options, kind in PLAIN, frame)
        if function is _COPY:
            self.writes(arguments, options, frame)
        elif function is _REQUIRES_GRAD or (result is None and function.__name__ == "__set__"):
            self._switched(function, arguments, frame)
        if kind in PLAIN:
            if function is _TENSOR and result.requires_grad:
                self._cut(function, arguments, options, (result,), frame)
            if result.requires_grad:
                if (self._loose or self._numbers) and self._may_matter(arguments, options, False):
                    cuts = self._known(_flat(arguments, options))
                    if cuts and result.is_leaf:  # a number that was made a tensor that requires grad
                        self._keep(result, cuts)
                    elif cuts:
                        self.entered[peek_sequence() - 1] = cuts
                return
            results: Iterable[Any] = (result,)
        elif issubclass(kind, (tuple, list)):
            results = [tensor for tensor in result if type(tensor) in PLAIN and not tensor.requires_grad]
            if torch.is_grad_enabled() and function.__name__ != "grad":
                results = [tensor for tensor in results if not is_real(tensor)]  # a real one belongs to another input
            if not results and function.__name__ != "tolist":
                return
        elif kind is float or kind is int or kind.__name__ == "ndarray":
            results = (result,)
        elif result is None and function.__name__ == "_set_grad_enabled":
            self._switched_off(arguments, frame)
            return
        elif result is None and function.__name__ == "__setitem__":
            results = (arguments[0],) if type(arguments[0]) in PLAIN and not arguments[0].requires_grad else ()
        else:
            return
        self._cut(function, arguments, options, results, frame)

    def _may_matter(self, arguments: Given, options: Any, graphs: bool) -> bool:
        """A quick look at what nearly every operation is given: whether something was cut off, or `graphs`, or may hold such."""
        loose, numbers = self._loose, self._numbers
        for argument in (*arguments, *options.values()) if options else arguments:
            kind = type(argument)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                if id(argument) in loose or (graphs and argument.requires_grad):
                    return True
            elif kind is float:
                if argument in numbers:
                    return True
            elif kind is list or kind is tuple or id(argument) in loose:
                return True
        return False

    def _switched_off(self, arguments: Given, frame: FrameType) -> None:
        """Recording is switched: by a block, or by a call that nothing takes back."""
        caller = frame.f_back
        called = caller is not None and frame.f_code.co_name == "__init__" and not _in_with(caller)
        self._off_at = self._place(caller) if called and arguments and not arguments[0] else None

    def _switched(self, function: Any, arguments: Given, frame: FrameType) -> None:
        name = "requires_grad" if function is _REQUIRES_GRAD else getattr(function.__self__, "__name__", "")
        if name == "requires_grad":
            self.switches.note(arguments[0], arguments[0].requires_grad, self._place(frame))
        elif name == "data":
            self.writes(arguments, None, frame)

    def writes(self, arguments: Given, options: Any, frame: FrameType) -> None:
        """A tensor is written into another one: by `.data = value`, or by `copy_` while recording is off."""
        into: Any = arguments[0]
        value: Any = arguments[1] if len(arguments) > 1 else None
        if type(into) not in PLAIN or type(value) not in PLAIN or not (into.is_leaf and into.requires_grad):
            return
        if value.requires_grad and not value.is_leaf:
            self._keep(into, (self._event("written", "written", value, frame),))
        elif id(value) in self._loose:
            self._keep(into, self._known((value,)))

    def wrapped(self, parameter: Any, data: Any, frame: FrameType) -> None:
        """A parameter was made of a tensor."""
        if not self._off and self._left and type(data) in PLAIN and (data.requires_grad or id(data) in self._loose):
            with torch._C.DisableTorchFunction():
                cuts = (
                    (self._event("parameter", "Parameter", data, frame),)
                    if data.requires_grad
                    else self._known((data,))
                )
                self._keep(parameter, cuts)

    def copied(self, tensor: torch.Tensor, array: Any) -> None:
        """A tensor was made of an array, which may have been computed from what NumPy was given."""
        if not self._off and self._left:
            cuts = self._known((array,)) or self._arrays
            if cuts:
                self._keep(tensor, cuts)

    def _cut(self, function: Any, arguments: Given, options: Any, results: Iterable[Any], frame: FrameType) -> None:
        name = function.__name__
        if name == "__get__":
            name = getattr(getattr(function, "__self__", None), "__name__", "")
            if name != "data":
                return
        if name in WITH_POLES:
            self.results.look(arguments, next(iter(results)), frame)
        if name in _SHAPE_ONLY or not (name in _COPIES or self._may_matter(arguments, options, True)):
            return
        given = list(_flat(arguments, options))
        cuts = list(self._known(given))
        first: Any = next(iter(results), None)
        if type(first) in PLAIN and not is_real(first):
            cuts = [cut._replace(chosen=True) for cut in cuts]
        for argument in given:
            if type(argument) in PLAIN and argument.requires_grad and len(cuts) < MOST:
                event = self._event(_kind(name, first), name, argument, frame)
                draws = event.where.kind == "sample" or name in _DRAWS
                cuts.append(event._replace(chosen=draws and type(first) in PLAIN and not is_real(first)))
        if not cuts and name in _COPIES:
            if self._arrays and any(type(argument).__module__ == "numpy" for argument in given):
                cuts = list(self._arrays)
            elif self.numbers and any(type(argument) is float for argument in given):
                here = _line(self._place(frame))  # computed from numbers, in this very line
                cuts = [cut for cut in self.numbers.values() if _line(cut.where.place) == here]
        if cuts:
            for result in results:
                self._keep(result, tuple(cuts[:MOST]))

    def _event(self, kind: DetachKind, name: str, tensor: torch.Tensor, frame: FrameType) -> DetachEvent:
        self._left -= 1
        around: FrameType | None = frame
        while around is not None and around.f_globals.get("__name__", "").startswith("torch."):
            if around.f_code.co_name == "sample" and "distributions" in around.f_globals["__name__"]:
                kind, name = "sample", "sample"
            if around.f_code.co_name == "__deepcopy__":
                kind = name = "deepcopy"
            around = around.f_back
        place = self._place(frame)
        if kind == "no_grad" and self._off_at is not None:
            place, name = self._off_at, "set_grad_enabled"
        key = kind, name, id(place)  # places are made once for each line, and never dropped
        where = self._places.get(key)
        if where is None:
            off = kind in ("no_grad", "inference") and name != "set_grad_enabled"
            where = self._places[key] = DetachPlace(kind, name, place, _stack_of(frame) if off else ())
        event = DetachEvent(where, peek_sequence(), weakref.ref(tensor) if tensor.is_leaf else None)
        if kind == "number":
            self.numbers[id(where)] = event
        if event.leaf is None:
            looked = self._behind.setdefault(where, [])
            if len(looked) < _TIMES:
                looked.append(_leaves_behind(tensor))
        return event

    def behind(self, cut: DetachEvent) -> list[torch.Tensor]:
        """The leaves that the graph led to which was cut off there, the first few times."""
        refs = {key: ref for leaves in self._behind.get(cut.where, ()) for key, ref in leaves.items()}
        return [leaf for ref in refs.values() if (leaf := ref()) is not None]

    def _known(self, values: Iterable[Any]) -> Cuts:
        known: dict[tuple[DetachPlace, int], DetachEvent] = {}
        for value in values:
            loose = self._loose.get(id(value))
            cuts: Cuts = ()
            if type(value) is float:
                cuts = self._numbers.get(value, ())
            elif loose is not None and loose.ref() is value:
                # as the output of a custom Function, or by a change in place, it may have got a graph since
                with_graph = type(value) in PLAIN and value.requires_grad and not value.is_leaf
                cuts = () if with_graph else loose.cuts
            for cut in cuts:
                key = cut.where, id(cut.leaf)
                before = known.get(key, cut)
                latest = cut if before.at < cut.at else before  # the last time that the place ran
                known[key] = latest if cut.chosen else latest._replace(chosen=False)
        return tuple(known.values())[:MOST]

    def _keep(self, result: Any, cuts: Cuts) -> None:
        if type(result) is float:
            if len(self._numbers) > 1000:
                self._numbers.clear()
            self._numbers[result] = cuts
        elif type(result) in PLAIN or type(result).__name__ == "ndarray":
            if type(result) not in PLAIN:
                self._arrays = cuts
            key, loose = id(result), self._loose

            def gone(ref: object) -> None:
                known = loose.get(key)
                if known is not None and known.ref is ref:
                    del loose[key]

            loose[key] = _Loose(weakref.ref(result, gone), cuts)

    # -- what is known at a backward call -------------------------------------------------------------------------------

    def cuts_of(self, tensor: object) -> Cuts:
        """Why a tensor has no graph: the cuts that it goes back to, as far as that was seen."""
        return self._known((tensor,))

    def next_step(self) -> None:
        """A backward call has run: what was noted for it is not needed any more."""
        self.entered.clear()
        self.results.next_step()
        self.numbers.clear()
        self._arrays = ()


class _Mode(TorchFunctionMode):
    """Written flat: every call of the torch API passes here."""

    def __init__(self, watch: DetachWatch) -> None:
        super().__init__()
        self._seen = watch.seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs) if kwargs else func(*args)
        try:
            self._seen(func, args, kwargs, result, sys._getframe(1))
        except Exception:
            pass
        return result


def _stack_of(frame: FrameType | None) -> tuple[tuple[str, int, bool], ...]:
    """Files and lines of the user's own code around a frame, innermost first.

    Where torch has wrapped a function to switch a mode, the first line of that function follows its own, marked so.
    """
    lines: list[tuple[str, int, bool]] = []
    inner: FrameType | None = None
    while frame is not None and len(lines) < _FRAMES:
        file = frame.f_code.co_filename
        if not package_of(file):
            lines.append((file, frame.f_lineno or 0, False))
            inner = frame
        elif inner is not None and frame.f_code is _DECORATED:
            lines.append((inner.f_code.co_filename, inner.f_code.co_firstlineno, True))
        frame = frame.f_back
    return tuple(lines)


def _leave(mode: TorchFunctionMode) -> None:
    """Take the mode from the stack, from below those that the user's code has entered since."""
    above: list[Any] = []
    while _stack.depth():
        top = _stack.pop()
        if top is mode:
            break
        above.append(top)
    for mode in reversed(above):
        _stack.push(mode)


def _in_with(frame: FrameType) -> bool:
    """Whether a line begins a block, or torch's own code does."""
    if frame.f_globals.get("__name__", "").startswith("torch."):
        return True
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).strip().startswith(("with ", "async with "))


def _line(place: Place | None) -> tuple[str, int]:
    return (place.source.file, place.source.line) if place is not None else ("", 0)


def _flat(arguments: Given, options: Any) -> Iterator[Any]:
    for argument in (*arguments, *(options.values() if options else ())):
        if type(argument) is list or type(argument) is tuple:
            yield from argument
        else:
            yield argument


def _leaves_behind(tensor: torch.Tensor) -> dict[int, weakref.ref[torch.Tensor]]:
    """The leaves that a tensor was computed from; none when its graph is too large for a look."""
    leaves: dict[int, weakref.ref[torch.Tensor]] = {}
    start: Any = tensor.grad_fn
    seen, waiting = {start}, [start]
    while waiting and len(seen) < _NODES:
        node: Any = waiting.pop()
        leaf = leaf_of(node)
        if isinstance(leaf, torch.Tensor):
            leaves[id(leaf)] = weakref.ref(leaf)
        inputs = {function for function, _ in node.next_functions if function is not None} - seen
        seen |= inputs
        waiting += inputs
    return leaves if not waiting else {}


def _kind(name: str, result: Any) -> DetachKind:
    """How an operation dropped the graph of what it was given."""
    if name in _KINDS:
        return _KINDS[name]
    if name in _DRAWS and is_real(result):
        return "sample"
    if (type(result) in PLAIN and not is_real(result)) or torch.is_grad_enabled():
        return "integer"
    return "inference" if torch.is_inference_mode_enabled() else "no_grad"
