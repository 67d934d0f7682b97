"""What is left of the constructs that were read as the program ran: those that say
something, with what the dropped ones held.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

from gradviz.fold.order import is_view
from gradviz.graph import Construct, ConstructKind, SourceLine
from gradviz.graph.written import written_code
from gradviz.packages import code_line, with_text
from gradviz.source.spots import Spot, Spots
from gradviz.source.syntax import Fork
from gradviz.walker.places import BareGraph


@dataclass(slots=True, eq=False)
class Draft:
    """A construct in the making, in the call of a function `frame`.

    `node` is what the code has there. `turn` is the number of a turn, and of a loop how
    many it had. `doubts`: places where a loop may have begun a turn that nothing shows;
    what ran there is `in_doubt` over that loop. `mixed`: functions of the user's, or
    modules, ran in it; `constructs`: the constructor of a class of the user's did.
    `flat`: a loop of more turns than are told apart. `sure` are the places that every
    turn of a loop passed, `forks` the conditions of which every turn passed a place in
    one arm, `arms` those places, by condition and arm.
    """

    kind: ConstructKind
    around: Draft | None
    scope: int | None
    text: str
    frame: CallFrame | None = None
    source: CodeType | None = None
    node: ast.AST | None = None
    line: int = 0
    code: str = ""
    turn: int = 0
    mixed: bool = False
    constructs: bool = False
    flat: bool = False
    doubts: set[object] = field(default_factory=set)
    in_doubt: Draft | None = None
    sure: set[object] | None = None
    forks: set[ast.AST] | None = None
    arms: dict[Fork, set[object]] = field(default_factory=dict)
    is_kept: bool = True
    nodes: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)

    @property
    def home(self) -> Draft | None:
        """The innermost one around it that is kept."""
        around = self.around
        while around is not None and not around.is_kept:
            around = around.around
        return around


@dataclass(slots=True, eq=False)
class Within:
    """A loop, or a statement, that a function is in. `passed`: places of the turn that
    every turn has; `forks`: conditions of which it passed an arm; `goes_on`: the loop
    was asked for its next turn.
    """

    part: Draft
    turn: Draft | None = None
    passed: set[object] = field(default_factory=set)
    forks: set[ast.AST] = field(default_factory=set)
    goes_on: bool = False


@dataclass(slots=True, eq=False)
class CallFrame:
    """One call of one function, and where it is: the loops and the statement that it is
    in, the last place, the `callee` that ran there, or the ops that were `seen`.
    """

    spots: Spots | None
    part: Draft | None
    scope: int | None
    steps: list[Within] = field(default_factory=list)
    last: Spot | None = None
    callee: object = None
    seen: set[str] = field(default_factory=set)
    call: Draft | None = None
    is_blind: bool = False

    def turns(self) -> list[Draft]:
        """The turns that it is in."""
        return [step.turn for step in self.steps if step.turn is not None]

    def inside(self, steps: int) -> Draft | None:
        """The construct that so many steps lead to."""
        if not steps:
            return self.part
        step = self.steps[steps - 1]
        return step.turn or step.part


Inside = Mapping[Draft | None, Sequence[Draft]]
"""The parts directly inside each, of those that hold anything."""


def constructs_of(parts: Sequence[Draft], bare: BareGraph) -> tuple[Construct, ...]:
    """The constructs that say something, outer ones first."""
    inside: dict[Draft | None, list[Draft]] = {}
    for part in reversed(parts):
        if part.nodes or part.scopes or part in inside:
            inside.setdefault(part.around, []).insert(0, part)
    for part in parts:
        part.is_kept = _is_kept(part, inside, bare)
    for part in parts:
        home = part.home
        if home is not None and not part.is_kept:
            home.nodes += part.nodes
            home.scopes += part.scopes
    return tuple(_records([part for part in parts if part.is_kept], bare))


def _is_kept(part: Draft, inside: Inside, bare: BareGraph) -> bool:
    if not (part.nodes or part.scopes or part in inside):
        return False
    frame, around = part.frame, part.around
    if frame is not None and frame.is_blind:
        return False  # some of its calls are not known
    if part.kind == "loop":
        return _settle_loop(part, inside)
    if part.kind == "turn":
        assert around is not None
        return around.is_kept and around.turn > 0 and not around.flat
    if _is_in_flat(part):
        return False
    if part.kind == "statement":
        if part.constructs or _is_doubtful(part):
            return False  # an object is not what its constructor computed
        return _is_several(part, inside.get(part, ()))
    if part.kind == "call":
        return _is_call(part, bare)
    return True


def _is_several(part: Draft, inside: Sequence[Draft]) -> bool:
    """Whether a statement does more than one call."""
    made = len(part.nodes) + sum(len(one.nodes) for one in inside if one.kind == "call")
    called = [one for one in inside if one.kind != "call"]
    return made + len(part.scopes) + len(called) > 1


def _is_doubtful(part: Draft) -> bool:
    """Whether it may be more than one execution."""
    loop = part.in_doubt
    return loop is not None and not _is_certain(loop)


def _is_certain(loop: Draft) -> bool:
    """Whether every turn of a loop passed a place that shows it."""
    if (loop.sure or set()) - loop.doubts:
        return True
    return any(_shows_turns(loop, fork) for fork in loop.forks or ())


def _shows_turns(loop: Draft, fork: ast.AST) -> bool:
    """Whether either arm of a condition was seen, and begins a turn without a doubt: one
    that no turn was seen in may make nothing.
    """
    arms = [loop.arms.get((fork, arm), set()) for arm in ("body", "orelse")]
    return all(arms) and loop.doubts.isdisjoint(set().union(*arms))


def is_told_apart(loop: Draft) -> bool:
    """Whether each turn of a loop is known."""
    return not loop.flat and (not loop.doubts or _is_certain(loop))


def _is_in_flat(part: Draft) -> bool:
    """Whether a part stands in a turn of a loop whose turns are not told apart."""
    around = part.around
    while around is not None and around.kind != "function":
        if around.flat:
            return True
        around = around.around
    return False


def _is_call(part: Draft, bare: BareGraph) -> bool:
    if _is_doubtful(part) or part.mixed or not part.text:
        return False
    return len(_worked(part, bare)) > 1


def _worked(part: Draft, bare: BareGraph) -> list[int]:
    """The nodes of a call that do more than change a shape; all where none does."""
    names = (getattr(bare.kinds[node], "__name__", "") for node in part.nodes)
    return [n for n, name in zip(part.nodes, names) if not is_view(name)] or part.nodes


def _settle_loop(loop: Draft, inside: Inside) -> bool:
    """Say how many turns a loop had, 0 where that is not certain, and whether it is one
    to show.
    """
    if not loop.is_kept:
        return False
    turns = inside.get(loop, ())
    inner = inside.get(turns[0], ()) if len(turns) == 1 else ()
    is_shell = (
        len(turns) == 1
        and not turns[0].nodes
        and not turns[0].scopes
        and len(inner) == 1
        and inner[0].kind == "loop"
        and inner[0].frame is loop.frame
    )
    is_certain = _is_certain(loop)
    if is_shell and not is_certain:
        # nothing shows where a turn of the outer one ends: both go round together
        inner[0].text = f"{loop.text}, {inner[0].text.removeprefix('for ')}"
        inner[0].line = loop.line
        return False

    count = loop.turn
    if not is_certain:
        loop.turn = 0
        for part in _loops_in(loop, inside):
            part.sure, part.forks = set(), set()  # it may have run in several turns
    if count == 1:
        loop.turn = 0  # what other turns computed of data alone leaves no trace
    return count > 1 or bool(loop.doubts)


def _loops_in(loop: Draft, inside: Inside) -> Iterator[Draft]:
    """The loops inside a loop, in the same call of a function."""
    waiting = list(inside.get(loop, ()))
    while waiting:
        part = waiting.pop()
        if part.frame is loop.frame:
            if part.kind == "loop":
                yield part
            waiting += inside.get(part, ())


def _records(kept: Sequence[Draft], bare: BareGraph) -> Iterator[Construct]:
    number = {part: i for i, part in enumerate(kept)}
    lines: dict[tuple[int, int], SourceLine] = {}
    for part in kept:
        home = part.home
        key = id(part.source), part.line
        if part.source is not None and part.line and key not in lines:
            written = code_line(part.source, part.line)
            # of a statement, the line that its nodes have, too
            is_statement = part.kind == "statement"
            lines[key] = with_text(written) if is_statement else written
        line = lines.get(key)
        yield Construct(
            part.kind,
            part.text,
            line,
            number[home] if home is not None else None,
            part.scope,
            tuple(sorted(part.nodes, key=bare.sequences.__getitem__)),
            tuple(sorted(part.scopes)),
            part.turn,
            "" if part.code == written_code(part.text, line) else part.code,
        )


def calls_of(
    parts: Sequence[Draft], bare: BareGraph, op_of: Callable[[int | None], str]
) -> dict[int, str]:
    """What the code calls a node that is all of a call but for views, by node id; none
    where that is the name of its op.
    """
    calls: dict[int, str] = {}
    for part in parts:
        if part.kind != "call" or part.is_kept or not part.text or _is_doubtful(part):
            continue
        worked = _worked(part, bare)
        if len(worked) != 1 or part.text in (op_of(worked[0]), "apply"):
            continue
        calls[worked[0]] = part.text
    return calls
