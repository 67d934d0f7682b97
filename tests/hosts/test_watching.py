"""Programs that a trainer runs, watched: each prints what it prints alone, every step is noted, and the unused layer is found."""

from __future__ import annotations

import csv
import json
import re
import zlib
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.scripts import python, script

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
OPTIONS = 'every=2, out="run"'


class Host(NamedTuple):
    """What has to be installed, what is replaced in its program, how many steps it takes, and the backward calls of each."""

    packages: tuple[str, ...]
    replaced: tuple[tuple[str, str], ...]
    steps: int
    calls: int = 1


HOSTS = {
    "lightning": Host(
        ("lightning",),
        (
            ("import lightning\n", "import lightning\nfrom gradviz.integrations.lightning import LightningWatch\n"),
            ("num_sanity_val_steps=0", f"num_sanity_val_steps=0, callbacks=[LightningWatch({OPTIONS})]"),
        ),
        8,
    ),
    "trainer": Host(
        ("transformers", "accelerate"),
        (
            ("import torch\n", "import torch\nfrom gradviz.integrations.transformers import TrainerWatch\n"),
            ("trainer.remove", f"trainer.add_callback(TrainerWatch({OPTIONS}))\n        trainer.remove"),
        ),
        4,
    ),
    "ignite": Host(
        ("ignite",),
        (
            ("import torch\n", "import gradviz, torch\n"),
            ("    trainer.run", f"    with gradviz.watch(net, {OPTIONS}):\n        trainer.run"),
        ),
        8,
    ),
    "accelerate": Host(
        ("accelerate",),
        (
            ("import torch\n", "import gradviz, torch\n"),
            ("    for _ in range(2):", f"    with gradviz.watch(net, optimizer, {OPTIONS}):\n     for _ in range(2):"),
        ),
        4,
        calls=2,
    ),
    "skorch": Host(
        ("skorch",),
        (
            ("import torch\n", "import gradviz, torch\n"),
            (
                "    model.fit(rows, labels)",
                "    net = model[-1].initialize()\n    rows = model[0].fit_transform(rows)\n"
                f"    with gradviz.watch(net.module_, net.optimizer_, {OPTIONS}): net.partial_fit(rows, labels)",
            ),
        ),
        4,
    ),
}


@pytest.fixture(params=HOSTS)
def name(request: pytest.FixtureRequest) -> str:
    """Of a program whose packages are installed."""
    missing = [package for package in HOSTS[request.param].packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: pip install .[test-hosts]")
    return str(request.param)


def watched(name: str) -> str:
    """The program with the lines that watch it."""
    source = (PROGRAMS / f"{name}_train.py").read_text()
    for old, new in HOSTS[name].replaced:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


FAILING = {
    "lightning": (
        "        x, y = batch\n        return",
        "        x, y = batch\n        1 // (number - 2)\n        return",
    ),
    "trainer": ("trainer = Trainer(model", "Rows.__getitem__ = None\n        trainer = Trainer(model"),
}


@pytest.mark.parametrize("name", FAILING, indirect=True)
def test_when_the_trainer_fails_the_page_is_written(name: str, tmp_path: Path) -> None:
    old, new = FAILING[name]
    source = watched(name)
    assert source.count(old) == 1
    run = python(script(tmp_path, source.replace(old, new)), cwd=tmp_path)
    assert run.returncode == 1 and run.stderr.rstrip().splitlines()[-1].startswith(("ZeroDivisionError", "TypeError"))
    assert page(tmp_path)["ended"].startswith("ended")


def page(folder: Path) -> dict[str, Any]:
    """The data of the page in `run`."""
    found = re.search(r'id="data">([^<]+)<', (folder / "run" / "index.html").read_text())
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(b64decode(found[1])))
    return data


def test_a_watched_program_prints_the_same_and_every_step_is_noted(name: str, tmp_path: Path) -> None:
    run = python(script(tmp_path, watched(name)), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == python(PROGRAMS / f"{name}_train.py", cwd=tmp_path).stdout
    rows = list(csv.DictReader((tmp_path / "run" / "numbers.csv").open()))
    host = HOSTS[name]
    assert [int(row["step"]) for row in rows] == [*range(1, host.steps + 1)]
    assert all(float(row["loss"]) > 0 and float(row["grad_norm"]) > 0 for row in rows)
    assert {row["backward_calls"] for row in rows} == {str(host.calls)}
    seen = page(tmp_path)
    assert seen["looks"][0]["step"] == 1 and seen["ended"] == "ended" and not seen["notes"]
    found = [" ".join(finding) for look in seen["looks"] for finding in look["findings"]]
    assert found and all("spare" in finding for finding in found)
