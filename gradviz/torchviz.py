"""Drop-in for torchviz 0.0.3: change `from torchviz import make_dot` to
`from gradviz.torchviz import make_dot`.

Where torchviz raises (deep graphs, freed graphs, modified saved tensors, nested
outputs, Python 3.12 without setuptools) or disturbs the graph (it unpacks saved
tensors, which runs hooks and recomputes checkpoints), this returns a picture and leaves
the graph as it was. Nodes, labels, colours and edges are torchviz's; `docs/torchviz.md`
lists every difference and why. The pictures of `Graph.save` are another renderer's:
this one exists so that people can switch by one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import graphviz
import torch

from gradviz.errors import LayoutTimeout
from gradviz.graph import Base, Graph, Node, Root, SavedTensor, TensorInfo
from gradviz.layout.graphviz import run
from gradviz.walker.outputs import flatten
from gradviz.walker.tensors import base_of
from gradviz.walker.walk import capture

__all__ = ["make_dot", "make_dot_from_trace"]


def make_dot(
    var: object,
    params: Mapping[str, torch.Tensor] | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
) -> Digraph:
    """The autograd graph of `var` in torchviz's style, as a `graphviz.Digraph`.

    Blue boxes are leaves whose `.grad` backward fills, grey ones backward functions,
    orange ones saved tensors, green ones the outputs, dark green ones the bases that
    outputs are views of.

    Parameters
    ----------
    var
        an output tensor, or any nesting of tensors.
    params
        tensors by name, to name the leaves.
    show_attrs
        list the non-tensor attributes that backward functions saved.
    show_saved
        draw saved tensors; those of custom Functions are always drawn.
    max_attr_chars
        longest attribute value shown, at least 3.

    Raises
    ------
    NotATensorError
        there is no tensor in `var`, or a value of `params` is not a tensor.

    Notes
    -----
    Source: https://github.com/szagoruyko/pytorchviz

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> "MulBackward0" in make_dot(x * 2, params={"x": x}).source
    True
    """
    found = [
        (path, tensor)
        for path, tensor in flatten(var)
        if isinstance(tensor, torch.Tensor)
    ]
    outputs = list({id(tensor): tensor for _, tensor in found}.values())
    graph = capture(outputs, params=params, need_graph=False, read_compiled=False).graph
    bases: dict[int, int] = {}
    same_base = {}

    for number, tensor in enumerate(outputs):
        base = base_of(tensor)
        if base is not None:
            same_base[number] = bases.setdefault(id(base), number)

    # torchviz takes a tensor or a tuple, whose outputs have no names; the keys of a
    # dict, which it refuses, say which is which
    names = {
        id(tensor): path
        for path, tensor in reversed(found)
        if not _INDICES.fullmatch(path)
    }
    names |= {id(tensor): name for name, tensor in (params or {}).items()}
    drawing = _Drawing(graph, show_attrs, show_saved, max(max_attr_chars, 3))
    drawing.roots([names.get(id(tensor), "") for tensor in outputs], same_base)
    drawing.nodes()
    drawing.resize()
    return drawing.dot


def make_dot_from_trace(trace: object) -> NoReturn:
    """torchviz keeps this name only to say that it is gone, and so does gradviz. Always
    raises NotImplementedError.
    """
    raise NotImplementedError(
        "graphs of torch.jit traces are not drawn here: use torch.utils.tensorboard's SummaryWriter.add_graph, "
        "or pass an output tensor to make_dot"
    )


LEAF, SAVED, OUTPUT, BASE = "lightblue", "orange", "darkolivegreen1", "darkolivegreen3"
_NODE_STYLE = {
    "style": "filled",
    "shape": "box",
    "align": "left",
    "fontsize": "10",
    "ranksep": "0.1",
    "height": "0.2",
    "fontname": "monospace",
}
_INDICES = re.compile(r"(\[\d+\])*")
_INCHES_PER_STATEMENT, _LEAST_INCHES = 0.15, 12
TIME_LIMIT: float | None = 120.0
"""Seconds that Graphviz may take to draw; None for no limit. Graphviz itself has none,
and a large graph can take it hours.
"""
_GRAPHVIZ_ALONE = (
    "renderer",
    "formatter",
    "neato_no_op",
    "raise_if_result_exists",
    "overwrite_source",
)
"""Options that `graphviz` passes to the system's program, and only to that."""


class Digraph(graphviz.Digraph):  # type: ignore[misc]  # graphviz ships no types
    """A `graphviz.Digraph` whose `pipe`, `render`, `view` and notebook display work
    without a system Graphviz, and end in time.
    """

    def pipe(self, format: str | None = None, *arguments: Any, **options: Any) -> Any:
        """The drawing as bytes, or text with `encoding=`. As in
        `graphviz.Digraph.pipe`. Raises LayoutTimeout.
        """
        if arguments or any(options.get(name) for name in _GRAPHVIZ_ALONE):
            return super().pipe(format, *arguments, **options)
        drawn, encoding = (
            self._drawn(format, options.get("engine")),
            options.get("encoding"),
        )
        return drawn.decode(encoding) if encoding else drawn

    def render(
        self,
        filename: Any = None,
        directory: Any = None,
        view: bool = False,
        cleanup: bool = False,
        format: str | None = None,
        *arguments: Any,
        outfile: Any = None,
        engine: str | None = None,
        quiet_view: bool = False,
        **options: Any,
    ) -> str:
        """Save the source and the drawing beside it; the drawing's path. As in
        `graphviz.Digraph.render`. Raises LayoutTimeout.
        """
        if arguments or any(options.get(name) for name in _GRAPHVIZ_ALONE):
            forwarded: dict[str, Any] = {
                "outfile": outfile,
                "engine": engine,
                "quiet_view": quiet_view,
                **options,
            }
            return str(
                super().render(
                    filename, directory, view, cleanup, format, *arguments, **forwarded
                )
            )

        if outfile is not None:
            format = format or Path(outfile).suffix.lstrip(".") or None
            filename = filename or Path(outfile).with_suffix(".gv")
        source = self.save(filename=filename, directory=directory)
        target: str
        if outfile is not None:
            target = os.fspath(outfile)
        else:
            target = f"{source}.{format or self.format}"
        Path(target).write_bytes(self._drawn(format, engine))
        if cleanup:
            os.remove(source)
        if view or quiet_view:
            self._view(target, format=format or self.format, quiet=quiet_view)
        return target

    def _drawn(self, format: str | None, engine: str | None) -> bytes:
        # or a ValueError
        checked = graphviz.Digraph(
            format=format or self.format, engine=engine or self.engine
        )
        try:
            return run(
                self.source,
                program=checked.engine,
                format=checked.format,
                timeout=TIME_LIMIT,
            )
        except LayoutTimeout as error:
            raise LayoutTimeout(
                f"{error} gradviz draws large graphs itself, folded: gradviz.walk(y).save('graph.svg'). "
                "To wait longer: gradviz.torchviz.TIME_LIMIT = None."
            ) from None


class _Drawing:
    def __init__(self, graph: Graph, attrs: bool, saved: bool, width: int) -> None:
        self.dot = Digraph(node_attr=_NODE_STYLE, graph_attr={"size": "12,12"})
        self._graph = graph
        self._attrs, self._saved, self._width = attrs, saved, width
        # An output that is itself a leaf has an AccumulateGrad in the model only so
        # that it has a node.
        self._unreached = {
            leaf.node for leaf in graph.leaves if not graph.consumers(leaf.node)
        }

    # -- tensors -----------------------------------------------------------------------

    def roots(self, names: Sequence[str], same_base: Mapping[int, int]) -> None:
        """The outputs in green, their bases in dark green, and edges between them.

        `names` are the caller's of each root, "" where it has none; `same_base` the
        number of the first root that is a view of the same tensor, by the number of
        each.
        """
        drawn: dict[tuple[int, int], str] = {}
        for number, root in enumerate(self._graph.roots):
            if root.node is not None:
                made_by = (root.node, root.output)
            else:
                made_by = (-1 - number, 0)

            if made_by not in drawn:
                drawn[made_by] = self._root(number, root, names[number])

            if root.base is not None:
                base = self._base(root.base, same_base.get(number, number), drawn)
                self.dot.edge(base, drawn[made_by], style="dotted")

    def _root(self, number: int, root: Root, title: str) -> str:
        if (
            root.node is not None
            and root.node in self._graph.leaf_of
            and root.node not in self._unreached
        ):
            return f"leaf{root.node}"

        name = f"output{number}"
        self.dot.node(name, _tensor_label(title, root.tensor), fillcolor=OUTPUT)
        if root.node is not None and root.node not in self._unreached:
            self.dot.edge(f"n{root.node}", name)

        return name

    def _base(self, base: Base, number: int, drawn: dict[tuple[int, int], str]) -> str:
        if base.node is not None and base.node in self._graph.leaf_of:
            return f"leaf{base.node}"

        key = (base.node, base.output) if base.node is not None else (-1 - number, 1)
        if key not in drawn:
            drawn[key] = f"base{number}"
            self.dot.node(
                drawn[key],
                _tensor_label(_name(base.names), base.tensor),
                fillcolor=BASE,
            )
            if base.node is not None:
                self.dot.edge(f"n{base.node}", drawn[key])

        return drawn[key]

    # -- backward functions ------------------------------------------------------------

    def nodes(self) -> None:
        """Every backward function with its saved tensors, its leaf, and the edges into
        it.
        """
        for node in self._graph.nodes:
            if node.id in self._unreached:
                continue

            self.dot.node(f"n{node.id}", _label(self._function_label(node)))
            self._saved_tensors(node)
            leaf = self._graph.leaf_of.get(node.id)

            if leaf is not None:
                self.dot.node(
                    f"leaf{node.id}",
                    _tensor_label(_name(leaf.names), leaf.tensor),
                    fillcolor=LEAF,
                )
                self.dot.edge(f"leaf{node.id}", f"n{node.id}")

            for edge in self._graph.inputs(node.id):
                self.dot.edge(f"n{edge.producer}", f"n{edge.consumer}")

    def _saved_tensors(self, node: Node) -> None:
        for number, saved in enumerate(node.saved):
            custom = saved.slot.startswith("saved_tensors")
            if saved.slot.startswith("ctx.") or not (custom or self._saved):
                continue
            name = f"n{node.id}saved{number}"
            title = self._custom_name(saved) if custom else saved.slot
            self.dot.node(name, _saved_label(title, saved), fillcolor=SAVED)
            if custom:
                self.dot.edge(name, f"n{node.id}", dir="none")
            else:
                self.dot.edge(f"n{node.id}", name, dir="none")

    def _custom_name(self, saved: SavedTensor) -> str:
        """torchviz names what a custom Function saved only when the caller named that
        very tensor.
        """
        if saved.leaf is not None:
            return _name(self._graph.leaf_of[saved.leaf].names)
        return ""

    def _function_label(self, node: Node) -> str:
        attributes = _attributes(node) if self._attrs else {}
        if not attributes:
            return node.op

        wide = max(map(len, attributes))
        room = min(max(map(len, attributes.values())), self._width)
        rule = "-" * max(wide + room + 2, len(node.op))
        rows = [
            f"{name:<{wide}}: {_cut(value, room):>{room}}"
            for name, value in attributes.items()
        ]

        return "\n".join([node.op, rule, *rows])

    def resize(self) -> None:
        """Let the drawing grow with its content, as torchviz does."""
        side = max(_LEAST_INCHES, len(self.dot.body) * _INCHES_PER_STATEMENT)
        self.dot.graph_attr.update(size=f"{side},{side}")


def _name(names: Sequence[str]) -> str:
    """Of several names in `params`, torchviz shows the last."""
    return names[-1] if names else ""


def _attributes(node: Node) -> dict[str, str]:
    """What torchviz lists for a node: every `_saved_*` of a built-in node, tensors by a
    placeholder, sorted by name.
    """
    listed = {name: str(value) for name, value in node.attributes.items()}
    for saved in node.saved:
        slot, bracket, _ = saved.slot.partition("[")
        if slot != "saved_tensors" and not slot.startswith("ctx."):
            listed[slot] = "[saved tensors]" if bracket else "[saved tensor]"
    return dict(sorted(listed.items()))


def _cut(value: str, room: int) -> str:
    return value[: room - 3] + "..." if len(value) > room else value


def _saved_label(title: str, saved: SavedTensor) -> str:
    if saved.tensor is None:
        return _label(f"{title or saved.slot}\n {saved.state}")
    note = "" if saved.state == "live" else f" {saved.state}"
    return _tensor_label(title, saved.tensor, note)


def _tensor_label(name: str, tensor: TensorInfo, note: str = "") -> str:
    shape = "?" if tensor.shape is None else ", ".join(map(str, tensor.shape))
    return _label(f"{name}\n ({shape}){note}")


def _label(text: str) -> str:
    """Text that Graphviz shows as it is: no HTML, no backslash sequences, no control
    characters.
    """
    shown = "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )
    if "\\" in shown or "<" in shown:
        shown = str.__new__(graphviz.quoting.NoHtml, graphviz.escape(shown))
    return shown
