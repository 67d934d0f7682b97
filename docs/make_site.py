"""What the site has: a hook of mkdocs, which `mkdocs build --strict` calls (mkdocs.yml), with `pip install '.[docs]'`.

The pages link to one another as files of the repository, so that they can be read there, too. The site therefore has the
repository's folders, and so it needs no page or link of its own. Made for it are the API reference
(docs/make_reference.py), a page for each command (docs/make_commands.py), the sample page (docs/make_page.py) and the live pages
of the gallery (docs/make_gallery.py).
"""

from __future__ import annotations

import os
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "samples", "benchmarks", "tests/real/programs")
MADE = tempfile.TemporaryDirectory()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site instead of those of `docs_dir`, and those of the theme."""
    theirs = [one for one in files if one.src_dir != config.docs_dir]
    made = Path(MADE.name)
    written = _maker("make_reference")(made / "reference")
    written += _maker("make_commands")(made / "commands")
    sample = made / "docs" / "sample_page.html"
    sample.parent.mkdir(exist_ok=True)
    _maker("make_page")(sample)
    most = os.environ.get("LIVE_PAGES")  # how many, where the site is only tried
    gallery = made / "docs" / "gallery"
    live = _maker("make_gallery")(gallery, int(most) if most else None)
    pairs = [
        *((ROOT, path) for path in _pages()),
        *((made, path) for path in [*written, sample, *live]),
    ]
    ours = [
        File(path.relative_to(folder).as_posix(), str(folder), config.site_dir, True)
        for folder, path in pairs
    ]
    return Files([*theirs, *ours])


def _maker(name: str) -> Any:
    """The function of a script in docs/ that writes what the repository does not have."""
    return runpy.run_path(str(ROOT / "docs" / f"{name}.py"))["write"]


def _pages() -> Iterator[Path]:
    yield from sorted([*ROOT.glob("*.md"), ROOT / "LICENSE"])
    for folder in FOLDERS:
        files = (
            path
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )
        yield from sorted(files)
