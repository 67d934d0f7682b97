"""What a session notes, by thread and sequence number: lines, module calls, and the
modules by identity.

Autograd numbers its nodes upwards, thread by thread. So a value noted together with the
next number to be given out holds for every node made until the next note. Modules,
parameters and tensors are held weakly, so a recording keeps nothing alive. Knows no
graph.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from gradviz.armour.isolation import isolated
from gradviz.packages import CallSite, Place
from gradviz.recording.running import RunningCall
from gradviz.variables.objects import (
    class_attribute,
    joined,
    members,
    reading_once,
    submodules,
    unwrapped,
)
from gradviz.walker.places import Argument
from gradviz.walker.tensors import elements_of_each

T = TypeVar("T")

LIMIT = 2_000_000
"""Notes that one log keeps unless told otherwise."""


class IntervalMap(Generic[T]):
    """Values by sequence number. Notes at one number replace each other: nothing was
    made between them.

    Beyond `limit` notes the older half is dropped, so that a long run cannot fill the
    memory; `dropped` is then the number below which nothing is known any more.

    >>> steps = IntervalMap[str](0)
    >>> steps.add(0, "a"), steps.add(3, "b"), steps.add(3, "c")
    (None, None, None)
    >>> [steps.at(number) for number in (0, 2, 3, 9)]
    ['a', 'a', 'c', 'c']
    """

    __slots__ = ("dropped", "limit", "numbers", "values")

    def __init__(self, start: int, limit: int = LIMIT) -> None:
        self.limit = limit
        self.dropped = 0
        self.numbers = array("Q", (start,))
        self.values: list[T | None] = [None]

    def add(self, number: int, value: T | None) -> None:
        """From `number` on, `value` is current. Numbers never go down within one
        thread.
        """
        numbers = self.numbers
        size = len(numbers)
        if numbers[-1] == number:
            self.values[size - 1] = value
            return
        # what an interrupt left half done is written over
        self.values[size:] = (value,)
        numbers.append(number)
        if size >= self.limit:
            self._drop(size // 2)

    def at(self, number: int) -> T | None:
        """What was current when `number` was given out, or None when that was before
        the first note that is kept.
        """
        i = bisect_right(self.numbers, number) - 1
        return self.values[i] if i >= 0 else None

    def repeat(self, earlier: range, first: int) -> None:
        """From `first` on, the values follow each other as they did `earlier`."""
        numbers = self.numbers
        value = self.at(earlier.start)
        begin = bisect_right(numbers, earlier.start)
        end = bisect_right(numbers, earlier.stop - 1)
        copied = list(zip(numbers[begin:end], self.values[begin:end]))
        self.add(first, value)
        for number, value in copied:
            self.add(number - earlier.start + first, value)

    def forget(self, number: int) -> None:
        """Drop what was current for numbers below `number` only."""
        count = bisect_right(self.numbers, number) - 1
        if count > 0:
            self._drop(count)

    def _drop(self, count: int) -> None:
        self.dropped = self.numbers[count]
        del self.values[:count], self.numbers[:count]


class NodeLog(IntervalMap[T]):
    """What made each node, by sequence number; `seen` is the number up to which it is
    complete.

    >>> log, site = NodeLog(3), CallSite(compile("x", "train.py", "exec"), 0, None, None)
    >>> log.made(3, site), log.made(6, site)  # nobody saw how 4 and 5 were made
    (None, None)
    >>> [log.at(number) is site for number in (2, 3, 4, 5, 6, 7)]
    [False, True, False, False, True, False]
    """

    __slots__ = ("_last", "seen")

    def __init__(self, start: int) -> None:
        super().__init__(start)
        # the last one noted, as the map may hold one that an interrupt left half done
        self._last: T | None = None
        self.seen = start

    def made(self, number: int, maker: T | None) -> None:
        """The node of this number was made by `maker`. One that is known already stays
        as it is.
        """
        if number > self.seen:
            self.until(number, None)
        elif number < self.seen:
            return
        # a stretch of nodes of one line takes one entry
        if self._last is not maker:
            self.add(number, maker)
            self._last = maker
        self.seen = number + 1

    def repeat(self, earlier: range, first: int) -> None:
        """The nodes from `first` on were made as those with `earlier` numbers were."""
        self.until(first, None)
        super().repeat(earlier, first)
        self._last = self.values[-1]
        self.seen = first + len(earlier)

    def until(self, number: int, maker: T | None) -> None:
        """All nodes before `number` that nobody saw were made by `maker`; None when
        nobody knows.
        """
        if number > self.seen:
            self.made(self.seen, maker)
            self.seen = number

    def since(self, number: int) -> list[T | None]:
        """What made the nodes from this number on."""
        return self.values[max(bisect_right(self.numbers, number) - 1, 0) :]

    def at(self, number: int) -> T | None:
        """What made the node; None where that is not known."""
        return super().at(number) if number < self.seen else None


_CALL_NOTES = 1_000_000  # begins and ends of calls that an event log keeps, some 70 MB
_EVALUATIONS = 1000  # calls of outermost modules that are kept until somebody asks
_ARGUMENTS = 1000  # tensors without gradient that modules were given last
_BACKWARDS = 1000  # calls of backward that are kept


class SeenModule:
    """A module that was called, by identity, held weakly.

    What its last call was like: the sequence number it began at, the instruction that
    called it, whether autograd was recording, and whether it gave a tensor that requires
    grad. `in_place`: it has inplace=True. `checkpoint` is the line of the reentrant
    checkpoint that kept it from recording; `forward` the code of its class.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.site: CallSite | None = None
        self.ref = weakref.ref(module)
        self.type = type(module).__name__
        forward = class_attribute(type(module), "forward")
        # another object may run code of the user's when it is asked
        is_function = type(forward) is FunctionType
        self.forward: CodeType | None = forward.__code__ if is_function else None
        self.in_place = vars(module).get("inplace") is True
        self.calls = self.began = 0
        self.recording = self.gave_graph = True
        self.checkpoint: Any = None


class ModuleTree:
    """An outermost module: the paths of the modules below it, and who owns which
    parameter.
    """

    def __init__(self, seen: SeenModule) -> None:
        self.seen = seen
        self.paths: dict[SeenModule, str] = {seen: ""}
        self.parameters: dict[SeenModule, int | None] = {}
        self.owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self.pending: list[ModuleCall] = []

    def settle(self) -> None:
        """Find paths and parameters of the modules called since the last time."""
        if self.pending:
            with isolated(), reading_once():
                self._settle()

    def _settle(self) -> None:
        root = self.seen.ref()
        path_of: dict[int, str] = {}
        numbers: dict[int, int | None] = {}
        if root is not None:
            path_of = {id(module): path for path, module in submodules(root)}
            numbers = elements_of_each(root)
            self._own("", root)

        # outer calls come before inner ones, so the parent has its path
        for call in self.pending:
            module = call.module.ref()
            if call.module in self.paths:
                continue
            path = path_of.get(id(module))
            if path is None:
                path = self._unregistered(call)
                if module is not None:
                    self._own(path, module)
            self.paths[call.module] = path

        # modules may be added to those that were called before
        for seen in list(self.parameters):
            module = unwrapped(seen.ref())
            if module is not None:
                if id(module) not in numbers:
                    numbers |= elements_of_each(module)
                self.parameters[seen] = numbers[id(module)]

        self.pending.clear()

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """The name of a parameter below the outermost module; None of a tensor that is
        not owned here.
        """
        reference, name = self.owners.get(id(parameter), (None, None))
        return name if reference is not None and reference() is parameter else None

    def _unregistered(self, call: ModuleCall) -> str:
        """A module that is not registered below the outermost one is named by its class."""
        caller = call.parent
        around = self.paths.get(caller.module, "") if caller is not None else ""
        return joined(around, call.module.type)

    def _own(self, prefix: str, module: torch.nn.Module) -> None:
        # and not named_parameters(), which may be the user's
        for path, inside in submodules(module):
            for name, parameter in members(inside, "_parameters"):
                self.owners.setdefault(
                    id(parameter),
                    (weakref.ref(parameter), joined(prefix, joined(path, name))),
                )


@dataclass(slots=True, eq=False)
class ModuleCall:
    """One call of one module. `output` is shape, dtype, device and layout of its first
    output tensor. `is_replaced`: a hook of the user's may have put another in its place.
    """

    number: int
    began: int  # the sequence number that the next node would have got
    module: SeenModule
    tree: ModuleTree
    parent: ModuleCall | None
    root: ModuleCall | None  # the outermost call around
    is_replaced: bool
    nth: int  # which call of its module it is, inside the outermost one
    # of an outermost call: how often each module was called inside
    calls: Counter[SeenModule]
    frame: int  # identity of torch's frame that runs the call
    code: CodeType
    site: CallSite | None  # that called
    function: RunningCall | None  # which made it
    output: tuple[Any, torch.dtype, torch.device, torch.layout] | None

    @property
    def moment(self) -> Moment:
        """Where it was called."""
        return Moment(self.site, self.parent, self.function)


class Evaluation(NamedTuple):
    """A call of an outermost module in eval() mode whose result was recorded.

    Its nodes have numbers from `began` to before `ended`.
    """

    type: str
    place: Place
    began: int
    ended: int


class ModuleInput(NamedTuple):
    """Data that a module was called with, held weakly, and as which parameter."""

    call: ModuleCall
    parameter: Argument
    tensor: weakref.ref[torch.Tensor]


class Moment(NamedTuple):
    """Where a node was made, or a module called: the line, the call of a module, and the
    call of a function.
    """

    site: CallSite | None = None
    module: ModuleCall | None = None
    function: RunningCall | None = None


NOWHERE = Moment()


class EventLog:
    """What one thread noted: lines and calls by sequence number, and the calls that run
    now.

    `backward` is the site of the innermost backward call that runs now, and the call
    that it is. `evaluations` are taken out by whoever asks for them. `arguments` are
    tensors without gradient that modules were called with. `backwards`: where backward
    was called, each with the number that the next node would have got. `ended`: the
    thread has, so that all of its numbers are known.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.ended = False
        self.lines = NodeLog[CallSite](start)
        self.functions = NodeLog[RunningCall](start)
        self.backward: tuple[CallSite | None, RunningCall | None] = (None, None)
        self.calls: IntervalMap[ModuleCall] = IntervalMap(start, limit=_CALL_NOTES)
        self.stack: list[ModuleCall] = []
        self.evaluations: deque[Evaluation] = deque(maxlen=_EVALUATIONS)
        self.arguments: deque[ModuleInput] = deque(maxlen=_ARGUMENTS)
        self.backwards: deque[tuple[int, Moment]] = deque(maxlen=_BACKWARDS)

    def at(self, number: int) -> Moment:
        """Where the node of this number was made."""
        lines, calls, functions = self.lines, self.calls, self.functions
        return Moment(lines.at(number), calls.at(number), functions.at(number))

    def moment(self, site: CallSite | None, function: RunningCall | None) -> Moment:
        """The moment at which a site runs now, in the innermost call of a module."""
        return Moment(site, self.stack[-1] if self.stack else None, function)

    def note_call(self, number: int) -> None:
        """From `number` on, nodes are made in the innermost call."""
        calls, stack = self.calls, self.stack
        innermost = stack[-1] if stack else None
        calls.add(max(number, calls.numbers[-1]), innermost)

    def made_until(
        self, number: int, site: CallSite | None, function: RunningCall | None
    ) -> None:
        """All nodes before `number` that nobody saw were made there; None when nobody
        knows.
        """
        self.lines.until(number, site)
        self.functions.until(number, function)

    def repeat(self, earlier: range, first: int) -> None:
        """Nobody watched as the nodes from `first` on were made: what is known of those
        with `earlier` numbers holds for them, too.
        """
        for log in (self.lines, self.functions, self.calls):
            log.repeat(earlier, first)

    def forget(self, number: int) -> None:
        """Drop what is known of nodes below `number`: a long run would fill the memory
        with it.
        """
        self.lines.forget(number)
        self.functions.forget(number)
        self.calls.forget(number)

    @property
    def end(self) -> int:
        """The last sequence number noted: every node made under an earlier one is
        covered.
        """
        return max(self.lines.seen, self.calls.numbers[-1])


class LocalEventLog(threading.local):
    """The event log of the running thread."""

    event_log: EventLog | None = None
