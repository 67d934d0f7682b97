"""How findings name places, tensors and lists of things. One line of plain text each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gradviz.graph import Graph, Node, SavedTensor, SourceLine
from gradviz.graph.origins import own_line
from gradviz.wording import clip, few, one_line, verb as verb

SHOWN = 3
"""Names that a sentence lists before it counts the others."""
CODE = 70
"""Characters of a line of code that a sentence quotes."""


def line(source: SourceLine | None) -> str:
    """`train.py:12`, with the path from the current folder on, `torchvision: resnet.py:92`, or "" when unknown."""
    if source is None:
        return ""
    if source.package:  # whose `linear.py` it is says more than the folder that it is installed in
        return f"{one_line(source.package)}: {one_line(os.path.basename(source.file))}:{source.line}"
    return f"{one_line(short_path(source.file))}:{source.line}"


def short_path(file: str) -> str:
    """The path as the user would type it: relative when the file is below the current folder."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # another drive, or a folder that is gone
        return file
    return file if file.startswith("<") or relative.startswith("..") else relative


def code(source: SourceLine | None) -> str:
    """``train.py:12 (`loss = net(x)`)``, as much of it as is known."""
    if source is None:
        return "an unknown line"
    return f"{line(source)} (`{clip(source.text, CODE)}`)" if source.text else line(source)


def where(graph: Graph, node: int) -> str:
    """Module and line of a node: `net.fc (Linear), train.py:12`; the script's line first where a library's made it."""
    record = graph.nodes[node]
    scope = graph.scopes[record.scope] if record.scope is not None else None
    module = f"{one_line(scope.path or scope.type)} ({one_line(scope.type)})" if scope is not None else ""
    return ", ".join(part for part in (module, line(record.script_line), line(record.source)) if part)


def op(record: Node) -> str:
    """A node in a word: its op, or for a part of a compiled function what the code called: "log"."""
    return str(record.attributes.get("gradient of") or record.op)


def title(graph: Graph, node: int) -> str:
    """A node in a sentence: its op, and where it was made."""
    record = graph.nodes[node]
    return f"{op(record)} ({line(own_line(record)) or f'node {node}'})"


def title_and_code(graph: Graph, node: int) -> str:
    """The same with the code of the line."""
    record = graph.nodes[node]
    source = own_line(record)
    if source is None or not source.text:
        return title(graph, node)
    return f"{op(record)} ({line(source)}: `{clip(source.text, CODE)}`)"


def listed(names: Iterable[str], shown: int = SHOWN) -> str:
    """`a, b and c`, or `a, b, c, d, e, f and 3 more`."""
    every = [one_line(name) for name in names]
    if len(every) > shown:
        return few(every, shown)
    return " and ".join(filter(None, (", ".join(every[:-1]), every[-1]))) if every else ""


def as_code(name: str) -> str:
    """A name as Python takes it: torch calls the parts of a Sequential "net.0".

    >>> as_code("net.layers.0.weight")
    'net.layers[0].weight'
    """
    return re.sub(r"\.(\d+)(?=[.\[]|$)", r"[\1]", one_line(name))


def slot_name(saved: SavedTensor) -> str:
    """A saved slot in a sentence: `result`."""
    return one_line(saved.slot)
