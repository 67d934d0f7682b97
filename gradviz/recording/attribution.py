"""In which module call, and at which line, each node of a graph was made, as it was
recorded.

Of what was noted only what is certain is attributed: a sequence number that two threads
may have given out is left alone, and the notes say how many were. Of a graph that was
not recorded `gradviz.inference` concludes from who owns what, in which module every
operation ran.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

import torch

from gradviz.graph import Scope, SourceLine, TensorInfo
from gradviz.graph.origins import outer_paths
from gradviz.packages import with_text
from gradviz.recording.assigned import AssignedNames
from gradviz.recording.event_log import (
    NOWHERE,
    EventLog,
    ModuleCall,
    ModuleInput,
    ModuleTree,
    Moment,
    SeenModule,
)
from gradviz.recording.operands import OperandReader
from gradviz.recording.program import ProgramText, written
from gradviz.source.spots import forget
from gradviz.variables.objects import children, is_compiled, joined, parameters
from gradviz.walker.names import distinct
from gradviz.walker.places import Argument, BareGraph, Places
from gradviz.walker.private import LAST
from gradviz.walker.tensors import device_name, dtype_name, elements, shape_of
from gradviz.wording import few, plural, verb


class Span(NamedTuple):
    """The part of an event log that belongs to a recording: sequence numbers from
    `start` up to, not including, `end`.
    """

    event_log: EventLog
    start: int
    end: int


LivingInput = tuple[ModuleInput, torch.Tensor]
"""Data that a module was called with, while it is alive."""


class Recorded:
    """Attribution by recorded sequence numbers. `module_paths` are names that the
    caller has for modules, by identity.

    `threads` names those beside which lines were not noted. `now`: where the code
    is that asks for the graph.
    """

    kind: Literal["recorded"] = "recorded"

    def __init__(
        self,
        spans: Sequence[Span],
        trees: Sequence[ModuleTree],
        module_paths: Mapping[int, str],
        threads: Sequence[str] = (),
        now: Moment = NOWHERE,
    ) -> None:
        self._spans = [span for span in spans if span.end > span.start]
        self._trees, self._threads, self._now = trees, threads, now
        self._paths = module_paths
        self._prefixes: dict[ModuleTree, str] = {}  # of each outermost module that ran

    def places(self, bare: BareGraph) -> Places:
        read_line, unknown = cache(_read_line), Counter[str]()
        moments = list(self._moments(bare, unknown))
        calls = [moment.module for moment in moments]
        places = [moment.site and moment.site.place for moment in moments]
        sources = [read_line(place and place.source) for place in places]
        script_lines = [read_line(place and place.script_line) for place in places]
        kept = _kept(calls)
        scope_of: list[int | None] = [
            kept[call] if call is not None else None for call in calls
        ]
        first_calls = _first_calls(kept)
        # an AccumulateGrad has no number, but its parameter has an owner
        for node, variable in bare.variables.items():
            scope_of[node] = self._owner(variable, first_calls)

        self._name_trees(kept)
        scopes = self._scopes(kept)
        self._add_checkpointed(bare.checkpoints, scopes, scope_of)

        code = ProgramText()
        # a call that made a node which nobody knows of would be told without it
        if unknown.keys() <= {"leaf", "unseen"} and len(self._spans) == 1:
            span = self._spans[0]
            passes = [*span.event_log.backwards, (span.end, self._now)]
            code = written(bare, moments, span.start, kept, scope_of, passes)

        assigned = AssignedNames(bare, moments, self._moment_of).read()
        inputs = list(self._inputs())
        given = {(one.call, one.parameter.name): tensor for one, tensor in inputs}
        reader = OperandReader(bare, moments, code, given, kept)
        operands, arguments = reader.read(), _arguments(reader, inputs)
        forget()

        return Places(
            scopes=tuple(scopes),
            scope_of=scope_of,
            source_of=sources,
            script_line_of=script_lines,
            notes=(
                *_notes(unknown, self._threads),
                *_unread(code.unread),
                *_frozen(self._named_parameters(kept)),
            ),
            names=operands.leaves | dict(self._named(bare)),
            assigned=assigned,
            arguments=arguments,
            operands=operands.named,
            program=code.constructs,
            written={**operands.written, **code.calls},
            module_inputs=_module_inputs(bare, calls, inputs),
            numbers=operands.numbers,
            in_torch=operands.in_torch,
            passed=operands.inputs,
            calls=operands.calls,
        )

    def _inputs(self) -> Iterator[LivingInput]:
        """Living data that modules were called with."""
        for span in self._spans:
            for noted in list(span.event_log.arguments):
                tensor = noted.tensor()
                if tensor is not None:
                    yield noted, tensor

    def _moment_of(self, number: int) -> Moment:
        """Where the node of a number was made, where one thread alone can have given
        that out.
        """
        logs = self._logs_of(number)
        return logs[0].at(number) if len(logs) == 1 else Moment()

    def _logs_of(self, number: int) -> list[EventLog]:
        spans = self._spans
        return [span.event_log for span in spans if span.start <= number < span.end]

    def _moments(self, bare: BareGraph, unknown: Counter[str]) -> Iterator[Moment]:
        """Where each node was made, and in which call of a module and of a function;
        `unknown` counts of how many that is not known.
        """
        doubtful = _doubtful(bare, len(self._spans) > 1)
        for node, number in enumerate(bare.sequences):
            logs = self._logs_of(number)
            if number != LAST and len(logs) == 1 and node not in doubtful:
                # exactly one thread can have given out this number
                yield _noted_at(number, logs[0], unknown)
                continue

            unknown["leaf" if number == LAST else "unsure" if logs else "unseen"] += 1
            yield Moment()

    # -- scopes ------------------------------------------------------------------------

    def _scopes(self, kept: Mapping[ModuleCall, int]) -> list[Scope]:
        numbers = _call_numbers(kept)
        frozen: dict[SeenModule, int] = {}
        scopes = []
        for call in kept:
            if call.module not in frozen:
                frozen[call.module] = _frozen_elements(call.module.ref())
            scopes.append(
                Scope(
                    path=self._path(call),
                    type=call.module.type,
                    call=numbers[call],
                    parent=kept[call.parent] if call.parent is not None else None,
                    parameters=call.tree.parameters.get(call.module),
                    output=_output(call),
                    frozen=frozen[call.module],
                )
            )

        inner = {(scope.parent, scope.path) for scope in scopes}
        for i, call in enumerate(kept):
            wrapper = call.module.ref()
            if (
                wrapper is not None
                and is_compiled(wrapper)
                and (i, scopes[i].path) not in inner
            ):
                # which is compiled, so its own call is not recorded
                for _, module in children("", wrapper):
                    scopes[i] = scopes[i]._replace(type=type(module).__name__)
        return scopes

    def _add_checkpointed(
        self,
        checkpoints: Mapping[int, Sequence[torch.nn.Module]],
        scopes: list[Scope],
        scope_of: list[int | None],
    ) -> None:
        """A scope for each reentrant checkpoint whose module is known: the call itself
        recorded no op.
        """
        calls: Counter[str] = Counter(scope.path for scope in scopes)
        for node, modules in sorted(checkpoints.items(), key=lambda item: -item[0]):
            outer_scope = scope_of[node]
            outer = scopes[outer_scope].path if outer_scope is not None else None
            candidates = {}
            for module in modules:
                path = self._paths.get(id(module))
                if path is not None and path != outer:
                    candidates[path] = module

            if len(candidates) != 1:
                continue  # which module was checkpointed would be a guess

            ((path, module),) = candidates.items()
            calls[path] += 1
            scope_of[node] = len(scopes)
            scopes.append(
                Scope(
                    path,
                    type(module).__name__,
                    calls[path],
                    outer_scope,
                    elements(parameters(module)),
                    frozen=_frozen_elements(module),
                )
            )

    def _named(self, bare: BareGraph) -> Iterator[tuple[int, str]]:
        for node, variable in bare.variables.items():
            name = self._name(variable)
            if name:
                yield node, name

    def _name(self, variable: torch.Tensor) -> str:
        """A parameter's name below the outermost module that was called, for one that
        no variable leads to.
        """
        names = (
            (prefix, tree.name_of(variable)) for tree, prefix in self._prefixes.items()
        )
        return next(
            (joined(prefix, name) for prefix, name in names if name is not None), ""
        )

    def _path(self, call: ModuleCall) -> str:
        name = self._known(call.module)
        if name is not None:
            return name
        return joined(self._prefixes[call.tree], call.tree.paths.get(call.module, ""))

    def _known(self, seen: SeenModule) -> str | None:
        """The caller's name for a module."""
        module = seen.ref()
        return self._paths.get(id(module)) if module is not None else None

    def _name_trees(self, kept: Mapping[ModuleCall, int]) -> None:
        """A distinct path for each outermost module: the caller's name, "" for a single
        one without, else the class name.
        """
        trees = list(dict.fromkeys(call.tree for call in kept))
        path_of = {tree: self._known(tree.seen) for tree in trees}
        taken = {path for path in path_of.values() if path is not None}
        for tree, path in path_of.items():
            if path is None:
                path = "" if len(trees) == 1 else distinct(tree.seen.type, taken)
                taken.add(path)
            self._prefixes[tree] = path

    def _named_parameters(
        self, kept: Mapping[ModuleCall, int]
    ) -> dict[str, torch.Tensor]:
        """The living parameters of the modules that were called, by name."""
        found: dict[str, torch.Tensor] = {}
        for tree in dict.fromkeys(call.tree for call in kept):
            for reference, name in tree.owners.values():
                parameter = reference()
                if parameter is not None:
                    found[joined(self._prefixes[tree], name)] = parameter
        return found

    def _owner(
        self, variable: torch.Tensor, first_calls: Mapping[tuple[ModuleTree, str], int]
    ) -> int | None:
        """The first call of the module that owns a parameter, or of the next module
        around it that was called.
        """
        for tree in self._trees:
            path = tree.name_of(variable)
            while path:
                path = path.rpartition(".")[0]
                if (tree, path) in first_calls:
                    return first_calls[tree, path]
        return None


def _noted_at(number: int, event_log: EventLog, unknown: Counter[str]) -> Moment:
    moment = event_log.at(number)
    if moment.site is None:
        # a long recording drops its oldest lines
        unknown["forgotten" if number < event_log.lines.dropped else "lost"] += 1
    elif moment.function is None:
        unknown["traced"] += 1
    return moment


_WHY = {"edited": "its text is not what ran", "absent": "its text is not there"}


def _unread(files: Mapping[str, str]) -> Iterator[str]:
    """Which files say nothing of their loops and statements."""
    for file, why in sorted(files.items()):
        yield f"no loops and statements of {os.path.basename(file)}: {_WHY[why]}"


def _frozen_elements(module: torch.nn.Module | None) -> int:
    """How many elements of a module's parameters require no gradient."""
    if module is None:
        return 0
    frozen = (one for one in parameters(module) if not one.requires_grad)
    return elements(frozen) or 0


def _frozen(parameters: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Which modules are frozen as a whole, the outermost ones, and which parameters
    beside them: also where the graph does not lead to them.
    """
    trained: set[str] = set()
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            trained.update(outer_paths(name))

    frozen: dict[str, None] = {}
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            free = (prefix for prefix in outer_paths(name) if prefix not in trained)
            frozen[next(free)] = None
    if frozen:
        yield f"frozen: {few(list(frozen), FROZEN)}"


FROZEN = 12
"""Frozen modules that are named."""


def _arguments(
    reader: OperandReader, inputs: Sequence[LivingInput]
) -> dict[int, Argument]:
    """The parameters of modules that living data was passed as first, by the identity of
    the data.
    """
    parameters: dict[int, Argument] = {}
    before: LivingInput | None = None
    for noted in inputs:
        (call, parameter, _), tensor = noted
        if id(tensor) not in parameters:
            operand = reader.passed_to(call, parameter.name)
            if operand is None and before is not None:
                given = parameters[id(before[1])].operand
                operand = reader.computed(before[0].call, call, given, before[1])
            if operand is not None:
                operand = operand._replace(value=tensor)
            parameters[id(tensor)] = parameter._replace(operand=operand)
        before = noted
    return parameters


def _module_inputs(
    bare: BareGraph, calls: Sequence[ModuleCall | None], inputs: Sequence[LivingInput]
) -> dict[int, tuple[torch.Tensor, ...]]:
    """The living data that the innermost call around a node had, for nodes with an input
    without gradient.
    """
    nodes: dict[ModuleCall | None, list[int]] = {}
    for node in bare.none_inputs:
        nodes.setdefault(calls[node], []).append(node)
    found: dict[int, tuple[torch.Tensor, ...]] = {}
    for noted, tensor in inputs:
        for node in nodes.get(noted.call, ()):
            found[node] = (*found.get(node, ()), tensor)
    return found


def _read_line(source: SourceLine | None) -> SourceLine | None:
    return with_text(source) if source is not None else None


def _first_calls(kept: Mapping[ModuleCall, int]) -> dict[tuple[ModuleTree, str], int]:
    """The first call of each module, by its tree and the path that it has there."""
    first: dict[tuple[ModuleTree, str], int] = {}
    for call, scope in kept.items():
        path = call.tree.paths.get(call.module, "")
        first.setdefault((call.tree, path), scope)
    return first


def _kept(calls: Sequence[ModuleCall | None]) -> dict[ModuleCall, int]:
    """The calls that made nodes and the calls around them, in the order they began,
    with their scope ids.
    """
    reached: set[ModuleCall] = set()
    for call in calls:
        while call is not None and call not in reached:
            reached.add(call)
            call = call.parent
    return {
        call: i for i, call in enumerate(sorted(reached, key=lambda call: call.number))
    }


def _call_numbers(kept: Mapping[ModuleCall, int]) -> dict[ModuleCall, int]:
    """Which call of its module each is, those counted too that made nothing of the
    graph, but for outermost ones.
    """
    # by the outermost call around, what earlier ones called
    before: dict[ModuleCall, Counter[SeenModule]] = {}
    total: Counter[SeenModule] = Counter()
    numbers = {}
    for call in kept:
        root = call.root or call
        if root not in before:
            before[root] = Counter(total)
            # calls that made nothing of the graph count, too: "call 2" is what the user
            # would count
            total.update(root.calls)
        numbers[call] = before[root][call.module] + call.nth
    return numbers


def _output(call: ModuleCall) -> TensorInfo | None:
    if call.output is None:
        return None
    shape, dtype, device, layout = call.output
    return TensorInfo(
        shape_of(shape),
        dtype_name(dtype),
        device_name(device),
        str(layout).removeprefix("torch."),
    )


# -- doubt -----------------------------------------------------------------------------


def _doubtful(bare: BareGraph, several_threads: bool) -> set[int]:
    """Nodes whose number another thread may have given out, which the recording did not
    see running Python.

    On an accelerator, a backward with `create_graph=True` makes nodes in the engine's
    own thread, which counts from 0. They show as numbers that occur twice, and as nodes
    with a lower number than what they were computed from. A view's regenerated
    `grad_fn` shows the latter, too, so that alone counts only where other threads are
    possible.
    """
    nodes_of: dict[int, int] = {}
    doubtful: set[int] = set()

    for node, number in enumerate(bare.sequences):
        if number != LAST:
            first = nodes_of.setdefault(number, node)
            if first != node:
                # two threads gave out the same number
                doubtful.update((first, node))

    if doubtful or several_threads or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for edge in bare.edges:
            # within one thread an op has a higher number than what it was computed from
            if bare.sequences[edge.consumer] < bare.sequences[edge.producer] < LAST:
                doubtful.add(edge.consumer)

    return doubtful


def _notes(unknown: Counter[str], threads: Sequence[str]) -> tuple[str, ...]:
    why = (
        f"another thread ({few(threads, 3)}) ran part of the time, and lines are recorded only while no other thread can "
        "build a graph, because the two could wait for each other forever"
    )
    notes = (
        (
            unknown["unsure"],
            "more than one thread made nodes and each numbers its own from 0, so {} could not be told apart and {} neither "
            "module nor source line",
            "",
        ),
        (
            unknown["unseen"],
            f"{{}} ran outside the recording{' or in another thread' if threads else ''}, and {{}} neither module nor source line",
            "",
        ),
        (
            unknown["forgotten"],
            "the recording was so long that it forgot its beginning: {} {} no source line",
            "",
        ),
        (
            unknown["lost"],
            "{} {} no source line: ",
            why if threads else "no Python code outside torch was running",
        ),
    )
    return tuple(
        text.format(plural(count, "operation"), verb(count, "has", "have")) + reason
        for count, text, reason in notes
        if count
    )
