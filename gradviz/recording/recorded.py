"""From what a recording noted to the scope and source line of every node of a graph.

Attributes only what is certain: a sequence number that two threads may have given out is left alone, and the notes say how
many were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch

from gradviz.graph import Scope, SourceLine, TensorInfo
from gradviz.packages import with_text
from gradviz.recording.event_log import Call, EventLog, SeenModule, Tree
from gradviz.variables.objects import joined, parameters
from gradviz.walker.description import BareGraph, Places
from gradviz.walker.names import distinct
from gradviz.walker.private import LAST
from gradviz.walker.tensors import device_name, dtype_name, elements, shape_of
from gradviz.wording import plural, verb


class Span(NamedTuple):
    """The part of an event log that belongs to a recording: sequence numbers from `start` up to, not including, `end`."""

    event_log: EventLog
    start: int
    end: int


class Recorded:
    """Attribution by recorded sequence numbers. `module_paths` are names that the caller has for modules, by identity."""

    kind: Literal["recorded"] = "recorded"

    def __init__(self, spans: Sequence[Span], trees: Sequence[Tree], module_paths: Mapping[int, str]) -> None:
        self._spans = [span for span in spans if span.end > span.start]
        self._trees = trees
        self._paths = module_paths

    def places(self, bare: BareGraph) -> Places:
        calls: list[Call | None] = []
        sources: list[SourceLine | None] = []
        script_lines: list[SourceLine | None] = []
        texts = _Texts()
        doubtful = _doubtful(bare, len(self._spans) > 1)
        unsure = unseen = forgotten = lost = 0
        for node, number in enumerate(bare.sequences):
            span = None
            if number != LAST:
                candidates = [span for span in self._spans if span.start <= number < span.end]
                if not candidates:
                    unseen += 1
                elif len(candidates) > 1 or node in doubtful:
                    unsure += 1
                else:
                    span = candidates[0]
            place = span.event_log.lines.at(number) if span is not None else None
            call = span.event_log.calls.at(number) if span is not None else None
            while place is None and call is not None and call.own:  # known to run only where a node was seen to be made
                call = call.parent
            calls.append(call)
            sources.append(texts[place.source] if place is not None else None)
            script_lines.append(texts[place.script_line] if place is not None else None)
            if span is not None and place is None:
                forgotten += number < span.event_log.lines.dropped
                lost += number >= span.event_log.lines.dropped
        kept = _kept(calls)
        scope_of: list[int | None] = [kept[call] if call is not None else None for call in calls]
        first_calls = _first_calls(kept)
        for node, variable in bare.variables.items():
            scope_of[node] = self._owner(variable, first_calls)
        prefixes = self._prefixes(kept)
        scopes = self._scopes(kept, prefixes)
        self._add_checkpointed(bare.checkpoints, scopes, scope_of, prefixes)
        return Places(
            tuple(scopes),
            scope_of,
            sources,
            script_lines,
            _notes(unseen, unsure, forgotten, lost, len(self._spans)),
            {node: name for node, variable in bare.variables.items() if (name := self._name(variable, prefixes))},
        )

    # -- scopes --------------------------------------------------------------------------------------------------------

    def _scopes(self, kept: Mapping[Call, int], prefixes: Mapping[Tree, str]) -> list[Scope]:
        calls_of: dict[SeenModule, int] = {}
        scopes = []
        for call in kept:
            calls_of[call.module] = count = calls_of.get(call.module, 0) + 1
            scopes.append(
                Scope(
                    path=self._path(call, prefixes),
                    type=call.module.type,
                    call=count,
                    parent=kept[call.parent] if call.parent is not None else None,
                    parameters=call.tree.parameters.get(call.module),
                    output=_output(call),
                )
            )
        return scopes

    def _add_checkpointed(
        self,
        checkpoints: Mapping[int, Sequence[torch.nn.Module]],
        scopes: list[Scope],
        scope_of: list[int | None],
        prefixes: Mapping[Tree, str],
    ) -> None:
        """A scope for each reentrant checkpoint whose module is known: the call itself recorded no op."""
        calls: Counter[str] = Counter(scope.path for scope in scopes)
        for node, modules in sorted(checkpoints.items(), key=lambda item: -item[0]):
            around = scope_of[node]
            outer = scopes[around].path if around is not None else None
            paths = {
                path: module for module in modules if (path := self._path_of(module, prefixes)) not in (None, outer)
            }
            if len(paths) == 1:
                ((path, module),) = paths.items()
                assert path is not None
                calls[path] += 1
                scope_of[node] = len(scopes)
                count = elements(parameters(module))
                scopes.append(Scope(path, type(module).__name__, calls[path], around, count))

    def _path_of(self, module: torch.nn.Module, prefixes: Mapping[Tree, str]) -> str | None:
        """The path of a module that was called, perhaps without recording an op."""
        if id(module) in self._paths:
            return self._paths[id(module)]
        for tree, prefix in prefixes.items():
            for seen, path in tree.paths.items():
                if seen.ref() is module:
                    return joined(prefix, path)
        return None

    def _name(self, variable: torch.Tensor, prefixes: Mapping[Tree, str]) -> str:
        """A parameter's name below the outermost module that was called, for one that no variable leads to."""
        for tree, prefix in prefixes.items():
            reference, name = tree.owners.get(id(variable), (None, ""))
            if reference is not None and reference() is variable:
                return joined(prefix, name)
        return ""

    def _path(self, call: Call, prefixes: Mapping[Tree, str]) -> str:
        known = self._known(call.module)
        return known if known is not None else joined(prefixes[call.tree], call.tree.paths.get(call.module, ""))

    def _known(self, seen: SeenModule) -> str | None:
        """The caller's name for a module."""
        module = seen.ref()
        return self._paths.get(id(module)) if module is not None else None

    def _prefixes(self, kept: Mapping[Call, int]) -> dict[Tree, str]:
        """A distinct path for each outermost module: the caller's name, "" for a single one without, else the class name."""
        trees = list(dict.fromkeys(call.tree for call in kept))
        known = {tree: self._known(tree.seen) for tree in trees}
        taken = {path for path in known.values() if path is not None}
        prefixes: dict[Tree, str] = {}
        for tree in trees:
            path = known[tree]
            if path is None:
                path = "" if len(trees) == 1 else distinct(tree.seen.type, taken)
                taken.add(path)
            prefixes[tree] = path
        return prefixes

    def _owner(self, variable: torch.Tensor, first_calls: Mapping[Tree, Mapping[str, int]]) -> int | None:
        """The first call of the module that owns a parameter, or of the next module around it that was called."""
        for tree in self._trees:
            reference, name = tree.owners.get(id(variable), (None, ""))
            if reference is not None and reference() is variable:
                scope = _nearest(name.rpartition(".")[0], first_calls.get(tree, {}))
                if scope is not None:
                    return scope
        return None


def _first_calls(kept: Mapping[Call, int]) -> dict[Tree, dict[str, int]]:
    """The first call of each module, by the path that it has in its tree."""
    first: dict[Tree, dict[str, int]] = {}
    for call, scope in kept.items():
        first.setdefault(call.tree, {}).setdefault(call.tree.paths.get(call.module, ""), scope)
    return first


def _nearest(path: str, first: Mapping[str, int]) -> int | None:
    """The call at this path, or at the nearest one around it."""
    while path not in first:
        if not path:
            return None
        path = path.rpartition(".")[0]
    return first[path]


def _kept(calls: Sequence[Call | None]) -> dict[Call, int]:
    """The calls that made nodes and the calls around them, in the order they began, with their scope ids."""
    reached: set[Call] = set()
    for call in calls:
        while call is not None and call not in reached:
            reached.add(call)
            call = call.parent
    return {call: i for i, call in enumerate(sorted(reached, key=lambda call: call.number))}


def _output(call: Call) -> TensorInfo | None:
    if call.output is None:
        return None
    shape, dtype, device, layout = call.output
    return TensorInfo(shape_of(shape), dtype_name(dtype), device_name(device), str(layout).removeprefix("torch."))


class _Texts(dict["SourceLine | None", "SourceLine | None"]):
    """Lines with their text, read once."""

    def __missing__(self, line: SourceLine | None) -> SourceLine | None:
        self[line] = told = with_text(line) if line is not None else None
        return told


# -- doubt -------------------------------------------------------------------------------------------------------------


def _doubtful(bare: BareGraph, several_threads: bool) -> set[int]:
    """Nodes whose number another thread may have given out, which the recording did not see running Python.

    On an accelerator, a backward with `create_graph=True` makes nodes in the engine's own thread, which counts from 0. They
    show as numbers that occur twice, and as nodes with a lower number than what they were computed from. A view's
    regenerated `grad_fn` shows the latter, too, so that alone counts only where other threads are possible.
    """
    nodes_of: dict[int, int] = {}
    doubtful: set[int] = set()
    for node, number in enumerate(bare.sequences):
        if number != LAST:
            first = nodes_of.setdefault(number, node)
            if first != node:
                doubtful.update((first, node))
    if doubtful or several_threads or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for edge in bare.edges:
            if bare.sequences[edge.consumer] < bare.sequences[edge.producer] < LAST:
                doubtful.add(edge.consumer)
    return doubtful


def _notes(unseen: int, unsure: int, forgotten: int, lost: int, threads: int) -> tuple[str, ...]:
    notes = []
    if unsure:
        where = f"{threads} threads made nodes while recording" if threads > 1 else "more than one thread made nodes"
        notes.append(
            f"{where} and each numbers its own from 0, so {plural(unsure, 'operation')} could not be told apart and "
            f"{verb(unsure, 'has', 'have')} neither module nor source line"
        )
    if unseen:
        notes.append(
            f"{plural(unseen, 'operation')} ran outside the recording, or in another thread while one ran backward, and "
            f"{verb(unseen, 'has', 'have')} "
            "neither module nor source line"
        )
    if forgotten:
        notes.append(
            f"the recording was so long that it forgot its beginning: {plural(forgotten, 'operation')} "
            f"{verb(forgotten, 'has', 'have')} no source line"
        )
    if lost:
        notes.append(
            f"{plural(lost, 'operation')} {verb(lost, 'has', 'have')} no source line: no Python code outside torch was running, or "
            "another thread ran backward"
        )
    return tuple(notes)
