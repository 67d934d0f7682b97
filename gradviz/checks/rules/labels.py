"""Checks on what losses and means are given: padding that counts, and labels that teach nothing. Each is a row."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

_CLASSES = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")
_PADDED = "rows that end with {0} from different places on, and have it nowhere else"
_PADDING = {
    "padding in loss": Row(
        "the loss counts {1} of {2} labels that are padding",
        "the loss is given labels in " + _PADDED + "; ignore_index is {5}",
        "Pass ignore_index={0}.",
        passes=("ignore_index={0}", *_CLASSES),
    ),
    "padding in error": Row(
        "the loss averages {1} of {2} numbers that are padding",
        "{code} is given a target in " + _PADDED,
        "Average over the mask in {text}: (error * mask).sum() / mask.sum(), with reduction='none' for the error.",
    ),
    "masked mean": Row(
        "the mean divides by all {2} elements, of which a mask has taken out some",
        "{code} averages what a mask has set to 0 where rows end: the shorter the sequences, the smaller the result",
        "Divide by what is left: .sum() / mask.sum() in place of .mean() in {text}.",
    ),
    "padded mean": Row(
        "the mean over time counts padding: {1} of {2} positions",
        "{code} averages over the sequences of a batch of " + _PADDED,
        "Average over the mask: (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True), with mask = ids != {0}.",
    ),
    "last of padded": Row(
        "the last time step is padding in {3} of {4} sequences",
        "{code} takes the last step of each row, and the batch has " + _PADDED,
        "Take each sequence's own last step in {text}: [torch.arange(len(lengths)), lengths - 1] in place of [:, -1].",
    ),
}  # fmt: skip
_LABELS = {
    "all ignored": Row(
        "all {2} labels of a batch are ignored: their mean is 0 / 0",
        "{code} is given labels that are all {0}, which is ignore_index ({times} seen)",
        "Look at the lines that set labels to {0}: they left none in this batch. If there may be such batches, leave them out, "
        "if (labels != {0}).any(); or divide a sum by at least 1: reduction='sum', and (labels != {0}).sum().clamp(min=1).",
    ),
    "class ignored": Row(
        "class {0} is never learned: ignore_index={0} leaves it out",
        "the loss is given one label for each sample, {1} of {2} of them {0}, and {3} scores: {0} is one of the classes",
        "Leave out ignore_index={0}.",
        passes=("ignore_index=", *_CLASSES),
    ),
    "with itself": Row(
        "each sample is among its own candidates, and its score is the largest",
        "{code} is given {0} x {0} scores whose diagonal is one number and the largest of each row, as the likeness of a sample to "
        "itself is, and no label names it: the softmax goes there",
        "Hide the diagonal in front of {line}: scores = scores.masked_fill(torch.eye({0}, dtype=torch.bool), float('-inf')), where "
        "scores is what the loss is given first.",
    ),
    "swapped": Row(
        "{0} is given its labels first and its predictions second",
        "{code} takes numbers that are 0 or 1 and need no gradient as its input, and what the model computed as its target",
        "Swap them in {text}: predictions first.",
    ),
    "not signed": Row(
        "the targets are 0 and 1, and this loss expects -1 and 1",
        "{code} is given {1} targets, of which {0} are 0 and none is -1: what is 0 is neither alike nor different for this loss",
        "Give it -1 in place of 0, in {text}: 2 * target - 1.",
    ),
    "not shifted": Row(
        "the labels are the tokens that the model is given: it learns to repeat them",
        "{code} compares the scores of each position with the token at that position, which the model has just read ({times} seen)",
        "Predict the next token: scores[:, :-1] with ids[:, 1:] as labels.",
    ),
    "sees what comes": Row(
        "the model sees the token that it is to predict",
        "{code} lets each position of {0} see all others, and the labels are the same tokens, one position on",
        "Hide what comes later: a causal mask, or is_causal=True, for attention; bidirectional=False for a recurrent layer, "
        "behind which half as many features come.",
    ),
    "blank": Row(
        "label {0} is the blank of the CTC loss",
        "{1} of {2} labels are {0}, which CTC takes for the blank between labels: that label can never be said",
        "Let no label be the blank: {3}. What decodes the scores has to leave out the same index.",
    ),
    "other noise": Row(
        "the target is noise that nothing else uses: it cannot be predicted",
        "{code} compares with a draw that is in no input, while {0} mixes another one of the same shape into the data: `{1}`",
        "Draw once: give {0} the noise that {text} compares with.",
    ),
    "one class": Row(
        "all labels are class {0}",
        "{code} was given {1} labels, and all of them are {0}: the model learns to say that, whatever its input",
        "Look at the line that makes the labels, at what writes to them afterwards, and at how a batch picks its rows.",
        ("lost-numbers",),
    ),
}  # fmt: skip


_MASKS = {
    "hides nothing": Row(
        "a mask fills scores with a number near 0, and a softmax still counts them",
        "{code} fills what is to be hidden with a number that is as large as other scores: the softmax gives it weight",
        "Fill with float('-inf') in {text}: a softmax makes 0 of that.",
    ),
    "mask inverted": Row(
        "the mask of attention hides what is real, and keeps padding",
        "{code} hides every position of its mask {0} that has data, and none that is padding, in the rows that were looked at",
        "Invert the mask: nn.MultiheadAttention and nn.Transformer hide where a mask is True; scaled_dot_product_attention hides "
        "where a bool mask is False.",
    ),
    "times mask": Row(
        "a softmax counts what its mask has multiplied by 0",
        "{code} takes a softmax of scores times a mask, which is 0 for {1} of {2}: a score of 0 is as good as any other, and "
        "exp(0) = 1 gives each a part of it",
        "Set them to minus infinity: scores.masked_fill(mask == 0, float('-inf')) in place of the product.",
    ),
    "past hidden": Row(
        "the mask of attention hides the past, and keeps what comes",
        "{code} lets each of {0} positions see later ones, and no earlier one",
        "{1}.",
    ),
}  # fmt: skip


@check("inverted-mask", "warning", "a mask of attention hides what should be seen")
def inverted_mask(context: CheckContext) -> Diagnoses:
    """A mask keeps padding and hides the data, or keeps what comes later and hides the past; or scores are only multiplied by it.

    Nothing fails: attention is then over padding, and the model learns from the rest of its layers alone. `nn.MultiheadAttention`
    and `nn.TransformerEncoder` hide where a mask is True, `scaled_dot_product_attention` where it is False.

    How it is found: what a mask hides, in the first steps, is compared with where the rows of the batch end, and with the order of
    the positions.

    What to do: invert the mask.

    When to ignore it: when the model reads from the end to the beginning.

    ```python
    import torch

    words = torch.nn.Embedding(9, 4)
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    ids = torch.tensor([[5, 3, 7, 0], [4, 8, 0, 0], [6, 1, 3, 0]])
    x = words(ids)
    loss = attention(x, x, x, key_padding_mask=ids != 0)[0].square().mean()
    loss.backward()
    ```
    """
    yield from told(context, _MASKS)


@check("padding-counted", "warning", "padding counts in a loss, a mean or a last step")
def padding_counted(context: CheckContext) -> Diagnoses:
    """Sequences of different lengths are padded to one, and what was padded counts like the rest.

    The model then learns to predict padding, a mean becomes smaller the shorter a sequence is, and the last time step of a short
    one says nothing about it.

    How it is found: rows of a batch that end with one value, from different places on, and have it nowhere else, are padded. The
    numbers of labels, targets, masks and indices of embeddings are read, of a few batches for each line.

    What to do: `ignore_index` for labels; for a mean, divide by the sum of the mask.

    When to ignore it: when the value at the ends is data.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    mask = (torch.arange(6) < torch.tensor([[6], [4], [2]])).float()
    error = model(torch.ones(3, 6, 3)).squeeze(2).square()
    loss = (error * mask).mean()
    loss.backward()
    ```
    """
    yield from told(context, _PADDING)


@check("useless-labels", "warning", "labels teach nothing: all alike, all ignored, or what the model is given")
def useless_labels(context: CheckContext) -> Diagnoses:
    """The labels that a loss over classes is given teach nothing, or not all that they should.

    All labels of a batch are `ignore_index`, and the mean is NaN; or `ignore_index` is one of the classes; or all labels are
    alike. Or a language model is to say the token that it has just read, not the next one, or may look at the next one; or the
    labels of a contrastive loss name another row than the partner, or its scores have each sample beside itself; or labels and
    predictions are swapped; or a label is the blank of `CTCLoss`; or targets are 0 and 1 where `CosineEmbeddingLoss` and the like
    expect -1 and 1.

    How it is found: the labels of some batches of each line are counted. One class only is said from 64 labels in three batches
    on, and not where the code makes them with `zeros` or the like, as contrastive losses do; a class is taken for left out where
    each sample has one label, not each position of a sequence or an image. Tokens that go into an embedding are compared with the
    labels of the scores that are computed of them, position by position.

    What to do: what the finding says.

    When to ignore it: when a class is left out on purpose.

    ```python
    import torch

    model = torch.nn.Linear(3, 4)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    loss = torch.nn.functional.cross_entropy(model(torch.ones(6, 3)), labels, ignore_index=0)
    loss.backward()
    ```
    """
    yield from told(context, _LABELS)
