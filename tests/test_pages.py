"""The pages: the outputs they show are those of their commands, their pictures and links exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.blocks import PAGES, ROOT
from tests.walker.graphs import needs_raw

PICTURES = (ROOT / "docs" / "gallery").glob("*.svg")
MADE_FOR_THE_SITE = {ROOT / "docs" / "sample_page.html", *(path.with_suffix(".html") for path in PICTURES)}
"""By docs/make_site.py; the repository does not have them."""
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_outputs", ROOT / "docs" / "make_outputs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load()
WITH_OUTPUTS = [
    path
    for path in MAKER.PAGES
    if any(kind.search(path.read_text(encoding="utf-8")) for kind in (MAKER.OUTPUT, MAKER.FILE))
]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_OUTPUTS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_commands(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert MAKER.filled(page) == page, "run: python docs/make_outputs.py"


@needs_raw
def test_an_output_that_changed_is_written_anew_and_a_part_that_is_gone_is_told() -> None:
    page = (ROOT / "docs" / "guide" / "1-graph.md").read_text(encoding="utf-8")
    assert "← a, b" in page and MAKER.filled(page.replace("← a, b", "← z")) == page
    with pytest.raises(ValueError, match="no longer prints"):
        MAKER.filled("```\n$ gradviz tree samples/add.py\nadd.py: c\n...\n← z\n```\n")


@pytest.mark.slow
def test_a_file_is_shown_as_it_is_now() -> None:
    page = "```python\n# samples/add.py\nreplaced\n```\n"
    lines = (ROOT / "samples" / "add.py").read_text(encoding="utf-8").splitlines()
    shown = MAKER.filled(page).splitlines()
    first = int(shown[1].removeprefix("# samples/add.py, from line "))
    assert shown[2:-1] == lines[first - 1 :] and lines[first - 1] == "import torch"


def test_a_command_that_fails_fills_in_its_error() -> None:
    assert MAKER.run("gradviz tree samples/nowhere.py").startswith("Error: ")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_samples_are_there(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page) if not link.startswith("https://")]
    files = [path.parent / link for link in links]
    assert [file for file in files if not file.exists() and file not in MADE_FOR_THE_SITE] == []
    assert [name for name in re.findall(r"samples/[\w/]+\.py", page) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", GUIDE, ids=lambda path: path.stem)
def test_the_guide_shows_the_pictures_that_it_draws(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    drawn = [ROOT / command.split(" -o ")[1] for command in MAKER.PICTURE.findall(page)]
    assert drawn == [path.parent / link for link in re.findall(r"\]\(([^)#]+\.svg)\)", page)]


def test_every_picture_is_shown() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in GUIDE)
    assert all(f"(pictures/{picture.name})" in shown for picture in (ROOT / "docs" / "guide" / "pictures").iterdir())


def test_no_picture_names_a_path_of_the_machine_that_drew_it() -> None:
    pictures = [*(ROOT / "docs" / "pictures").glob("*.svg"), *(ROOT / "docs" / "guide" / "pictures").glob("*.svg")]
    assert len(pictures) > 5
    assert [picture.name for picture in pictures if "line: /" in picture.read_text(encoding="utf-8")] == []


def test_no_page_repeats_another() -> None:
    pages = {}
    for path in PAGES:
        if path.name != "CHANGELOG.md" and not path.name.startswith("adding-a"):  # these begin alike
            text = re.sub(
                r"^ *```.*?^ *```$|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
            )
            lines = [line for line in text.splitlines() if not line.startswith(("#", "|"))]
            pages[path.name, path.parent.name] = re.findall(r"[\w`.'-]+", " ".join(lines).lower())
    first: dict[tuple[str, ...], tuple[str, str]] = {}
    repeated = set()
    for page, words in pages.items():
        for run in zip(*(words[start:] for start in range(12)), strict=False):
            if first.setdefault(run, page) != page:
                repeated.add((first[run], page, " ".join(run)))
    assert repeated == set()
