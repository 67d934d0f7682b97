"""The tools that are measured: how each captures a graph and how each draws it as SVG.

Each tool is imported only by the process that measures it. Drawing every operation is asked of all; of gradviz also its
default, folded picture.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.models import Built


class Tool(NamedTuple):
    """`capture` makes something of a built model, and `draw` writes that as SVG to a path; without it nothing is drawn."""

    package: str
    capture: Callable[[Built], Any]
    draw: Callable[[Any, str], None] | None
    recorded: bool = False  # whether the model must be built inside gradviz.record()


def bare_walk(built: Built) -> Any:
    """Visit every node and note nothing: the least that any reader of the graph must do."""
    seen = {built.loss.grad_fn}
    waiting = [built.loss.grad_fn]
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return None  # and not the nodes: tools that keep none should be compared


def gradviz_walk(built: Built) -> Any:
    """The graph as gradviz reads it from a loss that is there already."""
    import gradviz

    return gradviz.walk(built.loss, model=built.model)


def gradviz_recorded(built: Built) -> Any:
    """The same with module calls and source lines, noted while the model ran."""
    return built.recording.graph(built.loss, model=built.model)


def draw_all(graph: Any, path: str) -> None:
    """Every operation as a box."""
    graph.save(path, depth="all")


def draw_folded(graph: Any, path: str) -> None:
    """gradviz's default: modules folded to about two screens."""
    graph.save(path)


def torchviz_dot(built: Built) -> Any:
    """torchviz looks at the loss that is there already."""
    import torchviz

    return torchviz.make_dot(built.loss, params=dict(built.model.named_parameters()))


def draw_dot(dot: Any, path: str) -> None:
    """A graphviz.Digraph, drawn by the dot program."""
    dot.render(outfile=path, cleanup=True)


def torchview_graph(built: Built) -> Any:
    """torchview runs the model."""
    import torchview

    drawn = torchview.draw_graph(
        built.model, input_data=built.inputs, depth=float("inf"), expand_nested=True
    )
    return drawn.visual_graph


def torchlens_trace(built: Built) -> Any:
    """torchlens runs the model."""
    import torchlens

    return torchlens.trace(built.model, built.inputs)


def draw_trace(trace: Any, path: str) -> None:
    """torchlens's picture with its own defaults."""
    trace.draw(
        vis_outpath=path.removesuffix(".svg"), vis_fileformat="svg", vis_save_only=True
    )


def built_alone(built: Built) -> Any:
    """torchvista reads and draws in one."""
    return built


def draw_vista(built: Built, path: str) -> None:
    """torchvista runs the model and writes a page that lays itself out when it is opened."""
    import torchvista

    page = f"{path}.html"
    # it prints where the file is
    with contextlib.redirect_stdout(io.StringIO()):
        torchvista.trace_model(
            built.model, built.inputs, export_format="html", export_path=page
        )
    os.replace(page, path)


TOOLS = {
    "bare walk": Tool("torch", bare_walk, None),
    "gradviz, every op": Tool("gradviz", gradviz_walk, draw_all),
    "gradviz, folded": Tool("gradviz", gradviz_recorded, draw_folded, recorded=True),
    "torchviz": Tool("torchviz", torchviz_dot, draw_dot),
    "torchview": Tool("torchview", torchview_graph, draw_dot),
    "torchlens": Tool("torchlens", torchlens_trace, draw_trace),
    "torchvista": Tool("torchvista", built_alone, draw_vista),
}
