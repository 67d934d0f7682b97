"""Options: every field can become a command line option, and only valid names and values get in."""

from __future__ import annotations

import pytest

from gradviz.draw.options import Options, option_fields
from gradviz.errors import FormatError


def test_every_field_has_what_the_command_line_needs() -> None:
    for item in option_fields():
        help = item.metadata["help"]
        assert help.endswith(".") and "\n" not in help and len(help) <= 90, item.name
        assert item.metadata["check"](item.name, item.default) == item.default
        if item.metadata["choices"]:
            assert item.default in item.metadata["choices"]


def test_defaults() -> None:
    options = Options()
    assert (options.direction, options.leaves) == ("auto", "auto")
    assert (options.max_rows, options.saved) == (None, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"directoin": "up"}, ["directoin", "Did you mean direction?", "max_rows"]),
        ({"zzz": 1}, ["zzz", "The options are", "direction", "theme"]),
        ({"direction": "dwn"}, ["direction", "'dwn'", "down, right", "Did you mean down?"]),
        ({"direction": None}, ["direction", "None", "down, right"]),
        ({"leaves": 3}, ["leaves", "per-use"]),
        ({"max_rows": -1}, ["max_rows", "-1"]),
        ({"max_rows": "10"}, ["max_rows", "'10'"]),
        ({"saved": 1}, ["saved", "True, False"]),
    ],
)
def test_what_is_not_valid_is_refused_with_what_is(given: dict[str, object], words: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        Options.of(given)
    for word in words:
        assert word in str(caught.value)


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(FormatError, match="sideways"):
        Options(direction="sideways")  # type: ignore[arg-type]
