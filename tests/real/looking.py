"""Runs one program of the corpus as the command line does and keeps what it showed: picture, names, scopes, findings.

Everything is read inside the one run that `gradviz render` would make; a second run is that of `gradviz check`.
"""

from __future__ import annotations

import gc
import logging
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch

from gradviz.checks.command import findings_of
from gradviz.cli.source import Source
from gradviz.graph import Graph
from gradviz.run.outputs import LiveOutputs
from gradviz.run.reading import read_graph
from gradviz.run.target import parse_target
from gradviz.walker.walk import capture
from tests.real import bodies, boxes

_TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclass
class Seen:
    """What one program showed. `problems` holds what raised, by the name of the promise that it broke."""

    problems: dict[str, str] = field(default_factory=dict)
    picture: str = ""  # the SVG that the command line writes
    closed_bodies: list[str] = field(default_factory=list)
    joined_modules: list[str] = field(default_factory=list)
    only_one_shows: list[str] = field(default_factory=list)  # boxes of the picture or of the page
    recorded: Graph = field(default_factory=Graph)
    by_model: Graph = field(
        default_factory=Graph
    )  # the same graph, its modules recorded and named from the model's root
    inferred: Graph = field(default_factory=Graph)  # as a program gets it that holds the loss and the model
    findings: list[str] = field(default_factory=list)

    def attempt(self, promise: str, action: Callable[[], None]) -> None:
        """Do it, and note what it raises."""
        try:
            action()
        except Exception as error:
            self.problems[promise] = f"{type(error).__name__}: {error}"


def look(script: Path, folder: Path) -> Seen:
    """Run the script up to the call that `gradviz render` shows, and once more as `gradviz check` does."""
    seen = Seen()
    source = Source(parse_target(str(script)), (), None, False)
    with _fresh_process():
        seen.attempt("picture", lambda: source.read(lambda live: _read(seen, live, folder)).raise_failure())
    with _fresh_process():
        seen.attempt("check", lambda: _check(seen, source))
    return seen


def _read(seen: Seen, live: LiveOutputs, folder: Path) -> None:
    seen.recorded = read_graph(live)
    seen.attempt("picture", lambda: _draw(seen, folder / "picture.svg"))
    seen.attempt("html", lambda: _compare(seen))
    seen.attempt("library", lambda: _use_library(seen, live, folder / "library.svg"))


def _compare(seen: Seen) -> None:
    seen.only_one_shows = boxes.differences(seen.recorded)
    seen.closed_bodies = bodies.closed_bodies(seen.recorded)
    seen.joined_modules = bodies.joined_modules(seen.recorded)


def _draw(seen: Seen, path: Path) -> None:
    seen.picture = Path(seen.recorded.save(str(path))).read_text()


def _use_library(seen: Seen, live: LiveOutputs, path: Path) -> None:
    """`gradviz.walk(loss, model=model).save(path)`, as if it stood on the line of the call."""
    _model = _largest_model(seen.recorded, live)  # no name that `walk` would find
    seen.inferred = _walk_there(live, _model)
    if live.recording is not None:
        attribution = live.recording.attribution(_model, live.variables)
        seen.by_model = capture(live.outputs, model=_model, variables=live.variables, attribution=attribution).graph
    seen.inferred.save(str(path))


def _walk_there(live: LiveOutputs, _model: torch.nn.Module | None) -> Graph:
    """Call `walk` among the variables of the line that called backward, where a user would write it."""
    frame = live.frame
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    assert frame is not None, "programs of the corpus call backward() or autograd.grad"
    scope = {**frame.f_locals, "_outputs": live.outputs, "_model": _model}
    graph = eval("__import__('gradviz').walk(_outputs, model=_model)", frame.f_globals, scope)
    assert isinstance(graph, Graph)
    return graph


def _largest_model(graph: Graph, live: LiveOutputs) -> torch.nn.Module | None:
    """The module that a person would pass as `model=`: the outermost one with most of the graph's parameters.

    Found among all objects that the program made, so that it does not depend on what gradviz finds.
    """
    from gradviz.walker.outputs import flatten

    leaves = _leaf_tensors([tensor for _, tensor in flatten(live.outputs)])
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    owned = [(sum(id(p) in leaves for p in one.parameters()), sum(1 for _ in one.modules()), one) for one in modules]
    best = max((item[:2] for item in owned), default=(0, 0))
    return next((one for *size, one in owned if tuple(size) == best), None) if best[0] else None


def _leaf_tensors(outputs: list[torch.Tensor]) -> set[int]:
    """Identities of the leaves behind outputs."""
    found: set[int] = set()
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting.extend(following for following, _ in node.next_functions)
    return found


def _check(seen: Seen, source: Source) -> None:
    captured = findings_of(source)
    found = captured.result
    if found.reach("warning"):  # what `gradviz check` exits with 1 for
        seen.findings = [f"{one.id}: {one.summary} {one.names} {one.where}" for one in found if one.severity != "note"]
    captured.raise_failure()


@contextmanager
def _fresh_process() -> Iterator[None]:
    """Around a run: numbers start at one seed, and what scripts set for their whole process is put back."""
    handlers, level, default = list(logging.root.handlers), logging.root.level, torch.get_default_dtype()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        gc.freeze()  # what is there already is none of the program's objects: nobody has to look through it
        try:
            yield
        finally:
            gc.unfreeze()
            logging.root.handlers[:], logging.root.level = handlers, level
            torch.set_default_dtype(default)
