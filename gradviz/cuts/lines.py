"""Cuts: the lines where a tensor loses its graph, seen while the code runs, and where what they gave enters a graph again.

`CutWatch` is told of each call of torch. What came out of a cut is followed from operation to operation, held weakly, so that
an output or a term of a loss can be traced back to the line that lost its graph. `Cut` is what others read of it: plain data.
Changes no result and touches no node.
"""

from __future__ import annotations

import linecache
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch

from gradviz.cuts.parts import CutPart, CutParts, Drop, part_behind
from gradviz.cuts.torch_calls import PLAIN, Given, is_decorated, is_real, name_of
from gradviz.graph import SourceLine, column
from gradviz.packages import Place, PlaceOf, package_of, with_text
from gradviz.walker.description import Attribution
from gradviz.walker.names import flatten
from gradviz.walker.private import peek_sequence
from gradviz.walker.tensors import grad_fn_of
from gradviz.wording import place_text

DetachKind = Literal[
    "detach",
    "data",
    "number",
    "numpy",
    "new",
    "integer",
    "no_grad",
    "inference",
    "sample",
    "parameter",
    "grad",
    "written",
    "deepcopy",
]
"""How a tensor can lose its graph: `.detach()`; `.data`; `.item()` and its like; `.numpy()`; `torch.tensor(...)` of something;
an integer or boolean result; made under `torch.no_grad()`; made in `torch.inference_mode()`; `.sample()` of a distribution;
wrapped in `nn.Parameter`; a gradient that `torch.autograd.grad` computed without `create_graph`; written into a leaf; a leaf that
`copy.deepcopy` copies."""


Stack = tuple[tuple[str, int, bool], ...]
"""Lines of the user's around a cut, innermost first: file, line, and whether a decorator stands above it."""


class Cut(NamedTuple):
    """A line that drops a graph, as plain data.

    `of` is the expression that loses it, as the code spells it, and `off` the block or decorator that had switched recording
    off, where somebody has read the code. `alive`: what goes in is known to have a graph, so that the graph ends here.

    `source` is the script's own line, and `inside` the function, or the library and line, that cut there. `leaf` are the names
    of what was cut off when it was a leaf, `behind` those of the leaves that its graph led to. `entered` is the sequence number
    of the last node that took in what the cut gave, `at` the one that the next node would have got. `chosen`: what it gave was
    used to choose, as an index or a draw. `switched_off` are the lines around it, where it was made without recording.
    """

    kind: DetachKind
    source: SourceLine
    operation: str = ""
    inside: str = ""
    at: int = 0
    leaf: tuple[str, ...] = ()
    behind: frozenset[str] = frozenset()
    entered: int | None = None
    chosen: bool = False
    switched_off: Stack = ()
    of: str = ""
    alive: bool = False
    off: SourceLine | None = None


MOST = 4
"""Cuts that one tensor is traced back to."""

MOST_PARTS = 100
"""Times in one step that leaves are noted which one line takes without recording, as a frozen model of many layers does."""

EVENTS = 200_000
"""Cuts after which no more are noted, so that a long run costs no more."""

_SHAPE_ONLY = {
    *(f"{kind}_like" for kind in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")),
    *(f"new_{kind}" for kind in ("zeros", "ones", "empty", "full", "empty_strided")),
    "size",
    "dim",
    "is_same_size",
    "result_type",
    "_is_all_true",
    "isnan",
    "isinf",
    "isfinite",
    "numel",
    "nelement",
    "ndimension",
    "element_size",
    "stride",
    "storage_offset",
    "data_ptr",
    "get_device",
    "__len__",
}
"""Functions that take no number from their tensor, or only ask whether something is wrong with it."""
_KINDS: dict[str, DetachKind] = {
    "detach": "detach",
    "detach_": "detach",
    "data": "data",
    "numpy": "numpy",
    "__array__": "numpy",
    **dict.fromkeys(("item", "tolist", "__float__", "__int__", "__index__"), "number"),
    "tensor": "new",
    "new_tensor": "new",
    "grad": "grad",
}
"""Functions that drop a graph in one way, whatever they are given."""
_COPIES = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
_DRAWS = frozenset(("bernoulli", "normal", "poisson", "multinomial", "binomial"))
_TENSOR = torch.tensor
_COPY = torch.Tensor.copy_
_TIMES, _NODES = 4, 5000  # that one looks what is behind a line that cuts, and nodes that one goes over
_FRAMES = 20  # of the user's, in which a switch is looked for

Names = tuple[str, ...]
_Leaves = dict[int, weakref.ref[torch.Tensor]]


class CutPlace(NamedTuple):
    """One place in the code that cuts: one object for all times that it runs."""

    kind: DetachKind
    operation: str
    place: Place | None
    stack: Stack = ()  # where recording was off: see `_stack_of`


class CutEvent(NamedTuple):
    """One cut: the number that the next node would have got, and the leaf that was cut off, when it was one."""

    where: CutPlace
    at: int
    leaf: weakref.ref[torch.Tensor] | None = None
    chosen: bool = False  # what it gave has been made integers since, to choose by


Cuts = tuple[CutEvent, ...]


class _Loose(NamedTuple):
    ref: Any
    cuts: Cuts


class CutWatch:
    """Of one run, in one thread. `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf) -> None:
        self._place = place
        self._loose: dict[int, _Loose] = {}  # by identity of the tensor or array
        self._numbers: dict[int, _Loose] = {}  # by identity, and held: equal numbers come from many places
        self._arrays: Cuts = ()  # what NumPy was given since the last step
        self._places: dict[tuple[object, ...], CutPlace] = {}
        self._behind: dict[CutPlace, list[_Leaves]] = {}  # leaves, each time one looked
        self._last: dict[CutPlace, CutEvent] = {}
        self._enters: dict[CutPlace, int] = {}  # the last node that took in what a place gave
        self._left = EVENTS
        self.parts: dict[CutPlace, list[CutPart]] | None = None  # what each line dropped last, where that is wanted
        self.step = 0
        self._off_at: Place | None = None  # the line that has switched recording off for good
        self.numbers: dict[int, CutEvent] = {}  # of this step, one for each place
        self.entered: dict[int, Cuts] = {}  # by the number of the node that takes in what was cut off

    # -- what is seen ---------------------------------------------------------------------------------------------------

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        if not self._left:
            return
        if self._arrays:
            self._adopt(arguments)
        if function is _COPY or (result is None and _sets_data(function)):
            self._writes(arguments, frame)
        if function is torch.nn.Parameter:
            self._wrapped(result, arguments[0], frame)
        elif result is None:
            self._done(function, arguments, options, frame)
        elif type(result) in PLAIN and result.requires_grad:
            if function is _TENSOR:
                self._cut(function, arguments, options, (result,), frame)
            self._goes_on(result, arguments, options)
        else:
            results = _results(function, result)
            if results or function.__name__ == "tolist":
                self._cut(function, arguments, options, results, frame)

    def _goes_on(self, result: torch.Tensor, arguments: Given, options: Any) -> None:
        """What has a graph was computed: whether something that was cut off takes part in it."""
        if (self._loose or self._numbers) and self._may_matter(arguments, options, False):
            cuts = self._known(_flat(arguments, options))
            if cuts and result.is_leaf:
                if not (arguments and result is arguments[0]):  # no update of a parameter
                    self._keep(result, cuts)  # a number that was made a tensor that requires grad
            elif cuts:
                self._enter(peek_sequence() - 1, cuts)

    def _done(self, function: Any, arguments: Given, options: Any, frame: FrameType) -> None:
        """A function that returns nothing."""
        if function.__name__ == "_set_grad_enabled":
            self._switched_off(arguments, frame)
        elif function.__name__ == "__setitem__" and type(arguments[0]) in PLAIN and not arguments[0].requires_grad:
            self._cut(function, arguments, options, (arguments[0],), frame)

    def _enter(self, number: int, cuts: Cuts) -> None:
        self.entered[number] = cuts
        self._enters.update((cut.where, number) for cut in cuts)

    def _may_matter(self, arguments: Given, options: Any, graphs: bool) -> bool:
        """A quick look at what nearly every operation is given: whether something was cut off, or `graphs`, or may hold such."""
        loose, numbers = self._loose, self._numbers
        for argument in (*arguments, *options.values()) if options else arguments:
            kind = type(argument)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                if id(argument) in loose or (graphs and argument.requires_grad):
                    return True
                if loose and id(argument._base) in loose:  # nobody sees `.T` and the like being read
                    return True
            elif kind is list or kind is tuple or id(argument) in (numbers if kind is float else loose):
                return True
        return False

    def _switched_off(self, arguments: Given, frame: FrameType) -> None:
        """Recording is switched: by a block, or by a call that nothing takes back."""
        caller = frame.f_back
        called = caller is not None and frame.f_code.co_name == "__init__" and not _in_with(caller)
        self._off_at = self._place(caller) if called and arguments and not arguments[0] else None

    def _writes(self, arguments: Given, frame: FrameType) -> None:
        """A tensor is written into another one: by `.data = value`, or by `copy_` while recording is off."""
        into: Any = arguments[0]
        value: Any = arguments[1] if len(arguments) > 1 else None
        if type(into) not in PLAIN or type(value) not in PLAIN or not (into.is_leaf and into.requires_grad):
            return
        if value.requires_grad and not value.is_leaf:
            event = self._event("written", "written", value, frame)
            self._keep(into, (*self._known((into,)), event)[-MOST:])
            self._walk(event, (value,))
        elif id(value) in self._loose:
            self._keep(into, self._known((value,)))

    def _wrapped(self, parameter: Any, data: Any, frame: FrameType) -> None:
        """A parameter was made of a tensor."""
        if type(data) not in PLAIN:
            return
        if data.requires_grad:
            event = self._event("parameter", "Parameter", data, frame)
            self._keep(parameter, (event,))
            self._walk(event, (data,))
        elif id(data) in self._loose:
            self._keep(parameter, self._known((data,)))

    def _cut(self, function: Any, arguments: Given, options: Any, results: Sequence[Any], frame: FrameType) -> None:
        name = function.__name__ if function.__name__ != "__get__" else "data"
        if not (name in _COPIES or self._may_matter(arguments, options, True)) or _goes_nowhere(name, frame):
            return
        given = list(_elements(_flat(arguments, options)) if name in _COPIES else _flat(arguments, options))
        first: Any = next(iter(results), None)
        chooses = type(first) in PLAIN and not is_real(first)
        cuts = [cut._replace(chosen=cut.chosen or chooses) for cut in self._known(given)]
        kind, called = _kind(name, first), name_of(function, frame)
        lost = _with_graph(given)
        cuts += [self._event(kind, called, tensor, frame, chooses) for tensor in lost[: max(MOST - len(cuts), 1)]]
        if name in _COPIES and not cuts:
            cuts = self._copied_from(given, frame)
        for result in results if cuts else ():
            self._keep(result, tuple(cuts[-MOST:]))  # the last one is of this line
        if lost:
            self._walk(cuts[-1], lost)

    def _adopt(self, values: Iterable[Any]) -> None:
        """Tensors whose memory is NumPy's may have been computed from what NumPy was given."""
        for value in values:
            if type(value) in PLAIN and id(value) not in self._loose and _of_numpy(value):
                self._keep(value, self._arrays)

    def _copied_from(self, given: list[Any], frame: FrameType) -> list[CutEvent]:
        """Where numbers come from that a tensor is made of: from NumPy, or from cuts in this very line."""
        if self._arrays and any(type(argument).__module__ == "numpy" for argument in given):
            return list(self._arrays)
        if self.numbers and any(type(argument) is float for argument in given):
            here = _line(self._place(frame))
            return [cut for cut in self.numbers.values() if _line(cut.where.place) == here]
        return []

    def _event(
        self, kind: DetachKind, name: str, tensor: torch.Tensor, frame: FrameType, chooses: bool = False
    ) -> CutEvent:
        self._left -= 1
        if (
            tensor.is_leaf and tensor._base is not None
        ):  # a view that was made while nothing is recorded looks like a leaf
            tensor = tensor._base
        whole = _as_a_whole(frame)
        if whole is not None:
            kind = name = whole
        place = self._place(frame)
        if kind == "no_grad" and self._off_at is not None:
            place, name = self._off_at, "set_grad_enabled"
        key = kind, name, id(place)  # places are made once for each line, and never dropped
        where = self._places.get(key)
        if where is None:
            off = kind in ("no_grad", "inference") and name != "set_grad_enabled"
            where = self._places[key] = CutPlace(kind, name, place, _stack_of(frame) if off else ())
        event = CutEvent(
            where,
            peek_sequence(),
            weakref.ref(tensor) if tensor.is_leaf else None,
            chooses and (whole == "sample" or name in _DRAWS),
        )
        self._last[where] = event
        if kind == "number":
            self.numbers[id(where)] = event
        if event.leaf is None:
            looked = self._behind.setdefault(where, [])
            if len(looked) < _TIMES:
                looked.append(_leaves_behind(tensor))
        return event

    def _walk(self, event: CutEvent, tensors: Sequence[torch.Tensor]) -> None:
        """Note what is behind tensors that a line drops, where that is wanted: a graph once a line and step, and leaves."""
        if self.parts is None:
            return
        known = [part for part in self.parts.get(event.where, ()) if part.step == self.step]
        leaves = {id(ref()) for part in known for ref in part.leaves.values()}
        if known and (len(known) >= MOST_PARTS or any(not one.is_leaf or id(one) in leaves for one in tensors)):
            return
        part = part_behind(tensors, self.step)
        if part is not None:
            self.parts[event.where] = [*known, part]

    def parts_of(self, attribution: Attribution | None, outputs: object) -> CutParts | None:
        """What takes the place of `attribution` in a walk of `outputs`, to put what was cut off beside it; None if not wanted."""
        if self.parts is None:
            return None
        drops = self._drops([output for _, output in flatten(outputs)])
        return CutParts(attribution, [*drops], self.step)

    def _drops(self, outputs: Sequence[object]) -> Iterator[Drop]:
        """What lines dropped, as far as it was walked, in the order of their cuts. `outputs` may lack a graph because of them."""
        lost = [{cut.where for cut in self.cuts_of(output)} for output in outputs]
        for where, parts in sorted((self.parts or {}).items(), key=lambda item: self._last[item[0]].at):
            at = tuple(i for i, places in enumerate(lost) if where in places)
            entered = [number for number, cuts in self.entered.items() if any(cut.where is where for cut in cuts)]
            yield Drop(self.cut(self._last[where], lambda leaf: ()), parts, tuple(entered), at)

    def _leaves(self, where: CutPlace) -> list[torch.Tensor]:
        """The leaves that the graph led to which was cut off there, the first few times."""
        refs = {key: ref for leaves in self._behind.get(where, ()) for key, ref in leaves.items()}
        return [leaf for ref in refs.values() if (leaf := ref()) is not None]

    def _known(self, values: Iterable[Any]) -> Cuts:
        known: dict[tuple[CutPlace, int], CutEvent] = {}
        for value in values:
            if type(value) in PLAIN and id(value) not in self._loose and value._base is not None:
                value = value._base
            loose = (self._numbers if type(value) is float else self._loose).get(id(value))
            cuts: Cuts = ()
            if loose is not None and loose.ref() is value:
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
            if len(self._numbers) > 200:
                del self._numbers[next(iter(self._numbers))]  # the oldest: what is held does not come and go
            self._numbers[id(result)] = _Loose(lambda: result, cuts)
        elif type(result) in PLAIN or type(result).__name__ == "ndarray":
            if type(result) not in PLAIN:
                self._arrays = cuts
            key, loose = id(result), self._loose

            def gone(ref: object) -> None:
                known = loose.get(key)
                if known is not None and known.ref is ref:
                    del loose[key]

            loose[key] = _Loose(weakref.ref(result, gone), cuts)

    # -- what is known, for instance at a backward call -------------------------------------------------------------------

    def cut(self, event: CutEvent, names: Callable[[torch.Tensor], Names]) -> Cut:
        """An event as plain data; `names` tells those of a leaf."""
        where, place = event.where, event.where.place
        source, inside = SourceLine("", 0), ""
        if place is not None:
            source = with_text(place.script_line or place.source)
            inside = source.function if source.function != "<module>" else ""
            if place.script_line is not None:
                inside = (
                    f"{place.source.package} ({place_text(os.path.basename(place.source.file), place.source.line)})"
                )
        leaf = event.leaf() if event.leaf is not None else None
        return Cut(
            where.kind,
            source,
            where.operation,
            inside,
            event.at,
            names(leaf) if leaf is not None else (),
            frozenset(name for leaf in self._leaves(where) for name in names(leaf)),
            self._enters.get(where),
            event.chosen,
            where.stack,
        )

    def cuts(self, names: Callable[[torch.Tensor], Names]) -> tuple[Cut, ...]:
        """Every place that has cut, with the last time that it ran."""
        return tuple(self.cut(event, names) for event in self._last.values())

    def cuts_behind(self, tensor: torch.Tensor, name: str) -> Iterator[Cut]:
        """The cuts of what an op computed, or of what was computed from that, as far as `parts` were walked."""
        made_by = grad_fn_of(tensor)
        number = made_by._sequence_nr() if made_by is not None else None
        walked = ((where, part.graph) for where, parts in (self.parts or {}).items() for part in parts)
        for where, graph in walked:
            if number is not None and number in column(graph.nodes, "sequence"):
                cut = self.cut(self._last[where], lambda leaf: ())
                is_it = any(root.node is not None and graph.nodes[root.node].sequence == number for root in graph.roots)
                yield cut._replace(leaf=(name,)) if is_it else cut._replace(behind=frozenset((name,)))

    def lines_entered(self) -> set[tuple[str, int]]:
        """The lines of the user's around all that ran without recording, and whose result has entered a graph since."""
        return {(file, line) for where in self._enters for file, line, _ in where.stack}

    def cuts_of(self, tensor: object) -> Cuts:
        """Why a tensor has no graph: the cuts that it goes back to, as far as that was seen."""
        if self._arrays:
            self._adopt((tensor,))
        return self._known((tensor,))

    def next_step(self) -> None:
        """A backward call has run: what was noted for it is not needed any more."""
        self.entered.clear()
        self.numbers.clear()
        self._arrays = ()
        self.stepped()

    def stepped(self) -> None:
        """What a line drops from here on is of another step."""
        self.step += 1


def _as_a_whole(frame: FrameType) -> Literal["sample", "deepcopy"] | None:
    """What torch's own code does around an operation: draw from a distribution, or copy a leaf."""
    around: FrameType | None = frame
    while around is not None and around.f_globals.get("__name__", "").startswith("torch."):
        if around.f_code.co_name == "sample" and "distributions" in around.f_globals["__name__"]:
            return "sample"
        if around.f_code.co_name == "__deepcopy__":
            return "deepcopy"
        around = around.f_back
    return None


def _with_graph(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value for value in values if type(value) in PLAIN and value.requires_grad]


def _results(function: Any, result: Any) -> Sequence[Any]:
    """What may have lost its graph, of what a function returned."""
    kind = type(result)
    if kind in PLAIN:
        return (result,)
    if function.__name__ == "tolist":
        return [number for number in _elements([result]) if type(number) is float and number % 1]  # not any 0 or 1
    if issubclass(kind, (tuple, list)):
        results = [tensor for tensor in result if type(tensor) in PLAIN and not tensor.requires_grad]
        if torch.is_grad_enabled() and function.__name__ != "grad":
            results = [tensor for tensor in results if not is_real(tensor)]  # a real one belongs to another input
        return results
    return (result,) if kind is float or kind is int or kind.__name__ == "ndarray" else ()


def _of_numpy(tensor: torch.Tensor) -> bool:
    """Whether NumPy owns the memory of a tensor, as after `torch.from_numpy`, which no mode is told of."""
    return not tensor.requires_grad and tensor.device.type == "cpu" and not tensor.untyped_storage().resizable()


def _stack_of(frame: FrameType | None) -> Stack:
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
        elif inner is not None and is_decorated(frame):
            lines.append((inner.f_code.co_filename, inner.f_code.co_firstlineno, True))
        frame = frame.f_back
    return tuple(lines)


def _sets_data(function: Any) -> bool:
    return function.__name__ == "__set__" and getattr(function.__self__, "__name__", "") == "data"


def _goes_nowhere(name: str, frame: FrameType) -> bool:
    """Whether no number is taken from a tensor, or only to make it text."""
    home, caller = frame.f_globals.get("__name__"), frame.f_code.co_name
    prints = home == "torch._tensor_str" or (home == "torch._tensor" and caller in ("__format__", "__repr__"))
    return prints or name in _SHAPE_ONLY


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


def _elements(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and in place of a list the first ones in it."""
    waiting = [*values]
    for value in waiting:  # grows while it is read
        if type(value) is list or type(value) is tuple:
            waiting += value[:MOST]
        else:
            yield value


def _leaves_behind(tensor: torch.Tensor) -> _Leaves:
    """The leaves that a tensor was computed from; none when its graph is too large for a look."""
    leaves: _Leaves = {}
    start: Any = tensor.grad_fn
    seen, waiting = {start}, [start]
    while waiting and len(seen) < _NODES:
        node: Any = waiting.pop()
        leaf = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
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
