"""A corpus of programs as people write them, and what gradviz promises about each of them.

To add a program, drop a file into `programs/`, or into `hugging_face/` when it needs transformers: a script that trains
something small for three steps or more, takes less than two seconds, and is correct, so that `gradviz check` has nothing to
say about it. A program of several files is a folder with a `train.py`. Nothing else is to be written: each program is

- drawn by default, within a page of 2,000 x 1,600 pixels, upright one of 1,600 x 2,000, or a slide of 2,400 x 1,100 (`page`),
  with nothing that overlaps, crosses or is clipped (`geometry`);
- with each label beside its own edge, and no edge through a label or a title (`labels`);
- opened where most of it is: no box that holds over 40 % of the ops is closed, unless one like it is open (`body`);
- true to its modules: no box joins some that are neither elements of one list nor a turn of what repeats (`joined`);
- true to its ops: an op of two operands has two arrows, or a reason in `operands.py`, and no box has the title of one of its ops
  (`operands`);
- on the page with the boxes of the picture, by the same names (`html`);
- named: no parameter without a name (`names`);
- inferred as it was recorded, where nobody recorded: at least 90 % of the nodes get the module they have (`scopes`);
- read and drawn by `gradviz.walk(loss, model=model).save(...)` (`library`);
- found correct by `gradviz check` (`check`).

What does not hold yet stands in `expected.py`, and must be taken out there when it does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.real import pictures
from tests.real.agreement import agreement
from tests.real.expected import EXPECTED
from tests.real.looking import Seen, look
from tests.real.operands import unexplained
from tests.recording.test_program import ALL
from tests.rows import every_other

HERE = Path(__file__).parent
PLAIN = [*sorted((HERE / "programs").glob("*.py")), *sorted((HERE / "programs").glob("*/train.py"))]
FAMILIES = sorted((HERE / "hugging_face").glob("*.py"))
AGREE = 0.9
_COUNTED = re.compile(r"sequence number: \d+")  # from the start of the process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # what the programs' libraries say about themselves


def name_of(script: Path) -> str:
    return script.parent.name if script.name == "train.py" else script.stem


def broken(name: str, seen: Seen) -> dict[str, str]:
    """What is not as promised, by promise."""
    found = dict(seen.problems)
    if "picture" not in found:
        drawn = pictures.read(seen.picture)
        found["page"] = pictures.too_large(drawn)
        found["labels"] = "; ".join(pictures.strays(seen.picture)[:3])
        found["geometry"] = "; ".join(pictures.faults(drawn)[:3])
    found["body"] = "; ".join(seen.closed_bodies)
    found["joined"] = "; ".join(seen.joined_modules)
    found["operands"] = "; ".join(unexplained(name, seen.recorded))
    found["html"] = found.get("html", "") or "; ".join(seen.only_one_shows[:4])
    found["names"] = _unnamed(seen)
    found["scopes"] = _scopes(seen)
    found["check"] = found.get("check", "") or "; ".join(seen.findings)
    return {promise: what for promise, what in found.items() if what}


def _unnamed(seen: Seen) -> str:
    without = [leaf for leaf in seen.recorded.leaves if leaf.kind == "parameter" and not leaf.names]
    if without:
        return f"{len(without)} of {len(seen.recorded.leaves)} leaves have no name"
    return "the picture says so" if "unnamed parameter" in seen.picture else ""


def _scopes(seen: Seen) -> str:
    if not seen.by_model.nodes or not seen.inferred.nodes:
        return ""  # said elsewhere
    found = agreement(seen.by_model, seen.inferred)
    if found.share >= AGREE:
        return ""
    return f"{found.share:.0%} of {found.of} nodes; {'; '.join(dict.fromkeys(found.wrong[:3]))}"


@pytest.mark.parametrize("script", every_other(PLAIN), ids=name_of)
def test_program(script: Path, tmp_path: Path) -> None:
    _keeps_its_promises(script, tmp_path)


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed: pip install '.[real]'")
@pytest.mark.parametrize("script", every_other(FAMILIES), ids=name_of)
def test_family(script: Path, tmp_path: Path) -> None:
    _keeps_its_promises(script, tmp_path)


def _keeps_its_promises(script: Path, folder: Path) -> None:
    found = broken(name_of(script), look(script, folder))
    known = EXPECTED.get(name_of(script), {})
    new = {promise: what for promise, what in found.items() if promise not in known}
    assert not new, new
    kept = sorted(set(known) - set(found))
    assert not kept, f"{script.name} keeps these now: take them out of tests/real/expected.py: {kept}"


def test_what_does_not_run_always_is_run_by_a_test_of_recording() -> None:
    left_out = {name_of(script) for script in PLAIN[::2]}
    assert left_out <= {*ALL[::2]}, left_out - {*ALL[::2]}


def test_the_table_of_exceptions_names_programs_and_promises() -> None:
    promises = {
        "picture",
        "page",
        "body",
        "operands",
        "geometry",
        "labels",
        "html",
        "names",
        "scopes",
        "library",
        "check",
    }
    assert set(EXPECTED) <= {name_of(script) for script in (*PLAIN, *FAMILIES)}
    assert {promise for known in EXPECTED.values() for promise in known} <= promises


def test_the_corpus_is_large_enough() -> None:
    assert len(PLAIN) >= 40
    assert len(FAMILIES) >= 12


@pytest.mark.parametrize("script", every_other(["ddp_single_process.py", "segmentation_project/train.py"]))
def test_the_command_line_shows_the_same(script: str, tmp_path: Path) -> None:
    """In a process of its own, with the real command, the picture is the one that was looked at above."""
    path = HERE / "programs" / script
    seen = look(path, tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "gradviz", "render", str(path), "-o", str(tmp_path / "line.svg")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "line.svg").read_text()
    assert _COUNTED.sub("", written) == _COUNTED.sub("", seen.picture)
