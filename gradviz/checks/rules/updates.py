"""Checks on who updates what, over a whole run: parameters that nothing updates, and optimizers that update nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import Edit, behind, instead
from gradviz.checks.record import LeafRow, ModelState, OptimizerRow, RunRecord, calls_in, letters, parts
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.roots import all_cut_words, mend_all
from gradviz.checks.verdicts import modules_of
from gradviz.checks.words import Names, as_code, code, first_names, line, listed, places, verb
from gradviz.graph import SourceLine
from gradviz.recording.cuts import Cut
from gradviz.source.code_line import assigned, parsed
from gradviz.source.search import sets_item
from gradviz.source.statements import body_around, own_parts
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""


@check(
    "never-updated",
    "warning",
    "a parameter gets a gradient at every step, and nothing ever updates it",
    follows=("nonleaf-parameter",),
)
def never_updated(context: CheckContext) -> Diagnoses:
    """A parameter gets a gradient, no optimizer holds it, and it does not change from call to call.

    A new head that was never given to the optimizer, a target network whose output was not computed under `torch.no_grad()`,
    or a tensor with `requires_grad=True` that is an attribute of a module but no `nn.Parameter`, so that `parameters()` does
    not list it.

    How it is found: two calls of `backward()` reached it, an optimizer took a step in between, none holds it, and it did not
    change. Left alone are a network that is in `eval()` mode as a whole, and one beside an optimizer that holds no parameters, as
    when an image is optimized.

    What to do: give it to the optimizer, make it an `nn.Parameter`, or freeze it; compute targets under `torch.no_grad()`.

    When to ignore it: when you update it yourself, later than in the steps that were seen.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.record
    if not record.stepped or any(mode.sharded for mode in record.models):
        return  # the leaves of a sharded graph are not the tensors that the optimizer holds
    loose = [leaf for leaf in record.rows if leaf.moved is not None and not leaf.holders and leaf.reached >= ENOUGH]
    yield from _models(context, loose)
    # the leaves of an equation are inputs of it
    if not any("BackwardBackward" in node.op for node in context.graph.nodes):
        for leaf in loose:
            if not leaf.moved and not leaf.parameter and leaf.node not in context.homes:
                yield from _plain(context, leaf) if leaf.module else _loose(context, leaf)


def _models(context: CheckContext, loose: Sequence[LeafRow]) -> Diagnoses:
    """What no optimizer holds, model by model. A target may be moved by an average; of others, only what did not move."""
    for model in dict.fromkeys(leaf.model for leaf in loose if leaf.parameter):
        twins, every = _twins(context.record, model), [leaf for leaf in loose if leaf.parameter and leaf.model == model]
        members = every if twins and not context.reads_grad else [leaf for leaf in every if not leaf.moved]
        if members:
            yield from _forgotten(_Forgotten(context, model, members, twins))


class _Forgotten(NamedTuple):
    """Parameters of one model that no optimizer holds, and the trained models that it is a copy of."""

    context: CheckContext
    model: str
    members: Sequence[LeafRow]
    twins: Sequence[ModelState]

    @property
    def state(self) -> ModelState | None:
        return self.context.record.model(self.model)

    @property
    def whole(self) -> bool:
        """Whether no optimizer holds any of the model."""
        return self.state is None or not self.state.held

    @property
    def asleep(self) -> bool:
        """Whether the model is in `eval()` mode as a whole, and follows none."""
        return self.whole and not self.twins and (self.state is None or not self.state.training)

    @property
    def modules(self) -> list[str]:
        names = first_names(self.members)
        known = [one for one in self.context.parameters if one.names[0] in names]
        if known and not self.whole:
            return modules_of(self.context, known)
        return [f"{self.model} ({self.state.type})" if self.state else self.model]

    @property
    def makers(self) -> list[OptimizerRow]:
        """The optimizers that took steps when the parameters were there."""
        first = min(leaf.first for leaf in self.members)
        return [one for one in self.context.record.optimizers if one.steps and one.last_call >= first]

    @property
    def in_time(self) -> list[OptimizerRow]:
        """Those that were made when the parameters were there."""
        born = [leaf for leaf in self.members if leaf.born is not None]
        return [maker for maker in self.makers if all(maker.number >= leaf.after for leaf in born)]

    @property
    def ran(self) -> SourceLine | None:
        """The line that called it last, where it is a target of another model."""
        if not self.whole or not self.twins or _astray(self.makers) is not None:
            return None
        return next((other.called for other in self.context.models if other.name == self.model), None)

    @property
    def them(self) -> str:
        return verb(self.members, "it", "them")

    @property
    def adds(self) -> str:
        """The call that gives something to an optimizer."""
        return f"{(self.in_time or self.makers)[0].name or 'optimizer'}.add_param_group"


class _Remedy(NamedTuple):
    """What to do about them, the optimizer whose line has to change, and what that line shows."""

    fix: str
    at: OptimizerRow
    seen: str = ""
    edit: Edit | None = None


def _forgotten(forgotten: _Forgotten) -> Diagnoses:
    """Parameters of one model that no optimizer holds."""
    context, members, modules = forgotten.context, forgotten.members, forgotten.modules
    if forgotten.asleep or not any(leaf.parameter and leaf.holders for leaf in context.record.rows):
        return
    remedy, ran = next(filter(None, (look(forgotten) for look in _REMEDIES))), forgotten.ran
    source = ran or remedy.at.source
    yield Diagnosis(
        f"{plural(len(members), 'parameter')} of {listed(modules)} {verb(members, 'gets', 'get')} a gradient, and nothing updates "
        f"{forgotten.them}",
        first_names(members),
        _unheld(forgotten) + remedy.seen + (f". It ran in {code(ran)}" if ran else ""),
        remedy.fix,
        tuple(leaf.node for leaf in members if leaf.call == context.call),
        where=places(listed(modules), line(source)),
        source=source,
        edit=remedy.edit,
        follows=("idle-optimizer",)
        if forgotten.whole and not forgotten.in_time
        else (),  # a copy of what that one holds
    )


def _unheld(forgotten: _Forgotten) -> str:
    members, makers, them = forgotten.members, forgotten.makers, forgotten.them
    made = [f"{maker.title}, made in {code(maker.source)}" if maker.source else maker.title for maker in makers]
    moves = f"{verb(members, 'it', 'they')} did not change in between"
    if any(leaf.moved for leaf in members):
        moves = f"something else than a gradient changes {them}, such as an average with another model"
    calls = plural(min(leaf.reached for leaf in members), "call")
    return (
        f"backward() filled {verb(members, 'its', 'their')} .grad at {calls}, {moves}, and {listed(made)} "
        f"{verb(makers, 'does', 'do')} not hold {them}"
    )


def _of_another(forgotten: _Forgotten) -> _Remedy | None:
    astray = _astray(forgotten.makers)
    if astray is None or not forgotten.whole:
        return None
    at, other = astray
    fix = f"In {line(at.source)}, give {at.name or 'the optimizer'} {as_code(forgotten.model)}.parameters(): all that it holds "
    return _Remedy(f"{fix}now, {one_line(other.name) or 'another one'} holds, too.", at)


def _too_late(forgotten: _Forgotten) -> _Remedy | None:
    """What to do about parameters that did not exist when the optimizer was made."""
    if forgotten.in_time:
        return None
    at, born = forgotten.makers[0], forgotten.members[0].born
    seen = f". {code(born)} makes {forgotten.them}, after that" if born is not None else ""
    made, where = line(at.source) or "the line that makes the optimizer", born.function if born is not None else ""
    fix = f"Put {made} behind {line(born)}, so that the optimizer is made when all is there."
    if where not in ("<module>", "", at.source and at.source.function):
        fix = f"Make it in __init__() in place of {line(born)}; or run the model once, in front of {made}, so that it is there."
    return _Remedy(fix, at, seen)


def _of_a_target(forgotten: _Forgotten) -> _Remedy | None:
    if not (forgotten.whole and forgotten.twins):
        return None
    return _Remedy(
        f"If {one_line(forgotten.model)} is a target of {one_line(forgotten.twins[0].name)}, compute its output inside `with "
        f"torch.no_grad():`. If it is to be trained, give it to an optimizer: {forgotten.adds}({{'params': "
        f"{as_code(forgotten.model)}.parameters()}}).",
        forgotten.in_time[0],
    )


def _to_add(forgotten: _Forgotten) -> _Remedy:
    at, them, names = forgotten.in_time[0], forgotten.them, sorted(first_names(forgotten.members))
    path, *others = (module.rpartition(" (")[0] or module for module in forgotten.modules)
    inside = [one for one in forgotten.context.parameters if one.names[0].startswith(f"{path}.")]
    module = as_code(path) if not others and "(" not in path and len(inside) <= len(names) else ""
    what, freeze = f"[{', '.join(names)}]", "requires_grad_(False)"
    if module:
        what, freeze = f"{module}.parameters()", f"{module}.{freeze}"
    elif len(names) > _PASTED:
        held = f"for g in {at.name or 'optimizer'}.param_groups for q in g['params']"
        what = f"[p for p in {as_code(forgotten.model)}.parameters() if all(p is not q {held})]"
    add, trained = f"{forgotten.adds}({{'params': {what}}})", verb(names, "it is", "they are")
    fix = f"Give {them} to the optimizer, right after it is made: {add}. If {trained} not to be trained, freeze {them}: {freeze}."
    here = at.source is not None and at.source.function == "<module>"  # where variables are called so
    return _Remedy(fix, at, edit=behind(at.source, add) if here else None)


_REMEDIES: tuple[Callable[[_Forgotten], _Remedy | None], ...] = (_of_another, _too_late, _of_a_target, _to_add)
_ON_ITS_OWN = ("detach", "data", "no_grad")  # cuts that one user of the tensor may need, and another not
_PASTED = 3  # names of parameters that a line of code to paste may have


def _astray(makers: Sequence[OptimizerRow]) -> tuple[OptimizerRow, OptimizerRow] | None:
    """An optimizer that holds only what another one holds, and that one. Of two alike, the one without gradients, or the later."""
    pairs = [
        (maker, other)
        for maker in makers
        for other in makers
        if maker is not other and maker.held and maker.held <= other.held
    ]
    return min(pairs, key=lambda pair: (bool(pair[0].fed), -pair[0].number), default=None)


def _twins(record: RunRecord, model: str) -> list[ModelState]:
    """The trained models that a model is a copy of, as their class and the shapes of their parameters tell."""
    mode = record.model(model)
    trained = {leaf.model for leaf in record.rows if leaf.parameter and leaf.holders}
    alike = [other for other in record.models if mode is not None and other.type == mode.type and other.name in trained]
    return [other for other in alike if other.name != model and _shapes(record, other.name) == _shapes(record, model)]


def _shapes(record: RunRecord, model: str) -> list[str]:
    return sorted(str(leaf.tensor.shape) for leaf in record.rows if leaf.parameter and leaf.model == model)


def _plain(context: CheckContext, leaf: LeafRow) -> Diagnoses:
    """A tensor that a module holds as an attribute, and that is no parameter of it."""
    name, fixed = one_line(leaf.names[0]), _as_parameter(leaf.source, leaf.names[0].rpartition(".")[2])
    yield Diagnosis(
        f"{name} is a tensor, not an nn.Parameter: it gets a gradient, and nothing updates it",
        leaf.names,
        f"parameters() of {one_line(leaf.type)} does not list it, so no optimizer holds it, .to() and state_dict() pass it by, and "
        f"it did not change between {plural(leaf.reached, 'call')}"
        + (f"; it is made in {code(leaf.source)}" if leaf.source is not None else ""),
        f"Make it a parameter: {fixed}.",
        (leaf.node,) if leaf.call == context.call else (),
        where=places(f"{leaf.module} ({leaf.type})", line(leaf.source)),
        source=leaf.source,
        edit=instead(leaf.source, fixed),
    )


def _loose(context: CheckContext, leaf: LeafRow) -> Diagnoses:
    """A single number that requires grad, as a learned temperature does, and that nobody updates."""
    read = any(tensor.grad_read is not None and set(tensor.names) & set(leaf.names) for tensor in context.named_tensors)
    if read or not leaf.names or leaf.tensor.shape not in ((), (1,)):
        return  # the code reads its `.grad`, and does something with it
    optimizer, name = next(one for one in context.record.optimizers if one.steps), one_line(leaf.names[0])
    yield Diagnosis(
        f"{name} requires grad and gets a gradient, and nothing updates it",
        leaf.names,
        f"no optimizer holds it, and it did not change between {plural(leaf.reached, 'call')}",
        f"Give it to the optimizer: {optimizer.name or 'optimizer'}.add_param_group({{'params': [{leaf.names[0]}]}}). If it is not "
        "to be learned, leave out requires_grad=True.",
        (leaf.node,) if leaf.call == context.call else (),
        where=places(name, line(optimizer.source)),
        source=optimizer.source,
        follows=("idle-optimizer",),  # a copy of what that one holds
    )


def _as_parameter(source: SourceLine | None, attribute: str) -> str:
    """The line as it should be: what makes the tensor, inside `torch.nn.Parameter`."""
    value = next((getattr(statement, "value", None) for statement in parsed(source)), None)
    if isinstance(value, ast.Call) and "register_buffer" in ast.unparse(value.func):  # register_buffer("name", tensor)
        value = value.args[1] if len(value.args) > 1 else None
    if isinstance(value, ast.Call):
        value.keywords = [keyword for keyword in value.keywords if keyword.arg != "requires_grad"]
    return f"self.{attribute} = torch.nn.Parameter({ast.unparse(value) if isinstance(value, ast.expr) else '...'})"


@check("idle-optimizer", "warning", "an optimizer changes nothing")
def idle_optimizer(context: CheckContext) -> Diagnoses:
    """An optimizer that never takes a step, whose learning rate is 0, or whose tensors never get a gradient.

    How it is found: no optimizer took a step while gradients were reset twice, or until the script ended, as where `step()` waits
    for more batches than there are; the learning rate of all groups, or of one of several, was 0 in all steps, two at least, since
    a warm-up may begin at 0; or none of the tensors that it holds had a gradient in any of its steps, as when it was given another
    model's parameters.

    What to do: call `step()` after `backward()`, give it a learning rate, or the parameters that the loss depends on.

    When to ignore it: when the gradients are all that you want, and nothing is to be trained.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    for optimizer in context.record.optimizers:
        yield from islice(filter(None, (look(context, optimizer) for look in _LOOKS)), 1)


def _never_steps(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    record, log = context.record, context.record.about(optimizer)
    reset = len(list(parts(log, "b[^b]*z"))) >= ENOUGH and "s" not in letters(log)
    signs = reset, not record.stepped, record.ended and record.calls >= ENOUGH
    by_hand = any(leaf.moved for key, leaf in record.leaves.items() if key in optimizer.held)
    if optimizer.steps or not optimizer.reached or record.scaler or by_hand or sum(signs) < 2:
        return None
    resets = (call.source for call in calls_in(record.log, "z") if call.tensors == frozenset(optimizer.held))
    what = ": what backward() had filled in was reset each time" if reset else ""
    return _idle(
        optimizer,
        f"took no step in {plural(record.calls, 'backward call')}",
        f"backward() ran {plural(record.calls, 'time')}, and step() of {optimizer.title} was not called{what}",
        f"Call {optimizer.name or 'optimizer'}.step() after backward().",
        next(resets, None) if record.stepped else context.backward,
    )


def _holds_nothing(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    if optimizer.steps < ENOUGH or optimizer.held:
        return None
    return _idle(
        optimizer,
        "holds no tensor: its steps change nothing",
        f"it took {plural(optimizer.steps, 'step')} with nothing to update: an iterator such as model.parameters() can be gone "
        "through once only",
        "Call model.parameters() anew for the optimizer, or keep list(model.parameters()).",
    )


def _at_rate_zero(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    if not ENOUGH <= optimizer.steps == optimizer.idle_rates:
        return None
    factor, comes = sets_item(optimizer.source.file, "lr") if optimizer.source else None, ""
    fix = "Give it a learning rate, such as lr=1e-3; a scheduler must not multiply it by 0."
    if factor is not None:
        comes = f": it comes from {code(factor)}"
        fix = f"Let {code(factor)} give more than 0 from the second step on: / in place of //, which rounds a quotient down."
    return _idle(
        optimizer,
        "has a learning rate of 0: its steps change nothing",
        f"in all of its {plural(optimizer.steps, 'step')} the learning rate of every group was 0{comes}",
        fix,
        factor,
    )


def _given_others(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    """No cut is seen, and backward() reaches tensors that no optimizer holds."""
    rows = [row for row in context.record.rows if not (row.parameter or row.holders) and row.names]
    rows = [row for row in rows if row.reached >= ENOUGH]  # the data of a step is reached once
    if not (rows and _is_unfed(context, optimizer)) or _cuts_of(context, optimizer)[1]:
        return None
    loose = _together([row.names[0] for row in rows])
    what = f"updates nothing: backward() reaches {loose}, which it does not hold"
    return _idle(optimizer, what, _unfed(optimizer), f"Give it what backward() reaches: {loose}.", None, _EARLIER)


def _never_fed(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    if not _is_unfed(context, optimizer):
        return None
    every, others = _cuts_of(context, optimizer)
    call = _followed(context, optimizer)
    cuts = _blamed(call, others or every)
    beside = "".join(
        _for_others(context, optimizer, cut, call) for cut in cuts if cut.kind in _ON_ITS_OWN and call is not None
    )
    none = "Give it the parameters of the model whose output the loss is computed from, after that model is complete."
    return _idle(
        optimizer,
        "updates nothing: what it holds never gets a gradient",
        f"{_unfed(optimizer)}{''.join(f'; {words}' for words in all_cut_words(cuts))}",
        mend_all(cuts) + beside or none,
        next((cut.source for cut in cuts), None),
        _EARLIER,
    )


def _is_unfed(context: CheckContext, optimizer: OptimizerRow) -> bool:
    return optimizer.steps >= ENOUGH and not (optimizer.fed or optimizer.reached or context.record.scaler)


def _cuts_of(context: CheckContext, optimizer: OptimizerRow) -> tuple[list[Cut], list[Cut]]:
    """The cuts behind what an optimizer holds, else all; and of these, those that do not make what it holds."""
    names = {*context.record.named(optimizer.held)}
    every = {(cut.kind, cut.source): cut for cut in context.record.cuts}.values()
    cuts = [cut for cut in every if names & {*cut.leaf, *cut.behind}] or list(every)
    return cuts, [cut for cut in cuts if not _makes_leaves(cut, optimizer.source)]


_EARLIER = "nonleaf-parameter", "no-graph"


def _unfed(optimizer: OptimizerRow) -> str:
    return (
        f"it took {plural(optimizer.steps, 'step')}, and none of its {plural(len(optimizer.held), 'tensor')} had a gradient in any "
        "of them, nor was one in a graph that backward() ran through"
    )


def _together(names: Sequence[str]) -> str:
    """Code for some tensors: the one list or dict that all are items of, or each of them.

    >>> _together(["params['w']", "params['b']"]), _together(["ws[0]", "ws[1]"]), _together(["w", "b"])
    ('params.values()', 'ws', '[w, b]')
    """
    homes = {name.partition("[")[0] for name in names if name.endswith("]") and name.count("[") == 1}
    if len(homes) == 1 and all("[" in name for name in names):
        return f"{homes.pop()}{'.values()' if any(quote in names[0] for quote in _QUOTES) else ''}"
    return f"[{', '.join(names)}]"


_QUOTES = "'", '"'


def _makes_leaves(cut: Cut, made: SourceLine | None) -> bool:
    """Whether a cut stands above the line that makes an optimizer, in the same function: what it gives is what that one holds."""
    if made is None or made.file != cut.source.file or cut.source.line >= made.line:
        return False
    return body_around(made.file, made.line) == body_around(made.file, cut.source.line)


def _followed(context: CheckContext, optimizer: OptimizerRow) -> SourceLine | None:
    """The line of the backward() that the steps of an optimizer come after."""
    held = frozenset(optimizer.held)
    orders = (part for part in parts(context.record.log, "b[^bs]*s") if part[-1].tensors == held)
    return next((part[0].source for part in orders), None)


def _blamed(call: SourceLine | None, cuts: list[Cut]) -> list[Cut]:
    """Of several cuts, those that are likely the mistake: the nearest one above the backward() that the step comes after.

    A tensor that is cut by itself is one more often than a block that records nothing.
    """
    cuts = [cut for cut in cuts if cut.kind not in ("no_grad", "inference")] or cuts
    if call is None:
        return cuts
    here = (cut for cut in cuts if (cut.source.file, cut.source.function) == (call.file, call.function))
    above = {cut.source.line: cut for cut in here if cut.source.line <= call.line}
    return [above[max(above)]] if above else cuts


def _for_others(context: CheckContext, optimizer: OptimizerRow, cut: Cut, call: SourceLine) -> str:
    """What to write where losses that train others, between the cut and this call, use what was cut for all: they need it so."""
    source, every = cut.source, calls_in(context.record.log, "b")
    trained = {other.source for other in every if other.source and not optimizer.held.issuperset(other.tensors or ())}
    between = [other.line for other in trained if other.file == call.file and source.line < other.line < call.line]
    body = body_around(source.file, source.line)
    lines = {
        line(body.source(part)): part.id
        for statement, _ in body.statements
        if source.line < statement.lineno <= max(between, default=0)
        for part in own_parts(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in assigned(source)
    }
    return (
        f" In {listed(lines)}, where another loss uses it, write {next(iter(lines.values()))}.detach()."
        if lines
        else ""
    )


def _starved(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    """Steps that came to find no gradient, as when a copy takes the place of the model that the optimizer holds."""
    every = [other for other in context.record.optimizers if other.steps]
    if optimizer.starved <= ENOUGH or len(optimizer.fed) < ENOUGH or not all(other.starved for other in every):
        return None
    return _idle(
        optimizer,
        f"finds no gradient any more, in its last {plural(optimizer.starved, 'step')}",
        "backward() ran before each, and what it reaches is not what the optimizer holds: what was put in the place of the model, "
        "such as a copy, has other parameters",
        "Copy the numbers into the model that is trained, model.load_state_dict(other.state_dict()); or make a new optimizer for "
        "the new one.",
        follows=("no-update", "no-graph", "nonleaf-parameter"),
    )


def _frozen_group(context: CheckContext, optimizer: OptimizerRow) -> Diagnosis | None:
    """A group of its own that nothing updates in any step, to the end of the run or for long: frozen, or at a rate of 0."""
    groups = [group for group in optimizer.frozen_groups.values() if group]
    names = [name for group in groups for name in context.record.named(group)]
    seen = context.record.ended or optimizer.steps >= LONG
    if not names or len(groups) == len(optimizer.frozen_groups) or optimizer.steps < ENOUGH or not seen:
        return None
    holds = (
        f"{plural(len(groups), 'group')} of its own {verb(groups, 'holds', 'hold')} {plural(len(names), 'parameter')}"
    )
    if all(optimizer.fed.issuperset(group) for group in groups):
        by_hand = sets_item(optimizer.source.file, "lr") if optimizer.source else None
        return _idle(
            optimizer,
            f"never updates {listed(names, 3)}: the learning rate of {verb(groups, 'its group', 'their groups')} is 0",
            f"{holds} that got a gradient, and had a learning rate of 0 in all of {plural(optimizer.steps, 'step')}",
            "Set the rate of every group, in a loop over param_groups; or leave out what is not to be trained.",
            by_hand,
        )
    return _idle(
        optimizer,
        f"never updates {listed(names)}: requires_grad is False",
        f"{holds} that required no grad in any of {plural(optimizer.steps, 'step')}",
        f"Call {names[0]}.requires_grad_() before the training, for an embedding from_pretrained(..., freeze=False); or leave "
        "the group out.",
        context.record.made.get(names[0]),
    )


LONG = 10
"""Steps after which a group that was never trained counts as frozen, though the run was not watched to its end."""
_LOOKS = (_never_steps, _holds_nothing, _at_rate_zero, _given_others, _never_fed, _starved, _frozen_group)
"""What an optimizer may be idle by; the first that holds is told."""


def _idle(
    optimizer: OptimizerRow, what: str, why: str, fix: str, at: SourceLine | None = None, follows: Names = ()
) -> Diagnosis:
    made = f"; it was made in {code(optimizer.source)}" if optimizer.source is not None else ""
    summary, source = f"{optimizer.title} {what}", at or optimizer.source
    return Diagnosis(summary, optimizer.subject, why + made, fix, source=source, follows=follows)
