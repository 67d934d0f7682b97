"""Three pictures of the gallery are what gradviz draws; that its page is whole, `.ci/style.py` asks."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.blocks import ROOT
from tests.real.pictures import strays

GALLERY = runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))
CHOSEN = ("mlp_training", "vae_digits", "siamese_signatures")


@pytest.mark.slow
def test_labels_stand_at_their_own_edges() -> None:
    pictures = sorted(GALLERY["PICTURES"].glob("*.svg"))
    found = {picture.stem: strays(picture.read_text(encoding="utf-8")) for picture in pictures}
    assert not {name: labels for name, labels in found.items() if labels}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_the_picture_is_up_to_date(name: str, tmp_path: Path) -> None:
    (family,) = [family for family in GALLERY["FAMILIES"] if family.name == name]
    drawn = GALLERY["draw"](family, tmp_path)
    assert drawn.read_bytes() == (GALLERY["PICTURES"] / drawn.name).read_bytes(), "run: python docs/make_gallery.py"
