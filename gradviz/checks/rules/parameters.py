"""Checks on the model's parameters: which take no part, and which got no gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from gradviz.checks.call import BackwardCall, NamedTensor, Parameter
from gradviz.checks.edit import behind, instead
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.mending import cut_words, expression, mend_all, to_change
from gradviz.checks.rules.verdicts import (
    CUT,
    VERDICTS,
    Case,
    Verdict,
    case_of,
    facts_of,
    words_of,
)
from gradviz.checks.words import (
    as_leaf,
    code,
    first_names,
    line,
    listed,
    made_at,
    places,
    title,
    verb,
)
from gradviz.source.search import returned_by
from gradviz.wording import one_line, plural

# -- unused-parameter ------------------------------------------------------------------


@check(
    "unused-parameter",
    "warning",
    "a parameter that no output depends on: it gets no gradient",
)
def unused_parameter(context: BackwardCall) -> Diagnoses:
    """A parameter that no output depends on. Its `.grad` stays None and the optimizer
    leaves it as it is.

    Nothing fails, so this goes unnoticed for long; `DistributedDataParallel` fails, or
    wants `find_unused_parameters=True`. The finding says which it is: frozen
    (`requires_grad=False`, a note); its module never ran; it ran without recording; it
    ran, but what it made does not reach the output; or a compiled function returns None
    for it, which is read from its backward. Behind a reentrant checkpoint nobody can
    see, so there it is unknown, not unused. A parameter that another backward call of
    the same run uses, one that `torch.func.functional_call` replaces, and a model that
    this graph does not use at all (unless it is the one given as `model=`), are notes.
    Only a recording knows what ran: the command line always records, `gradviz.check`
    takes `recording=`.

    How it is found: The parameters of the models among the variables are compared with
    the leaves of the graph. What a module did is known from the recording. Of tensors
    that an optimizer holds and no module, those whose value was read without a graph.

    What to do: Call the module in `forward()` and use its result in the loss, or remove
    it. Where the finding names a line that drops the graph, mend that line. Freeze with
    `requires_grad_(False)` what is not to be trained.

    When to ignore it: When a branch of the model takes turns with another, or the
    parameter is kept for a later stage of the training.

    ```python
    import torch


    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used = torch.nn.Linear(4, 1)
            self.forgotten = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.used(x)


    model = Model()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    ```
    """
    if all(root.node is None for root in context.graph.roots):
        return

    facts = facts_of(context)
    groups: dict[object, list[Case]] = {}
    told: dict[object, tuple[Verdict, bool]] = {}
    for parameter in context.parameters:
        # a custom Function may run a module again in its backward
        used = parameter.node is not None or parameter.filled
        if used or not context.used_later.isdisjoint(parameter.names):
            continue

        case = case_of(facts, parameter)
        verdict = next(one for one in VERDICTS if one.holds(case))
        # what no optimizer holds, though there is one, is not to be trained
        idle = bool(facts.held) and facts.held.isdisjoint(parameter.names)
        alarming = verdict.alarming and not idle
        model = parameter.model if alarming else None
        place = case.lines["cut"] if verdict.line == "cut" else None
        key: object = (model, verdict.summary, place)
        groups.setdefault(key, []).append(case)
        told[key] = verdict, alarming and not context.guessed

    for key, cases in groups.items():
        yield _unused(cases, *told[key])

    yield from _loose(context)


def _loose(context: BackwardCall) -> Diagnoses:
    """Tensors that an optimizer holds and no module does, of which the loss takes a
    value without a graph.
    """
    registered = {parameter.names for parameter in context.parameters}
    for optimizer in context.at_work:
        lost = [
            tensor
            for tensor in optimizer.tensors
            if tensor.node is None and tensor.names not in registered
        ]
        if len(lost) == len(optimizer.tensors):
            continue

        for tensor in lost:
            names = {*tensor.names}
            cuts = [cut for cut in context.cuts if names & {*cut.leaf, *cut.behind}]
            if not cuts or names & context.used_later:
                continue

            name, cut = one_line(tensor.names[0]), cuts[0]
            yield Diagnosis(
                f"{name} {CUT.summary.format(do='does', them='it')}",
                tensor.names[:1],
                f"{CUT.why.format(cut=cut_words(cut))}; {one_line(optimizer.name)} holds {name}, and never updates it",
                mend_all([cut]),
                where=line(to_change(cut)),
                source=to_change(cut),
                part=expression(cut),
            )


def _unused(cases: Sequence[Case], verdict: Verdict, alarming: bool) -> Diagnosis:
    case, members = cases[0], [case.parameter for case in cases]
    modules = listed(_modules(case.facts.context, members))
    source, cut = case.lines.get(verdict.line), case.cut
    words = words_of(case) | {
        "is_": verb(members, "is", "are"),
        "do": verb(members, "does", "do"),
        "them": verb(members, "it", "them"),
    }
    return Diagnosis(
        f"{plural(len(members), 'parameter')} of {modules} {verdict.summary.format(**words)}",
        first_names(members),
        verdict.why.format(**words),
        verdict.fix.format(**words),
        where=places(modules, line(source)),
        severity=None if alarming else "note",
        source=source,
        part=expression(cut) if cut is not None and cut.source == source else "",
    )


def _modules(context: BackwardCall, members: Sequence[Parameter]) -> list[str]:
    """The outermost modules of which every parameter of the same kind is among the
    members.
    """
    chosen = {one.names[0] for one in members}
    model = members[0].model
    rest = [
        one.module
        for one in context.parameters
        if one.model == model and one.names[0] not in chosen
    ]
    spoiled = {"", *chain.from_iterable(map(_prefixes, rest))}
    ran = {scope.path for scope in context.graph.scopes}
    outermost: dict[str, str] = {}

    for parameter in members:
        idle = parameter.run is not None and not parameter.run.calls
        # what ran is not named as what never ran
        apart = spoiled | ran if idle else spoiled
        outside = (path for path in _prefixes(parameter.module) if path not in apart)
        outer = next(outside, parameter.module)
        outermost.setdefault(outer, parameter.type if outer == parameter.module else "")

    whole = context.models[model].type if context.models else "the model"
    return [
        f"{name} ({kind})" if name and kind else name or whole
        for name, kind in outermost.items()
    ]


def _prefixes(path: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c` for `a.b.c`."""
    return accumulate(path.split(".") if path else (), "{}.{}".format)


# -- none-grad -------------------------------------------------------------------------


@check(
    "none-grad",
    "warning",
    "backward() has run, and .grad is still None where one would expect a gradient",
    follows=("unused-parameter", "nonleaf-parameter"),
)
def none_grad(context: BackwardCall) -> Diagnoses:
    """A `.grad` read where there never is one; or a parameter of the graph whose
    `.grad` is None after `backward()`.

    A tensor that is not a leaf gets a `.grad` only after `retain_grad()`: the finding
    names the line that reads it. A parameter that is in the graph and has none got None
    from a backward function on the way. Why others have none, `unused-parameter` says.

    How it is found: `.grad` of every parameter is read after `backward()`; reads of
    `.grad` are found in the text of the code around the call.

    What to do: Call `retain_grad()` before `backward()` to read the gradient of a
    result, or ask `torch.autograd.grad` for it. For a parameter, do what
    `unused-parameter` says.

    When to ignore it: When the code expects None there and goes on without it.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    hidden = w * 2
    loss = hidden.sum()
    loss.backward()
    print(hidden.grad)
    ```
    """
    yield from _not_retained(context)
    filled = {parameter.model for parameter in context.parameters if parameter.has_grad}
    # right behind backward() nothing was reset since
    seen = context.call is not None and bool(filled)
    missing = [
        parameter
        for parameter in context.parameters
        if parameter.node is not None
        and parameter.compiled is None
        and parameter.requires_grad
        and not parameter.has_grad
    ]
    missing = [one for one in missing if seen or one.model in filled]
    if context.after and missing:
        yield _given_none(context, missing, seen)


def _given_none(
    context: BackwardCall, missing: Sequence[Parameter], seen: bool
) -> Diagnosis:
    """Of parameters in the graph. `seen`: nothing can have reset their gradients."""
    custom = {node.function for node in context.graph.nodes} - {None}
    function = custom.pop() if len(custom) == 1 else None
    definition = function.definition if function is not None else None
    source = returned_by(definition) if definition is not None else None
    there = f" ({line(definition)})" if definition is not None else ""
    modules = listed(_modules(context, missing))

    return Diagnosis(
        f"{plural(len(missing), 'parameter')} of {modules} {verb(missing, 'has', 'have')} no .grad after backward()",
        first_names(missing),
        "they are in the graph, so a backward function on the way gave None for them"
        + ("" if seen else ", or .grad was reset since"),
        f"Let the backward() of the custom Function on the way{there} return a gradient in place of None for each input that "
        "needs one; and look for zero_grad() after backward().",
        tuple(one.node for one in missing if one.node is not None),
        where=places(modules, line(source)),
        source=source,
        follows=("wrong-backward",),
    )


def _not_retained(context: BackwardCall) -> Diagnoses:
    for tensor in context.named_tensors:
        kept = tensor.leaf or tensor.retains_grad
        if tensor.grad_read is not None and tensor.requires_grad and not kept:
            yield _never_filled(context, tensor)


def _never_filled(context: BackwardCall, tensor: NamedTensor) -> Diagnosis:
    """A result whose `.grad` is read."""
    name, maker = one_line(tensor.names[0]), made_at(context.graph, tensor.node)
    leaf, read = as_leaf(maker), code(tensor.grad_read)
    told = Diagnosis(
        f"{name}.grad is always None: {name} is not a leaf",
        tensor.names,
        "",
        "",
        () if tensor.node is None else (tensor.node,),
    )
    if leaf:
        return told._replace(
            why=f"{code(maker)} computes {name} from a new leaf, so {name} is a result; {read} reads its .grad, and only leaves "
            "keep their gradient",
            fix=f"Create the leaf last: {leaf}.",
            source=maker,
            edit=instead(maker, leaf),
        )

    made = "the result of an operation"
    if tensor.node is not None:
        made = f"made by {title(context.graph, tensor.node)}"
    maker = maker if maker != context.backward else None
    call = f"Behind {line(maker)}, call" if maker else "Call"
    return told._replace(
        why=f"{read} reads it, but {name} is {made}, and only leaves keep their gradient",
        fix=f"{call} {name}.retain_grad(), before backward(); or use torch.autograd.grad(loss, {name}).",
        source=tensor.grad_read,
        edit=behind(maker, f"{name}.retain_grad()"),
        part=f"{name}.grad",
    )
