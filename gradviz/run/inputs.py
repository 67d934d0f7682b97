"""What `--input` spells: one argument of a model's forward() each.

Reads text; `gradviz.run.forward` makes the tensors. Imports no torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradviz.errors import TargetError

_NAMED = re.compile(r"(?:([^\W\d]\w*)=)?(.*)", re.DOTALL)
_SHAPE = re.compile(r"(\d+(?:,\d+)*),?(?::([a-z]+\d*))?(?:<(\d+(?:\.\d+)?))?")
_FORMS = "a shape (1,3,224,224), with a dtype (2,16:int64), with a range (2,16:int64<30522), or a value of a file (data.py:batch)"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A shape to fill, or the `name` of a value in the file or module `place`.

    Without a `dtype` it is that of the model. `below` ends the range of the numbers,
    which begins at 0. `keyword` is the argument's name, "" for one by position.
    """

    text: str
    keyword: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    below: float | None = None
    place: str = ""
    name: str = ""


def parse_input(text: str) -> InputSpec:
    """The argument that `text` spells. Raises TargetError that lists the forms.

    >>> parse_input("ids=2,16:int64<30522").shape
    (2, 16)
    """
    match = _NAMED.fullmatch(text)
    assert match is not None
    keyword, value = match[1] or "", match[2]

    shape = _SHAPE.fullmatch(re.sub(r"[\s()\[\]]", "", value))
    if shape is not None:
        sizes, dtype, below = shape.groups()
        numbers = tuple(map(int, sizes.split(",")))
        limit = float(below) if below else None
        return InputSpec(text, keyword, numbers, dtype or "", limit)

    place, colon, name = value.rpartition(":")
    is_module = place.replace(".", "").isidentifier()
    if not colon or not (is_module or os.path.isfile(place)):
        raise TargetError(f"--input cannot be {text!r}. Give {_FORMS}.")
    return InputSpec(text, keyword, place=place, name=name)


def given_input(value: object, keyword: str = "") -> InputSpec:
    """The same for an argument in Python: a text or a shape is filled, any other value
    is given as it is.
    """
    if isinstance(value, str):
        return replace(parse_input(value), keyword=keyword)
    if isinstance(value, tuple) and all(type(size) is int for size in value):
        return InputSpec("", keyword, value)
    return InputSpec("", keyword, place=type(value).__name__)


_HINTS = (
    (
        "Long, Int",
        "Indices are integers below the size of the embedding: --input 2,16:int64<1000",
    ),
    (
        "more than 1 value per channel",
        "Batch norm in training mode needs a larger batch: --input 2,...",
    ),
)
"""Words of an error that an input leads to, and what to give instead."""


def input_hint(error: BaseException, inputs: Sequence[InputSpec]) -> str:
    """What to say above the traceback of a model that failed with these inputs."""
    given = " ".join(f"--input {one.text}" for one in inputs)
    hints = [hint for words, hint in _HINTS if words in str(error)]
    return "\n".join([f"The model failed with {given}.", *hints, ""])
