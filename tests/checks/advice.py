"""A faulty script, what is found in it, and the script after the advice was followed word for word."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gradviz.walker.private import HAS_RAW_DATA
from tests.checks.test_scripts import EVERY, check, written


class Fault(NamedTuple):
    """A script with a fault. `at` is a piece of the line that must be named; `advice` is what the finding must say.

    `old` becomes `new` in the mended script: `new` is the advice as code. Both "" where the advice is put in elsewhere.
    """

    id: str
    at: str
    advice: str
    old: str
    new: str
    script: str


def skip_unread(id: str) -> None:
    """Skip a test of a check that gradviz leaves out, and says so, where torch shows no saved tensors."""
    if not HAS_RAW_DATA and (EVERY[id].reads_saved or EVERY[id].needs_values):
        pytest.skip("this torch cannot show saved tensors without hooks")


def alarms(script: str, folder: Path) -> list[dict[str, Any]]:
    """The errors and warnings of a script, with default options."""
    found, _ = check(written(folder, script))
    return [one for one in found if one["severity"] != "note"]


def shows_and_heals(fault: Fault, folder: Path) -> None:
    """The fault is found, once, at its line, with this advice; followed, nothing is left to say."""
    skip_unread(fault.id)
    script = textwrap.dedent(fault.script)
    found = alarms(script, folder)
    assert [one["id"] for one in found] == [fault.id], found
    number = next(i for i, text in enumerate(script.splitlines(), 1) if fault.at in text)
    assert f"script.py:{number}" in found[0]["where"].split(", ")[-1], (number, found[0])
    assert fault.advice in found[0]["fix"], found[0]["fix"]
    assert script.count(fault.old) == 1
    assert not alarms(script.replace(fault.old, fault.new), folder)
