"""The program as it was written, behind the nodes of a graph: calls of functions, loops
with their turns, statements and calls of torch, each with what it made.

A new turn of a loop begins where the code could not have come from the last place
without going round. What was not seen is not claimed: a function of which some calls
are not known has no loops, and a loop whose border nothing shows has no turns.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gradviz.fold.order import is_view
from gradviz.graph import Construct, ConstructKind
from gradviz.graph.kinds import INDEXED
from gradviz.graph.origins import op_of
from gradviz.packages import CallSite, package_of
from gradviz.recording.constructs import (
    CallFrame,
    Draft,
    Within,
    calls_of,
    constructs_of,
    is_told_apart,
)
from gradviz.recording.event_log import ModuleCall, Moment
from gradviz.recording.running import RunningCall
from gradviz.source.spots import OWN_CODE, Spot, spots_of
from gradviz.source.syntax import Statement
from gradviz.walker.places import BareGraph

MOST_TURNS = 1_000
"""Turns of a loop that are told apart: no picture shows more."""
CONSTRUCTORS = ("__init__", "__post_init__")
"""What computes as an object is made: attributes of it, by statements of their own."""


Turns = dict[ast.AST, Draft]
"""The turn of each loop that a place stands in, equal for one turn alone; a loop of
which the turns are not certain is not in it.
"""


class ProgramText(NamedTuple):
    """What the code says of a graph. `constructs`: outer ones first; `calls`: what the
    code calls a node that is all that a call made, by node id; `unread`: the files that
    say nothing, and why: "edited" or "absent".

    `turns` has, for a node that may take data, the turns that its function was in; for
    a call of a function or a module, those of its caller. `functions` are the constructs
    of calls, those of a lambda the function's around it.
    """

    constructs: tuple[Construct, ...] = ()
    calls: Mapping[int, str] = {}
    unread: Mapping[str, str] = {}
    turns: Mapping[int | RunningCall | ModuleCall, Turns] = {}
    functions: Mapping[RunningCall, int] = {}


def written(
    bare: BareGraph,
    moments: Sequence[Moment],
    start: int,
    scopes: Mapping[ModuleCall, int],
    scope_of: Sequence[int | None],
    passes: Sequence[tuple[int, Moment]] = (),
) -> ProgramText:
    """What the code says of a graph. `scopes` has the modules that were called,
    `scope_of` the scope of each node; nodes before number `start` are of no concern.
    `passes` are places that ran, each with the number of the node that came next.
    """
    reader = _Reader(bare, start, scopes)
    for event in _events(bare, moments, scopes, scope_of, passes):
        reader.read(event)
    return reader.written()


class _Event(NamedTuple):
    """A node was made, or a module `called`, or neither, while a function ran in a call
    of `module`.
    """

    node: int | None
    called: ModuleCall | None
    scope: int | None  # of the module that was called, also of one that was not seen
    site: CallSite | None
    module: ModuleCall | None
    function: RunningCall | None


def _events(
    bare: BareGraph,
    moments: Sequence[Moment],
    scopes: Mapping[ModuleCall, int],
    scope_of: Sequence[int | None],
    passes: Sequence[tuple[int, Moment]],
) -> list[_Event]:
    """In the order in which they happened. The first place that was passed after the
    last node ends what made the graph.
    """
    events: list[tuple[tuple[int, int, int], _Event]] = []
    for call, called in scopes.items():
        event = _Event(None, call, called, *call.moment)
        events.append(((call.began, 0, call.number), event))
    for node, moment in enumerate(moments):
        if moment.function is None:
            continue
        home = scope_of[node]
        # of a module that was checkpointed, whose own call is not seen
        scope = home if home is not None and home >= len(scopes) else None
        event = _Event(node, None, scope, *moment)
        events.append(((bare.sequences[node], 1, node), event))

    numbers = [number for (number, *_), _ in events]
    first, last = min(numbers, default=0), max(numbers, default=0)
    for number, (site, module, function) in passes:
        is_known = site is not None and (module is None or module in scopes)
        if is_known and number > first:
            event = _Event(None, None, None, site, module, function)
            events.append(((number, -1, 0), event))
        if number > last:
            break
    events.sort(key=lambda entry: entry[0])
    return [event for _, event in events]


# -- as it happened --------------------------------------------------------------------


class _Done(NamedTuple):
    """What a call of a function did at a place: it called a `callee`, else made an `op`.
    `is_whole`: all of that is one call, of torch or of a library.
    """

    callee: object
    op: str
    is_whole: bool


class _Reader:
    """Reads events one after the other."""

    def __init__(
        self, bare: BareGraph, start: int, scopes: Mapping[ModuleCall, int]
    ) -> None:
        self._bare, self._start, self._scopes = bare, start, scopes
        self._op: dict[Hashable, str] = {}
        self._frames: dict[RunningCall, CallFrame] = {}
        self._parts: list[Draft] = []
        self._unread: dict[str, str] = {}
        self._turns: dict[int | RunningCall | ModuleCall, list[Draft]] = {}

    def read(self, event: _Event) -> None:
        """Note what happened with the construct that it happened in."""
        module = event.module
        end = module.function if module is not None else None
        scope = self._scopes[module] if module is not None else None
        frames = list(self._entered(event, end))
        last = _outermost_of_library(frames)
        frame, part = None, None
        for i in reversed(range(last, len(frames))):
            key, site = frames[i]
            frame = self._frame(key, site, part, scope)
            inner = frames[i - 1][0] if i else None
            is_whole = i == last and event.node is not None
            part = self._at(frame, site, self._done(event, inner, is_whole))
            if inner is not None:
                self._turns.setdefault(inner, frame.turns())

        if frame is not None and last == 0:
            self._note_turns(frame, event)
        if frame is not None and event.node is not None:
            self._note_doubt(frame)
        if part is not None and event.scope is not None:
            part.scopes.append(event.scope)
        elif part is not None and event.node is not None:
            part.nodes.append(event.node)

    def _note_turns(self, frame: CallFrame, event: _Event) -> None:
        """The turns that the innermost function is in."""
        if event.called is not None:
            self._turns[event.called] = frame.turns()
        elif event.node is not None and self._takes_data(event.node):
            self._turns[event.node] = frame.turns()

    def _takes_data(self, node: int) -> bool:
        """Whether it may take a tensor without gradient."""
        kind = getattr(self._bare.kinds[node], "__name__", "")
        return node in self._bare.none_inputs or INDEXED.match(kind) is not None

    def _done(self, event: _Event, inner: RunningCall | None, is_whole: bool) -> _Done:
        """What one call of a function did: it called `inner`, or made or called what
        the event is.
        """
        if inner is not None:
            return _Done(inner, "", is_whole)
        if event.node is None:
            return _Done(event, "", False)
        return _Done(None, self._op_of(event.node), is_whole)

    def _note_doubt(self, frame: CallFrame) -> None:
        """The text of a function that made a node is not what ran."""
        if frame.spots is not None and frame.spots.doubt:
            file = frame.spots.code.co_filename
            if not package_of(file):
                self._unread[file] = frame.spots.doubt

    def _op_of(self, node: int | None) -> str:
        if node is None:
            return ""
        kind = self._bare.kinds[node]
        if kind not in self._op:
            op = op_of(getattr(kind, "__name__", ""))
            # a slice of all is an alias
            self._op[kind] = "slice" if op == "alias" else op
        return self._op[kind]

    def _entered(
        self, event: _Event, end: RunningCall | None
    ) -> Iterator[tuple[RunningCall, CallSite | None]]:
        """The calls that ran, inner first, each with the place where it was, up to one
        that is known already, or to the call of a module.
        """
        running, site = event.function, event.site
        while running is not None and running is not end:
            here = site if running.code is None else None
            if site is not None and running.code is not None:
                here = site if site.code is running.code else None
                site = site.caller if here is not None else None

            yield running, here
            if running in self._frames:
                return
            running = running.caller

    def _frame(
        self,
        key: RunningCall,
        site: CallSite | None,
        around: Draft | None,
        scope: int | None,
    ) -> CallFrame:
        if key in self._frames:
            return self._frames[key]

        code, part = key.code, around
        if code is None:
            part = self._new("gradient", around, scope, "grad")
            if site is not None and site.place is not None:
                part.source, part.line = site.code, site.place.source.line
            spots = None
        elif self._is_around(key):
            spots = None
        else:
            spots = spots_of(code)
            if self._has_name(key, around is None and scope is not None):
                part = self._new("function", around, scope, code.co_name)
                part.source, part.line = code, code.co_firstlineno

        frame = self._frames[key] = CallFrame(spots, part, scope)
        return frame

    def _is_around(self, key: RunningCall) -> bool:
        """Whether this is a library that runs the script, such as a trainer."""
        if key.began >= self._start:
            return False
        return key.code is not None and bool(package_of(key.code.co_filename))

    def _has_name(self, running: RunningCall, is_outermost: bool) -> bool:
        if running.began < self._start or running.code is None or running.goes_on:
            return False  # what it made before is in no graph, or in another box
        name = running.code.co_name
        # the module says it already
        is_forward = name == "forward" and is_outermost
        return not is_forward and not name.startswith(("<", "__"))

    def _new(
        self,
        kind: ConstructKind,
        around: Draft | None,
        scope: int | None,
        text: str,
        frame: CallFrame | None = None,
    ) -> Draft:
        part = Draft(kind, around, scope, text)
        if frame is not None and frame.spots is not None:
            part.frame, part.source = frame, frame.spots.code
        self._parts.append(part)
        return part

    # -- in one call of a function -----------------------------------------------------

    def _at(self, frame: CallFrame, site: CallSite | None, done: _Done) -> Draft | None:
        """Where a call of a function is now: the innermost construct in it."""
        spots = frame.spots
        if spots is None:
            return frame.part
        spot = spots.at(site.instruction) if site is not None else None
        if spot is None:
            frame.is_blind |= site is None
            return frame.part

        for place, step in enumerate(frame.steps):
            if step.part.node is spot.head_of:
                # the loop is asked for its next turn, which runs a generator
                step.goes_on = True
                return frame.inside(place)

        again = self._move(frame, spot, done)
        flat = next((s.part for s in frame.steps if s.part.flat), None)
        if flat is not None:
            part: Draft | None = flat
        elif done.callee is not None and not done.is_whole:
            part = self._calls(frame, spot, done.callee)
        else:
            part = self._makes(frame, spot, done.op, again)
        frame.last, frame.callee = spot, done.callee
        return part

    def _calls(self, frame: CallFrame, spot: Spot, callee: object) -> Draft | None:
        """A function of the user's, or a module, is called at a place."""
        around = frame.inside(len(frame.steps))
        name = _name_of(callee)
        if name not in OWN_CODE:
            _mix(around, constructs=name in CONSTRUCTORS)
        if frame.call is not None and frame.last is spot:
            frame.call.mixed = True
        frame.call = None
        return around

    def _makes(
        self, frame: CallFrame, spot: Spot, op: str, again: bool
    ) -> Draft | None:
        """A node is made at a place, by a call of torch or of a library."""
        around = frame.inside(len(frame.steps))
        if again or frame.last is not spot:
            frame.seen = set()
            frame.call = self._new("call", around, frame.scope, spot.called, frame)
            frame.call.line = getattr(spot.node, "lineno", 0)
        frame.seen.add(op)
        return frame.call or around

    def _move(self, frame: CallFrame, spot: Spot, done: _Done) -> bool:
        """Leave and enter loops and statements until the call is at a place. Whether it
        goes there again, in another turn.
        """
        steps, around = frame.steps, spot.around
        same = _common(steps, around)
        loops = [i for i in range(same) if steps[i].turn is not None]
        innermost = loops[-1] if loops else -1
        again = bool(loops) and self._goes_round(frame, innermost, spot, done)
        if again:
            same = innermost + 1
            self._begin_turn(steps[innermost], frame)
        for step in steps[same:]:
            _leave(step)
        del steps[same:]

        for here in around[same:]:
            steps.append(self._entered_step(frame, here))

        turns = [step for step in steps if step.turn is not None]
        if turns:
            _pass(turns[-1], spot)
        return again

    def _entered_step(self, frame: CallFrame, here: ast.AST | Statement) -> Within:
        around = frame.inside(len(frame.steps))
        assert frame.spots is not None and frame.spots.function is not None
        if isinstance(here, Statement):
            part = self._new("statement", around, frame.scope, here.name, frame)
            part.code, part.node = here.code, here.node
        else:
            text = frame.spots.function.header(here)
            part = self._new("loop", around, frame.scope, text, frame)
            part.code = ", ".join(frame.spots.function.carried(here))
            part.node = here
        part.line = getattr(part.node, "lineno", 0)
        step = Within(part)
        if part.kind == "loop":
            self._begin_turn(step, frame)
        return step

    def _begin_turn(self, step: Within, frame: CallFrame) -> None:
        loop = step.part
        _leave(step)
        step.passed, step.forks, step.goes_on = set(), set(), False
        loop.turn += 1
        if loop.turn > MOST_TURNS:
            loop.flat = True
            step.turn = loop
        else:
            step.turn = self._new("turn", loop, loop.scope, "", frame)
            step.turn.turn = loop.turn

    def _goes_round(
        self, frame: CallFrame, innermost: int, spot: Spot, done: _Done
    ) -> bool:
        """Whether the innermost loop that a place and the last one are in began another
        turn between them.
        """
        step = frame.steps[innermost]
        if step.goes_on:
            return True
        if frame.last is None:
            return False
        if spot is not frame.last:
            return not spot.may_follow(frame.last)
        again = _is_again(frame, spot, done)
        if again is None:
            # one call may make an op, or call a function, several times
            step.part.doubts.add(spot)
            for inner in frame.steps[innermost + 1 :]:
                inner.part.in_doubt = step.part
            if frame.call is not None:
                frame.call.in_doubt = step.part
        return bool(again)

    def written(self) -> ProgramText:
        """What was read."""
        for frame in self._frames.values():
            for step in frame.steps:
                _leave(step)
        constructs = constructs_of(self._parts, self._bare)
        kept = [part for part in self._parts if part.is_kept]
        number = {part: i for i, part in enumerate(kept)}
        functions: dict[RunningCall, int] = {}
        for running, frame in self._frames.items():
            part = frame.part
            while part is not None and part.kind != "function":
                part = part.around
            if part in number:
                functions[running] = number[part]
        return ProgramText(
            constructs,
            calls_of(self._parts, self._bare, self._op_of),
            self._unread,
            {key: _certain(turns) for key, turns in self._turns.items()},
            functions,
        )


def _is_again(frame: CallFrame, spot: Spot, done: _Done) -> bool | None:
    """Whether what a call did at its last place is done there again, not still; None
    where nothing shows it.
    """
    if done.callee is not None or frame.callee is not None:
        if None in (done.callee, frame.callee) or done.callee is frame.callee:
            return False
        return None if spot.repeats else True
    if done.op not in frame.seen:
        return False
    if spot.is_operator or spot.called in (done.op, "apply"):
        has_views = isinstance(spot.node, ast.BinOp) and any(map(is_view, frame.seen))
        if not has_views:
            return True
        if is_view(done.op):
            return False
    return None


def _certain(turns: Sequence[Draft]) -> Turns:
    """Those of loops each of whose turns is known, by the loop."""
    found: Turns = {}
    for turn in turns:
        loop = turn.around
        if turn.kind == "turn" and loop is not None and is_told_apart(loop):
            assert loop.node is not None
            found[loop.node] = turn
    return found


def _common(steps: Sequence[Within], around: Sequence[ast.AST | Statement]) -> int:
    """How many of the steps lead to a place, too."""
    for i, (step, here) in enumerate(zip(steps, around)):
        if step.part.node is not (here.node if isinstance(here, Statement) else here):
            return i
    return min(len(steps), len(around))


def _pass(step: Within, spot: Spot) -> None:
    """A turn of a loop is at a place: note it where every turn passes it, or an arm of
    one condition does.
    """
    if spot.runs_in_every_turn():
        step.passed.add(spot)
        return
    fork = spot.only_fork()
    if fork is not None:
        step.forks.add(fork[0])
        step.part.arms.setdefault(fork, set()).add(spot)


def _leave(step: Within) -> None:
    """A turn of a loop is over: note what every turn has passed."""
    loop = step.part
    if step.turn is not None:
        loop.sure = step.passed if loop.sure is None else loop.sure & step.passed
        loop.forks = step.forks if loop.forks is None else loop.forks & step.forks


def _mix(part: Draft | None, *, constructs: bool) -> None:
    """A function of the user's, such as a constructor, or a module, runs in these
    statements.
    """
    while part is not None and part.kind in ("statement", "loop", "turn"):
        part.mixed = True
        part.constructs |= constructs
        part = part.around


def _name_of(callee: object) -> str:
    """Of a function; "" of a module."""
    name: str = getattr(getattr(callee, "code", callee), "co_name", "")
    return name


def _outermost_of_library(frames: Sequence[tuple[RunningCall, CallSite | None]]) -> int:
    """The place of the innermost of the script's own calls, where it called a library's
    function: what that does inside is one call. The innermost one where none did.
    """
    for place, (key, _) in enumerate(frames):
        if key.code is None:
            return 0  # a gradient that torch's engine computes
        if not package_of(key.code.co_filename):
            return place
    return 0
