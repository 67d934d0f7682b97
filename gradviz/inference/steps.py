"""What the code of a `forward` says, as plain data: a list of steps."""

from __future__ import annotations

from typing import NamedTuple


class ForwardStep(NamedTuple):
    """One thing that a forward does. `child`: it may call what it holds under this path,
    with "*" for any of a list. Where it holds no module there, and else, `name`: of an
    operator, a method, or a function, with "F." before one of torch.nn.functional; "?"
    for what may compute anything; one of `SYNTAX`.
    """

    child: str = ""
    name: str = ""


SYNTAX = ("", "if", "end", "return")
"""Names of steps that compute nothing: "return" where the call ends, and "if" and "end"
around what may not come.
"""


def keys_of(path: str) -> list[str]:
    """How steps may name what a module holds under a path.

    >>> keys_of("blocks.0")
    ['blocks.0', 'blocks.*', '*.*']
    """
    parts = path.split(".")
    return [path, ".".join([*parts[:-1], "*"]), ".".join("*" * len(parts))]
