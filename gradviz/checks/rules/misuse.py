"""Checks on calls that run without an error and do something else than they look like: each is a row of what is said of it."""

from __future__ import annotations

from collections.abc import Mapping

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.source.code_line import passing, squeezed
from gradviz.wording import one_line, plural

BROADCAST = {
    "broadcast": Row(
        "shapes {1} broadcast to a square: each element meets every other one",
        "{code} computes {0} of shapes {1}, which makes a square of n x n that is then averaged: each sample is compared "
        "with all others",
        "Give both one shape: .squeeze(1) on the one with two dimensions, or .unsqueeze(1) on the other.",
    ),
    "joins all": Row(
        "shapes {1} broadcast to {2}: each sample meets every other one",
        "{code} computes {0} of shapes {1}, which makes {2}: the samples of the one stand for those of the other, and for a "
        "dimension of their own",
        "Give both one shape: .squeeze(1) on the one with a dimension of size 1.",
    ),
    "sample for column": Row(
        "a number for each sample is spread along the columns",
        "{code} computes {0} with {1}: the first has a number for each sample, and broadcasting gives one to each column; it only "
        "fits since the sizes are equal",
        "Where it is picked, give it a dimension for each of those that it is to fill: .view(-1{2}).",
    ),
    "summed too far": Row(
        "a sum over the whole batch is added to each sample",
        "{code} adds one number, the sum of all {0}, to {1}, which has one for each sample: each gets what belongs to all",
        "Sum over the last dimensions only, and keep the batch: .flatten(1).sum(1).",
    ),
    "reduced too early": Row(
        "weights of shape {2} come after the {0}: they weigh nothing",
        "{code} multiplies one number, the {0} of {1}, by {2}: all elements get the same loss, whatever their weight",
        "Reduce after the weights: reduction='none' for a loss, or a sum over the last dimensions only, then weigh, then average.",
    ),
}
_RESHAPED = {
    "reshape": Row(
        "{0} from {1} to {2} mixes {4}: it swaps no dimensions",
        "{code} keeps the order of the elements in memory and only cuts it anew, so that a row of the result has parts of several",
        "{3} in {text}.",
    ),
    "cut anew": Row(
        "{0} from {1} to {2} cuts across dimensions: it swaps none",
        "{code} keeps the order of the elements in memory and only cuts it anew, so that a row of the result has parts of several",
        "{3} in {text}.",
    ),
}
_MODES = {
    "dropout in eval": Row(
        "dropout runs in eval mode: it is not told of the mode",
        "{code} drops out although {0} is in eval mode, {times} seen: a functional dropout has training=True unless it is told",
        "Use torch.nn.Dropout, a module; or pass the mode: training=self.training.",
        passes=("training=self.training", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"),
    ),
    "dropout apart": Row(
        "eval() does not reach the dropout of {0}: it is no submodule",
        "{code} drops out although {0} is in eval mode, {times} seen: a module that forward() creates, or that a plain list "
        "holds, stays in training mode",
        "Create it in __init__() as an attribute of self, or in an nn.ModuleList, and call that.",
    ),
    "train in evaluation": Row(
        "{0} is evaluated in training mode",
        "{code} runs {0} under no_grad() while it is in training mode: {1}",
        "Call .eval() on the model before {text}, and .train() again before the next training step.",
    ),
    "frozen and random": Row(
        "{0} is frozen, and runs in training mode",
        "{code} runs {0} under no_grad() while it is in training mode: {1}, others in each pass",
        "Call .eval() on it, once, before the training.",
        ("moving-statistics",),
    ),
}  # fmt: skip


def told(context: CheckContext, rows: Mapping[str, Row]) -> Diagnoses:
    """What is said of these kinds."""
    held, models = context.record.holding, context.record.models
    named = {model.type: model.name for model in models if [one.type for one in models].count(model.type) == 1}
    for misuse in context.record.misuses:
        row = rows.get(misuse.kind)
        # a model that runs in training mode without a graph may be one that no optimizer trains, as a teacher is not
        if row is not None and not (misuse.kind == "train in evaluation" and misuse.tensors.isdisjoint(held)):
            given = [one_line(named.get(word, word)) for word in misuse.words]
            diagnosis = row.told(misuse.names, misuse.source, *given, times=plural(misuse.times, "time"))
            keyword, *functions = (part.format(*given) for part in row.passes or ("=",))
            new = misuse.mended or passing(misuse.source, functions, **dict([keyword.split("=")]))
            if misuse.kind in ("broadcast", "joins all"):
                first, _, second = misuse.words[1].partition(" and ")
                new = squeezed(misuse.source, misuse.words[0], first.count(", ") > second.count(", "))
            edit, fix = instead(misuse.source, new), diagnosis.fix
            shown = edit is not None and new not in fix
            yield diagnosis._replace(edit=edit, fix=f"{fix.removesuffix('.')}: {new.rstrip(',')}." if shown else fix)


@check("reshape-mixes", "warning", "a reshape swaps sizes, and mixes what belongs to different samples")
def reshape_mixes(context: CheckContext) -> Diagnoses:
    """`view` or `reshape` is asked for sizes that a tensor has, in another order, or for rows that cut across its dimensions.

    That swaps no dimensions: the elements stay in their order, and are cut into rows of another length. What was of one sample, or
    of one step in time, is spread over several.

    How it is found: the shapes before and after `view` and `reshape`, for numbers that are not integers.

    What to do: `transpose` or `permute`: after a dimension is split, and before dimensions are merged.

    When to ignore it: when the order of the elements in memory is what is wanted.

    ```python
    import torch

    model = torch.nn.RNN(3, 4)
    batch = torch.randn(8, 5, 3)
    output, state = model(batch.view(5, 8, 3))
    loss = output.square().mean()
    loss.backward()
    ```
    """
    yield from told(context, _RESHAPED)


@check("wrong-mode", "warning", "dropout or batch normalization runs in the wrong mode")
def wrong_mode(context: CheckContext) -> Diagnoses:
    """A functional dropout goes on in `eval()` mode, or a model is evaluated in training mode.

    `torch.nn.functional.dropout` drops out unless it is told otherwise: `training` is True by default. A model that is evaluated
    without `eval()` gives other numbers each time, and its batch normalization learns from the validation data.

    How it is found: calls of dropout and batch normalization that run as in training are seen with the mode of the model around
    them, and whether anything is recorded. Only models that an optimizer trains count, and what they look up without recording in a
    training step does not; parts that were switched to training mode alone, as for Monte Carlo dropout, do not.

    What to do: pass `training=self.training`; call `eval()` before an evaluation and `train()` after it.

    When to ignore it: when the outputs are to be random, or statistics are estimated anew.

    ```python
    import torch


    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(torch.nn.functional.dropout(x, 0.5))


    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 3))
        model.train()
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    yield from told(context, _MODES)
