"""Checks on the model's parameters: which take no part, which got no gradient, and
which are not what they should be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import CheckContext, Home, Optimizer, Parameter
from gradviz.checks.edit import Edit, behind, instead, together
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.cuts import updates_below
from gradviz.checks.rules.roots import and_reset
from gradviz.checks.verdicts import cut_off, grouped, modules_of
from gradviz.checks.words import (
    as_leaf,
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    places,
    title,
    title_and_code,
    verb,
    where as place,
)
from gradviz.graph import Leaf, SourceLine
from gradviz.source.code_line import in_place, wrapped
from gradviz.source.search import returned_by
from gradviz.wording import one_line, plural

# -- unused-parameter ------------------------------------------------------------------


@check(
    "unused-parameter",
    "warning",
    "a parameter that no output depends on: it gets no gradient",
)
def unused_parameter(context: CheckContext) -> Diagnoses:
    """A parameter that no output depends on. Its `.grad` stays None and the optimizer
    leaves it as it is.

    Nothing fails, so this goes unnoticed for long; `DistributedDataParallel` fails, or
    wants `find_unused_parameters=True`. The finding says which it is: frozen
    (`requires_grad=False`, a note); its module never ran; it ran without recording; it
    ran, but what it made does not reach the output; or a compiled function returns None
    for it, which is read from its backward. Behind a reentrant checkpoint nobody can
    see, so there it is unknown, not unused. A parameter that another backward call of
    the same run uses, one that `torch.func.functional_call` replaces, one behind the
    part of its model that a forward hook takes, and a model that this graph does not
    use at all (unless it is the one given as `model=`), are notes. Only a recording
    knows what ran: the command line always records, `gradviz.check` takes `recording=`.

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

    # a custom Function may run a module again in its backward, as reversible layers do
    unused = [
        parameter
        for parameter in context.parameters
        if parameter.node is None and not parameter.filled
    ]
    for verdict, members in grouped(context, unused):
        modules = modules_of(context, members)
        words = {
            "is_": verb(members, "is", "are"),
            "do": verb(members, "does", "do"),
            "them": verb(members, "it", "them"),
        }
        yield Diagnosis(
            f"{plural(len(members), 'parameter')} of {listed(modules)} {verdict.summary.format(**words)}",
            first_names(members),
            verdict.why,
            verdict.fix,
            where=places(listed(modules), line(verdict.source)),
            severity=None if verdict.alarming and not context.guessed else "note",
            source=verdict.source,
            part=verdict.part,
        )

    yield from _loose(context)


def _loose(context: CheckContext) -> Diagnoses:
    """Tensors that an optimizer holds and no module does, of which the loss takes a
    value without a graph.
    """
    registered = {parameter.names for parameter in context.parameters}
    for optimizer in context.at_work:
        lost = [
            one
            for one in optimizer.tensors
            if one.node is None and one.names not in registered
        ]
        for tensor in lost if len(lost) < len(optimizer.tensors) else ():
            names = {*tensor.names}
            cut = next(
                (cut for cut in context.cuts if names & {*cut.leaf, *cut.behind}), None
            )
            if cut is not None and not names & context.used_later:
                name, verdict = one_line(tensor.names[0]), cut_off(cut)
                yield Diagnosis(
                    f"{name} {verdict.summary.format(do='does', them='it')}",
                    tensor.names[:1],
                    f"{verdict.why}; {one_line(optimizer.name)} holds {name}, and never updates it",
                    verdict.fix,
                    where=line(cut.source),
                    source=cut.source,
                    part=verdict.part,
                )


# -- none-grad -------------------------------------------------------------------------


@check(
    "none-grad",
    "warning",
    "backward() has run, and .grad is still None where one would expect a gradient",
    follows=("unused-parameter", "nonleaf-parameter"),
)
def none_grad(context: CheckContext) -> Diagnoses:
    """After `backward()`, a parameter that requires grad and whose `.grad` is None; or
    a `.grad` read where there never is one.

    For a parameter the reasons are those of `unused-parameter`; one that is in the
    graph all the same got None from a backward function on the way. A tensor that is
    not a leaf gets a `.grad` only after `retain_grad()`: the finding names the line
    that reads it. Nothing is said when no parameter of a model has a gradient, because
    `zero_grad()` may have run.

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
    if not context.after:
        return

    filled = {parameter.model for parameter in context.parameters if parameter.has_grad}
    without = [
        parameter
        for parameter in context.parameters
        if parameter.requires_grad and not parameter.has_grad
    ]
    without.sort(key=lambda parameter: parameter.model not in filled)
    missing = [parameter for parameter in without if parameter.model in filled]
    # looked at right behind backward(), so nothing was reset since
    seen = context.call is not None and bool(filled)
    inside = [
        parameter
        for parameter in (without if seen else missing)
        if parameter.node is not None and parameter.compiled is None
    ]
    if inside:
        yield _given_none(context, inside, seen)

    for verdict, members in grouped(
        context, [parameter for parameter in missing if parameter.node is None]
    ):
        diagnosis = _without_grad(context, members, verdict.why, verdict.fix)
        yield diagnosis._replace(
            severity=None if verdict.alarming else "note", source=verdict.source
        )


def _given_none(
    context: CheckContext, inside: Sequence[Parameter], seen: bool
) -> Diagnosis:
    """Of parameters in the graph. `seen`: nothing can have reset their gradients."""
    why = f"they are in the graph, so a backward function on the way gave None for them{'' if seen else _OR_RESET}"
    custom = {
        node.function for node in context.graph.nodes if node.function is not None
    }
    at = next(iter(custom)).definition if len(custom) == 1 else None
    diagnosis = _without_grad(
        context,
        inside,
        why,
        _GAVE_NONE.format(f" ({line(at)})" if at is not None else ""),
    )
    source = returned_by(at) if at is not None else None

    return diagnosis._replace(
        source=source,
        where=places(diagnosis.where, line(source)),
        follows=("wrong-backward",),
    )


_OR_RESET = ", or .grad was reset since"
_GAVE_NONE = (
    "Let the backward() of the custom Function on the way{} return a gradient in place of None for each input that needs one; and "
    "look for zero_grad() after backward()."
)


def _without_grad(
    context: CheckContext, members: Sequence[Parameter], why: str, fix: str
) -> Diagnosis:
    modules = listed(modules_of(context, members))
    return Diagnosis(
        f"{plural(len(members), 'parameter')} of {modules} {verb(members, 'has', 'have')} no .grad after backward()",
        tuple(parameter.names[0] for parameter in members),
        why,
        fix,
        tuple(parameter.node for parameter in members if parameter.node is not None),
        where=modules,
    )


def _not_retained(context: CheckContext) -> Diagnoses:
    for tensor in context.named_tensors:
        if (
            tensor.grad_read is None
            or tensor.leaf
            or tensor.retains_grad
            or not tensor.requires_grad
        ):
            continue

        name, maker = one_line(tensor.names[0]), made_at(context.graph, tensor.node)
        summary = f"{name}.grad is always None: {name} is not a leaf"
        nodes = () if tensor.node is None else (tensor.node,)
        leaf = as_leaf(maker)

        if leaf:
            why = f"{code(maker)} computes {name} from a new leaf, so {name} is a result; {code(tensor.grad_read)} reads its "
            why += ".grad, and only leaves keep their gradient"
            fix = f"Create the leaf last: {leaf}."
            yield Diagnosis(
                summary,
                tensor.names,
                why,
                fix,
                nodes,
                source=maker,
                edit=instead(maker, leaf),
            )
            continue

        if tensor.node is None:
            made = "the result of an operation"
        else:
            made = f"made by {title(context.graph, tensor.node)}"

        maker = maker if maker != context.backward else None
        yield Diagnosis(
            summary,
            tensor.names,
            f"{code(tensor.grad_read)} reads it, but {name} is {made}, and only leaves keep their gradient",
            f"{f'Behind {line(maker)}, call' if maker else 'Call'} {name}.retain_grad(), before backward(); or use "
            f"torch.autograd.grad(loss, {name}).",
            nodes,
            source=tensor.grad_read,
            edit=behind(maker, f"{name}.retain_grad()"),
            part=f"{name}.grad",
        )


# -- nonleaf-parameter -----------------------------------------------------------------


@check(
    "nonleaf-parameter",
    "warning",
    "what should be trained is no leaf any more, or not what the optimizer holds",
)
def nonleaf_parameter(context: CheckContext) -> Diagnoses:
    """The naive update `w = w - lr * w.grad`, or an optimizer that updates tensors
    which the graph does not use.

    The naive update runs while PyTorch records. The new `w` is the result of a
    subtraction and no leaf: it gets no `.grad`, and the graph of all earlier steps
    hangs on it. An optimizer keeps the tensors that it was given when it was made; a
    parameter that was replaced since, or a model that was copied, is not among them,
    and what the optimizer updates then is no part of the loss. Nor are parameters that
    no module lists: layers in a plain Python list, and parameters made in `forward()`.

    How it is found: Leaves of earlier graphs are compared with what their names hold
    now; tensors of the optimizers with those of the graph, the models and the
    variables.

    What to do: Update in place under `torch.no_grad()`, or with an optimizer. Make the
    optimizer after the model is complete. Keep layers in `torch.nn.ModuleList` or
    `ModuleDict` and tensors in `torch.nn.Parameter`, as attributes set in `__init__()`.

    When to ignore it: When the update is meant to be differentiated, as in an inner
    loop of meta-learning.

    ```python
    import torch

    w = torch.tensor(2.0, requires_grad=True)
    for step in range(3):
        loss = (w - 1) ** 2
        (slope,) = torch.autograd.grad(loss, w)
        w = w - 0.1 * slope
    ```
    """
    yield from _rebound(context)
    yield from _computed_from_leaves(context)
    for optimizer in (
        context.at_work
        if any(root.node is not None for root in context.graph.roots)
        else ()
    ):
        yield from _stray(context, optimizer)
    yield from _unlisted(context)


def _rebound(context: CheckContext) -> Diagnoses:
    """Variables that were leaves of an earlier call's graph, and results that sit on a
    leaf which nobody names any more.
    """
    graph, (updated, steps) = context.graph, recorded_updates(context)
    if not updated:
        return

    names, nodes = tuple(updated), tuple(updated.values())
    if context.earlier:
        was = f"was a leaf at backward call {context.earlier[-1].call}"
    else:
        was = "sits on a leaf without a name"

    if steps:
        many = f"; {plural(steps, 'update')} {verb(steps, 'is', 'are')} in the graph"
    else:
        many = ""

    lines = {
        source: _updated(source) for source in (made_at(graph, node) for node in nodes)
    }
    if all(lines.values()):
        update = "; ".join(lines.values())
    else:
        update = f"{one_line(names[0])} -= lr * gradient"

    yield Diagnosis(
        f"{listed(names)} {verb(names, 'is the result', 'are results')} of a recorded update, not "
        f"{verb(names, 'a leaf', 'leaves')}",
        names,
        f"{one_line(names[0])} was made by {title_and_code(graph, nodes[0])}; it {was}{many}. A result gets no .grad, and every "
        "step keeps all earlier ones",
        f"Update in place, without recording: with torch.no_grad(): {update}. Or use torch.optim.",
        nodes,
        edit=together(
            [
                instead(source, new and f"with torch.no_grad():\n    {new}")
                for source, new in lines.items()
            ]
        ),
    )


def _computed_from_leaves(context: CheckContext) -> Diagnoses:
    """What a line computes of a leaf that it has made itself and nobody names:
    `torch.randn(3, requires_grad=True).double()`.
    """
    names, lines = dict[str, None](), dict[SourceLine, None]()
    for source, name in _computed(context):
        lines[source] = None
        names |= dict.fromkeys([name] if name else ())

    if lines:
        first, leaves = next(iter(lines)), "; ".join(map(as_leaf, lines))
        what, them = (
            listed(names, 3) or "a tensor",
            verb(names, "is a result, and no leaf", "are results, and no leaves"),
        )
        yield Diagnosis(
            f"{what} {them}: no optimizer can train {verb(names, 'it', 'them')}",
            tuple(names),
            f"{code(first)} makes a leaf and then computes {what} of it: backward() fills the .grad of that leaf, which no "
            "variable holds and no module lists",
            f"Create the leaf last: {leaves}.",
            source=first,
            follows=("freed-graph",),
            edit=together([instead(one, as_leaf(one)) for one in lines]),
        )


def _computed(context: CheckContext) -> Iterator[tuple[SourceLine, str]]:
    """Such lines, each with the variable that has what it computes; that of an input
    counts where an earlier step made it.
    """
    graph = context.graph
    results = {
        tensor.node: tensor.names[0]
        for tensor in context.named_tensors
        if not tensor.retains_grad
    }
    nameless = [
        (leaf.kind, user)
        for leaf in graph.leaves
        if not leaf.names
        for user in users(graph, leaf.node)
    ]

    for kind, user in nameless:
        source, old = (
            made_at(graph, user),
            (graph.nodes[user].sequence or 0) < context.since and user in results,
        )
        if source is not None and (kind == "parameter" or old) and as_leaf(source):
            yield source, results.get(user, "")


def recorded_updates(
    context: CheckContext,
) -> tuple[dict[str, int], int]:
    """The nodes of such variables, by name, and how many updates are in the graph."""
    before = {name for earlier in context.earlier for name in earlier.leaves}
    updated, steps = dict[str, int](), 0

    for tensor in context.named_tensors:
        if (
            tensor.node is not None
            and not tensor.leaf
            and tensor.node not in context.graph.leaf_of
        ):
            count, leaf = updates_below(context.graph, tensor.node)
            nameless = leaf is not None and leaf.kind == "input" and not leaf.names
            names = [name for name in tensor.names if name in before] or tensor.names[
                : count * nameless
            ]
            updated |= dict.fromkeys(names[:1], tensor.node)
            steps += count * nameless

    return updated, steps


def _updated(source: SourceLine | None) -> str:
    """The line in place. It resets the gradient, where nothing else does."""
    name, changed = in_place(source)
    return f"{changed}{and_reset(source, name)}" if changed else ""


def _stray(context: CheckContext, optimizer: Optimizer) -> Diagnoses:
    """Tensors that only the optimizer knows: no model, no variable, no graph of this
    run has them.
    """
    stray = sum(one.node is None and not one.names for one in optimizer.tensors)
    used = [leaf for leaf in context.graph.leaves if leaf.kind == "parameter"]
    without = [leaf for leaf in used if leaf.node not in context.optimized]
    if not stray or (used and not without):
        return

    names, name, source = (
        first_names(without),
        one_line(optimizer.name),
        optimizer.source,
    )
    if stray == len(optimizer.tensors):
        every = "all"
    else:
        every = f"{stray:,} of {len(optimizer.tensors):,}"

    if names:
        uses = f"; the graph uses {listed(names)}, which no optimizer holds"
    else:
        uses = ""

    yield Diagnosis(
        f"{name} holds {plural(stray, 'tensor')} that the output does not depend on",
        names or (optimizer.name,),
        f"{every} tensors of {name} ({one_line(optimizer.type)}) are in no model, in no variable and not in this graph{uses}",
        f"Make the optimizer {f'of {line(source)} ' if source else ''}after the model is complete, or once more behind a copy or "
        "a replaced layer.",
        nodes_of(without),
        where=places(name, line(source)),
        source=source,
    )


def _unlisted(context: CheckContext) -> Diagnoses:
    """Parameters of the graph that no module lists and no optimizer holds, while one
    updates others.
    """
    graph = context.graph
    known = context.optimized.union(
        *((one.node, one.compiled) for one in context.parameters)
    )
    made = (
        leaf
        for leaf in graph.leaves
        if leaf.kind == "parameter" and leaf.node not in known
    )
    lost = [
        leaf
        for leaf in made
        if leaf.names
        or not any(as_leaf(made_at(graph, i)) for i in users(graph, leaf.node))
    ]
    if context.optimized and lost:
        yield _lost(context, lost)


def _lost(context: CheckContext, lost: Sequence[Leaf]) -> Diagnosis:
    """Where they are kept, or which forward() makes them anew."""
    homes = list(
        dict.fromkeys(
            context.homes[leaf.node] for leaf in lost if leaf.node in context.homes
        )
    )
    born = _made_each_time(context, lost) if not homes else None
    made, them = (
        next(
            (home.line for home in homes if home.line is not None),
            born,
        ),
        verb(lost, "it", "them"),
    )

    if born is not None:
        why = f"{code(born)} makes {them} anew each time that {one_line(born.function)}() runs: what is used next time is untrained"
        fix = f"Make what {line(born)} makes once, in __init__(), as an attribute, before the optimizer is made, and "
        used = ""
        fix += "use that."
    else:
        why = f"backward() computes {verb(lost, 'its gradient', 'their gradients')}, and nothing updates {them}: parameters() of a "
        why += "module lists neither layers in a plain Python list or dict nor parameters made in forward()"
        user = next(
            (
                edge.consumer
                for leaf in lost
                for edge in context.graph.consumers(leaf.node)
            ),
            None,
        )
        fix, used = (
            _listing(homes),
            f"used in {place(context.graph, user)}" if user is not None else "",
        )

    return Diagnosis(
        f"{plural(len(lost), 'parameter')} of this graph {verb(lost, 'is', 'are')} in no model's parameters() and in no optimizer",
        first_names(lost),
        why,
        fix,
        edit=_listed_edit(homes),
        where=places(line(made), used),
        nodes=nodes_of(lost),
        source=made,
        follows=("unused-parameter",)
        if any(cut.kind == "parameter" for cut in context.cuts)
        else (),
    )


def _made_each_time(context: CheckContext, lost: Sequence[Leaf]) -> SourceLine | None:
    """The one line of a forward() that made all of these, after the optimizer."""
    born, *others = {context.born.get(leaf.node) for leaf in lost}
    if (
        not others
        and born is not None
        and born.function == "forward"
        and not born.package
    ):
        return born
    return None


def _listed_edit(homes: Sequence[Home]) -> Edit | None:
    home = homes[0] if len(homes) == 1 else None
    if home is not None and home.container:
        return instead(home.line, wrapped(home.line, home.container))
    return None


def _listing(homes: Sequence[Home]) -> str:
    """How a module comes to list what it keeps there."""
    parts = [
        f"{f'In {line(home.line)}, make' if home.line is not None else 'Make'} it a {home.container}: "
        f"{wrapped(home.line, home.container) or f'{home.attribute} = {home.container}(...)'}. "
        for home in homes
        if home.container
    ]
    if parts:
        return f"{''.join(parts)}The optimizer has to be made after that."

    return (
        "Keep layers in torch.nn.ModuleList or ModuleDict, and make parameters as attributes in __init__(), before the optimizer "
        "is made. Or give them to the optimizer yourself."
    )
