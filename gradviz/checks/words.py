"""How findings name places, tensors and lists of things. A name is one line of plain
text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from gradviz.graph import Graph, SourceLine
from gradviz.graph.origins import own_line
from gradviz.wording import clip, few, one_line, place_text, verb as verb

SHOWN = 3
"""Names that a sentence lists before it counts the others."""
Names = tuple[str, ...]
"""The names of one thing, the usual one first, or of several things."""
CODE = 70
"""Characters of a line of code that a sentence quotes."""


def line(source: SourceLine | None) -> str:
    """`train.py:12`, with the path from the current folder on,
    `torchvision: resnet.py:92`, or "" when unknown.
    """
    if source is None:
        return ""
    # whose `linear.py` it is says more than the folder that it is installed in
    if source.package:
        name = one_line(os.path.basename(source.file))
        return f"{one_line(source.package)}: {place_text(name, source.line)}"
    return place_in(source.file, source.line)


def place_in(file: str, number: int) -> str:
    """`train.py:12`, with the path from the current folder on."""
    return place_text(one_line(short_path(file)), number)


def short_path(file: str) -> str:
    """The path as the user would type it: relative when the file is below the current
    folder.
    """
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # another drive, or a folder that is gone
        return file
    return file if file.startswith("<") or relative.startswith("..") else relative


def code(source: SourceLine | None) -> str:
    """``train.py:12 (`loss = net(x)`)``, as much of it as is known."""
    if source is None:
        return "an unknown line"
    if source.text:
        return f"{line(source)} (`{clip(source.text, CODE)}`)"
    return line(source)


def where(graph: Graph, node: int) -> str:
    """Module and line of a node: `net.fc (Linear), train.py:12`; the script's line
    first where a library's made it.
    """
    record = graph.nodes[node]
    module = ""
    if record.scope is not None:
        scope = graph.scopes[record.scope]
        module = f"{one_line(scope.path or scope.type)} ({one_line(scope.type)})"
    return places(module, line(record.script_line), line(record.source))


def places(*parts: str) -> str:
    """Those of these that are known, in a row."""
    return ", ".join(filter(None, parts))


def title(graph: Graph, node: int) -> str:
    """A node in a sentence: its op, and where it was made."""
    record = graph.nodes[node]
    return f"{record.op} ({line(own_line(record)) or f'node {node}'})"


def title_and_code(graph: Graph, node: int) -> str:
    """The same with the code of the line."""
    record = graph.nodes[node]
    source = own_line(record)
    if source is None or not source.text:
        return title(graph, node)
    return f"{record.op} ({line(source)}: `{clip(source.text, CODE)}`)"


def listed(names: Iterable[str], shown: int = SHOWN) -> str:
    """`a, b and c`, or `a, b, c, d, e, f and 3 more`."""
    every = [one_line(name) for name in names]
    if len(every) > shown:
        return few(every, shown)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def first_names(things: Iterable[Any]) -> Names:
    """The first name of each leaf, node, parameter or tensor that has one."""
    return tuple(name for thing in things for name in thing.names[:1])


def all_names(things: Iterable[Any]) -> Names:
    """The names of all of them, each once."""
    return tuple(dict.fromkeys(name for thing in things for name in thing.names))


def nodes_of(things: Iterable[Any]) -> tuple[int, ...]:
    """The node of each leaf, parameter or tensor."""
    return tuple(thing.node for thing in things)


def made_at(graph: Graph, node: int | None) -> SourceLine | None:
    """The user's line that made a node, None where there is no node."""
    return own_line(graph.nodes[node]) if node is not None else None


_INDEX = re.compile(r"(\[[^\]]*\])+$")


def variable_of(name: str) -> str:
    """The variable that holds what is called so: `net[0].state` of `net[0].state[1]`."""
    return _INDEX.sub("", name)


def as_code(name: str) -> str:
    """A name as Python takes it: torch calls the parts of a Sequential "net.0".

    >>> as_code("net.layers.0.weight")
    'net.layers[0].weight'
    """
    return re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", one_line(name))
