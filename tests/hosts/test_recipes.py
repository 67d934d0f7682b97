"""The programs of docs/recipes.md run as they are written, each with its host; without a host its test is skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blocks import ROOT

pytestmark = pytest.mark.slow
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.py"))
HOSTS = {"tensorboard_image": "tensorboard", "wandb_page": "wandb", "mlflow_artifact": "mlflow"}
HOSTS |= {"pandas_tables": "pandas", "lightning_callback": "lightning"}
WRITES = {
    "tensorboard_image": "runs/net/events*",
    "wandb_page": "wandb/offline-run-*/files/media/html/*.html",
    "mlflow_artifact": "**/artifacts/graph.html",
    "lightning_callback": "graph.svg",
}
"""A file that each leaves, by its pattern."""
OFFLINE = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "file:mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}


def test_every_recipe_is_on_the_page_and_short() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert (
        {recipe.stem for recipe in RECIPES}
        == {*HOSTS}
        == {*re.findall(r"^# docs/recipes/(\w+)\.py", page, re.MULTILINE)}
    )
    assert max(len(recipe.read_text(encoding="utf-8").splitlines()) for recipe in RECIPES) <= 60


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_runs(recipe: Path, tmp_path: Path) -> None:
    pytest.importorskip(HOSTS[recipe.stem], reason="pip install '.[test-hosts]' brings it")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    surroundings = {**os.environ, **OFFLINE, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(recipe)], cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if recipe.stem in WRITES:
        assert list(tmp_path.glob(WRITES[recipe.stem])), done.stderr[-3000:]
    else:
        assert "AddmmBackward0" in done.stdout
