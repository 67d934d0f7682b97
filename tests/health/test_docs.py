"""docs/checks.md is what the registry says now."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_the_checks_is_up_to_date() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # reading `.grad` of what is no leaf is an example
        made = runpy.run_path(str(DOCS / "make_checks.py"))["page"]()
    assert (DOCS / "checks.md").read_text() == made, "run: python docs/make_checks.py"
