"""Why a tensor gets no gradient: one answer, of which `check`, `why`, the page and
pictures tell as much as they have room for.
"""

from __future__ import annotations

import ast
from ast import AST
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from gradviz.cuts.classes import class_around, made_at
from gradviz.cuts.dead_ends import DeadEnds
from gradviz.cuts.draws import drawn_twice
from gradviz.cuts.finder import CutFinder, FoundCut
from gradviz.cuts.flow import Flow
from gradviz.cuts.leaves import LeafReads
from gradviz.cuts.no_effect import without_effect
from gradviz.cuts.parts import with_cuts
from gradviz.cuts.recorded import RecordedCode
from gradviz.cuts.unseen_changes import UnseenChange, unseen_changes
from gradviz.cuts.words import cut_words
from gradviz.graph import Absent, Graph, SourceLine
from gradviz.packages import with_text
from gradviz.source.bindings import dotted
from gradviz.source.cut import Cut, Origin
from gradviz.source.search import freezes
from gradviz.variables.objects import joined, members
from gradviz.walker.names import below, gathered, outermost_modules
from gradviz.walker.tensors import grad_fn_of, tensor_info
from gradviz.wording import line_text

if TYPE_CHECKING:
    from gradviz.recording.record import ModuleRun
    from gradviz.run.outputs import LiveOutputs
    from gradviz.walker.walk import Walked

Kind = Literal[
    "frozen", "checkpoint", "hidden", "cut", "uncalled", "unread", "unused", "open"
]
_CONTAINERS = (
    torch.nn.ParameterList,
    torch.nn.ParameterDict,
    torch.nn.ModuleList,
    torch.nn.ModuleDict,
)


class Answer(NamedTuple):
    """`words` complete "it gets no gradient because"; `source` is the line to look at,
    and `made` that of the class which makes the parameter, or the module that has it.

    Kinds, the first one that holds: it does not require grad; a reentrant checkpoint of
    which no input requires grad, or another one, hides it; a line cuts it off; its
    module was not called; nothing reads what was computed from it; forward() does not
    read it; nobody could follow it.
    """

    kind: Kind
    words: str
    source: SourceLine | None = None
    cut: Cut | None = None
    made: SourceLine | None = None


class Answers:
    """What can be answered before the backward of these outputs runs. Hold it no longer
    than its tensors. `since` is the number of the first node of this step.
    """

    def __init__(self, live: LiveOutputs, walked: Walked, since: int = 0) -> None:
        self._live, self._walked, self._since = live, walked, since
        outermost = outermost_modules(None, live.variables)
        self._modules = dict(below(outermost))
        self._owner = {
            id(tensor): path
            # the first path of a module that several lead to wins
            for path, module in reversed(self._modules.items())
            for table in ("_parameters", "_buffers")
            for _, tensor in members(module, table)
        }

        for name, model in outermost:
            for path, shard, _ in gathered("", model):
                owner = joined(name, path.rpartition(".")[0])
                self._owner.setdefault(id(shard), owner)

    # -- who follows the lines, each made when it is asked first -------------------

    @cached_property
    def _recorded(self) -> RecordedCode:
        live = self._live
        graph = self._walked.graph
        return RecordedCode(graph, live.variables, live.frame, self._since)

    @cached_property
    def _reads(self) -> LeafReads:
        return LeafReads(self._recorded, self._live.variables)

    @cached_property
    def _flow(self) -> Flow:
        return Flow(self._recorded, self._reads)

    @cached_property
    def _finder(self) -> CutFinder:
        graph, leaves = self._walked.graph, self._walked.variables
        return CutFinder(graph, leaves, self._recorded, self._reads, self._flow)

    @cached_property
    def _dead_ends(self) -> DeadEnds:
        return DeadEnds(self._recorded, self._flow)

    # -- the graph -----------------------------------------------------------------

    @cached_property
    def cuts(self) -> list[FoundCut]:
        """What goes into the graph without one, or into an output that has none."""
        return [self._named(cut) for cut in self._finder.cuts()]

    @cached_property
    def cuts_of_outputs(self) -> list[FoundCut]:
        """Those because of which an output has no graph."""
        return [cut for cut in self.cuts if not cut.nodes]

    @cached_property
    def _all_cuts(self) -> list[FoundCut]:
        return [self._named(cut) for cut in self._finder.cuts(every=True)]

    def _named(self, found: FoundCut) -> FoundCut:
        names: set[str] = set()
        for leaf in found.leaves:
            names.update(self._walked.names.leaf(leaf))
        cut = found.cut._replace(behind=frozenset(names))
        return found._replace(cut=cut)

    def switched_off(self) -> Cut | None:
        """The line that has switched gradients off for good, where they are off."""
        return self._recorded.switched_off()

    def origin(self) -> Origin:
        """How the outputs that have no graph came about."""
        return self._finder.origin()

    def lines(self) -> set[tuple[str, int]]:
        """The lines that compute what goes into the graph, whether with a graph or not."""
        return self._flow.lines()

    def without_effect(self) -> Iterator[tuple[SourceLine, str, str, str]]:
        """The lines of this step that drop what they compute."""
        return without_effect(self._recorded, self._reads)

    def unseen_changes(self) -> Iterator[UnseenChange]:
        """The lines of this step that change what was saved, where nothing counts it."""
        return unseen_changes(self._recorded, self._reads, self._walked.graph)

    def drawn_twice(self) -> Iterator[tuple[SourceLine, str, str, str]]:
        """The calls that draw noise of their own, where a loss expects other noise."""
        return drawn_twice(self._recorded)

    def missing(self) -> Iterator[tuple[torch.Tensor, tuple[str, ...]]]:
        """Parameters, and leaves that require grad, to which the graph does not lead."""
        walked = self._walked
        inside = {id(leaf) for leaf in walked.variables.values()}
        for tensor, names in walked.names.named():
            could = tensor.requires_grad or walked.names.kind(tensor) == "parameter"
            is_leaf = could and grad_fn_of(tensor) is None and not tensor._is_view()
            if is_leaf and id(tensor) not in inside:
                yield tensor, names

    def marked(self, cuts: bool) -> Graph:
        """The graph with the tensors to which it does not lead, and why; with `cuts`
        also with what lines cut off, drawn beside it.
        """
        graph = self._walked.graph
        if cuts:
            held = self._reads.tensor_with_graph
            graph = with_cuts(self._live, self._walked, self.cuts, held)

        absent = []
        for tensor, names in self.missing():
            answer = self.answer(tensor, names[0])
            info = tensor_info(tensor)
            absent.append(Absent(names, info, answer.words, answer.source))
        return replace(graph, absent=tuple(absent))

    # -- one tensor ----------------------------------------------------------------

    def answer(self, tensor: torch.Tensor, name: str) -> Answer:
        """Why a tensor to which no graph leads gets no gradient. `name` is what the
        caller calls it.
        """
        if not tensor.requires_grad:
            return self._frozen(tensor, name)

        owner, run = self._run(tensor)
        reads = self._reads.of(tensor)
        if not tensor.is_leaf:
            reads += [inflow.value for inflow in self._recorded.inflows_of(name)]

        if run is not None and run.checkpoint is not None:
            words = f"a reentrant checkpoint in {_place(run.checkpoint)} hides it"
            return Answer("checkpoint", words, run.checkpoint)
        if hidden := self._hidden():
            return Answer("hidden", f"{hidden} hides what it uses: unknown")

        cut = self._cut_of(reads)
        if cut is not None:
            return _cut_answer(cut, cut.value in reads or dotted(cut.value) == name)
        if run is not None and run.calls and not run.recording and run.source:
            module = self._modules[self._owner[id(tensor)]]
            off = self._recorded.off_around(module) or Cut("no_grad", run.source)
            return Answer("cut", cut_words(off, "it"), off.source, off)
        return self._without_cut(tensor, name, owner, run, reads)

    def _frozen(self, tensor: torch.Tensor, name: str) -> Answer:
        """Of what does not require grad: a line may have cut it off."""
        if not isinstance(tensor, torch.nn.Parameter):
            for cut in self._finder.cuts_of(name):
                return _cut_answer(cut, False, " to compute it")
            return Answer("frozen", "requires_grad is False")

        lines = (freezes(file, name) for file in self._recorded.files)
        source = next(filter(None, lines), None)
        by = f", set in {_place(source)}" if source is not None else ""
        return Answer("frozen", f"frozen: requires_grad is False{by}", source)

    def _cut_of(self, reads: list[AST]) -> FoundCut | None:
        """The cut downstream of values: one that lets numbers pass before one that gives
        an index.
        """
        for cuts in (self.cuts, self._all_cuts) if reads else ():
            below = [found for found in cuts if not found.upstream.isdisjoint(reads)]
            below.sort(key=lambda found: found.cut.kind in ("integer", "sample"))
            if below:
                return below[0]
        return None

    def _without_cut(
        self,
        tensor: torch.Tensor,
        name: str,
        owner: str,
        run: ModuleRun | None,
        reads: list[AST],
    ) -> Answer:
        recorded = self._recorded
        reading = sorted(filter(recorded.has_run, reads), key=recorded.line_of)
        path = self._owner.get(id(tensor))
        called = run is not None and run.calls > 0 and run.began >= self._since
        made = self._made(path, name)

        if run is not None and not called:
            # a line that calls modules of its kind did not call this one
            reading = [read for read in reading if not isinstance(read, ast.Call)]
            if not reading:
                return Answer("uncalled", f"{owner} was never called", made, made=made)

        unread = self._unread(reading, is_alone=path is None)
        if unread is not None:
            return unread

        module = self._modules[path] if path is not None else None
        forward = recorded.forward_of(module) if module is not None else None
        if called and forward is not None and not reads:
            source = recorded.line_of(forward.node)
            words = f"forward() ({_place(source)}) never reads it"
            return Answer("unused", words, source, made=made)
        return self._open(owner, run if called else None, reading)

    def _open(self, owner: str, run: ModuleRun | None, reading: list[AST]) -> Answer:
        """Nobody could follow it."""
        if run is not None and run.source is not None:
            source = with_text(run.source)
            words = f"{owner} ran in {_place(source)}, and was not followed from there"
            return Answer("open", words, source)
        if not reading:
            return Answer("open", "no path leads to it from the loss")
        source = self._recorded.line_of(reading[0])
        words = f"{_place(source)} reads it, and it was not followed from there"
        return Answer("open", f"no path leads to it from the loss; {words}", source)

    def _unread(self, reading: list[AST], is_alone: bool) -> Answer | None:
        """The answer where nothing goes on with what is computed from values."""
        if not reading:
            nobody = is_alone and self._recorded.files
            return Answer("unread", "no line that was read uses it") if nobody else None

        ends = [
            self._dead_ends.line_and_words(end)
            for end in self._dead_ends.after(reading)
        ]
        certain = [end for end in ends if end is not None]
        if certain and len(certain) == len(ends):
            source, words = certain[0]
            return Answer("unread", f"{_place(source)} {words}", source)
        if is_alone and not ends:
            words = "nothing that is computed with it goes into the loss"
            return Answer("unread", words, self._recorded.line_of(reading[0]))
        return None

    def _made(self, path: str | None, name: str) -> SourceLine | None:
        """The line that makes a parameter of a module, or the module that has it."""
        if path is None:
            return None
        around = class_around(self._modules, joined(path, name.rpartition(".")[2]))
        return made_at(*around) if around is not None else None

    def _run(self, tensor: torch.Tensor) -> tuple[str, ModuleRun | None]:
        """The module that has a tensor, or that around it which computes with it, and
        how that ran.
        """
        path = self._owner.get(id(tensor))
        recording = self._live.recording
        if path is None or recording is None:
            return "", None

        module = self._modules[path]
        run, outer = recording.run_of(module), path.rpartition(".")[0]
        while outer in self._modules:
            around = recording.run_of(self._modules[outer])
            # attention computes with its `out_proj`, and does not call it
            is_read = isinstance(self._modules[outer], torch.nn.MultiheadAttention)
            if not (is_read or isinstance(module, _CONTAINERS)):
                break
            path, outer = outer, outer.rpartition(".")[0]
            module, run = self._modules[path], around
        return path or type(module).__name__, run

    def _hidden(self) -> str:
        """What in the graph hides the tensors that it uses."""
        graph: Graph = self._walked.graph
        for node, flags in enumerate(graph.flags):
            if "checkpoint" in flags:
                return graph.ops[node]
        return ""


def _cut_answer(found: FoundCut, direct: bool, more: str = "") -> Answer:
    of = "it" if direct else "a tensor computed from it"
    words = cut_words(found.cut, "a tensor" if more else of)
    return Answer("cut", f"{words}{more}", found.cut.source, found.cut)


def _place(source: SourceLine) -> str:
    return line_text(source.file, source.line)
