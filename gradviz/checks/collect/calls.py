"""What the watches have in common: calls of torch, of which each is told that it names, facts of living tensors, and notes."""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any, Generic, TypeVar

import torch

from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.record import Misuse
from gradviz.checks.words import Names
from gradviz.cuts.torch_calls import PLAIN, Given
from gradviz.graph import SourceLine
from gradviz.packages import Place, PlaceOf
from gradviz.walker.taps import all_tapped
from gradviz.walker.walk import Walked

F = TypeVar("F")
T = TypeVar("T")
LOSSES = frozenset(
    [
        *("nll_loss_nd", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy_loss", "nll_loss"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "multilabel_margin_loss"),
        *("poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss", "multi_margin_loss", "margin_ranking_loss"),
        *("cosine_embedding_loss", "triplet_margin_loss"),
    ]
)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
MOST = 10_000
"""Tensors of one step that something is known of."""
_NOTED = 100  # misuses
_BEFORE = {"linalg_vector_norm": 2, "norm": 2}
"""Functions whose dimension is not their second argument, and which it is."""


Line = tuple[CodeType, int]
"""A line of code that runs."""


class TorchCall:
    """A function of torch that has returned. `name` is its own without underscores.

    No tuple: a handler of signals that trains may run while one is made, and its frames are read, but for those of gradviz.
    """

    __slots__ = ("arguments", "frame", "function", "name", "options", "place_of", "result")

    def __init__(
        self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType, place_of: PlaceOf
    ) -> None:
        self.function, self.name, self.place_of = function, function.__name__.strip("_"), place_of
        self.arguments, self.options, self.result, self.frame = arguments, options or {}, result, frame

    @property
    def place(self) -> Place | None:
        """The user's line that led to it."""
        return self.place_of(self.frame)

    @property
    def line(self) -> Line:
        """The line that called it, which may be torch's own."""
        return self.frame.f_code, self.frame.f_lineno or 0

    @property
    def users_line(self) -> Line | None:
        """The nearest line outside torch."""
        frame = users_frame(self.frame)
        return (frame.f_code, frame.f_lineno or 0) if frame is not None else None

    @property
    def first(self) -> Any:
        return self.arguments[0] if self.arguments else None

    def given(self, at: int, name: str, otherwise: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.options.get(name, self.arguments[at] if len(self.arguments) > at else otherwise)

    @property
    def dim(self) -> Any:
        """The dimension that it works along, as far as it was given one."""
        dim = self.given(_BEFORE.get(self.name, 1), "dim")
        return dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim

    @property
    def pairs(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The first two arguments, either way round."""
        first, second = (*self.arguments, None, None)[:2]
        return (first, second), (second, first)

    @property
    def in_place(self) -> bool:
        return self.result is self.first

    @property
    def makes(self) -> bool:
        """Whether it makes a tensor of a tensor."""
        return type(self.result) in PLAIN and type(self.first) in PLAIN


Reader = Callable[[TorchCall], None]
M = TypeVar("M", bound=Callable[..., object])
_read: dict[object, tuple[str, ...]] = {}  # by method of an observer: the names of the functions of torch
_tapped: dict[object, tuple[Any, ...]] = {}  # the functions themselves


def reads(*names: str) -> Callable[[M], M]:
    """A method of an observer is told of calls of functions with these names; without names, of all, and behind the others."""

    def named(method: M) -> M:
        _read[method] = names
        return method

    return named


def taps(*functions: object) -> Callable[[M], M]:
    """It is told of these functions, which are written in Python, when they begin."""

    def named(method: M) -> M:
        _tapped[method] = functions
        return method

    return named


class CallReaders:
    """Tells observers of the calls that they read, in order."""

    def __init__(self, place: PlaceOf, observers: Iterable[Observer]) -> None:
        self._place = place
        self._of: dict[str, list[Reader]] = defaultdict(list)
        self._all: list[Reader] = []
        for names, reader in (row for observer in observers for row in observer.told(_read)):
            for among in [self._of[name] for name in names] or [self._all]:
                among.append(reader)

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned. Most of those of a training are an optimizer's own, and tell nothing."""
        if frame.f_globals.get("__name__", "").startswith("torch.optim."):
            return
        call = TorchCall(function, arguments, options, result, frame, self._place)
        for reader in self._of.get(call.name, ()):
            reader(call)
        for reader in self._all:
            reader(call)


def in_words(facts: Iterable[object]) -> Names:
    """A shape as a tuple, and everything else as Python prints it."""
    return tuple(str(tuple(fact) if isinstance(fact, torch.Size) else fact) for fact in facts)


class Misuses:
    """What the watches of one run have noted, one for each kind and line."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], Misuse] = {}

    def note(
        self,
        kind: str,
        place: Place | SourceLine | None,
        *words: object,
        tensors: frozenset[int] = frozenset(),
        mended: str = "",
    ) -> None:
        if place is not None and len(self._found) < _NOTED:
            source = place if isinstance(place, SourceLine) else line_at(place)
            key = kind, source.file, source.line
            times = self._found[key].times if key in self._found else 0
            self._found[key] = Misuse(kind, source, in_words(words), times + 1, tensors, mended=mended)

    def take_back(self, kind: str, place: Place) -> None:
        """It has shown to be none."""
        source = line_at(place)
        self._found.pop((kind, source.file, source.line), None)

    def result(self, trained_with: Container[tuple[str, int]] = ()) -> tuple[Misuse, ...]:
        """All of them. What a loss is computed from is no evaluation: `trained_with` are such lines."""
        evaluated = "train in evaluation"
        return tuple(
            misuse
            for (kind, *line), misuse in self._found.items()
            if kind != evaluated or tuple(line) not in trained_with
        )


class Observer:
    """Looks at calls of one run, in one thread. `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf, misuses: Misuses) -> None:
        self._place, self._note, self._take_back = place, misuses.note, misuses.take_back
        self._looked = Counter[object]()  # how often a line was looked at
        self._step = 0  # backward calls that have come
        self._begin()

    def _begin(self) -> None:
        """Nothing is known yet."""

    def told(self, known: Mapping[object, T]) -> Iterator[tuple[T, Any]]:
        """Its methods that something is known of, in the order of the class."""
        return ((known[method], getattr(self, name)) for name, method in vars(type(self)).items() if method in known)

    def watching(self) -> AbstractContextManager[None]:
        """Inside, it is told of the functions that it taps."""
        return all_tapped((function, method) for functions, method in self.told(_tapped) for function in functions)

    def comes(self, outputs: Sequence[object]) -> None:
        """A backward call comes, of these."""
        self._step += 1
        self._forget()

    def _forget(self) -> None:
        """What was known of the step is not needed any more."""

    def read(self, walked: Walked) -> None:
        """A call that is read is about to run through this graph."""

    def ran(self) -> None:
        """It has run."""

    def _looks(self, at: object, most: int) -> bool:
        """Whether to look once more at what is done here, which is done `most` times."""
        self._looked[at] += 1
        return self._looked[at] <= most


class ByIdentity(Generic[F]):
    """What is known of tensors, modules and the like, which are held weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], F]] = {}

    def put(self, thing: Any, fact: F) -> None:
        self._known[id(thing)] = weakref.ref(thing), fact

    def of(self, thing: object) -> F | None:
        ref, fact = self._known.get(id(thing), (None, None))
        return fact if ref is not None and ref() is thing else None

    def clear(self) -> None:
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)


class Facts(ByIdentity[F]):
    """What is known of results of calls, as far as they are tensors."""

    def put(self, thing: Any, fact: F) -> None:
        if type(thing) in PLAIN and len(self._known) < MOST:
            super().put(thing, fact)
