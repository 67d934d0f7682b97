"""torch's own text for the gradients of the other ops: its file of derivatives, found
beside the installed torch and read by lines.

The file is C++ in YAML; only its headings and the lines right below are read. Where
there is no such file, there is no formula. Source:
`torchgen/packaged/autograd/derivatives.yaml`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_HEADING = re.compile(r"(\w+)(?:\.\w+)?\((.*)\) -> ")
_GRADIENT = re.compile(r"^ +(\w+(?:, \w+)*): (.+)", re.MULTILINE)


class Derivative(NamedTuple):
    """One entry: the backward function's name, the op with its arguments, and the text
    for each input.
    """

    op: str
    call: str
    gradients: Mapping[str, str]


@cache
def derivatives() -> Mapping[str, Derivative]:
    """Every entry of the installed torch by the name of the backward function; empty
    where the file is not there.
    """
    spec = find_spec("torchgen")
    for home in (spec and spec.submodule_search_locations) or ():
        file = Path(home, "packaged", "autograd", "derivatives.yaml")
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            return {entry.op: entry for entry in read(text)}
    return {}


def read(text: str) -> Iterator[Derivative]:
    """The entries of such a file. Overloads of one op are numbered in the order in
    which they stand there, as autograd does.

    >>> sin, = read("- name: sin(Tensor self) -> Tensor\\n  self: grad * self.cos().conj()\\n  result: auto_element_wise\\n")
    >>> sin.op, sin.call, sin.gradients
    ('SinBackward0', 'sin(self)', {'self': 'grad * self.cos().conj()'})
    """
    count = Counter[str]()
    for entry in re.split(r"^- name: ", text, flags=re.MULTILINE):
        heading = _HEADING.match(entry)
        if heading is None:
            continue

        words = heading[1].removesuffix("_forward").split("_")
        name = "".join(word.title() for word in words)
        arguments = _arguments(heading[2])
        gradients: dict[str, str] = {}
        for inputs, gradient in _GRADIENT.findall(entry):
            # others are about tangents of results, and settings
            if gradient != "non_differentiable" and set(inputs.split(", ")) <= set(
                arguments
            ):
                gradients.setdefault(inputs, gradient.strip('"'))

        if gradients:
            call = f"{heading[1]}({', '.join(arguments)})"
            yield Derivative(f"{name}Backward{count[name]}", call, gradients)
        count[name] += 1


def _arguments(signature: str) -> list[str]:
    """Names without types and defaults: `Tensor self, *, Scalar alpha=1` is
    `self, alpha`.
    """
    parts = (
        part.partition("=")[0].split()
        for part in re.sub(r"\[[^]]*\]", "", signature).split(",")
    )
    return [part[-1] for part in parts if len(part) > 1]
