"""Calls of torch as the watches read them: each reader is told of the functions that it names. And facts of living tensors."""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, Generic, TypeVar

import torch

from gradviz.packages import PlaceOf
from gradviz.recording.torch_calls import PLAIN, Given

F = TypeVar("F")
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
_BEFORE = {"linalg_vector_norm": 2, "norm": 2}
"""Functions whose dimension is not their second argument, and which it is."""


class Call:
    """A function of torch that has returned. `name` is without underscores.

    No tuple: a handler of signals that trains may run while one is made, and its frames are read, but for those of gradviz.
    """

    __slots__ = ("arguments", "frame", "name", "options", "result")

    def __init__(self, name: str, arguments: Given, options: Mapping[str, Any], result: Any, frame: FrameType) -> None:
        self.name, self.arguments, self.options, self.result, self.frame = name, arguments, options, result, frame

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


Reader = Callable[[Call], None]
Readers = Iterable[tuple[Iterable[str], Reader]]
"""Names of functions, and who is told of them; without names, of all."""


class CallReaders:
    """Tells each reader of the calls that it reads, in order."""

    def __init__(self, *readers: Readers) -> None:
        self._of: dict[str, list[Reader]] = defaultdict(list)
        self._all: list[Reader] = []
        for names, reader in (row for rows in readers for row in rows):
            for among in [self._of[name] for name in names] or [self._all]:
                among.append(reader)

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        name = function.__name__.strip("_")
        call = Call(name, arguments, options or {}, result, frame)
        for reader in self._of.get(name, ()):
            reader(call)
        for reader in self._all:
            reader(call)


class Observer:
    """Looks at calls of one run. `note` keeps a line with words; `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf, note: Callable[..., None]) -> None:
        self._place, self._note = place, note
        self._looked = Counter[object]()  # how often a line was looked at
        self._begin()

    def _begin(self) -> None:
        """Nothing is known yet."""


class Facts(Generic[F]):
    """What is known of tensors, by identity."""

    def __init__(self, most: int = MOST) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], F]] = {}
        self._most = most

    def put(self, tensor: Any, fact: F) -> None:
        if type(tensor) in PLAIN and len(self._known) < self._most:
            self._known[id(tensor)] = weakref.ref(tensor), fact

    def of(self, tensor: object) -> F | None:
        ref, fact = self._known.get(id(tensor), (None, None))
        return fact if ref is not None and ref() is tensor else None

    def clear(self) -> None:
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)
