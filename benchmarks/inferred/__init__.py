"""Models on which inferred modules are compared with recorded ones: tiny, but written as people write them."""

from __future__ import annotations

from benchmarks.inferred import hugging_face, sequences, several, vision
from benchmarks.inferred.case import Case

CASES: dict[str, Case] = {
    **vision.CASES,
    **sequences.CASES,
    **several.CASES,
    **hugging_face.CASES,
}
