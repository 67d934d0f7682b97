"""The check on models and states that are one: a second name, or a state that moves along, where a copy is meant."""

from __future__ import annotations

import re

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import importing, instead
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told
from gradviz.graph import SourceLine

_ROWS = {
    "second name": Row(
        "{0} is {1} itself: a second name, and no copy",
        "{code} gives one module two names: what is to bring the one to the other changes nothing, and both move with each step",
        "Make a copy: {0} = copy.deepcopy({1}), with import copy.",
    ),
    "moves along": Row(
        "state_dict() copies nothing: what {text} keeps moves along with the model",
        "the tensors that {code} keeps share memory with the parameters, which were changed since: it has the last numbers, and "
        "to load it, or to compare with it, has no effect",
        "Keep a copy, with import copy: put copy.deepcopy(...) around state_dict() in {text}.",
    ),
    "loads itself": Row(
        "load_state_dict() loads the model's own tensors: it changes nothing",
        "{code} is given tensors that share memory with the parameters: state_dict() copies nothing, so "
        "what was kept moved along",
        "Keep a copy where the state is taken: copy.deepcopy(model.state_dict()).",
    ),
    "changes by itself": Row(
        "a tensor is changed by itself: {0} reads what it writes",
        "{code} is given two tensors that are one memory ({times} seen): what should be a copy that follows is the model itself",
        "Copy where it is made: .clone() behind a tensor or its .data, copy.deepcopy(...) around a model.",
    ),
}  # fmt: skip


def _copied(source: SourceLine | None) -> str:
    """The line with a deep copy of what it names once more, or of the state that it keeps."""
    text = source.text if source is not None else "load_"
    return (
        re.sub(r"(?<= = )[\w.]+$|[\w.]+\.state_dict\(\)", r"copy.deepcopy(\g<0>)", text) if "load_" not in text else ""
    )


@check("alias", "warning", "two names for one model or state, where a copy is meant")
def alias(context: CheckContext) -> Diagnoses:
    """A copy is meant, and there is a second name only: what is done to the one happens to the other.

    `target = model` copies no model, and `state_dict()` no tensor: its tensors share memory with the parameters. A target network
    or an average that is the model itself does not follow it, and the best state of a training is the last one.

    How it is found: states that are taken, loaded and compared are seen as they run, with the memory of their tensors; so are
    changes of a tensor by itself, and averages of one with itself. Modules that have two names are looked up among your
    variables and attributes, together with the lines that load the one from the other.

    What to do: `copy.deepcopy(model)`, and `copy.deepcopy(model.state_dict())`.

    When to ignore it: never, unless nothing depends on it.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = model.state_dict()
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.load_state_dict(best)
    ```
    """
    for one in told(context, _ROWS):
        yield one._replace(edit=importing(instead(one.source, _copied(one.source)), "copy"))
