"""Golden files: exact outputs kept beside the tests, written anew only under `--update-golden`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"

Golden = Callable[[str, bytes], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares bytes with a golden file; a missing file fails, since it would compare with nothing."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, content: bytes) -> None:
        path = FOLDER / name
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        assert path.exists(), f"no golden file {name}: run pytest with --update-golden, then read what it wrote"
        assert content == path.read_bytes(), f"{name} differs; if that is meant, run pytest with --update-golden"

    return compare
