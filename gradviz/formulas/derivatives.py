"""torch's own text for the gradients of the other ops: its file of derivatives, found
beside the installed torch and read by lines.

The file is C++ in YAML; only its headings and the lines right below are read. Where
there is no such file, there is no formula. Source:
`torchgen/packaged/autograd/derivatives.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_HEADING = re.compile(r"- name: (\w+)(?:\.\w+)?\((.*)\) -> ")
_GRADIENT = re.compile(r" +(\w+(?:, \w+)*): (.+)")


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
    homes = spec.submodule_search_locations if spec is not None else None

    if homes:
        file = Path(
            next(iter(homes), ""),
            "packaged",
            "autograd",
            "derivatives.yaml",
        )
    else:
        file = None

    if file is None or not file.is_file():
        return {}

    return {entry.op: entry for entry in read(file.read_text(encoding="utf-8"))}


def read(text: str) -> Iterator[Derivative]:
    """The entries of such a file. Overloads of one op are numbered in the order in
    which they stand there, as autograd does.

    >>> sin, = read("- name: sin(Tensor self) -> Tensor\\n  self: grad * self.cos().conj()\\n  result: auto_element_wise\\n")
    >>> sin.op, sin.call, sin.gradients
    ('SinBackward0', 'sin(self)', {'self': 'grad * self.cos().conj()'})
    """
    count: dict[str, int] = {}
    entry: Derivative | None = None

    for line in text.splitlines():
        heading, gradient = _HEADING.match(line), _GRADIENT.match(line)
        if heading:
            if entry is not None and entry.gradients:
                yield entry
            name = "".join(
                part.title() for part in heading[1].removesuffix("_forward").split("_")
            )
            number = count[name] = count.get(name, -1) + 1
            entry = Derivative(
                f"{name}Backward{number}", f"{heading[1]}({_arguments(heading[2])})", {}
            )
        elif (
            entry is not None
            and gradient
            and _is_input(entry, gradient[1])
            and gradient[2] != "non_differentiable"
        ):
            entry = entry._replace(
                gradients={
                    gradient[1]: gradient[2].strip('"'),
                    **entry.gradients,
                }
            )

    if entry is not None and entry.gradients:
        yield entry


def _is_input(entry: Derivative, names: str) -> bool:
    """Whether a line is about gradients of arguments; others are about tangents of
    results, and settings.
    """
    return set(names.split(", ")) <= set(
        re.findall(r"\w+", entry.call.partition("(")[2])
    )


def _arguments(signature: str) -> str:
    """Names without types and defaults: `Tensor self, *, Scalar alpha=1` is
    `self, alpha`.
    """
    parts = (
        part.partition("=")[0].split()
        for part in re.sub(r"\[[^]]*\]", "", signature).split(",")
    )
    return ", ".join(part[-1] for part in parts if len(part) > 1)
