"""What importing costs: `import gradviz` next to nothing, a saved graph no torch, and every public name loads when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradviz


def _loaded_by(code: str) -> set[str]:
    """Modules that running `code` in a fresh interpreter adds to those it starts with."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    return set(done.stdout.split())


@pytest.mark.fresh
def test_importing_gradviz_loads_nothing_else() -> None:
    assert {name for name in _loaded_by("import gradviz") if name.startswith("gradviz")} == {"gradviz"}


HEAVY = {"torch", "numpy", "graphviz", "pygraphviz", "rich", "click", "IPython", "networkx"}


def test_importing_gradviz_loads_nothing_heavy() -> None:
    loaded = _loaded_by("import gradviz")
    assert not HEAVY & loaded


def test_after_torch_a_walk_adds_only_gradviz() -> None:
    loaded = _loaded_by("import torch\nbefore = set(sys.modules)\nimport gradviz\ngradviz.walk")
    assert not (HEAVY - {"torch", "numpy"}) & loaded


def test_a_saved_graph_needs_no_torch() -> None:
    assert "torch" not in _loaded_by("import gradviz.graph, gradviz.graph.files, gradviz.draw.picture")


def test_the_command_line_loads_nothing_heavy_before_it_is_needed() -> None:
    assert not (HEAVY - {"click"}) & _loaded_by("import gradviz.cli.main")


def test_every_public_name_loads() -> None:
    for name in gradviz.__all__:
        assert getattr(gradviz, name) is not None and name in dir(gradviz)


GENERATIONS = """
import gc
import torch
gc.collect()
import gradviz
gradviz.record
print(gc.isenabled(), gc.get_count()[1])
"""


def test_an_import_leaves_few_objects_to_be_looked_through_later() -> None:
    done = subprocess.run([sys.executable, "-c", GENERATIONS], capture_output=True, text=True, check=True, timeout=100)
    enabled, collections = done.stdout.split()
    assert enabled == "True" and int(collections) <= 1
