"""What the backward of one compiled function does, read from its program: operations,
and inputs without a gradient.

`torch.compile` makes a program for each graph that it compiles, and keeps it as Python
text. The text is searched, and nothing in it runs. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_CALL = re.compile(r"= torch\.ops\.(\w+)\.(\w+)")
_RETURN = re.compile(r"^ +return [(\[](.*)[)\]]$", re.MULTILINE)


class Region(NamedTuple):
    """`calls` are how often each operation occurs, `gives` says for each input of the
    forward whether it gets a gradient.
    """

    calls: Counter[str]
    gives: tuple[bool, ...]

    @property
    def kinds(self) -> str:
        """The operations, the most frequent first: "t ×5, mm ×3, sum"."""
        ranked = sorted(self.calls.items(), key=lambda call: (-call[1], call[0]))
        return ", ".join(
            f"{name} ×{count}" if count > 1 else name for name, count in ranked
        )


def region_of(text: str) -> Region | None:
    """The region whose backward is written in `text`, None for text of another form.

    >>> region = region_of('''
    ... def forward(self, relu, tangents_1):
    ...     neg = torch.ops.aten.neg.default(tangents_1);  tangents_1 = None
    ...     mul = torch.ops.aten.mul.Tensor(neg, relu);  neg = relu = None
    ...     return (mul, None)
    ... ''')
    >>> region.kinds, region.gives
    ('mul, neg', (True, False))
    """
    returned = _RETURN.findall(text)
    if len(returned) != 1:
        return None

    calls = Counter[str]()
    for namespace, name in _CALL.findall(text):
        if not name.startswith("sym_"):  # of sizes
            calls[name if namespace == "aten" else f"{namespace}.{name}"] += 1

    results = [result.strip() for result in returned[0].split(",")]
    return Region(calls, tuple([result != "None" for result in results if result]))
