"""Checks on data: numbers that are lost on their way, and rows that are in both sets. Each is a row of what is said of it."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

_ROWS = {
    "rounds to zero": Row(
        "{0} leaves nothing but zeros of the data",
        "{code} makes zeros of all elements of the shape {1}, which were not all zero ({times} seen): what is between 0 and 1 is "
        "rounded down",
        "Divide with / and convert to float first, in {text}. Labels, which stay integers: divide by less.",
    ),
    "wraps": Row(
        "a difference of bytes wraps around: what is below zero becomes 255 and less",
        "{code} subtracts uint8 numbers, which cannot be negative, and some of the results are: -1 is 255 there",
        "Convert before subtracting, in {text}: .float() on the first.",
    ),
    "fractions cut": Row(
        "{0} cuts off the fractions of a target",
        "{code} makes integers of numbers, and an error of predictions is computed with what is left of them",
        "Keep the fractions, in {text}: .float() or dtype=torch.float32.",
    ),
    "data written": Row(
        "the data is changed in place, each time that it is read",
        "{code} writes to a part of the stored tensor of shape {0}, and has written to the same elements before: what was meant "
        "for one batch stays for all later ones",
        "Change a copy: take the part with .clone() before {line} writes to it; or compute a new tensor.",
    ),
    "rounds apart": Row(
        "float32 is too coarse for this data: {1} of its distinct numbers become equal",
        "{code} makes float32 of numbers up to {2}, which float32 rounds to multiples of more than 1",
        "Subtract an origin before {0}() in {text}, as x - x.min(); or make it .double().",
    ),
    "nan left": Row(
        "{0} is NaN at the end",
        "{code} is the first line that made NaN of finite numbers, without a graph; the loss stayed finite",
        "Keep a divisor above zero, .clamp(min=1e-6), or leave out what is empty, in {text}.",
    ),
}  # fmt: skip


@check("lost-numbers", "warning", "data is rounded or changed in place, or a metric, a buffer or a state becomes NaN")
def lost_numbers(context: CheckContext) -> Diagnoses:
    """A line without a graph makes zeros of all data, or integers of targets with fractions, or NaN that stays in a buffer.

    The loss is finite and training goes on: an image of bytes that is divided with `//` is black for the model; an accuracy of no
    samples is NaN, and so is a running mean that it is added to. An augmentation that writes to the stored data changes it more
    with each epoch.

    How it is found: lines that round are looked at the first times that they run, and lines that divide or take roots and
    logarithms, ever less often. When the script has ended, buffers, states of optimizers and variables are searched for NaN.

    What to do: convert before rounding; leave out what is empty.

    When to ignore it: when the NaN is taken out later.

    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    images = torch.randint(0, 255, (4, 8), dtype=torch.uint8)
    loss = model((images // 255).float()).square().mean()
    loss.backward()
    ```
    """
    yield from told(context, _ROWS)


_SPLITS = {
    "both": Row(
        "{0} of {1} rows that are evaluated on are trained on, too",
        "{code} makes a dataset of which {0} rows are in the one that was trained on: a model that has seen them does better "
        "there than on new data",
        "Split once, so that each row is in one of them: torch.utils.data.random_split(data, [0.8, 0.2]).",
    ),
}  # fmt: skip


@check("leak", "warning", "rows that a model is evaluated on are trained on, too")
def leak(context: CheckContext) -> Diagnoses:
    """Two datasets overlap in a part: one is trained on, and the other one is to say how well the model does on new data.

    How it is found: what a `DataLoader` reads before a backward call and what one reads under `no_grad()` after it are compared, by
    the indices of `Subset`, and by the rows of `TensorDataset`. That one of both is a part of the other is taken to be meant.

    What to do: split the rows once.

    When to ignore it: when many rows of the data are alike.

    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x, y = torch.randn(20, 3), torch.randn(20, 1)
    train, test = TensorDataset(x[:15], y[:15]), TensorDataset(x[12:], y[12:])
    model = torch.nn.Linear(3, 1)
    for inputs, targets in DataLoader(train, batch_size=5):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
    with torch.no_grad():
        for inputs, targets in DataLoader(test, batch_size=5):
            print(torch.nn.functional.mse_loss(model(inputs), targets))
    ```
    """
    yield from told(context, _SPLITS)
