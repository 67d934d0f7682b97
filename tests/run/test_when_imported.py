"""Acting when a module has been imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradviz.run.engine import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "gradviz_test_of_when_imported"
    (tmp_path / f"{name}.py").write_text("import sys\nwatchers = [type(finder).__name__ for finder in sys.meta_path]\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield name
    assert sys.meta_path == finders
    sys.modules.pop(name, None)


def test_after_the_import_and_once(module: str) -> None:
    seen: list[bool] = []
    with when_imported(module, lambda: seen.append(hasattr(sys.modules[module], "watchers"))):
        assert seen == []
        found = importlib.import_module(module)
        assert seen == [True]
        assert "_Watcher" not in found.watchers
        assert "exec_module" not in vars(found.__spec__.loader)
        importlib.reload(found)
    assert seen == [True]


def test_a_module_that_nobody_finds_is_waited_for_still(module: str, tmp_path: Path) -> None:
    seen: list[int] = []
    file = tmp_path / f"{module}.py"
    text = file.read_text()
    file.unlink()
    with when_imported(module, lambda: seen.append(1)):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(module)
        file.write_text(text)
        importlib.invalidate_caches()
        importlib.import_module(module)
    assert seen == [1]
