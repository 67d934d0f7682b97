"""Checks on freezing: what was meant to stay as it is, and is trained, or changes in another way."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradviz.checks.context import CheckContext, Parameter
from gradviz.checks.edit import instead
from gradviz.checks.record import Mistyped, ModelState, RunRecord, Thawed
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.verdicts import modules_of
from gradviz.checks.words import as_code, code, first_names, line, listed, verb
from gradviz.source.search import sets_attribute, step_begins
from gradviz.wording import one_line, plural

_ADAPTER = "lora"


@check("not-frozen", "warning", "what was meant to be frozen is trained")
def not_frozen(context: CheckContext) -> Diagnoses:
    """Parameters that the code means to freeze and that are updated all the same.

    How it is found: an attribute that freezes nothing (`parameter.require_grad = False`, `module.requires_grad = False`: a module
    has only `requires_grad_()`); LoRA weights beside base weights that an optimizer updates, too; a parameter with
    `requires_grad=False` in which its optimizer still finds an old gradient, and goes on; a line that freezes some parameters
    and a later one that sets `requires_grad=True` for all, before the first step; or a model that `eval()` was called of, which
    freezes nothing, beside another one that is in training mode.

    What to do: set `requires_grad` of the parameters, call `requires_grad_(False)` of the module, and set `.grad` to None.

    When to ignore it: when these parameters are to be trained.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    for parameter in body.parameters():
        parameter.require_grad = False
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.record
    yield from map(_mistyped, record.mistyped)
    yield from (_thawed(thawed) for thawed in record.thawed if record.held.issuperset(thawed.names))
    for optimizer in record.optimizers:
        name, frozen = one_line(optimizer.name or optimizer.type), record.named(optimizer.frozen)
        if frozen:
            yield Diagnosis(
                f"{plural(len(frozen), 'frozen parameter')} {verb(frozen, 'is', 'are')} still updated by {name}",
                frozen,
                f"{verb(frozen, 'it has', 'they have')} requires_grad=False, but a gradient from before is still in .grad, and "
                f"{name} takes it for its step each time (with momentum and weight decay)",
                f"Empty it when you freeze: parameter.requires_grad_(False); parameter.grad = None. Or give {name} only what is "
                "trained.",
                source=optimizer.source,
            )
    yield from _base_of_adapters(context, record)
    yield from _only_in_eval(record)


def _mistyped(mistyped: Mistyped) -> Diagnosis:
    names, source = tuple(map(one_line, mistyped.names)), mistyped.source
    if not names:
        return Diagnosis(
            f"{code(source)} compares, and switches nothing",
            (),
            "== asks whether two things are equal; as a statement of its own it has no effect: the parameters still require grad",
            "Write one equals sign: parameter.requires_grad = False.",
            source=source,
        )
    what, fix = f".{mistyped.attribute} = False", "Write parameter.requires_grad = False."
    new = source.text.replace(mistyped.attribute, "requires_grad") if source is not None else ""
    why = f"a tensor's switch is requires_grad: this only gives it an attribute named {mistyped.attribute} that nobody reads"
    if mistyped.module:
        what = f"{names[0]}{what}" if len(names) == 1 else f"{what} on modules"
        why = "a module has no such switch: this only gives it an attribute that nobody reads"
        spelled = re.match(rf"([\w.\[\]]+)\.{mistyped.attribute}\s*=[^=]*$", source.text.strip() if source else "")
        name = spelled[1] if spelled is not None else as_code(names[0])
        new = f"{name}.requires_grad_(False)"
        fix = f"Write {new}: the method, with an underscore, goes through all its parameters."
    return Diagnosis(
        f"{what} freezes nothing: {verb(names, 'it still requires', 'they still require')} grad",
        names,
        f"{code(source)}: {why}" if source is not None else why,
        fix,
        source=source,
        edit=instead(source, new),
    )


def _thawed(thawed: Thawed) -> Diagnosis:
    return Diagnosis(
        f"{plural(len(thawed.names), 'parameter')} {verb(thawed.names, 'was', 'were')} frozen, and made trainable again before the "
        "training began",
        thawed.names,
        f"{code(thawed.frozen)} switched requires_grad of {listed(thawed.names, 3)} off, and {code(thawed.thawed)} switched it on "
        "again, for these and for others: the first line has no effect",
        f"Leave out {code(thawed.thawed)}: parameters require grad from the start. Or freeze after it.",
        source=thawed.thawed,
    )


def _only_in_eval(record: RunRecord) -> Diagnoses:
    """A model that was put into eval() mode, as a teacher is, and that is trained beside another one."""
    by: dict[str, set[str]] = {}
    for leaf in record.rows:
        if leaf.updates:
            by.setdefault(leaf.model, set()).update(leaf.holders)
    for mode in record.models:
        mine = by.get(mode.name, set())
        beside = [one.name for one in record.models if one.training and one.held and mine & by.get(one.name, set())]
        if mode.only_eval is not None and mode.held == mode.parameters and beside:
            name = as_code(mode.name)
            yield Diagnosis(
                f"{one_line(mode.name)} ({one_line(mode.type)}) is in eval() mode, and trained all the same",
                (mode.name,),
                f"{code(mode.only_eval)} switches dropout and batch normalization, of which it has none; its parameters still "
                f"require grad, and an optimizer updates them together with {listed(beside, 3)}",
                f"If {name} is to stay as it is, freeze it, {name}.requires_grad_(False), and give the optimizer the parameters of "
                f"{listed(beside, 3)} alone. If it is to be trained, leave out {one_line(mode.only_eval.text)}.",
                source=mode.only_eval,
            )


def _base_of_adapters(context: CheckContext, record: RunRecord) -> Diagnoses:
    """The weights that LoRA is to leave alone, when an optimizer updates them."""
    held = record.held
    matrices = [one for one in context.parameters if len(one.tensor.shape or ()) > 1 and not one.sharded]
    plain = [one for one in matrices if _ADAPTER not in one.names[0].lower()]
    base: dict[str, Parameter] = {}
    for path in dict.fromkeys(_around_adapter(one.names[0]) for one in matrices):
        beside = [one for one in plain if path and one.names[0].startswith(f"{path}.")]
        # where some are frozen already, somebody has chosen
        if all(one.requires_grad and one.names[0] in held for one in beside):
            base |= {one.names[0]: one for one in beside}
    if base:
        yield _unfrozen_base(context, record, list(base.values()))


def _around_adapter(name: str) -> str:
    """The module around what is named after LoRA: `net.fc` for `net.fc.lora_A` and `net.fc.lora_A.weight`; "" for others."""
    parts = name.split(".")
    return next((".".join(parts[:i]) for i, part in enumerate(parts) if _ADAPTER in part.lower()), "")


def _unfrozen_base(context: CheckContext, record: RunRecord, base: Sequence[Parameter]) -> Diagnosis:
    model = context.models[base[0].model].name if context.models else "model"
    names = first_names(base)
    maker = next(optimizer for optimizer in record.optimizers if set(record.named(optimizer.held)) & set(names))
    on = sets_attribute(maker.source.file, "requires_grad") if maker.source is not None else None
    known = f" ({line(on)} switches on what is on already)" if on is not None and "True" in on.text else ""
    return Diagnosis(
        f"LoRA's base weights are trained, too: {listed(modules_of(context, base), 3)}",
        names,
        f"{verb(base, 'it requires', 'they require')} grad and {one_line(maker.name or maker.type)} holds "
        f"{verb(base, 'it', 'them')}, beside parameters named {_ADAPTER}: setting requires_grad=True on those leaves the others "
        "trainable, as they are from the start",
        f"Freeze the rest before the optimizer is made{known}: for name, parameter in {model or 'model'}.named_parameters(): "
        f"parameter.requires_grad = '{_ADAPTER}' in name.",
        source=maker.source,
    )


@check("moving-statistics", "warning", "batch normalization with frozen parameters still updates its statistics")
def moving_statistics(context: CheckContext) -> Diagnoses:
    """Batch normalization whose weight and bias are frozen, in training mode: `running_mean` and `running_var` still move.

    Freezing parameters does not freeze the statistics of batch normalization: `train()` switches them on, for all modules
    inside a model and at every call, also for those that `eval()` had switched off before.

    How it is found: they moved between two backward calls, while weight and bias stayed, and an optimizer took steps.

    What to do: call `eval()` of these modules after every `train()` of the model.

    When to ignore it: when the statistics are meant to follow the new data.

    ```python
    import torch

    backbone = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).requires_grad_(False)
    head = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for step in range(3):
        loss = head(backbone(torch.randn(8, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    for model in context.record.models if context.record.stepped else ():
        if model.norms:
            yield _moving(context, model)


def _moving(context: CheckContext, model: ModelState) -> Diagnosis:
    name, norms = one_line(model.name), model.norms
    what = one_line(norms[0]) if len(norms) == 1 else plural(len(norms), "batch norm")
    switched = f", as in {code(model.switched)}" if model.switched is not None else ""
    calls = "; ".join(f"{as_code(norm)}.eval()" for norm in norms[:3]) + (", and so on for each" if norms[3:] else "")
    fix = f"Switch {verb(norms, 'it', 'them')} to eval mode again, after every {name}.train(): {calls}."
    ran = next((other.called for other in context.models if other.name == model.name), None)
    if model.frozen:
        when = f"after {line(model.switched)}" if model.switched is not None else "before the training"
        fix = f"Switch all of it to eval mode, which stops dropout, too, {when}: {as_code(model.name)}.eval()."
    source = model.switched or (ran if model.frozen else None)
    return Diagnosis(
        f"{what} {verb(norms, 'is', 'are')} frozen, and {verb(norms, 'its', 'their')} running statistics still change",
        norms,
        f"weight and bias of {listed(norms, 3)} do not require grad, but {verb(norms, 'it is', 'they are')} in training mode, as "
        f"all modules are from the start and after train(), and {verb(norms, 'updates', 'update')} running_mean and running_var "
        f"in every forward{switched}",
        fix,
        where=line(source) or name,
        source=source,
    )


@check("eval-while-training", "warning", "a model is trained in eval() mode")
def eval_while_training(context: CheckContext) -> Diagnoses:
    """A model is in `eval()` mode while an optimizer trains it: dropout does nothing, batch normalization does not learn.

    Mostly an evaluation that does not switch back with `train()`; and `from_pretrained()` returns models in eval mode.

    How it is found: the model as a whole is in eval mode at a backward call whose gradients an optimizer takes a step with, and
    contains dropout, or batch normalization that is trained. A pass in eval mode for another gradient, as an attack makes, is none.

    What to do: call `train()` before the training steps, and again after every evaluation.

    When to ignore it: when it is trained without dropout and with fixed statistics on purpose.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.record
    for model in record.models:
        trained = any(name.startswith(f"{model.name}.") for name in record.updated)
        if not model.training and model.sleeping and trained and model.held:
            name = one_line(model.name)
            begins = step_begins(context.backward)
            first = f", first thing in the loop of {line(begins)}" if begins is not None else ""
            yield Diagnosis(
                f"{name} ({one_line(model.type)}) is trained in eval() mode",
                (model.name,),
                f"{listed(model.sleeping, 3)} {verb(model.sleeping, 'is', 'are')} in eval mode, where dropout drops nothing and "
                f"batch normalization uses its running statistics, and an optimizer updates the parameters of {name}",
                f"Call {name}.train() before the training steps{first}, and again after every evaluation that "
                f"calls {name}.eval().",
                source=model.switched or context.backward,
                edit=instead(begins, f"{begins.text}\n    {name}.train()" if begins is not None else ""),
            )
