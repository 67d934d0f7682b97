"""Checks on freezing: what was meant to stay as it is, and is trained, or changes in another way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradviz.checks.context import (
    CheckContext,
    Ledger,
    Mistyped,
    Parameter,
    Stepping,
    Thawed,
)
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.verdicts import modules_of
from gradviz.checks.words import (
    as_code,
    code,
    line,
    listed,
    verb,
)
from gradviz.source.search import sets_attribute, step_begins
from gradviz.wording import one_line, plural

_ADAPTER = "lora"


@check("not-frozen", "warning", "what was meant to be frozen is trained")
def not_frozen(context: CheckContext) -> Iterator[Diagnosis]:
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
    ledger = context.ledger
    if ledger is None:
        return
    for one in ledger.mistyped:
        yield _mistyped(one)
    held = {name for optimizer in ledger.optimizers for name in optimizer.held}
    for each in ledger.thawed:
        if held.issuperset(each.names):
            yield _thawed(each)
    for optimizer in ledger.optimizers:
        if optimizer.frozen:
            yield _old_gradient(optimizer)
    yield from _base_of_adapters(context, ledger)
    yield from _only_in_eval(ledger)


def _mistyped(one: Mistyped) -> Diagnosis:
    names = tuple(map(one_line, one.names))
    if not names:
        return Diagnosis(
            f"{code(one.source)} compares, and switches nothing",
            (),
            line(one.source),
            "== asks whether two things are equal; as a statement of its own it has no effect: the parameters still require grad",
            "Write one equals sign: parameter.requires_grad = False.",
            source=one.source,
        )
    if one.module:
        what = (
            f"{listed(names, 3)}.{one.attribute} = False" if len(names) == 1 else f".{one.attribute} = False on modules"
        )
        why = "a module has no such switch: this only gives it an attribute that nobody reads"
        fix = f"Write {as_code(names[0])}.requires_grad_(False): the method, with an underscore, goes through all its parameters."
    else:
        what = f".{one.attribute} = False"
        why = f"a tensor's switch is requires_grad: this only gives it an attribute named {one.attribute} that nobody reads"
        fix = "Write parameter.requires_grad = False."
    return Diagnosis(
        f"{what} freezes nothing: {verb(names, 'it still requires', 'they still require')} grad",
        names,
        line(one.source),
        (f"{code(one.source)}: " if one.source is not None else "") + why,
        fix,
        source=one.source,
    )


def _thawed(one: Thawed) -> Diagnosis:
    return Diagnosis(
        f"{plural(len(one.names), 'parameter')} {verb(one.names, 'was', 'were')} frozen, and made trainable again before the "
        "training began",
        one.names,
        line(one.thawed),
        f"{code(one.frozen)} switched requires_grad of {listed(one.names, 3)} off, and {code(one.thawed)} switched it on again, "
        "for these and for others: the first line has no effect",
        f"Leave out {code(one.thawed)}: parameters require grad from the start. Or freeze after it.",
        source=one.thawed,
    )


def _old_gradient(one: Stepping) -> Diagnosis:
    name = one_line(one.name or one.type)
    return Diagnosis(
        f"{plural(len(one.frozen), 'frozen parameter')} {verb(one.frozen, 'is', 'are')} still updated by {name}",
        one.frozen,
        line(one.source),
        f"{verb(one.frozen, 'it has', 'they have')} requires_grad=False, but a gradient from before is still in .grad, and {name} "
        "takes it for its step each time (with momentum and weight decay)",
        f"Empty it when you freeze: parameter.requires_grad_(False); parameter.grad = None. Or give {name} only what is trained.",
        source=one.source,
    )


def _only_in_eval(ledger: Ledger) -> Iterator[Diagnosis]:
    """A model that was put into eval() mode, as a teacher is, and that is trained beside another one."""
    updated = {one.model for one in ledger.leaves if one.updates}
    beside = [one.name for one in ledger.models if one.training and one.held and one.name in updated]
    for one in ledger.models:
        if one.only_eval is not None and one.name in updated and one.held == one.parameters and beside:
            name = as_code(one.name)
            yield Diagnosis(
                f"{one_line(one.name)} ({one_line(one.type)}) is in eval() mode, and trained all the same",
                (one.name,),
                line(one.only_eval),
                f"{code(one.only_eval)} switches dropout and batch normalization, of which it has none; its parameters still "
                f"require grad, and an optimizer updates them together with {listed(beside, 3)}",
                f"If {name} is to stay as it is, freeze it, {name}.requires_grad_(False), and give the optimizer the parameters of "
                f"{listed(beside, 3)} alone. If it is to be trained, leave out {one_line(one.only_eval.text)}.",
                source=one.only_eval,
            )


def _base_of_adapters(context: CheckContext, ledger: Ledger) -> Iterator[Diagnosis]:
    """The weights that LoRA is to leave alone, when an optimizer updates them."""
    held = {name for one in ledger.optimizers for name in one.held}
    parameters = [one for one in context.parameters if not one.sharded and _matrix(one)]
    plain = [one for one in parameters if _ADAPTER not in one.names[0].lower()]
    base: dict[str, Parameter] = {}
    for path in dict.fromkeys(_around_adapter(one.names[0]) for one in parameters):
        beside = [one for one in plain if path and one.names[0].startswith(f"{path}.")]
        if all(one.requires_grad and one.names[0] in held for one in beside):  # else somebody has chosen
            base.update((one.names[0], one) for one in beside)
    if base:
        yield _unfrozen_base(context, ledger, list(base.values()))


def _matrix(one: Parameter) -> bool:
    return one.tensor.shape is not None and len(one.tensor.shape) > 1


def _around_adapter(name: str) -> str:
    """The module around what is named after LoRA: `net.fc` for `net.fc.lora_A` and `net.fc.lora_A.weight`; "" for others."""
    parts = name.split(".")
    return next((".".join(parts[:i]) for i, part in enumerate(parts) if _ADAPTER in part.lower()), "")


def _unfrozen_base(context: CheckContext, ledger: Ledger, base: Sequence[Parameter]) -> Diagnosis:
    model = context.models[base[0].model].name if context.models else "model"
    makers = [one for one in ledger.optimizers if set(one.held) & {each.names[0] for each in base}]
    file = makers[0].source.file if makers[0].source is not None else ""
    on = sets_attribute(file, "requires_grad") if file else None
    known = f" ({line(on)} switches on what is on already)" if on is not None and "True" in on.text else ""
    return Diagnosis(
        f"LoRA's base weights are trained, too: {listed(modules_of(context, base), 3)}",
        tuple(one.names[0] for one in base),
        line(makers[0].source),
        f"{verb(base, 'it requires', 'they require')} grad and {one_line(makers[0].name or makers[0].type)} holds "
        f"{verb(base, 'it', 'them')}, beside parameters named {_ADAPTER}: setting requires_grad=True on those leaves the others "
        "trainable, as they are from the start",
        f"Freeze the rest before the optimizer is made{known}: for name, parameter in {model or 'model'}.named_parameters(): "
        f"parameter.requires_grad = '{_ADAPTER}' in name.",
        source=makers[0].source,
    )


@check("moving-statistics", "warning", "batch normalization with frozen parameters still updates its statistics")
def moving_statistics(context: CheckContext) -> Iterator[Diagnosis]:
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
    ledger = context.ledger
    if ledger is None or not any(one.steps for one in ledger.optimizers):
        return
    for model in ledger.models:
        if model.norms:
            first = one_line(model.norms[0])
            one = len(model.norms) == 1
            yield Diagnosis(
                f"{first if one else plural(len(model.norms), 'batch norm')} {verb(model.norms, 'is', 'are')} frozen, and "
                f"{verb(model.norms, 'its', 'their')} running statistics still change",
                model.norms,
                line(model.switched) or one_line(model.name),
                f"weight and bias of {listed(model.norms, 3)} do not require grad, but {verb(model.norms, 'it is', 'they are')} in "
                f"training mode and {verb(model.norms, 'updates', 'update')} running_mean and running_var in every forward: "
                f"train() switches that on for all modules inside {one_line(model.name)}, also after an earlier eval()"
                + (f", as in {code(model.switched)}" if model.switched is not None else ""),
                f"Switch {verb(model.norms, 'it', 'them')} to eval mode again, after every {one_line(model.name)}.train(): "
                + "; ".join(f"{as_code(norm)}.eval()" for norm in model.norms[:3])
                + (", and so on for each." if len(model.norms) > 3 else "."),
                source=model.switched,
            )


def _first_thing(context: CheckContext) -> str:
    begins = step_begins(context.backward) if context.backward is not None else None
    return f", first thing in the loop of {line(begins)}" if begins is not None else ""


@check("eval-while-training", "warning", "a model is trained in eval() mode")
def eval_while_training(context: CheckContext) -> Iterator[Diagnosis]:
    """A model is in `eval()` mode while an optimizer trains it: dropout does nothing, batch normalization does not learn.

    Mostly an evaluation that does not switch back with `train()`; and `from_pretrained()` returns models in eval mode.

    How it is found: the model as a whole is in eval mode, contains dropout, or batch normalization that is trained, and an
    optimizer updates its parameters.

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
    ledger = context.ledger
    if ledger is None:
        return
    moving = {name for one in ledger.leaves if one.updates for name in one.names}
    for model in ledger.models:
        trained = any(name.startswith(f"{model.name}.") for name in moving)
        if not model.training and model.sleeping and trained:
            name = one_line(model.name)
            yield Diagnosis(
                f"{name} ({one_line(model.type)}) is trained in eval() mode",
                (model.name,),
                line(model.switched or context.backward),
                f"{listed(model.sleeping, 3)} {verb(model.sleeping, 'does', 'do')} nothing in eval mode, and an optimizer updates "
                f"the parameters of {name}",
                f"Call {name}.train() before the training steps{_first_thing(context)}, and again after every evaluation that "
                f"calls {name}.eval().",
                source=model.switched or context.backward,
            )
