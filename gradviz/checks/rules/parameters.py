"""Checks on the model's parameters: which take no part, and which got no gradient."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradviz.checks.call import BackwardCall, NamedTensor, Parameter
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.telling.verdicts import QUIET, Case, Cases
from gradviz.checks.words import (
    all_names,
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    places,
)
from gradviz.graph import Function, SourceLine
from gradviz.graph.origins import outer_paths
from gradviz.source.code_line import as_leaf
from gradviz.source.search import grad_reads, returned_by
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
    (`requires_grad=False`, a note); its module did not run; it ran without recording; it
    ran, but what it made does not reach the output; or a compiled function returns None
    for it, which is read from its backward. Behind a reentrant checkpoint nobody can
    see, so there it is unknown, not unused. A model that this graph does not use at all
    (unless it is the one given as `model=`) is a note; a parameter that another backward
    call of the same run uses, or that `torch.func.functional_call` replaces, is none.
    An expert that no data was routed to is a note where the same one of another layer
    ran; so is a parameter that changes without a gradient, as the average of another
    network does.
    Only a recording knows what ran: the command line always records, `gradviz.check`
    takes `recording=`.

    How it is found: The parameters of the models among the variables are compared with
    the leaves of the graph. What a module did is known from the recording.

    What to do: Call the module in `forward()` and use its result in the loss, or remove
    it. Where the finding names a line that drops the graph, mend that line. Freeze with
    `requires_grad_(False)` what is not to be trained.

    When to ignore it: When a branch of the model takes turns with another, the parameter
    is kept for a later stage of the training, or the last of alike layers computes what
    only another one would use.

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
    # no-graph says why nothing gets a gradient, and an error why nothing comes later
    failed = context.guessed and context.run.raised
    if failed or all(root.node is None for root in context.graph.roots):
        return
    # a derivative inside a step needs few of them, and the loss is still to come
    if context.create_graph and not context.is_last:
        return

    for (_, alarming, *_), cases in _alike(context).items():
        members = [case.parameter for case in cases]
        modules = _modules(context, members)
        diagnosis = cases[0].told(first_names(members))
        yield diagnosis._replace(
            summary=f"{plural(len(members), 'parameter')} of {modules} {diagnosis.summary}",
            where=places(modules, line(diagnosis.source)),
            severity=None if alarming else "note",
        )


def _alike(context: BackwardCall) -> dict[tuple[object, ...], list[Case]]:
    """The parameters that take no part, those together of which the same is said."""
    every, groups = Cases(context), dict[tuple[object, ...], list[Case]]()
    held = {
        name for optimizer in context.at_work for name in all_names(optimizer.tensors)
    }
    reached = _reached(context)
    elements = _UsedElements(context)
    # later, as in another phase, an optimizer found a gradient of theirs
    given = (optimizer.given for optimizer in context.run.optimizers)
    trained = {*context.run.named(set[int]().union(*given)), *context.run.used}
    for parameter in context.parameters:
        used = parameter.node is not None or parameter.sharded
        # functional_call ran its module, and trains what took its place
        used = used or parameter.replaced
        if used or not trained.isdisjoint(parameter.names):
            continue

        case = every.of(parameter)
        chosen = not parameter.run.calls and elements.chooses(parameter.names[0])
        quiet = chosen or _is_idle(context, parameter, held)
        alarming = not (quiet or context.guessed or _is_usual(case, reached))
        place = case.source if case.answer.cut is not None else None
        key = parameter.model if alarming else None, alarming, case.kind, place
        groups.setdefault(key, []).append(case)
    return groups


def _is_idle(context: BackwardCall, parameter: Parameter, held: set[str]) -> bool:
    """Whether a parameter is not to be trained: no optimizer holds it, though there is
    one, or the code updates it by hand, as an average of others.
    """
    by_hand = not context.run.by_hand.isdisjoint(parameter.names)
    return by_hand or bool(held and held.isdisjoint(parameter.names))


def _reached(context: BackwardCall) -> dict[str, bool]:
    """Every parameter, and whether the graph leads to it."""
    return {each.names[0]: each.node is not None for each in context.parameters}


def _is_usual(case: Case, reached: dict[str, bool]) -> bool:
    """Whether a case is one that correct programs have, too."""
    name = case.parameter.names[0]
    return case.kind in QUIET or (case.kind == "open" and _ends_a_stack(name, reached))


def _ends_a_stack(name: str, reached: dict[str, bool]) -> bool:
    """Whether the last of alike layers has a parameter, and all layers before it get a
    gradient for theirs: it computes what only another layer would use. `reached` has
    every parameter, and whether it gets one.
    """
    for number in re.finditer(r"(?<=\.)\d+(?=\.)", name):
        before, last, after = (
            name[: number.start()],
            int(number[0]),
            name[number.end() :],
        )
        is_last = last > 0 and f"{before}{last + 1}{after}" not in reached
        if is_last and all(reached.get(f"{before}{i}{after}") for i in range(last)):
            return True
    return False


class _UsedElements:
    """What ran of the lists of modules in a model."""

    def __init__(self, context: BackwardCall) -> None:
        used = {
            parameter.names[0]
            for parameter in context.parameters
            if parameter.node is not None
        }
        used |= context.run.used
        elements = [element for name in used for element in _elements(name)]
        self._lists = {path for path, _ in elements}
        self._anywhere = {_NUMBER.sub("#", path) + rest for path, rest in elements}

    def chooses(self, name: str) -> bool:
        """Whether the data chooses if this parameter is used: other elements of its
        list ran, and the same element did so in another layer.
        """
        return any(
            path in self._lists and _NUMBER.sub("#", path) + rest in self._anywhere
            for path, rest in _elements(name)
        )


_NUMBER = re.compile(r"\b\d+\b")


def _elements(name: str) -> list[tuple[str, str]]:
    """Each list on the way to a parameter, with which element it is of and what in it.

    >>> _elements("layers.3.experts.2.weight")
    [('layers', '.3.experts.2.weight'), ('layers.3.experts', '.2.weight')]
    """
    starts = (match.start() - 1 for match in _NUMBER.finditer(name))
    return [(name[:start], name[start:]) for start in starts if start > 0]


def _modules(context: BackwardCall, members: Sequence[Parameter]) -> str:
    """The outermost modules of which every parameter is among the members."""
    chosen = {*first_names(members)}
    spoiled, outermost = {""}, dict[str, None]()
    for parameter in context.parameters:
        # a module of which another parameter is used must not be named as a whole
        if parameter.names[0] not in chosen:
            spoiled.update(outer_paths(parameter.module))
    # what ran is not named as what never ran
    if not members[0].run.calls:
        spoiled.update(scope.path for scope in context.graph.scopes)

    for path, kind in dict.fromkeys((one.module, one.type) for one in members):
        whole = (prefix for prefix in outer_paths(path) if prefix not in spoiled)
        outer = next(whole, path)
        titled = f"{path} ({kind})" if kind and outer == path else outer
        outermost[titled if outer else context.models[members[0].model].type] = None
    return listed(outermost)


# -- none-grad -------------------------------------------------------------------------

_NONE = Row(
    "{count} of {modules} {has} no .grad after backward()",
    "they are in the graph, so a backward function on the way gave None for them, or .grad was reset since",
    "Let the backward() of the custom Function on the way return a gradient in place of None for each input that needs one; look "
    "in a compiled function for .detach(), no_grad() and results that are not used; and look for zero_grad() after backward().",
)
_RETURNED = Row(
    "backward() of {function} returns None for {names}",
    "nothing else uses {them}, and after backward() there is no .grad: {code} returns None in the place of an input that needs a "
    "gradient",
    "In {line}, return the gradient of that input, a tensor of its shape, in place of None.",
)
_FROM_LEAF = Row(
    "{name}.grad is always None: {name} is not a leaf",
    "{code} computes {name} from a new leaf, so {name} is a result; {read} reads its .grad, and only leaves keep their gradient",
    "Create the leaf last: {leaf}.",
)
_RESULT = Row(
    "{name}.grad is always None: {name} is not a leaf",
    "{read} reads it, but {name} is made by {code}, and only leaves keep their gradient",
    "Behind {code}, call {name}.retain_grad(), before backward(); or use torch.autograd.grad(loss, {name}).",
)


@check(
    "none-grad",
    "warning",
    "backward() has run, and .grad is still None where one would expect a gradient",
    repeats=("unused-parameter", "nonleaf-parameter"),
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
    reads = grad_reads(context.body)
    for tensor in context.named_tensors:
        read = next((reads[name] for name in tensor.names if name in reads), None)
        kept = tensor.leaf or tensor.retains_grad
        if read is not None and not kept:
            yield _never_filled(context, tensor, read)

    missing = _without_gradient(context)
    if missing:
        yield _never_given(context, missing)


def _never_given(context: BackwardCall, missing: Sequence[Parameter]) -> Diagnosis:
    """Parameters that backward() gave None."""
    nodes, users_of = context.graph.nodes, set[Function | None]()
    for parameter in missing:
        users_of.update(_users(context, parameter))
    direct = len(users_of) == 1 and None not in users_of
    # of two custom Functions, either may have returned None
    functions = users_of if direct else {node.function for node in nodes} - {None}
    function = functions.pop() if len(functions) == 1 else None
    made = function.definition if function is not None else None
    source = returned_by(made) if made is not None and not made.package else None
    modules = _modules(context, missing)
    return (_RETURNED if direct and source else _NONE).filled(
        first_names(missing),
        source,
        function=function.name.rpartition(".")[2] if function is not None else "",
        count=plural(len(missing), "parameter"),
        modules=modules,
        nodes=nodes_of(missing),
        where=places(modules, line(source)),
    )


def _users(context: BackwardCall, parameter: Parameter) -> list[Function | None]:
    """The custom Functions that a parameter goes into, None for ops of torch's."""
    graph = context.graph
    consumers = users(graph, parameter.node) if parameter.node is not None else []
    return [graph.nodes[consumer].function for consumer in consumers] or [None]


def _without_gradient(context: BackwardCall) -> list[Parameter]:
    """The parameters of the graph that have no `.grad`, where others have one."""
    if context.call is not None and not context.after:
        return []
    used = [parameter for parameter in context.parameters if parameter.node is not None]
    filled = {parameter.model for parameter in used if parameter.has_grad}
    missing = []
    for parameter in used:
        # right behind backward() nothing was reset since
        others = filled if context.after else filled & {parameter.model}
        if parameter.requires_grad and not parameter.has_grad and others:
            missing.append(parameter)
    return missing


def _never_filled(
    context: BackwardCall, tensor: NamedTensor, read: SourceLine
) -> Diagnosis:
    """A result whose `.grad` a line reads."""
    name, maker = one_line(tensor.names[0]), made_at(context.graph, tensor.node)
    leaf = as_leaf(maker)
    diagnosis = (_FROM_LEAF if leaf else _RESULT).filled(
        tensor.names, maker, name=name, leaf=leaf, read=code(read)
    )
    if not leaf:
        diagnosis = diagnosis._replace(source=read, part=f"{name}.grad")
    nodes = () if tensor.node is None else (tensor.node,)
    return diagnosis._replace(nodes=nodes)
