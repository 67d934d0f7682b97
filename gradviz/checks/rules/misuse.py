"""Checks on calls that run without an error and do something else than they look like:
each is a row of what is said of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.record import Asleep
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.words import line, listed
from gradviz.source.code_line import passing
from gradviz.source.search import step_begins
from gradviz.wording import one_line, plural

_MODES = {
    "dropout in eval": Row(
        "dropout runs in eval mode: it is not told of the mode",
        "{code} drops out although {0} is in eval mode, {times} seen: a functional dropout has training=True unless it is told",
        "Use torch.nn.Dropout, a module; or pass the mode: training=self.training.",
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
}  # fmt: skip
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")


def diagnoses(context: CheckContext, rows: Mapping[str, Row]) -> Diagnoses:
    """What is said of these kinds."""
    held = context.record.holding
    for misuse in context.record.misuses:
        row = rows.get(misuse.kind)
        # a model that runs in training mode without a graph may be one that no
        # optimizer trains, as a teacher is not
        teacher = misuse.kind == "train in evaluation" and held.isdisjoint(
            misuse.tensors
        )
        if row is None or teacher:
            continue

        words = [one_line(_named(context, word)) for word in misuse.words]
        times = plural(misuse.times, "time")
        diagnosis = row.filled(misuse.names, misuse.source, *words, times=times)
        if misuse.kind == "dropout in eval":
            new = passing(misuse.source, _DROPOUTS, "training", "self.training")
            diagnosis = diagnosis._replace(edit=instead(misuse.source, new))
        yield diagnosis


def _named(context: CheckContext, word: str) -> str:
    """The name of the one model of this class."""
    models = [model for model in context.record.models if model.type == word]
    return models[0].name if len(models) == 1 else word


@check("wrong-mode", "warning", "dropout or batch normalization runs in the wrong mode")
def wrong_mode(context: CheckContext) -> Diagnoses:
    """A model is trained in `eval()` mode, evaluated in training mode, or a functional
    dropout goes on in `eval()` mode.

    A model that is trained in `eval()` mode has no dropout, and its batch normalization
    does not learn: mostly an evaluation did not switch back with `train()`; and
    `from_pretrained()` returns models in eval mode.

    `torch.nn.functional.dropout` drops out unless it is told otherwise: `training` is
    True by default. A model that is evaluated without `eval()` gives other numbers each
    time, and its batch normalization learns from the validation data.

    How it is found: an optimizer takes a step for a model that as a whole is in eval
    mode, then and at the backward call before, and that contains dropout, or batch
    normalization that is trained. Calls of dropout and batch normalization that run as
    in training are seen with the mode of the model around them, and whether anything is
    recorded. Only models that an optimizer trains count, and what they look up without
    recording in a training step does not; parts that were switched to training mode
    alone, as for Monte Carlo dropout, do not.

    What to do: pass `training=self.training`; call `eval()` before an evaluation and
    `train()` after it.

    When to ignore it: when the outputs are to be random, or statistics are estimated
    anew.

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
    yield from (_asleep(context, asleep) for asleep in context.record.asleep)
    yield from diagnoses(context, _MODES)


def _asleep(context: CheckContext, asleep: Asleep) -> Diagnosis:
    """A model that is trained in eval() mode."""
    name, begins, first = one_line(asleep.name), step_begins(context.backward), ""
    if begins is not None:
        first = f", first thing in the loop of {line(begins)}"
    return Diagnosis(
        f"{name} ({one_line(asleep.type)}) is trained in eval() mode",
        (asleep.name,),
        f"in eval mode are {listed(asleep.parts)}, where dropout drops nothing and batch normalization uses its running "
        f"statistics, and an optimizer updates the parameters of {name}",
        f"Call {name}.train() before the training steps{first}, and again after every evaluation that calls {name}.eval().",
        source=asleep.source or context.backward,
        edit=instead(begins, f"{begins.text}\n    {name}.train()" if begins else ""),
    )


_ROWS = {
    "other slope": Row(
        "backward() of {0} is not the derivative of its forward()",
        "for input {1}, what {code} returns is not the slope of forward(), measured in float64 along two random directions",
        "In {line}, return grad_output times the derivative of what forward() computes, for each input.",
    ),
    "gives none": Row(
        "backward() of {0} returns no gradient for input {1}, on which its forward() depends",
        "{code} returns None for input {1}, which requires grad: it is never trained through {0}",
        "In {line}, return its gradient in place of None; or detach that input, if it is not to be trained.",
    ),
    "ignores gradient": Row(
        "backward() of {0} does not use the gradient that it is given",
        "{code} returns the same numbers when grad_output is doubled: what the layers behind and the loss ask for is lost",
        "In {line}, return grad_output times the derivative: what it returns now, multiplied by grad_output.",
    ),
    "second slope": Row(
        "a gradient that goes through {0} is differentiated again, and wrong: its backward() uses what has no graph",
        "{code}: what forward() computes and keeps on ctx has no graph, so create_graph=True does not see that it depends on the "
        "input; the derivative of backward(), measured in float64, is another one",
        "In {line}, compute it again from ctx.saved_tensors, of inputs that forward() gives to ctx.save_for_backward().",
    ),
}  # fmt: skip


@check(
    "wrong-backward",
    "warning",
    "backward() of a custom Function is not the derivative of its forward()",
    reads_saved=True,
)
def wrong_backward(context: CheckContext) -> Diagnoses:
    """A custom `torch.autograd.Function` returns gradients that do not belong to what
    its `forward()` computes.

    Nothing fails: the model trains along the wrong direction. Likewise where the
    derivative of backward() is asked for, and part of it has no graph.

    How it is found: when such a Function of yours is applied for the first time to
    inputs of a shape, it is replayed in a child process (one thread, 5 seconds at
    most), in double precision: forward() a little to both sides of the inputs, and
    backward() once. A forward that is flat or hands its input on, and a backward that
    hands its gradient on and keeps nothing, are left alone, as in straight-through
    estimators and gradient reversal. Not where there is no `fork`, and not with CUDA or
    several ranks, unless `--run-custom` says so.

    What to do: compare with `torch.autograd.gradcheck`, and correct `backward()`.

    When to ignore it: when the gradient is another one on purpose, as of a surrogate.

    ```python
    import torch


    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * 2 * x**2


    w = torch.ones(3, requires_grad=True)
    loss = Cube.apply(w).sum()
    loss.backward()
    ```
    """
    yield from diagnoses(context, _ROWS)
