"""Checks on calls that run without an error and do something else than they look like:
each is a row of what is said of it.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check, told
from gradviz.checks.run import Kind

_MODES = {
    Kind.EVALUATED: Row(
        "{0} is evaluated in training mode",
        "{code} runs {0} under no_grad() while it is in training mode: dropout leaves out elements at random, and batch "
        "normalization takes its statistics from this data",
        "Call .eval() on the model before {text}, and .train() again before the next training step.",
    ),
    Kind.AWAKE: Row(
        "{1} goes on dropping in eval() mode of {0}",
        "{code} calls it without training=self.training, whose default is True, and ran while {0} was in eval() mode",
        "In {line}, pass training=self.training to {1}; or use torch.nn.Dropout, which switches itself off.",
    ),
    Kind.DROPPING: Row(
        "attention goes on dropping in eval() mode of {0}",
        "{code} gives scaled_dot_product_attention the same dropout_p in both modes, and {0} was switched to eval(): it leaves out "
        "attention weights at random all the same",
        "In {line}, pass dropout_p={1} if self.training else 0.0.",
    ),
    Kind.TEACHER: Row(
        "nothing trains {0}, and yet it runs in training mode",
        "nothing updates its weights, and its dropout or batch normalization acts as in training: outputs vary by chance or with "
        "the batch, and running statistics change; the loss is computed from what it gives",
        "Call {1} before the training steps, and again after every call of train() of a model around it.",
    ),
    Kind.ASLEEP: Row(
        "{0} is trained in eval() mode",
        "dropout drops nothing and batch normalization uses its running statistics in {1}, and an optimizer updates the parameters "
        "of {0}",
        "Call {0}.train() before the training steps, first thing in the loop, and again after every evaluation that calls "
        "{0}.eval().",
    ),
}  # fmt: skip


@check(
    "wrong-mode",
    "warning",
    "dropout or batch normalization runs in the wrong mode",
    whole_run=True,
)
def wrong_mode(context: BackwardCall) -> Diagnoses:
    """A model is trained in `eval()` mode, or evaluated in training mode.

    A model that is trained in `eval()` mode has no dropout, and its batch normalization
    does not learn: mostly an evaluation did not switch back with `train()`; and
    `from_pretrained()` returns models in eval mode. A model that is evaluated without
    `eval()` gives other numbers each time, and its batch normalization learns from the
    validation data.

    How it is found: an optimizer takes a step for a model that as a whole is in eval
    mode, and that contains dropout, or batch normalization that is trained. Calls of
    dropout and batch normalization that run as in training are seen with the mode of
    the model around them, where nothing is recorded. Only models that an optimizer
    trains count, and what they look up without recording in a training step does not.
    Attention that is given an attribute as `dropout_p`, in code that does not ask for
    `training`, is told of where its model is switched to `eval()`.

    What to do: call `eval()` before an evaluation and `train()` after it.

    When to ignore it: when the outputs are to be random, or statistics are estimated
    anew.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
    ```
    """
    run = context.run
    for event in run.events(*_MODES):
        tensors = event.tensors or frozenset()
        feeds = not event.lines.isdisjoint(run.trained_with)
        if event.kind is Kind.TEACHER:
            still = tensors.isdisjoint(run.given) or run.rest(event)
            wrong = still and (feeds or not event.lines)
        else:
            # a part of a training step looks something up
            wrong = not (feeds or (tensors and tensors.isdisjoint(run.holding)))
        if wrong:
            told_of = _MODES[event.kind].of(event, context.backward)
            # what trains without recording looks like an evaluation
            yield told_of._replace(follows=("no-graph",))


_DIRECT = {
    Kind.NO_HOOK: Row(
        "the hooks of {0} never run",
        "{code} uses its forward() directly: only a call of the module itself runs its hooks",
        "In {line}, call the module: leave out .forward.",
    ),
    Kind.NO_APPLY: Row(
        "backward() of {0} never runs",
        "{code} calls its forward() directly, so autograd records what that computes, and not {0}",
        "In {line}, call {0}.apply(...), without ctx.",
    ),
    Kind.NO_FUNCTION: Row(
        "backward() of {0} never runs",
        "{code} defines it in a module: autograd differentiates what forward() does, and asks only a torch.autograd.Function for a "
        "backward() of its own",
        "In {line}, make it a static method of a torch.autograd.Function, with a forward(ctx, ...), and call its apply() "
        "in the forward() of {0}.",
    ),
    Kind.NO_EFFECT: Row("{0} has no effect", "{code} {1}", "In {line}, {2}."),
    Kind.OVERWRITTEN: Row(
        "{0} keeps one of several that are added to one element",
        "{code}: an index comes several times, and of what is added to its element, the last one replaces the others; these get no "
        "gradient",
        "In {line}, add each of them: {1}.",
    ),
    Kind.ONE_MODULE: Row(
        "one module stands at {0} places, which share all parameters",
        "{code} makes one module, and puts it there again and again",
        "In {line}, make one for each: {1}. If they are to share their weights, give the one module a name, and put that there.",
    ),
}


@check(
    "no-effect",
    "warning",
    "a line drops what it computes, or calls forward() past hooks and backward()",
    whole_run=True,
)
def no_effect(context: BackwardCall) -> Diagnoses:
    """A line has no effect: `x.detach()` alone returns another tensor, `optimizer.step`
    without parentheses calls nothing, `module.forward(x)` runs no hooks, and
    `Function.forward(...)` knows no `backward()`, and that of a module is never asked.
    Likewise a copy that is none:
    `target = net` is a second name for one network, `state_dict()` returns the parameters
    themselves, and weights are tied no more when one is made anew. And `x[i] += y` keeps
    one of several `y` where an index comes several times in `i`; `[Linear(4, 4)] * 3` is
    one layer, not three.

    How it is found: in the code of functions that ran in the step that was read. Of
    methods other than `detach`, the variable has to hold a tensor. Of a copy, both sides
    hold the same parameters; of tied weights, they are two. Of indices, the numbers are
    read.

    What to do: assign the result, or use the method that works in place; call the
    module, or `apply` of the Function; copy with `copy.deepcopy`; add with
    `x.index_add_(0, i, y)`.

    When to ignore it: when only the time that the line takes matters.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    target = model(torch.ones(2, 3))
    target.detach()
    loss = (model(torch.zeros(2, 3)) - target).square().mean()
    loss.backward()
    ```
    """
    yield from told(context, _DIRECT)


_ROWS = {
    Kind.OTHER_SLOPE: Row(
        "backward() of {0} is not the derivative of its forward()",
        "in a random direction, what {code} returns makes a slope of {1}; that of forward(), measured in float64, is {2}",
        "In {line}, return grad_output times the derivative of what forward() computes, for each input.",
    ),
    Kind.UNSEEN: Row(
        "backward() of {1} computes with other numbers than forward() did: {0} was changed behind it",
        "{code} changes {0} in place through .data, after {1} has saved it; autograd does not count that, so no error tells",
        "In {line}, make another tensor: {2}.",
    ),
    Kind.SECOND_SLOPE: Row(
        "a gradient that goes through {0} is differentiated again, and wrong: its backward() uses what has no graph",
        "{code}: what forward() computes and keeps on ctx has no graph, so create_graph=True does not see that it depends on the "
        "input; the derivative of backward(), measured in float64, is another one",
        "In {line}, compute it again from ctx.saved_tensors, of inputs that forward() gives to ctx.save_for_backward().",
    ),
    Kind.SAME_SIGN: Row(
        "{0} does not reverse the gradient",
        "forward() hands its input on, and {code} returns the gradient with the sign that it had",
        "In {line}, return the negative gradient.",
    ),
    Kind.NO_CHAIN: Row(
        "backward() of {0} ignores the gradient that it is given",
        "what {code} returns stays the same whatever comes in, and the loss is computed from what {0} gives: a factor, a sign or "
        "a mean behind it is lost",
        "In {line}, return grad_output times what is returned now.",
    ),
    Kind.HOOKED: Row(
        "a hook is registered again and again: {0} has {1} of it",
        "{code} is one hook, and each turn of a loop adds it once more: it runs more often with every step",
        "Register it once, before the loop; or call remove() of what register_hook() returns.",
    ),
    Kind.NO_NEGATIVE: Row(
        "a hook sets every negative gradient of {0} to 0",
        "{code} lets numbers from 0 on through alone",
        "In {line}, clamp to both sides of 0, as in clamp(-1, 1).",
    ),
    Kind.LATE: Row(
        "{1} hooks all use the {0} of the last turn of a loop",
        "{code} looks {0} up when backward() runs, and by then the loop has given it its last value",
        "In {line}, let each hook keep its own: give it a default value, {0}={0}.",
    ),
}  # fmt: skip


@check(
    "wrong-backward",
    "warning",
    "backward() of a custom Function is not the derivative of its forward()",
    reads_saved=True,
    whole_run=True,
)
def wrong_backward(context: BackwardCall) -> Diagnoses:
    """A custom `torch.autograd.Function` returns gradients that do not belong to what
    its `forward()` computes.

    Nothing fails: the model trains along the wrong direction. Likewise where the
    derivative of backward() is asked for, and part of it has no graph; where a reversal
    keeps the sign; where a hook clamps gradients to numbers from 0 on; and where a loop
    registers a hook in each turn, or several that share its variable. So do operations of
    torch's if a line changes what they have saved through `.data`, which no error tells.

    How it is found: when such a Function of yours is applied for the first time, it is
    replayed in a child process (one thread, 5 seconds at most), in double precision:
    forward() a little to both sides of the inputs, and backward() once. A forward that
    is flat or hands its input on, and a backward that hands its gradient on and keeps
    nothing, are left alone, as in straight-through estimators and gradient reversal;
    so is a backward that clamps or normalizes, where the forward does not;
    and so is one that gives a single number and ignores its gradient, if that is the
    loss, or a term of it.
    Not where there is no `fork`, and not with CUDA or several ranks. A change through
    `.data` is found in the code of functions that ran in the step that was read, of a
    variable whose operation, or one before that line, has saved it.

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
    yield from told(context, _ROWS)
