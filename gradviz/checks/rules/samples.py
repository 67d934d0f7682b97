"""The check on what relates the samples of a batch with each other: each way is a row of what is said of it."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

_BATCH_FIRST = "Give it the steps first, x.transpose(0, 1), or pass batch_first=True."
_ATTENDS = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer")
ROWS = {
    "softmax over samples": Row(
        "{0} runs over the samples of the batch",
        "{code} computes {0} over dimension {1} of {2}, which is the batch: the probabilities of one sample depend on all others",
        "Take it over the classes or steps, dim={3} in place of dim={1}.",
        passes=("dim={3}", "{0}", "Softmax", "LogSoftmax"),
    ),
    "softmax over queries": Row(
        "softmax runs over another dimension than the one that is summed",
        "{code} multiplies weights whose softmax ran over dimension {0} of {1}, and sums over dimension {2}: the weights of one "
        "query do not add up to 1",
        "Take the softmax over the keys: dim=-1.",
    ),
    "summed over samples": Row(
        "{0} sums over the samples of the batch",
        "{code} computes {0} of shapes that have the batch, and sums over it: all samples of the result are computed from all",
        "Keep the dimension of the batch in the result of {text}.",
    ),
    "attention over samples": Row(
        "attention runs over the samples of the batch, not over the steps",
        "{0} has queries and keys of the shape {1}: the samples stand where the steps belong, and each attends to others",
        _BATCH_FIRST,
        passes=("batch_first=True", *_ATTENDS),
    ),
    "recurrence over samples": Row(
        "the {1} runs over the samples of the batch, not over the steps",
        "{0} gets {2} with batch_first={3}: it takes the samples for steps in time, and its state goes from one sample to the next",
        "Pass batch_first={4}, or transpose what it is given and what it returns: x.transpose(0, 1).",
        passes=("batch_first={4}", "{1}"),
    ),
    "normalized over samples": Row(
        "normalize() runs over the samples of the batch",
        "{code} divides by the norm over dimension {0} of {1}, which is the batch: each sample depends on all others",
        "Normalise each sample: dim=-1.",
        passes=("dim=-1", "normalize"),
    ),
    "added over samples": Row(
        "a table of positions is added along the batch: each sample gets another row of it",
        "{code} adds {0} to {1}: its first dimension is the batch, so all steps of a sample get the same numbers",
        "Give the table the batch first, as (1, steps, features), and cut its second dimension: table[:, : x.size(1)].",
    ),
    "summed alone": Row(
        "the einsum sums {2} away by itself: no other input has this letter",
        "{code} computes '{0}': {2} is in one input and not in the result, so it is summed over first; {3}, of the other input, "
        "has the same size {1}",
        "If they are one dimension, give both the same letter: {3} in place of {2}.",
    ),
    "other order": Row(
        "predictions and targets are in another order",
        "{code} compares {0} with {1}: the samples and steps of the data stand in another order there, so most predictions "
        "meet the target of another sample",
        "Bring both into one order before they are flattened: .transpose(0, 1) on one of them.",
    ),
}  # fmt: skip


@check("mixed-samples", "warning", "an operation relates samples of a batch that should be apart")
def mixed_samples(context: CheckContext) -> Diagnoses:
    """A softmax, an attention, a recurrent layer, a norm or a table runs along the batch, or targets are in another order.

    The shapes fit, so nothing fails: an LSTM without `batch_first=True` takes samples for steps, `softmax(dim=0)` makes
    probabilities that add up over the batch. The model then uses what it does not have when it is asked for one sample.

    How it is found: in the first steps, each dimension of the data is followed by its size and place through every call. The batch
    is where predictions meet targets, a loader stacks samples, or an index picks them, or what a module with `batch_first=True` is
    given first; with sizes that are equal nothing is said. Writes to a part of what `expand` made are seen where they happen.

    What to do: name the dimension that is meant, or pass `batch_first=True`.

    When to ignore it: when samples are to be compared with each other.

    ```python
    import torch

    model, head = torch.nn.LSTM(3, 4), torch.nn.Linear(4, 1)
    x, y = torch.randn(8, 5, 3), torch.randn(8, 1)
    output, state = model(x)
    loss = torch.nn.functional.mse_loss(head(output[:, -1]), y)
    loss.backward()
    ```
    """
    yield from told(context, ROWS)
