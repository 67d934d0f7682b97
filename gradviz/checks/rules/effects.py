"""Checks on lines without an effect, or with one more each time."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.record import OptimizerRow
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.rules.misuse import told
from gradviz.checks.words import line
from gradviz.source.search import sets_attribute, sets_item

_DROPPED = "it makes a new tensor, which nobody gets, and leaves {1} as it is"
_WITHOUT = {
    "clips nothing": Row(
        "the clipping gets an iterator that is used up: it clips nothing",
        "the generator in {code} has ended already, as model.parameters() has after one loop over it ({times} seen)",
        "Ask for model.parameters() anew, or keep a list: list(model.parameters()).",
    ),
    "added once": Row(
        "an indexed += adds only one of the numbers for each place",
        "{code} adds to {0} places that an index names, of which {1} are different: x[index] += y reads all, adds, and writes all "
        "back, and of those for one place the last remains",
        "Use index_add, which adds all: x = x.index_add(0, index, y).",
    ),
    "loads nothing": Row(
        "load_state_dict() loads nothing: the model has none of these names",
        "{code} is given {0} names such as {1}, and the model has {2}; strict=False says nothing of it",
        "Rename what is loaded, so that {1} becomes {2}; and leave out strict=False, which hides it.",
    ),
    "not restored": Row(
        "the training goes on from a checkpoint, and the {1} begins anew",
        "{code} reads a checkpoint whose {0!r} is the state of the {1}; the code takes the step from it, and never reads that",
        "Restore it as well, behind {line}, with load_state_dict() of the {1} that goes on.",
    ),
    "never read": Row(
        "{0} is taken from the batch and never read",
        "{code} gives {0} a part of each batch, and nothing in this function reads it, as it does the others",
        "Use {0} in the loss: a mask leaves out what does not count, and what is done has no next value, (1 - done) * value. "
        "If it is not needed, call it _.",
    ),
    "drops": Row("`{0}` does nothing", _DROPPED, "Write {2}."),
    "drops for good": Row("`{0}` does nothing", _DROPPED, "Give the result a name, and go on with that."),
}  # fmt: skip
_NAMED = {"names": Row("{0} is named and not called", "the name of a method alone calls nothing", "Write {2}.")}
_AGAIN = {
    "hooks pile up": Row(
        "the same hook is registered again each time: {1} of them run now",
        "{code} has registered one function on one {0} again and again, and none was removed",
        "Keep what it returns, and call its remove() at the end of each round; or register it once, in front of the loop.",
    ),
}  # fmt: skip


@check("no-effect", "warning", "a line computes something that nobody gets")
def no_effect(context: CheckContext) -> Diagnoses:
    """A line makes a new tensor and drops it: the line does nothing.

    `x.clamp(0, 1)`, `hidden.detach()`, `loss / 4`, `torch.relu(h)` and `images.to(device)` leave their tensor as it is and return
    another one; only names that end in `_` change it in place (and a module's `to` and `cuda`).

    Nor do `clip_grad_norm_` of an iterator that is used up, `load_state_dict` of a state that shares its memory with the model or
    has none of its names, and a setting of an optimizer that torch does not read, as `optimizer.lr` is; nor the state of an
    optimizer in a checkpoint that the training goes on from, when nobody loads it.

    How it is found: Statements that consist of such a call are looked up in the text of your files, and the calls are seen
    as they run, with what they made. The last line of a file, which a notebook would show, and what is inside `try` are left out.

    What to do: Give the result a name, as in `x = x.clamp(0, 1)`.

    When to ignore it: When the line is there to measure or to warm up an operation.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    x = w * 2
    x.clamp(0, 1)
    loss = x.sum()
    loss.backward()
    ```
    """
    yield from told(context, _WITHOUT)
    for optimizer in context.record.optimizers:
        yield from _unread(optimizer)


def _unread(optimizer: OptimizerRow) -> Diagnoses:
    """Settings of an optimizer that torch does not read."""
    for key, meant in optimizer.unread.items():
        sets, made = sets_attribute if key[0] == "." else sets_item, optimizer.source
        source = sets(made.file, key.removeprefix(".")) if made is not None else None
        fix = f"Call it {meant} in {line(source or made)}."
        if source is not None and key[0] == ".":
            fix = f"Set it in the groups: for group in optimizer.param_groups: group[{meant!r}] = ..."
        yield Diagnosis(
            f"{optimizer.title} does not read {key}: it has no effect",
            optimizer.subject,
            f"{optimizer.type} reads {meant!r} of each group in its param_groups",
            fix,
            source=source or made,
        )


_CANCELS = {
    "cancels": Row(
        "a difference of two equal results: its gradient cancels",
        "{code} subtracts two results of the same parameters that are equal bit for bit, both with a graph ({times} seen): "
        "their gradients are equal and opposite, so it trains nothing",
        "Take the older one from where it was stored, without its graph, as the log_prob() of actions when they were drawn. If it "
        "belongs to this step, detach it: x = x.detach().",
    ),
}  # fmt: skip


@check("cancelled-gradient", "warning", "two equal results of the same parameters are subtracted: the gradient cancels")
def cancelled_gradient(context: CheckContext) -> Diagnoses:
    """Two results that are equal and come from the same parameters are subtracted, and both have a graph.

    What is learned of the one is taken back by the other. A ratio of new to old probabilities is the usual case, where the old ones
    were not detached, and a model that is compared with itself.

    How it is found: a few differences of each line outside libraries are compared. Reported when, twice, all elements are
    equal, not all the same number, and both sides lead to the same leaves.

    What to do: detach the side that is to stay as it is.

    When to ignore it: when a penalty is 0 at the start and not later.

    ```python
    import torch

    model = torch.nn.Linear(3, 2)
    for step in range(3):
        x = torch.ones(4, 3) * torch.arange(4).unsqueeze(1)
        old, new = model(x).log_softmax(1), model(x).log_softmax(1)
        loss = -(new - old).exp().mean()
        loss.backward()
        model.zero_grad()
    ```
    """
    if all(misuse.times > 1 for misuse in context.record.misuses if misuse.kind == "cancels"):
        yield from told(context, _CANCELS)


@check("pile-of-hooks", "warning", "the same hook is registered again and again, and runs as often")
def pile_of_hooks(context: CheckContext) -> Diagnoses:
    """A hook is registered on a module or parameter in each epoch or step, and none is removed: it runs once more each time.

    What it collects comes several times, each step takes longer, and what it holds is never freed.

    How it is found: the function of each hook is noted. Reported when, between three steps, one was registered on the same one
    each time, and three of them are there.

    What to do: register it once, before the loop; or keep the handle and call its `remove()`.

    When to ignore it: never, unless the hooks differ by what they are told to do.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    means = []
    for step in range(4):
        model.register_forward_hook(lambda module, given, result: means.append(result.mean().item()))
        model(torch.ones(2, 3)).square().mean().backward()
        model.zero_grad()
    ```
    """
    yield from told(context, _AGAIN)


@check("not-called", "warning", "a method is named and not called")
def not_called(context: CheckContext) -> Diagnoses:
    """A line consists of a method without `()`, such as `optimizer.step` or `model.eval`: it does nothing.

    How it is found: Statements that consist of such a name are looked up in the text of the script, and of your files that call
    torch. The last line of a file, which a notebook would show, and what is inside `try` are left out.

    What to do: Call the method.

    When to ignore it: When the attribute is one of yours that does something when it is read.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step
    print("done")
    ```
    """
    yield from told(context, _NAMED)
