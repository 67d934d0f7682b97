"""The pytest plugin: the fixture `gradviz_graph`, which compares a graph with a text
beside the test.

Owns the texts' place and the option `--gradviz-update`. Imports neither torch nor the
rest of gradviz before a test asks for it.
"""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    import torch

    from gradviz.graph import Graph
    from gradviz.testing.golden import Level

FOLDER = "gradviz_graphs"
"""Beside the test file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--gradviz-update`. Called by pytest."""
    group = parser.getgroup("gradviz")
    group.addoption(
        "--gradviz-update",
        action="store_true",
        help="write the texts of gradviz_graph anew instead of comparing",
    )


@pytest.fixture
def gradviz_graph(request: pytest.FixtureRequest) -> GraphTexts:
    """Compares graphs with texts that stand beside the test:
    `gradviz_graph.matches(loss, model=net)`.
    """
    test, _, parameters = request.node.name.partition("[")
    parents = request.node.listchain()
    classes = [parent.name for parent in parents if isinstance(parent, pytest.Class)]
    name = ".".join([*classes, test])
    if parameters:
        name += f"-{_legal(parameters[:-1])}"
    file = request.path.parent / FOLDER / request.path.stem / name
    return GraphTexts(file, request.config.getoption("--gradviz-update"))


class GraphTexts:
    """The texts of one test: the first is called after it, each further one has a
    number.
    """

    def __init__(self, stem: Path, update: bool) -> None:
        self._stem, self._update = stem, update
        self._files: list[Path] = []

    def matches(
        self,
        outputs: object,
        *,
        model: torch.nn.Module | None = None,
        level: Level = "strict",
        name: str = "",
    ) -> None:
        """Compare the graph behind `outputs`, or write its text with
        `--gradviz-update`.

        Parameters
        ----------
        outputs
            a tensor, any nesting of tensors, or a `gradviz.Graph`.
        model
            names parameters and modules.
        level
            "strict" has each op; "loose" has modules, parameters and their bytes
            only.
        name
            of the text, where a test compares several. Without it they are
            numbered.

        Raises
        ------
        AssertionError
            they differ, or there is no text yet. The message shows
            where, and what `gradviz.check` finds.
        ValueError
            another call of the test compares with the same file, or there is no
            such level.
        """
        # pytest then shows the line of the test in place of this one
        __tracebackhide__ = True
        from gradviz.api import walk
        from gradviz.graph import Graph
        from gradviz.testing.golden import golden_text

        file = self._file(name)
        graph = outputs if isinstance(outputs, Graph) else walk(outputs, model)
        text = golden_text(graph, level)
        if self._update:
            _write(file, text)
            return
        shown = os.path.relpath(file)
        if not file.exists():
            raise AssertionError(
                f"there is no {shown} yet: run pytest --gradviz-update once, and look at what it writes"
            )
        before = file.read_text(encoding="utf-8")
        if before != text:
            texts = before.splitlines(), text.splitlines()
            lines = unified_diff(*texts, shown, "the graph now", lineterm="")
            changes = "\n".join(lines)
            advice = "If that is meant: pytest --gradviz-update"
            raise AssertionError(
                f"the graph differs from {shown}\n\n{changes}\n\n{_found(outputs, graph, model)}{advice}"
            )

    def _file(self, name: str) -> Path:
        """That of the next call, which no other call of the test has."""
        __tracebackhide__ = True
        number = str(len(self._files) + 1) if self._files else ""
        parts = self._stem.name, _legal(name) or number, "txt"
        file = self._stem.with_name(".".join(filter(None, parts)))
        if file in self._files:
            raise ValueError(
                f"the test compares with {os.path.relpath(file)} already: give each graph another name="
            )
        self._files.append(file)
        return file


def _legal(name: str) -> str:
    """The name as part of a file's: distinct names stay distinct."""
    return quote(name, safe=" ,=")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # renamed when complete, since another pytest-xdist worker may read it
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8", newline="\n")
    new.replace(file)


def _found(outputs: object, graph: Graph, model: torch.nn.Module | None) -> str:
    """The report of the checks, where they find something."""
    from gradviz.checks.check import check

    findings = check(outputs, model=model) if outputs is not graph else ()
    return f"{findings}\n\n" if findings else ""
