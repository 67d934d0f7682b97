"""Why a parameter takes no part in a graph: one verdict for each reason, as far as the
context tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from gradviz.checks.context import CheckContext, Parameter
from gradviz.checks.rules.roots import (
    BARE,
    bare_fix,
    cut_words,
    expression,
    mend_all,
    passed_around,
    to_change,
)
from gradviz.checks.words import all_names, code, line, nodes_of, title
from gradviz.graph import Graph, Node, SourceLine
from gradviz.source.cut import Cut
from gradviz.source.provenance import unrecorded
from gradviz.wording import one_line


class Verdict(NamedTuple):
    """Why parameters take no part; those with one summary and one `cut` are told of
    together.

    {is_}, {do} and {them} of the summary are filled in later.
    """

    summary: str
    why: str
    fix: str
    alarming: bool = True
    source: SourceLine | None = None
    part: str = ""  # of the line, the code that matters
    cut: object = None

    def of(self, parameter: Parameter, source: SourceLine | None) -> Verdict:
        """The same with the lines about a parameter filled in; `source` has to change."""
        forward, made, run = parameter.forward, parameter.made, parameter.run
        words = {
            "forward": f"forward(), which begins in {line(forward)}"
            if forward is not None
            else "forward()",
            "made": f" ({line(made)})" if made is not None else "",
            "call": code(run.source) if run is not None else "",
            "type": one_line(parameter.type),
        }

        return self._replace(
            why=self.why.format(**words),
            fix=self.fix.format(**words),
            source=source,
        )


def grouped(
    context: CheckContext, unused: Sequence[Parameter]
) -> list[tuple[Verdict, list[Parameter]]]:
    """Parameters with the same verdict, those of which it is a fault model by model;
    none that another call of the run reaches.

    What no optimizer holds, though there is one, is not to be trained.
    """
    facts, held = (
        _facts(context),
        {*chain.from_iterable(all_names(one.tensors) for one in context.at_work)},
    )
    groups: dict[object, tuple[Verdict, list[Parameter]]] = {}

    for parameter in (
        one for one in unused if context.used_later.isdisjoint(one.names)
    ):
        verdict = next(
            chain(
                _at_sight(facts, parameter),
                _behind_a_cut(facts, parameter),
                _by_its_run(facts, parameter),
            )
        )
        if held and held.isdisjoint(parameter.names):
            verdict = verdict._replace(alarming=False)
        key = (
            parameter.model if verdict.alarming else None,
            verdict.summary,
            verdict.cut,
        )
        groups.setdefault(
            key,
            (verdict, []),
        )[1].append(parameter)

    return list(groups.values())


class _Facts(NamedTuple):
    """What is asked of a context for each parameter."""

    context: CheckContext
    reached: set[int]  # models of which some parameter is in the graph
    hiding: Node | None  # a node that nobody can look into
    compiled: bool  # calls inside of a compiled function are not seen
    paths: set[str]  # of modules with operations in the graph
    cuts: Sequence[Cut]
    shared: set[str]  # tensors whose optimizer also holds some that this graph has


def _facts(context: CheckContext) -> _Facts:
    graph = context.graph
    training = (
        optimizer.tensors
        for optimizer in context.optimizers
        if {*nodes_of(optimizer.tensors)} - {None}
    )
    return _Facts(
        context,
        {
            parameter.model
            for parameter in context.parameters
            if parameter.node is not None
        },
        next(
            filter(
                _hides, (graph.nodes[i] for i, flags in enumerate(graph.flags) if flags)
            ),
            None,
        ),
        any("compiled" in flags for flags in graph.flags),
        {scope.path for scope in graph.scopes},
        sorted(set(context.cuts), key=lambda cut: cut.at),
        {name for tensors in training for name in all_names(tensors)},
    )


def _at_sight(facts: _Facts, parameter: Parameter) -> Iterator[Verdict]:
    """What can be said without knowing what its module did, the most certain first."""
    run = parameter.run
    if not parameter.requires_grad:
        yield _FROZEN

    if parameter.sharded and not parameter.gathered:
        yield _SHARDED

    if facts.context.unfinished:
        yield _UNFINISHED

    if (
        run is not None
        and run.calls
        and not run.recording
        and facts.shared
        and facts.shared.isdisjoint(parameter.names)
    ):
        yield _FOLLOWS

    if parameter.compiled is not None:
        yield _COMPILED.of(parameter, parameter.forward)

    if run is not None and (at := run.checkpoint) is not None:
        yield _BARE._replace(
            why=BARE.format(line=code(at), what="the module"),
            fix=bare_fix(at),
            source=at,
        )

    if facts.hiding is not None:
        yield _hidden(facts.context.graph, facts.hiding)


def _behind_a_cut(facts: _Facts, parameter: Parameter) -> Iterator[Verdict]:
    """Whether it was cut off itself, or another tensor took its place, or its model
    takes no part.
    """
    cut, at = _cut_behind(parameter, facts), parameter.replaced
    if (
        parameter.model not in facts.reached
        and not facts.context.models[parameter.model].certain
    ):
        trained = bool(facts.shared.intersection(parameter.names))
        if not (trained and _has_run(facts, parameter)):
            yield cut_off(cut) if cut is not None and trained else _OTHER_MODEL

    if cut is not None and cut.leaf:
        yield cut_off(cut)

    if at is not None:
        yield _REPLACED._replace(
            why=_REPLACED.why.format(code(at)),
            source=at,
            cut=at,
        )


def _without_recording(parameter: Parameter, source: SourceLine | None) -> Verdict:
    """The module ran with recording off. The code may show what had switched it off."""
    cut, verdict = (
        unrecorded(source) if source is not None else None,
        _NO_GRAD.of(parameter, source),
    )
    if cut is None or cut.off is None:
        return verdict
    return verdict._replace(
        fix=mend_all([cut]),
        source=to_change(cut),
        cut=cut.off,
    )


def _has_run(facts: _Facts, parameter: Parameter) -> bool:
    """Whether the module has given this step something that could lead to the
    parameter, or would have while recording.
    """
    run = parameter.run
    if run is None or not run.calls or run.began < facts.context.since:
        return False
    return bool(run.gave_graph or not run.recording)


def _by_its_run(facts: _Facts, parameter: Parameter) -> Iterator[Verdict]:
    """What is known of the call of its module."""
    run, cut = parameter.run, _cut_behind(parameter, facts)
    if parameter.module in facts.paths:
        unused = _NOT_USED.of(parameter, parameter.made)
    else:
        unused = None

    if run is None:
        yield _NOT_RECORDED
    elif not run.calls:
        yield (
            (unused or _NOT_COMPILED)
            if facts.compiled
            else _NEVER_RAN.of(parameter, parameter.made)
        )
    elif run.began < facts.context.since:
        yield _NOT_THIS_TIME
    elif not run.recording:
        yield _without_recording(parameter, run.source)
    elif cut is not None:
        yield cut_off(cut)
    elif not (unused or parameter.dropped) and _is_behind_a_hook(
        facts.context.graph, parameter.hooked, run.began
    ):
        yield _HOOKED
    elif run.gave_graph:
        yield unused or _lost(parameter, run.source, facts.context.backward)
    else:
        yield _GAVE_NOTHING.of(parameter, run.source)


def _cut_behind(parameter: Parameter, facts: _Facts) -> Cut | None:
    """The cut behind a parameter's module in this step, of those whose result the
    outputs are computed from.

    The first one, but one that is known to lead to the parameter before others, and a
    value before an index or a draw.
    """
    # a number that was read of it may come in anywhere
    every = (*facts.cuts, *facts.context.numbers)
    own = next(
        (cut for cut in every if set(cut.leaf).intersection(parameter.names)), None
    )
    run = parameter.run

    if (
        own is not None
        or run is None
        or not run.calls
        or not run.recording
        or run.began < facts.context.since
    ):
        return own

    after = [cut for cut in facts.cuts if cut.at >= run.began and not cut.leaf]
    leading = [cut for cut in after if cut.behind.intersection(parameter.names)]
    passed = next(
        (cut for cut in leading if passed_around(cut) is not None),
        None,
    )
    unknown = [cut for cut in after if not cut.behind]
    return passed or min(
        leading or unknown,
        key=lambda cut: cut.kind in ("integer", "sample"),
        default=None,
    )


def cut_off(cut: Cut) -> Verdict:
    """The graph ends behind the parameter."""
    why = f"{cut_words(cut)}, and the output is computed from what comes after it"
    fix, around = mend_all([cut]), passed_around(cut)

    if around is not None:
        value, given = around
        why = f"{code(cut.source)} hands the gradient on to {given}, past {value}, as it is meant to"
        fix = f"Add a term to the loss that trains {value}: torch.nn.functional.mse_loss({value}, {given}.detach())."

    return Verdict(
        "{do} not get a gradient: the graph is cut behind {them}",
        why,
        f"{fix} If nothing is to be learned there, freeze it: requires_grad_(False).",
        source=to_change(cut),
        part=expression(cut) if to_change(cut) == cut.source else "",
        cut=(cut.off or cut.source, cut.kind),
    )


_FROZEN = Verdict(
    "{is_} frozen", "requires_grad is False, so no gradient is computed",
    "No change needed if this is intentional. Otherwise call requires_grad_(True) on it, and give it to the optimizer.", False,
)  # fmt: skip
_SHARDED = Verdict(
    "{is_} sharded: whether the output depends on them is unknown",
    "the graph holds gathered copies in their place, which cannot be told apart from here",
    "Check the model before it is sharded.", False,
)  # fmt: skip
_UNFINISHED = Verdict(
    "{is_} not reached: the script failed first", "the forward pass did not finish",
    "Fix the error above, then run check again.", False,
)  # fmt: skip
_FOLLOWS = Verdict(
    "{is_} not trained: no optimizer holds {them}, and the module runs without recording",
    "the module is called with gradients off, and the optimizers update other parameters",
    "No change needed for a target or teacher. Otherwise give it to the optimizer, and call it outside no_grad().", False,
)  # fmt: skip
_OTHER_MODEL = Verdict(
    "{is_} in no output that was checked", "the graph uses no parameter of this model at all",
    "No change needed if another loss trains it. Otherwise compute the loss from its output.", False,
)  # fmt: skip
_NOT_COMPILED = Verdict(
    "{is_} unused: no compiled function takes {them}",
    "a compiled function takes every parameter that it uses as an input, and none of this graph takes this one",
    "Use the module in forward(), or remove it from the model.",
)  # fmt: skip
_NOT_THIS_TIME = Verdict(
    "{is_} unused: the module did not run in this step",
    "the module's forward ran before the previous backward call, and not since",
    "No change needed if a branch skips it on purpose (DistributedDataParallel then needs find_unused_parameters=True).",
)  # fmt: skip
_NOT_RECORDED = Verdict(
    "{is_} not in the graph of any output",
    "no path leads from the outputs to them; whether their module ran is unknown, because nothing was recorded",
    "Use the module's result in the loss, or remove the module. To learn whether it ran, run the code inside `with "
    "gradviz.record() as recording:` and give recording=recording, or use gradviz check SCRIPT.",
)  # fmt: skip


_BARE = Verdict("{do} not get a gradient: a reentrant checkpoint hides {them}", "", "")
_COMPILED = Verdict(
    "{do} not get a gradient inside the compiled function",
    "the compiled function takes them, and its backward returns no gradient for them: inside, their result is cut or dropped",
    "Look in {forward}, for .detach(), .data, argmax, no_grad() and a result that is not used{made}. "
    "The model uncompiled tells the line. If nothing is to be learned there, freeze it: requires_grad_(False).",
)  # fmt: skip
_REPLACED = Verdict(
    "{is_} not used: functional_call ran the module with other tensors",
    "{} puts other tensors in their place while the module runs, and the output depends on those",
    "No change needed if you train the tensors that functional_call was given, as with a hypernetwork.", False,
)  # fmt: skip
_NEVER_RAN = Verdict(
    "{is_} unused: the module never ran", "the module was never called",
    "Call the module in {forward}, or remove it from the model{made}.",
)  # fmt: skip
_NOT_USED = Verdict(
    "{is_} unused, although the module's other operations are in the graph",
    "the module ran and the output depends on what it did, but not on this parameter",
    "Use the parameter in {forward}, or remove it{made}.",
)  # fmt: skip
_NO_GRAD = Verdict(
    "{is_} unused: the module ran without recording",
    "recording was off (torch.no_grad() or inference_mode) when the module was called in {call}",
    "Call the module outside no_grad() and inference_mode(); if it is not to be trained, freeze it instead.",
)  # fmt: skip
_GAVE_NOTHING = Verdict(
    "{is_} unused: the module's result has no graph",
    "the module was called in {call} while recording, but its result does not require grad: its forward() detaches it, turns it "
    "into integers, or switches gradients off",
    "Look in the forward() of {type} for .detach(), .data, .item(), argmax and no_grad().",
)  # fmt: skip


_HOOKED = Verdict(
    "{do} not reach the output: a forward hook takes what comes before {them}",
    "a forward hook is on another part of the module around them, and the output depends on nothing that ran there afterwards",
    "No change needed if only what the hook takes is wanted. Otherwise use the result of the module.", False,
)  # fmt: skip


def _is_behind_a_hook(
    graph: Graph,
    around: str | None,
    began: int,
) -> bool:
    """Whether something of the module around is in the graph, and all of it ran before
    the part that began there.
    """
    inside = f"{around}." if around else ""
    if around is not None:
        scopes = {
            i
            for i, scope in enumerate(graph.scopes)
            if f"{scope.path}.".startswith(inside)
        }
    else:
        scopes = set()

    ran = [
        node.sequence
        for node in graph.nodes
        if node.scope in scopes and node.sequence is not None
    ]

    return bool(ran) and max(ran) < began


def _hides(node: Node) -> bool:
    """Whether a node does not tell what it uses. A compiled function takes it as an
    input, unless this torch cannot be read.
    """
    return "checkpoint" in node.flags or (
        "compiled" in node.flags and "operations" not in node.attributes
    )


def _hidden(graph: Graph, node: Node) -> Verdict:
    if "checkpoint" in node.flags:
        what = "a reentrant checkpoint"
    else:
        what = "a compiled function"
    why = f"{title(graph, node.id)} is {what}, which hides what it uses: unknown, not unused"
    fix = "To see inside, use torch.utils.checkpoint with use_reentrant=False, or check the model uncompiled."
    return Verdict(f"may be used inside {what}: unknown", why, fix, False)


def _lost(
    parameter: Parameter, source: SourceLine | None, backward: SourceLine | None
) -> Verdict:
    """The module made something with a graph that the output does not depend on. The
    code may show where it was dropped.
    """
    until = f" and {line(backward)}" if backward is not None else ""
    why = f"the module ran in {code(source)}, and no gradient comes back to it: its result is cut off somewhere between "
    why += (
        f"{line(source)}{until}, or not used"
        if until
        else "that line and the output, or not used"
    )
    fix = (
        "Use the module's result in the loss, as it is: an index (argmax, topk, sort), a comparison, no_grad() and NumPy give "
        "something without a graph. Or remove the module."
    )

    if parameter.dropped is not None:
        why = f"the module ran in {code(source)}, but no output uses its result"
        name, by = (
            one_line(parameter.dropped.name) or "the result",
            parameter.dropped.by,
        )
        why, fix = (
            f"{why}: nothing reads {name} afterwards",
            f"Use {name} in what follows {line(source)}, or remove the module.",
        )
        if by is not None:
            why = f"the module ran in {code(source)}, but no output uses its result: {name} is given another value in {code(by)} "
            why += "before anything reads it"
            fix = f"In {line(by)}, use {name} as well, or give the new value another name; or remove the module."
        source = by or source

    return Verdict("{do} not reach the output", why, fix, source=source)


def modules_of(
    context: CheckContext,
    members: Sequence[Parameter],
) -> list[str]:
    """The outermost modules of which every parameter of the same kind is among the
    members.
    """
    spoiled = _with_others(context, members)
    ran = {scope.path for scope in context.graph.scopes}
    outermost: dict[str, str] = {}

    for parameter in members:
        idle = parameter.run is not None and not parameter.run.calls
        # what ran is not named as what never ran
        apart = spoiled | ran if idle else spoiled
        outer = next(
            (prefix for prefix in _prefixes(parameter.module) if prefix not in apart),
            parameter.module,
        )
        outermost.setdefault(outer, parameter.type if outer == parameter.module else "")

    model = context.models[members[0].model] if context.models else None
    return [
        f"{name} ({kind})"
        if name and kind
        else name or (model.type if model else "the model")
        for name, kind in outermost.items()
    ]


def _with_others(
    context: CheckContext,
    members: Sequence[Parameter],
) -> set[str]:
    """The modules of a model, and the model itself, that hold parameters other than
    these.
    """
    chosen = {parameter.names[0] for parameter in members}
    alike = (
        parameter
        for parameter in context.parameters
        if parameter.model == members[0].model
    )
    rest = (parameter.module for parameter in alike if parameter.names[0] not in chosen)
    return {"", *chain.from_iterable(map(_prefixes, rest))}


def _prefixes(path: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c` for `a.b.c`."""
    return accumulate(path.split(".") if path else (), "{}.{}".format)
