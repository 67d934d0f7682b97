"""Follows the dimensions of the data through the calls of the first steps, and sees what relates the samples of a batch.

Data is what has no graph when a call is first given it: each of its dimensions, if no other has its size, is followed by size and
place (`gradviz.formulas.dimensions`). Which of them is the batch shows where predictions meet targets, where samples are stacked or
picked, and where something is added to all of them alike. Reads no number, and keeps tensors weakly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product
from math import prod
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.calls import LOSSES, MOST, RECURRENT, Facts, Observer, TorchCall, in_words, reads
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.record import Misuse
from gradviz.checks.words import code
from gradviz.cuts.torch_calls import PLAIN, is_real
from gradviz.formulas.dimensions import ORDERS, PRODUCTS, Shape, followed, place_of, terms
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.source.search import calls_of
from gradviz.variables.scanner import first_argument

STEPS = 2
"""Backward calls before which dimensions are followed."""
_GIVEN = 9
"""How many arguments a recurrent function has, of which the last says where the batch is."""
Places = dict[int, int]
"""The dimensions of the data that a tensor has: place by size."""
_TOLD = (
    "Softmax",
    "LogSoftmax",
    "LSTM",
    "GRU",
    "RNN",
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "Transformer",
)
_KEEPS = frozenset(("dropout", "masked_fill", "contiguous", "clone", "to", "float", "native_dropout"))
_SAFE = ("softmax over samples", "normalized over samples")
"""What is said where the batch is only known to be the first dimension of targets. The steps can be, too."""


class _Known(NamedTuple):
    """What is known of a tensor. `paired`: a size whose elements meet each other; `softmax`: the dimension it was taken over."""

    places: Places
    product: bool = False
    paired: int = 0
    softmax: int | None = None


class _DataCall(TorchCall):
    """One that makes tensors of tensors, with what is known of these."""

    __slots__ = ("known", "tensors")

    def __init__(self, call: TorchCall, tensors: Sequence[torch.Tensor], known: Sequence[_Known]) -> None:
        super().__init__(call.function, call.arguments, call.options, call.result, call.frame, call.place_of)
        self.tensors, self.known = tensors, known

    @property
    def outputs(self) -> Sequence[Any]:
        return self.result if isinstance(self.result, (tuple, list)) else (self.result,)

    @property
    def shape(self) -> Shape:
        """Of the first tensor."""
        return tuple(self.tensors[0].shape)

    def at(self, which: int, dim: int) -> int:
        """The size of the dimension of the data that a dimension of a tensor is, or 0."""
        shape = tuple(self.tensors[which].shape)
        if len(shape) < 2:
            return 0
        size = shape[dim % len(shape)]
        return size if self.known[which].places.get(size) == place_of(shape, dim) else 0


class DimensionWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._read_calls = 0
        self._facts = Facts[_Known]()
        self._found: dict[Misuse, tuple[int, frozenset[int]]] = {}  # size, and the other sizes of the data there
        self._makers: dict[tuple[str, Place], SourceLine | None] = {}  # of modules, by what they do and where
        self._batches: set[int] = set()  # sizes at which predictions meet targets
        self._certain: set[int] = set()
        self._declared: set[int] = set()  # what modules take for the batch that were told it comes first
        self._hinted: set[int] = set()  # counts where nothing else is known
        self._joined: dict[int, int] = {}  # sizes of joined batches, and of their first part
        self._several: set[Place | None] = set()  # where a softmax has run over more than one element

    def result(self) -> tuple[Misuse, ...]:
        """What relates samples of a batch with each other, one for each line."""
        self._certain |= {part for size, part in self._joined.items() if size in self._certain}
        self._certain |= {size for size, part in self._joined.items() if part in self._certain}
        several = {line_at(place) for place in self._several if place is not None}
        sure = self._certain or self._declared or self._hinted
        wanted = [
            misuse
            for misuse, (size, others) in self._found.items()
            if (size in sure and not others & sure)
            or (not sure and size in self._batches and misuse.kind in _SAFE)
            or (not size and not (misuse.kind.startswith("softmax of ") and misuse.source in several))
        ]
        return tuple({(one.kind, one.source.file, one.source.line): one for one in reversed(wanted)}.values())

    def ran(self) -> None:
        self._read_calls += 1
        self._facts.clear()

    @reads()
    def _seen(self, told: TorchCall) -> None:
        """A function of torch has returned."""
        call = self._read(told) if self._read_calls < STEPS and told.arguments and len(self._facts) < MOST else None
        if call is None:
            return
        judge = _JUDGES.get(call.name)
        made = (judge(self, call) if judge is not None else None) or {}
        for i, output in enumerate(call.outputs):
            if type(output) in PLAIN and not (output.is_leaf and output.requires_grad):
                known = self._made(call, i, output)._replace(**made)
                if known.places or output.requires_grad:  # else it is new data
                    self._facts.put(output, known)

    def _read(self, told: TorchCall) -> _DataCall | None:
        """What is known of a call that makes tensors of tensors."""
        if told.name == "arange":
            self._facts.put(told.result, _Known({}))
        several = next((one for one in told.arguments[:2] if isinstance(one, (tuple, list))), told.arguments)
        given = [one for one in (told.arguments if type(told.first) in PLAIN else several) if type(one) in PLAIN]
        call = _DataCall(told, given, [*map(self._of, given)])
        return call if given and all(type(output) in PLAIN for output in call.outputs[:1]) else None

    def _of(self, tensor: torch.Tensor) -> _Known:
        if tensor.is_leaf and tensor.requires_grad:
            return _Known({})
        known = self._facts.of(tensor)
        if known is None:
            shape = tuple(tensor.shape)
            known = _Known(_data(tensor, shape) if tensor.is_leaf else {})
            self._facts.put(tensor, known)
        return known

    def _made(self, call: _DataCall, number: int, output: torch.Tensor) -> _Known:
        """What is known of a result from what is known of the inputs."""
        new = tuple(output.shape)
        places = self._places(call, number, new) | (self._joined_in(call, new) if call.name == "cat" else {})
        first, same = call.known[0], new == call.shape and call.name not in ORDERS
        return _Known(
            places,
            same and any(known.product for known in call.known),
            max(known.paired for known in call.known) if same else 0,
            first.softmax if same and call.name in _KEEPS else None,
        )

    def _places(self, call: _DataCall, number: int, new: Shape) -> Places:
        """Where the dimensions of all inputs lie in a result, as far as that is certain."""
        places, clash = Places(), set[int]()
        for i, known in enumerate(call.known):
            for size, place in known.places.items():
                to = _place_in(call, i, number, (size, place), new)
                if to is not None and places.setdefault(size, to) != to:
                    clash.add(size)
        new_data = call.name == "stack" or (call.name == "getitem" and call.result.grad_fn is None)
        if new_data and any(known.places for known in call.known):
            places = {**_data(call.result, new), **places}
        pairs = call.name in PRODUCTS or call.name == "einsum"  # each sample with each
        return {size: to for size, to in places.items() if size not in clash and not (pairs and new.count(size) > 1)}

    def _joined_in(self, call: _DataCall, new: Shape) -> Places:
        """Batches that are joined to a larger one."""
        dim = call.dim if isinstance(call.dim, int) else 0
        sizes = [call.at(i, dim) for i in range(len(call.tensors))]
        if not all(sizes):
            return {}
        self._joined[new[dim]] = sizes[0]
        return {new[dim]: place_of(new, dim)}

    # -- what relates samples -----------------------------------------------------------------------------------------

    def _relates(self, kind: str, size: int, call: _DataCall, *words: object, module: bool = False) -> None:
        """`module`: a module of torch does it with its input, and the line that makes the module is the one to change."""
        place = call.place
        if place is not None:
            others = frozenset(one for known in call.known for one in known.places) - {size}
            if (kind, place) not in self._makers:
                self._makers[kind, place] = maker(call.frame)
            line, made = line_at(place), self._makers.get((kind, place))
            misuse = Misuse(kind, made or line, in_words((code(line), *words) if module else words))
            self._found.setdefault(misuse, (size, others))

    def _softmax(self, call: _DataCall) -> Found:
        if not isinstance(call.dim, int) or not call.result.requires_grad:
            return None
        known, dim, last = call.known[0], call.dim % len(call.shape), len(call.shape) - 1
        words, size = (call.name, dim, call.shape, -1 if call.shape[-1] > 1 else int(last > 1)), call.at(0, dim)
        if call.shape[dim] > 1:
            self._several.add(call.place)
        elif last and not known.product:
            self._relates("softmax of each" if dim == last == 2 else "softmax of one", 0, call, *words)
        if size:
            self._relates("softmax over samples", size, call, *words)
        elif known.paired and dim == last:
            self._attends_over(known.paired, call)
        return {"softmax": dim} if known.product else None

    def _multiplied(self, call: _DataCall) -> Found:
        if len(call.tensors) < 2:
            return None
        rank, last, (first, second) = call.tensors[-2].dim(), len(call.tensors) - 1, call.tensors[-2:]
        self._sums(call, rank, call.at(last - 1, -1), call.at(last, -2))
        softmax, row = call.known[-2].softmax, call.at(last - 1, -2)
        if softmax is not None and softmax != rank - 1:
            self._relates("softmax over queries", 0, call, softmax, first.shape, rank - 1)
        meets = rank > 2 and row and row == call.at(last, -1) and len(call.known[-2].places) > 1
        return {"product": first.requires_grad and second.requires_grad, "paired": row if meets else 0}

    def _contracted(self, call: _DataCall) -> None:
        letters = terms(call.arguments[0])
        for letter in {*"".join(letters[:-1])} - {*letters[-1]} if letters else ():
            sizes = [call.at(i, term.index(letter)) for i, term in enumerate(letters[:-1]) if letter in term]
            self._sums(call, call.tensors[0].dim(), *sizes)
        self._alone(call, letters)

    def _alone(self, call: _DataCall, letters: list[str]) -> None:
        """A letter of one input only is summed away, where the other input calls a dimension of this size by another letter."""
        ways = permutations(zip(letters[-2::-1], call.tensors[::-1]), 2) if len(letters) == 3 else ()
        for (mine, given), (other, beside) in ways:
            for (at, letter), (to, like) in product(enumerate(mine), enumerate(other)):
                first, apart = at == to == 0 and len(other) > 2, letter not in other + letters[-1] and like not in mine
                if apart and given.shape[at] == beside.shape[to] > 1 and (first or like not in letters[-1]):
                    self._relates("summed alone", 0, call, call.arguments[0], given.shape[at], letter, like)

    def _sums(self, call: _DataCall, rank: int, *sizes: int) -> None:
        """A product sums over a dimension of the data, and keeps another one: in a covariance there is none."""
        others = {size for known in call.known for size in known.places} - {*sizes}
        if rank > 2 and len(sizes) > 1 and len({*sizes}) == 1 and sizes[0] and others:
            self._relates("summed over samples", sizes[0], call, call.name, call.shape)

    def _attends(self, call: _DataCall) -> None:
        size = call.at(0, -2)
        if size and len(call.known[0].places) > 1 and call.at(1, -2) == size:
            self._attends_over(size, call)

    def _attends_over(self, size: int, call: _DataCall) -> None:
        others = call.known[0].places.keys() - {size}
        if len(others) == 1 and any(getattr(module, "batch_first", False) for module in modules_around(call.frame)):
            self._declared |= others
        self._relates("attention over samples", size, call, call.shape, module=True)

    def _recurs(self, call: _DataCall) -> None:
        if len(call.arguments) == _GIVEN:
            first = bool(call.arguments[-1])
            size, other = call.at(0, int(first)), call.at(0, int(not first))
            if size and other:
                self._declared |= {other} if first else set()
                words = call.name, call.shape, first, not first
                self._relates("recurrence over samples", size, call, *words, module=True)

    def _normalized(self, call: _DataCall) -> None:
        inside = any(frame.f_code.co_name == "normalize" for frame in _frames(call.frame))
        size = call.at(0, call.dim) if inside and isinstance(call.dim, int) and call.result.requires_grad else 0
        if size:
            self._relates("normalized over samples", size, call, call.dim, call.shape)

    # -- which dimension is the batch ---------------------------------------------------------------------------------

    def _stacked(self, call: _DataCall) -> None:
        """A loader of data makes a batch."""
        if call.frame.f_globals.get("__name__", "").startswith("torch.utils.data"):
            self._certain.add(call.result.shape[0])

    def _indexed(self, call: _DataCall) -> None:
        """Samples are picked from the data."""
        index = call.arguments[1]
        if type(index) in PLAIN and index.dim() == 1 and not is_real(index) and not call.tensors[0].requires_grad:
            self._certain.add(call.result.shape[0])

    def _added(self, call: _DataCall) -> None:
        """What is added to all samples alike, as positions are, shows which dimension they are."""
        for i in (0, 1) if len(call.tensors) == 2 and type(call.result) in PLAIN and call.result.dim() > 2 else ():
            wide, table, sizes = call.tensors[i], call.tensors[1 - i], (call.at(i, 0), call.at(i, 1))
            # it comes from no data
            constant = not call.known[1 - i].places or (self._read_calls and _is_cut_off(table))
            if constant and all(sizes) and call.result.shape == wide.shape:
                self._spread_along(call, table, *sizes)

    def _spread_along(self, call: _DataCall, table: torch.Tensor, outer: int, inner: int) -> None:
        """A table has a row for each place of one dimension, alike for the other, which is the batch."""
        rank, shape = call.result.dim(), tuple(table.shape)
        padded = ((1,) * (rank - len(shape)) + shape)[:2]
        if padded == (1, inner):
            self._certain.add(outer)
        elif padded == (outer, 1):
            self._hinted.add(inner)
            if _is_cut_off(table):
                self._relates("added over samples", outer, call, shape, call.result.shape)

    def _subtracted(self, call: _DataCall) -> None:
        """A prediction may be compared with a target."""
        given = call.tensors
        if len(given) == 2 and given[0].shape == given[1].shape and given[0].requires_grad != given[1].requires_grad:
            self._compared(call)

    def _compared(self, call: _DataCall) -> None:
        """Predictions meet targets."""
        if len(call.tensors) < 2:
            return
        order = (1, 0) if call.tensors[1].requires_grad and not call.tensors[0].requires_grad else (0, 1)
        shapes = [tuple(call.tensors[i].shape) for i in order]
        places = [dict(call.known[i].places) for i in order]
        if len(shapes[0]) == len(shapes[1]) + 1 > 2:  # the classes are the second dimension
            places[0] = {
                size: at // (shapes[0][1] if at >= place_of(shapes[0], 2) else 1) for size, at in places[0].items()
            }
        if shapes == [2 * shapes[1], shapes[1]] and len(shapes[1]) == 1:  # each row is to find another one
            self._certain.add(shapes[1][0])
        common = places[0].keys() & places[1].keys()
        moved = [size for size in common if places[0][size] != places[1][size]]
        if moved:
            self._relates("other order", 0, call, *shapes)
        self._batches |= {size for size in common if places[1][size] == 1}
        alone = len(common) == len(places[1]) == len({*shapes[1]} & places[0].keys()) == 1
        self._certain |= common if alone else set()


def _data(tensor: torch.Tensor, shape: Shape) -> Places:
    """The dimensions of data, each of which no other one has the size of, but for features."""
    sizes = [*enumerate(shape)][: -1 if len(shape) > 1 and is_real(tensor) else None]
    return {size: place_of(shape, dim) for dim, size in sizes if size > 1 and shape.count(size) == 1}


def _place_in(call: _DataCall, i: int, number: int, dimension: tuple[int, int], new: Shape) -> int | None:
    """The place that a dimension of an input has in a result."""
    size, old = dimension[0], tuple(call.tensors[i].shape)
    if call.name == "einsum":
        return _place_in_sum(call, i, size, new)
    if call.name in PRODUCTS:
        return _place_in_product(call, i, size, new)
    if call.name in RECURRENT and number:  # the state: the batch is its second dimension
        return new[0] if call.at(i, 0 if call.arguments[-1] else 1) == size and len(new) == 3 else None
    return followed(call.name, dimension, old, new, call.arguments, call.dim)


def _place_in_sum(call: _DataCall, i: int, size: int, new: Shape) -> int | None:
    letters = terms(call.arguments[0])
    to = [letters[-1].find(letter) for d, letter in enumerate(letters[i]) if call.at(i, d) == size] if letters else []
    return place_of(new, to[0]) if to and to[0] >= 0 else None


def _place_in_product(call: _DataCall, i: int, size: int, new: Shape) -> int | None:
    old, place = call.tensors[i].shape, call.known[i].places[size]
    if old[:-2] == new[:-2] and size * place <= prod(old[:-2]):  # within those that stay
        return place
    contracted = -1 if i == len(call.tensors) - 2 or len(old) < 2 else -2  # of the last two
    places = range(-min(len(new), len(old)), 0) if call.at(i, contracted) != size else ()
    return next((place_of(new, d) for d in places if call.at(i, d) == size == new[d]), None)


def maker(frame: FrameType, types: Sequence[str] = _TOLD) -> SourceLine | None:
    """The line of the user's file that makes the module of torch which runs, the outermost of these types."""
    users, kinds = users_frame(frame), [type(module).__name__ for module in modules_around(frame)]
    for kind in reversed([kind for kind in kinds if kind in types]):
        calls = calls_of(users.f_code.co_filename, kind) if users is not None else []
        if len(calls) == 1:
            return calls[0]
    return None


def modules_around(frame: FrameType) -> list[object]:
    """The modules of torch that run, the innermost first."""
    return [first_argument(outer) for outer in _frames(frame) if outer.f_code.co_name == "forward"]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those around it, as far as they are torch's."""
    users = users_frame(frame)
    while frame is not None and frame is not users:
        yield frame
        frame = frame.f_back


def _is_cut_off(tensor: torch.Tensor) -> bool:
    """Whether it is the beginning of a longer tensor, in a step that is not the first: batches of data move on."""
    base = tensor._base
    return (
        base is not None and base.dim() == tensor.dim() and base.shape != tensor.shape and not tensor.storage_offset()
    )


Found = Mapping[str, Any] | None
"""What is known of the result of a call, beside where its dimensions lie."""
_JUDGES: Mapping[str, Callable[[DimensionWatch, _DataCall], Found]] = {
    **dict.fromkeys(("softmax", "log_softmax"), DimensionWatch._softmax),
    **dict.fromkeys(PRODUCTS, DimensionWatch._multiplied),
    **dict.fromkeys(RECURRENT, DimensionWatch._recurs),
    **dict.fromkeys(("norm", "linalg_vector_norm"), DimensionWatch._normalized),
    **dict.fromkeys(LOSSES, DimensionWatch._compared),
    **dict.fromkeys(("sub", "rsub"), DimensionWatch._subtracted),
    "scaled_dot_product_attention": DimensionWatch._attends,
    "einsum": DimensionWatch._contracted,
    "getitem": DimensionWatch._indexed,
    "add": DimensionWatch._added,
    "stack": DimensionWatch._stacked,
}
