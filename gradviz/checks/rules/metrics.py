"""The check on how a script counts what a model gets right: each way to count wrongly is a row of what is said of it."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

ROWS = {
    "logits as probabilities": Row(
        "logits are taken for probabilities: 0.5 is no threshold for them",
        "{code} splits at 0.5 what the loss takes for logits (it applies the sigmoid itself): a probability of 0.5 is a logit of 0",
        "Compare the logits with 0, or apply torch.sigmoid() first.",
    ),
    "probabilities above zero": Row(
        "probabilities are compared with 0, and all are above it",
        "{code} compares what sigmoid or softmax has made with 0: the result is the same for all samples",
        "Compare with a threshold between 0 and 1, as 0.5; or compare the logits with 0.",
    ),
    "one class to choose": Row(
        "argmax has one score to choose from: it is always 0",
        "{code} takes the argmax over dimension {0} of {1}, which has one element",
        "With one score for two classes, compare it with a threshold: scores > 0 for logits. Or let the model give one score "
        "for each class.",
    ),
    "scores as classes": Row(
        "scores are compared with labels: they are never equal",
        "{code} asks whether scores ({0}) equal labels ({1}) that are whole numbers",
        "Choose a class first: scores.argmax(1) == labels; max(1) returns the scores first and their indices second. For one score "
        "of two classes: (scores > 0) == labels.",
    ),
    "count by batches": Row(
        "a count of samples is divided by the number of batches",
        "{0} counts samples that match, over all batches, and {code} divides it by the number of batches: no share, it can be "
        "more than 1",
        "Divide by the number of samples.",
    ),
    "mean by samples": Row(
        "a sum of means is divided by the number of samples",
        "{0} adds up one mean a batch, and {code} divides it by the number of samples: the result is too small by the batch size",
        "Divide by the number of batches.",
    ),
    "other scale": Row(
        "{0} is evaluated on numbers of another scale than it is trained on",
        "{code} gives it data of mean {1} and deviation {2}; in training it was given mean {3} and deviation {4}",
        "Prepare both alike: what divides or shifts the training data has to be done to this data, too, with the same numbers.",
    ),
}  # fmt: skip


@check("wrong-metric", "warning", "a metric counts something else than it says")
def wrong_metric(context: CheckContext) -> Diagnoses:
    """The training may be right, and the number that is printed of it is wrong.

    A model is evaluated on data that was not scaled as the training data was; `argmax` over one score is always 0;
    `nn.BCEWithLogitsLoss` is given logits, for which 0.5 is no threshold; `max(1)` returns the scores before their indices; a count
    over all batches is no share when it is divided by `len(loader)`.

    How it is found: what a layer computes is followed to comparisons, in training and in evaluation. What a line adds up over a
    `DataLoader` is followed to the division in the same function.

    What to do: choose classes before they are compared with labels, and divide samples by samples.

    When to ignore it: when such a threshold is chosen on purpose.

    ```python
    import torch

    x, labels = torch.randn(20, 3), torch.tensor([0.0, 1.0] * 10)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        scores = model(x).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(((scores > 0.5) == labels.bool()).float().mean())
    ```
    """
    yield from told(context, ROWS)
