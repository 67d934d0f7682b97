"""The guide: its outputs are those of its commands, its pictures and links exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_guide", ROOT / "docs" / "make_guide.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_page_is_up_to_date(maker: ModuleType) -> None:
    page = (ROOT / "docs" / "guide" / "1-graph.md").read_text(encoding="utf-8")
    assert "├─ a" in page
    assert maker.filled(page) == page, "run: python docs/make_guide.py"
    assert maker.filled(page.replace("├─ a", "├─ z")) == page


def test_a_command_that_fails_fills_in_its_error_or_stops(maker: ModuleType) -> None:
    assert maker.run("gradviz tree samples/nowhere.py").startswith("Error: ")
    with pytest.raises(RuntimeError, match=r"nowhere\.py"):
        maker.run("python samples/nowhere.py")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_pictures_and_commands_are_there(maker: ModuleType, path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", page)
    assert links and all((path.parent / link).exists() for link in links)
    drawn = [ROOT / command.split(" -o ")[1] for command in maker.PICTURE.findall(page)]
    shown = [path.parent / link for link in links if link.endswith(".svg")]
    assert drawn == shown
    blocks = page.count("<!-- output:")
    assert len(maker.OUTPUT.findall(page)) == blocks == page.count("\n```\n$ ")
    assert all((ROOT / name).exists() for name in re.findall(r"samples/\w+\.py", page))


def test_every_picture_is_shown() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert all(f"(pictures/{picture.name})" in shown for picture in (ROOT / "docs" / "guide" / "pictures").iterdir())
