"""The page on adding a renderer: its code runs, and what it names is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from gradviz.render.options import Options
from gradviz.render.registry import Format
from tests.builders import GRAPHS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "adding-a-renderer.md").read_text(encoding="utf-8")
FUNCTION, ROW = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_the_example_renders_every_graph() -> None:
    made: dict[str, Any] = {}
    exec(FUNCTION, made)
    for graph in GRAPHS.values():
        lines = "".join(made["render"](graph, Options())).splitlines()
        assert sum(line.count("\t") == 2 for line in lines) >= len(graph.nodes)


def test_the_row_is_a_row() -> None:
    row = eval(ROW, {"Format": Format})
    assert row.name == "tsv" and row.folded and not row.binary


def test_the_modules_it_names_exist() -> None:
    for name in set(re.findall(r"`(gradviz\.[\w.]+)`", PAGE)):
        importlib.import_module(name)
