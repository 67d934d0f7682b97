"""The check on what torch itself has warned of: each message that concerns training is
a row with its cause and a fix.
"""

from __future__ import annotations

import re

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.raised import Message, understood
from gradviz.checks.words import code
from gradviz.wording import clip, one_line

_KNOWN = (
    Message(
        "Casting complex values to real",
        "complex numbers are converted to real ones: the imaginary part is dropped",
        "whatever depends on the imaginary part gets no gradient",
        "Use x.abs() for the magnitude, or torch.view_as_real(x) to keep both parts; x.real if only that part is meant.",
    ),
    Message(
        r"Using a target size \(torch.Size\((?P<target>.*?)\)\).*input size \(torch.Size\((?P<input>.*?)\)\)",
        "the loss broadcasts a target of shape {target} to an input of shape {input}",
        "each element of one is compared with several of the other",
        "Give both one shape: target.view_as(prediction), where it has as many elements.",
        ("broadcast", "loss-input"),
    ),
    Message(
        "NumPy array is not writable",
        "a tensor shares its memory with a NumPy array that is read-only",
        "an in-place operation on the tensor would write there all the same, which is undefined",
        "Copy the array: torch.from_numpy(array.copy()).",
    ),
    Message(
        r"Implicit dimension choice for (?P<name>\w+)",
        "{name} is given no dim and picks one by the number of dimensions",
        "with 0, 1 or 3 dimensions it normalizes over dim 0, which is mostly the batch",
        "Pass the dimension of the classes: dim=-1.",
        ("loss-input",),
    ),
    Message(
        r"non-zero dropout expects num_layers greater than 1, but got dropout=(?P<p>\S+)",
        "dropout={p} of a recurrent layer with one layer does nothing",
        "it is applied between stacked layers, and there is one",
        "Put torch.nn.Dropout({p}) after it, or set num_layers=2.",
    ),
    Message(
        "parameter group with duplicate parameters",
        "an optimizer is given the same parameter twice",
        "each step updates it twice",
        "Give each parameter once: leave out one of the lists, or list(dict.fromkeys(parameters)).",
    ),
    Message(
        "None of the inputs have requires_grad=True",
        "no input of a reentrant checkpoint requires grad: nothing in it gets a gradient",
        "a reentrant checkpoint passes gradients on only if one of its inputs requires grad, whatever its parameters do",
        "Pass use_reentrant=False to the checkpoint.",
        ("unused-parameter", "none-grad", "no-graph"),
    ),
    Message(
        "output with one or more elements was resized",
        "a result is written with out= into a tensor of another shape",
        "torch resizes that tensor, and other views of it keep the old one",
        "Give out= a tensor of the result's shape, or assign the result.",
    ),
    Message(
        "generator, no gradient clipping will occur",
        "the clipping gets an iterator that is used up: it clips nothing",
        "a generator such as model.parameters() ends after one loop over it",
        "Give it model.parameters() anew, or keep list(model.parameters()).",
    ),
    Message(
        "degrees of freedom is <= 0",
        "the standard deviation or variance of a single element is NaN",
        "it is divided by the number of elements less one, which is 0",
        "Pass correction=0, or take it over more elements.",
        ("nonfinite",),
    ),
    Message(
        "Tensor that is not a leaf Tensor is being accessed",
        ".grad of a result is read, which backward() does not fill",
        "only leaf tensors keep their gradient",
        "Call retain_grad() on it before backward(), or read the .grad of the leaf.",
        ("none-grad", "nonleaf-parameter", "raised"),
    ),
    Message(
        r"Use of (?P<name>\w+) on expanded tensors",
        "{name} writes into an expanded tensor",
        "its rows share memory, so one write changes all of them",
        "Copy it first: x = x.clone().",
    ),
    Message(
        "reduction: 'mean' divides the total loss by both the batch size and the support size",
        "kl_div takes the mean over all elements, which is not the divergence",
        "reduction='mean' divides by the number of classes as well",
        "Pass reduction='batchmean'.",
        ("loss-input",),
    ),
    Message(
        r"received a (?P<dim>\d)-?D input",
        "dropout over channels is given {dim} dimensions, and drops something else than channels",
        "it takes (N, C, ...) with as many dimensions as its name says",
        "Use the dropout of these dimensions: Dropout1d, Dropout2d, Dropout3d, or Dropout for single elements.",
    ),
    Message(
        "input's size at dim=(?P<dim>.*?) does not match num_features",
        "a normalization was made for another number of features than it gets",
        "its input has another size in dimension {dim}",
        "Give it the number of channels, or move the channels to dimension {dim}.",
    ),
    Message(
        "use of `x.T` on tensors of dimension other than 2",
        ".T reverses all dimensions, the batch too",
        "the tensor has not two dimensions",
        "Use .mT or .transpose(-2, -1).",
    ),
    Message(
        r"(?:\w+_)?Length of IterableDataset.*reported to be (?P<said>\d+).*but (?P<got>\d+) samples",
        "a dataset says that it has {said} samples and gives {got}",
        "with several workers each one gives all of them unless it takes its part only",
        "Split the data by torch.utils.data.get_worker_info() in __iter__().",
    ),
    Message(
        r"copying from a non-meta parameter.*no-op",
        "a state is loaded into parameters on the meta device: nothing is loaded",
        "these have no memory",
        "Pass assign=True to load_state_dict().",
    ),
)  # fmt: skip
_LEFT_OUT = (
    "deprecated|prototype|experimental|not available|nested_tensor|to a scalar|copy construct|Anomaly|future|beta"
    r"|Full backward hook is firing|call of `lr_scheduler.step\(\)`"
)
"""What is harmless, and the order that scheduler-order judges: torch warns of a right
one, too.
"""


@check("torch-warning", "warning", "torch has warned of a line of the script")
def torch_warning(context: CheckContext) -> Diagnoses:
    """torch warned of something that concerns training, at a line of yours: what it
    means, and what to do.

    A warning is shown once, among all that a script prints. What another check says
    more exactly is not said twice, and the order of steps of a scheduler is left to
    `scheduler-order`; a message that is not known here is a note.

    How it is found: Warnings of torch are taken up as Python shows them. What a filter
    hides is not seen.

    What to do: What the finding says.

    When to ignore it: When it is known and meant; a filter hides the warning here, too.

    ```python
    import torch

    model = torch.nn.Linear(3, 2)
    loss = torch.nn.functional.l1_loss(model(torch.ones(8, 3)), torch.ones(2))
    loss.backward()
    ```
    """
    for misuse in context.record.misuses:
        text = misuse.words[0] if misuse.kind == "warned" else ""
        told = understood(text, _KNOWN)
        if told is not None:
            summary, why, fix = (part.format(**told[1]) for part in told[0][1:4])
            follows = told[0].said_by
            yield Diagnosis(
                summary,
                (),
                f"{code(misuse.source)}: {why}",
                fix,
                source=misuse.source,
                follows=follows,
            )
        elif text and not re.search(_LEFT_OUT, text):
            yield Diagnosis(
                f"torch warns: {clip(one_line(text), 80)}",
                (),
                f"{code(misuse.source)}: {clip(one_line(text), 200)}",
                "Read the message; no change is needed if this is intentional.",
                source=misuse.source,
                severity="note",
            )
