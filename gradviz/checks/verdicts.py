"""Why a parameter takes no part in a graph: one verdict for each reason, as far as the context tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext, Parameter
from gradviz.checks.rules.roots import (
    BARE,
    WHAT,
    bare_fix,
    cut_words,
    expression,
    mend_all,
)
from gradviz.checks.words import code, line, title
from gradviz.graph import Graph, SourceLine
from gradviz.source.provenance import DetachPoint
from gradviz.wording import one_line


class Verdict(NamedTuple):
    """Why parameters take no part. `key` tells verdicts apart; {modules} and {they} are filled in."""

    key: str
    summary: str
    why: str
    fix: str
    alarming: bool
    source: SourceLine | None = None
    part: str = ""  # of the line, the code that matters


def grouped(context: CheckContext, unused: Sequence[Parameter]) -> list[tuple[Verdict, list[Parameter]]]:
    """Parameters with the same verdict, model by model."""
    judge = _judge(context)
    groups: dict[tuple[int, str], tuple[Verdict, list[Parameter]]] = {}
    for parameter in unused:
        verdict = judge(parameter)
        groups.setdefault((parameter.model, verdict.key), (verdict, []))[1].append(parameter)
    return list(groups.values())


def _judge(context: CheckContext) -> Callable[[Parameter], Verdict]:
    graph = context.graph
    part = {parameter.model for parameter in context.parameters if parameter.node is not None}
    hiding = [node for node in graph.nodes if {"checkpoint", "compiled"}.intersection(node.flags)]
    compiled = any("in_compiled" in node.flags for node in graph.nodes)  # calls in there are not seen
    paths = {scope.path for scope in graph.scopes}
    cuts = sorted({cut for entered in context.entered for cut in entered.cuts}, key=lambda cut: cut.at)
    shared = _trained_together(context)

    def judge(parameter: Parameter) -> Verdict:
        if not parameter.requires_grad:
            return _FROZEN
        if parameter.sharded and not parameter.gathered:
            return _SHARDED
        if context.unfinished:
            return _UNFINISHED
        if any(name in context.used_later for name in parameter.names):
            return _ELSEWHERE
        if parameter.compiled is not None:
            return _inside_compiled(parameter)
        if parameter.run is not None and parameter.run.checkpoint is not None:
            return _bare_checkpoint(parameter.run.checkpoint)
        if hiding:
            return _hidden(graph, hiding[0].id)
        run = parameter.run
        cut = _cut_behind(parameter, context.since, cuts)
        if parameter.model not in part and not context.models[parameter.model].certain:
            together = cut is not None and shared.intersection(parameter.names)
            return _cut_off(cut) if cut is not None and together else _OTHER_MODEL
        if cut is not None and cut.leaf:
            return _cut_off(cut)
        if parameter.replaced is not None:
            return _replaced(parameter.replaced)
        if run is not None and not run.calls and compiled:
            return _not_used(parameter) if parameter.module in paths else _NOT_COMPILED
        if run is not None and (not run.calls or run.began < context.since):
            return _never_ran(parameter) if not run.calls else _NOT_THIS_TIME
        if run is None:
            return _NOT_RECORDED
        if not run.recording:
            return _no_grad(run.source)
        if cut is not None:
            return _cut_off(cut)
        if not run.gave_graph:
            return _gave_nothing(parameter, run.source)
        return _not_used(parameter) if parameter.module in paths else _lost(context, parameter, run.source)

    return judge


def _trained_together(context: CheckContext) -> set[str]:
    """Names of tensors whose optimizer also holds some that this graph has."""
    return {
        name
        for optimizer in context.optimizers
        if any(tensor.node is not None for tensor in optimizer.tensors)
        for tensor in optimizer.tensors
        for name in tensor.names
    }


def _cut_behind(parameter: Parameter, since: int, cuts: Sequence[DetachPoint]) -> DetachPoint | None:
    """The first cut behind a parameter's module in this step, of those whose result the outputs are computed from."""
    own = next((cut for cut in cuts if set(cut.leaf).intersection(parameter.names)), None)
    run = parameter.run
    if own is not None or run is None or not run.calls or not run.recording or run.began < since:
        return own
    return next((cut for cut in cuts if cut.at >= run.began and not cut.leaf), None)


def _cut_off(cut: DetachPoint) -> Verdict:
    why = f"{cut_words(cut)}, and the output is computed from what comes after it"
    fix = f"{mend_all([cut])} If nothing is to be learned there, freeze it: requires_grad_(False)."
    return Verdict(
        f"cut {cut.source} {cut.kind}",
        "{do} not get a gradient: the graph is cut behind {them}",
        why,
        fix,
        True,
        cut.source,
        expression(cut),
    )


_FROZEN = Verdict(
    "frozen", "{is_} frozen", "requires_grad is False, so no gradient is computed",
    "Nothing, if that is on purpose. Else call requires_grad_(True) on it, and give it to the optimizer.", False,
)  # fmt: skip
_SHARDED = Verdict(
    "sharded", "{is_} sharded: whether the output depends on them is unknown",
    "the graph holds gathered copies in their place, which cannot be told apart from here",
    "Check the model before it is sharded.", False,
)  # fmt: skip
_UNFINISHED = Verdict(
    "unfinished", "{is_} not in what was computed until the script failed", "the forward pass did not come to its end",
    "Mend the failure first, then check again.", False,
)  # fmt: skip
_ELSEWHERE = Verdict(
    "elsewhere", "{is_} not in this graph, but in that of another backward call", "another backward call of this run uses them",
    "Nothing, if the calls take turns on purpose.", False,
)  # fmt: skip
_OTHER_MODEL = Verdict(
    "other-model", "{is_} in no output that was checked", "the graph uses no parameter of this model at all",
    "Nothing, if another loss trains it. Else compute the loss from its output.", False,
)  # fmt: skip
_NOT_COMPILED = Verdict(
    "not-compiled", "{is_} unused: no compiled function takes {them}",
    "a compiled function takes every parameter that it uses as an input, and none of this graph takes this one",
    "Use the module in forward(), or remove it from the model.", True,
)  # fmt: skip
_NOT_THIS_TIME = Verdict(
    "not-this-time", "{is_} unused: the module did not run in this step",
    "the module's forward ran before the previous backward call, and not since",
    "Nothing, if a branch leaves it out on purpose (DistributedDataParallel then needs find_unused_parameters=True).", True,
)  # fmt: skip
_NOT_RECORDED = Verdict(
    "not-recorded", "{is_} not in the graph of any output",
    "no path leads from the outputs to them; whether their module ran is unknown, because nothing was recorded",
    "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
    "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.", True,
)  # fmt: skip


def _inside_compiled(parameter: Parameter) -> Verdict:
    """The compiled graph has no way from its outputs to the parameter."""
    why = "the compiled function takes them, and no operation of its backward leads to them: inside, their result is cut or dropped"
    fix = (
        f"Look in {_forward(parameter)}, for .detach(), .data, argmax, no_grad() and a result that is not used{_made(parameter)}. "
        "The model uncompiled tells the line. If nothing is to be learned there, freeze it: requires_grad_(False)."
    )
    return Verdict(
        "compiled", "{do} not get a gradient inside the compiled function", why, fix, True, parameter.forward
    )


def _replaced(source: SourceLine) -> Verdict:
    """The module was run with other tensors in the place of its parameters."""
    return Verdict(
        f"replaced {source}",
        "{is_} not used: functional_call ran the module with other tensors",
        f"{code(source)} puts other tensors in their place while the module runs, and the output depends on those",
        "Nothing, if the tensors given are what is trained, as those of a hypernetwork are.",
        False,
        source,
    )


def _never_ran(parameter: Parameter) -> Verdict:
    """The module is made, and nothing calls it."""
    why = "the module's forward was not called since recording began"
    fix = f"Call the module in {_forward(parameter)}, or remove it from the model{_made(parameter)}."
    return Verdict("never-ran", "{is_} unused: the module never ran", why, fix, True, parameter.made)


def _not_used(parameter: Parameter) -> Verdict:
    why = "the module ran and the output depends on what it did, but not on this parameter"
    fix = f"Use the parameter in {_forward(parameter)}, or remove it{_made(parameter)}."
    summary = "{is_} unused, although the module's other operations are in the graph"
    return Verdict("not-used", summary, why, fix, True, parameter.made)


def _forward(parameter: Parameter) -> str:
    return f"forward(), which begins in {line(parameter.forward)}" if parameter.forward is not None else "forward()"


def _made(parameter: Parameter) -> str:
    return f" ({line(parameter.made)})" if parameter.made is not None else ""


def _hidden(graph: Graph, node: int) -> Verdict:
    what = "a reentrant checkpoint" if "checkpoint" in graph.nodes[node].flags else "a compiled function"
    why = f"{title(graph, node)} is {what}, which hides what it uses: unknown, not unused"
    fix = "To see inside, use torch.utils.checkpoint with use_reentrant=False, or check the model uncompiled."
    return Verdict("hidden", f"may be used inside {what}: unknown", why, fix, False)


def _bare_checkpoint(source: SourceLine) -> Verdict:
    why = BARE.format(line=code(source), what="the module")
    summary = "{do} not get a gradient: a reentrant checkpoint hides {them}"
    return Verdict("bare-checkpoint", summary, why, bare_fix(source), True, source)


def _no_grad(source: SourceLine | None) -> Verdict:
    why = f"recording was off (torch.no_grad() or inference_mode) when the module was called in {code(source)}"
    fix = "Call the module outside no_grad() and inference_mode(); if it is not to be trained, freeze it instead."
    return Verdict("no-grad", "{is_} unused: the module ran without recording", why, fix, True, source)


def _gave_nothing(parameter: Parameter, source: SourceLine | None) -> Verdict:
    why = (
        f"the module was called in {code(source)} while recording, but what it returned does not require grad: its "
        "forward "
        "detaches it, makes integers of it, or switches recording off"
    )
    fix = f"Look in the forward() of {one_line(parameter.type)} for .detach(), .data, .item(), argmax and no_grad()."
    return Verdict("gave-nothing", "{is_} unused: the module's result has no graph", why, fix, True, source)


def _lost(context: CheckContext, parameter: Parameter, source: SourceLine | None) -> Verdict:
    """The module made something with a graph that the output does not depend on. The code may show where it was dropped."""
    cuts = {cut: None for provenance in (context.provenances or {}).values() for cut in provenance.cuts}
    why = f"the module ran in {code(source)} and its result has a graph, but no output depends on that result"
    fix = "Use the module's result in the loss, or remove the module."
    if cuts:
        places = [f"{code(cut.source)} {WHAT[cut.kind].format(of=one_line(cut.of))}" for cut in cuts]
        why += f"; on the way to the output, {' and '.join(places[:3])}"
        fix = (
            f"If that cut is a mistake, mend it: {line(next(iter(cuts)).source)}. Else use the result, or remove "
            "the module."
        )
    elif parameter.dropped is not None:
        name, by = one_line(parameter.dropped.name) or "the result", parameter.dropped.by
        if by is not None:
            why += f": {name} is given another value in {code(by)} before anything reads it"
            fix = f"In {line(by)}, use {name} as well, or give the new value another name; or remove the module."
        else:
            why += f": nothing reads {name} afterwards"
            fix = f"Use {name} in what follows {line(source)}, or remove the module."
        source = by or source
    else:
        why += ": it was not used, or overwritten"
    return Verdict("lost", "{do} not reach the output", why, fix, True, source)


def modules_of(context: CheckContext, members: Sequence[Parameter]) -> list[str]:
    """The outermost modules of which every parameter of the same kind is among the members."""
    chosen = {parameter.names[0] for parameter in members}
    rest = [
        parameter.module
        for parameter in context.parameters
        if parameter.names[0] not in chosen and parameter.model == members[0].model
    ]
    spoiled = {"", *(prefix for module in rest for prefix in _prefixes(module))}
    outermost: dict[str, str] = {}
    for parameter in members:
        outer = next((prefix for prefix in _prefixes(parameter.module) if prefix not in spoiled), parameter.module)
        outermost.setdefault(outer, parameter.type if outer == parameter.module else "")
    model = context.models[members[0].model] if context.models else None
    return [
        f"{name} ({kind})" if name and kind else name or (model.type if model else "the model")
        for name, kind in outermost.items()
    ]


def _prefixes(path: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c` for `a.b.c`."""
    parts = path.split(".") if path else []
    for i in range(len(parts)):
        yield ".".join(parts[: i + 1])
