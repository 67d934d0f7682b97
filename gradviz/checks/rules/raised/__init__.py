"""The check on the exception that ended a script: what autograd, an optimizer or a
tensor refused, why, and what to do.
"""

from __future__ import annotations

import re
from textwrap import shorten

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.raised.messages import Message, messages, understood
from gradviz.checks.run import Raised
from gradviz.checks.words import code, line, listed
from gradviz.graph import SourceLine
from gradviz.source.code_line import as_leaf
from gradviz.source.feeding import lines_behind
from gradviz.source.search import matching
from gradviz.wording import one_line

TOPICS = ("autograd", "training", "tensors")


@check(
    "raised",
    "error",
    "the script failed with an exception that autograd or an optimizer raised",
    whole_run=True,
)
def raised_exception(context: BackwardCall) -> Diagnoses:
    """The exception that ended the script is one that is understood: what was refused,
    why, and what to do instead.

    Among them: backward from something that is no single number, a gradient of what was
    not used, a custom Function that returns the wrong number of gradients, a leaf
    changed in place, a `.grad` that is None, an optimizer with tensors that are no
    leaves, tensors made in inference mode, and copies of tensors with a graph. The
    traceback's line is named, or that of the custom Function. What another check says
    more exactly (`no-graph`, `stale-saved`, `freed-graph`) is not said twice.

    How it is found: The message of the exception is compared with those that autograd,
    optimizers and tensors are known to raise; names and shapes come from the frames of
    the traceback. Any other exception out of a backward call is told as it is.

    What to do: What the finding says: the cure differs from message to message.

    When to ignore it: Never: the script has failed.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    loss = (model(torch.ones(2, 3)) - 1).square()
    loss.backward()
    ```
    """
    raised = context.run.raised
    if raised is None:
        return

    failed = raised.source.text if raised.source is not None else ""
    text = f"{raised.text}\n{raised.within}{failed}\n{_behind(raised)}"
    # of any other message it is known that it comes out of backward
    topics = (*TOPICS, "backward") if raised.backward else TOPICS
    found = understood(text, messages(*topics))
    if found is not None:
        yield _explained(*found, context, raised)


def _behind(raised: Raised) -> str:
    """The lines that give values to what the failed one reads."""
    lines = lines_behind(raised.source)
    return "".join(f"behind: {each.text}\n" for each in lines)


def _explained(
    message: Message, groups: dict[str, str], context: BackwardCall, raised: Raised
) -> Diagnosis:
    source, new = _line_to_change(message, context, raised)
    words = _words(groups, raised) | {"at": line(source), "new": one_line(new)}
    first_line = one_line((raised.text.splitlines() or [""])[0])
    quoted = shorten(first_line, 160, placeholder=" …")
    why = message.why.format(**words)

    return Diagnosis(
        message.summary.format(**words),
        raised.missing or raised.outputs,
        f"{code(raised.source)} raised {raised.kind}: {quoted}; {why}",
        (message.fix_there if source is not None else message.fix).format(**words),
        source=source or raised.custom or raised.source,
        follows=tuple(message.follows.split()),
    )


def _words(groups: dict[str, str], raised: Raised) -> dict[str, str]:
    """The parts of the message, each one line, and what is known of the failure."""
    words = {key: one_line(value.partition("\n")[0]) for key, value in groups.items()}
    return words | {
        "name": listed(raised.outputs) or "the output",
        "missing": listed(raised.missing) or "an input",
        "shape": str(raised.shape),
        "line": line(raised.source),
        "custom": line(raised.custom),
    }


# -- the line that has to change, and that line written anew -----------------------------


def _line_to_change(
    message: Message, context: BackwardCall, raised: Raised
) -> tuple[SourceLine | None, str]:
    """The line that the message says how to write anew, and how: the one that failed, or
    else the nearest one which gives a value to what it reads. None where there is none.
    """
    source = raised.source
    if source is None or not message.fix_there:
        return None, ""

    lines = [source, *lines_behind(source)]
    if message.find == "cut":
        missing = set(raised.missing)
        lines = [cut.source for cut in context.cuts if missing.intersection(cut.behind)]
    for each in lines:
        rewritten = _rewritten(message, each)
        if rewritten not in ("", each.text):
            return each, rewritten

    # of several in the file, nothing says which one it was
    fitting = [each for each, _ in matching(source.file, message.replace)]
    if message.find or len(fitting) != 1:
        return None, ""
    return fitting[0], _rewritten(message, fitting[0])


def _rewritten(message: Message, source: SourceLine) -> str:
    if message.find == "leaf":
        return as_leaf(source)
    return re.sub(message.replace, message.by, source.text)
