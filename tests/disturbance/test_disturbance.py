"""Nothing that gradviz looks at is disturbed: each script leaves the same bits under it as in plain Python.

To add a script, drop a file into `scripts/`: small, below 0.3 s, in the manner of other people's, and printing nothing that changes
by nature, such as times and addresses. Compared are what it prints and warns of, with file and line, and what `journal` notes at
its end: weights, gradients, states of generators, settings, what is installed. What does not hold yet stands in `KNOWN`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.disturbance.journal import PLACE, VISIBLE
from tests.disturbance.known import KNOWN
from tests.forks import Forks, ended, of_gradviz
from tests.rows import every_other

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

HERE = Path(__file__).parent
SCRIPTS = {path.stem: path for path in sorted((HERE / "scripts").glob("*.py"))}
IMPORTED = (  # before the forks: all but what gradviz loads when it has a result, such as rich
    *of_gradviz(),
    "tests.disturbance.witness",
    "torch._dynamo",
    "torch.export",
    "torch.fx.experimental.proxy_tensor",
    "torch.utils.benchmark",
)
WAYS = {
    "record": "record",
    "render": "render {script} --continue -o graph.svg",
    "cut": "render {script} --cut --continue -o graph.svg",
    "check": "check {script} --fail-on never --continue",
    "tree": "tree {script} --continue",
    "tensors": "tensors {script} --continue",
    "saved": "saved {script} --continue",
    "flow": "flow {script}",
    "paths": "paths {script} --to {parameter}",
    "diff": "diff {script} --at 1 --at 2",
}
ALWAYS = ("check",)
"""The way that each script is run in; of the others, which record as it does, one in nine; all by -m long."""
UP_TO_ITS_STOP = ("flow", "paths", "diff")  # they compute gradients of their own, or end at the second call
_LAST_LINE = """
if __name__ == "__main__":
    __import__("tests.disturbance.journal", fromlist=["journal"]).write(globals())
"""
_LONGEST = 120.0  # seconds for all ways of one script


class Seen(NamedTuple):
    """What one run of a script showed."""

    printed: str  # up to its last line
    late: str  # after it, what the command says included
    noted: dict[str, Any]  # empty when it did not come to its last line
    left: list[str]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(*IMPORTED) as process:
        yield process


@pytest.mark.parametrize("name", every_other(SCRIPTS))
def test_the_same_bits(name: str, tmp_path: Path, forks: Forks) -> None:
    plain, seen = plain_and_others(name, tmp_path, forks)
    judge({way: difference(plain, one, way) for way, one in seen.items()}, KNOWN.get(name, {}))


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_bits_in_every_way(name: str, tmp_path: Path, forks: Forks) -> None:
    plain, seen = plain_and_others(name, tmp_path, forks, every=True)
    judge({way: difference(plain, one, way) for way, one in seen.items()}, KNOWN.get(name, {}))


def test_nothing_of_gradviz_is_visible(tmp_path: Path, forks: Forks) -> None:
    plain, seen = plain_and_others("hooks", tmp_path, forks)
    judge({way: unseen(plain, one) for way, one in seen.items() if way not in UP_TO_ITS_STOP}, KNOWN[VISIBLE])


@pytest.mark.parametrize(
    "more", ["torch.rand(1)", "w.grad[0] += 1e-7", "w.data.add_(0)", "print(1)", "torch.compile = len"]
)
def test_a_script_that_does_one_thing_more_is_seen_to_differ(more: str, tmp_path: Path, forks: Forks) -> None:
    text = "import torch\nw = torch.ones(3, requires_grad=True)\n(w * w).sum().backward()\n"
    seen = []
    for name, last in (("one", ""), ("other", more)):
        (tmp_path / name).mkdir()
        script = tmp_path / name / "script.py"
        script.write_text(text + last + _LAST_LINE)
        seen += runs(forks, script, {"plain": ""}).values()
    assert all(one.noted for one in seen)
    assert difference(seen[0], seen[0], "plain") == "" == unseen(seen[0], seen[0])
    assert difference(*seen, "plain") or unseen(*seen)


def plain_and_others(name: str, folder: Path, forks: Forks, every: bool = False) -> tuple[Seen, dict[str, Seen]]:
    """What plain Python shows of a script, and what each way does."""
    script = folder / f"{name}.py"
    script.write_text(SCRIPTS[name].read_text(encoding="utf-8") + _LAST_LINE, encoding="utf-8")
    (plain,) = runs(forks, script, {"plain": ""}).values()
    assert plain.noted, f"it fails in plain Python:\n{plain.printed}"
    fill = {"script": script, "parameter": a_parameter(plain)}
    others = [way for way in WAYS if way not in ALWAYS]
    others = others if every else others[list(SCRIPTS).index(name) % 9 :: 9]
    ways = {way: words.format(**fill) for way, words in WAYS.items() if way in ALWAYS or way in others}
    if not fill["parameter"]:
        ways.pop("paths", None)
    return plain, runs(forks, script, ways)


def judge(found: dict[str, str], known: dict[str, str]) -> None:
    """Fail where a way disturbs the script that is not known to, and where one does no longer."""
    new = [f"{way} disturbs the script:\n{text}" for way, text in found.items() if text and way not in known]
    assert not new, "\n\n".join(new)
    mended = [way for way in known if not found.get(way, "not tried")]
    assert not mended, f"no longer disturbed: take {mended} out of KNOWN"
    if known:
        pytest.xfail("; ".join(f"{way}: {reason}" for way, reason in known.items()))


def runs(forks: Forks, script: Path, ways: dict[str, str]) -> dict[str, Seen]:
    """Run it in each way, beside one another, each in a folder of its own."""
    folder = script.parent
    asked = []
    for way, words in ways.items():
        (folder / way).mkdir()
        environment = {PLACE: str(folder / way / "noted"), "COLUMNS": "80"}
        asked.append(([str(HERE / "witness.py"), str(folder / way), str(script), *words.split()], environment))
    with suppress(subprocess.TimeoutExpired):
        ended(forks.start(folder, asked), _LONGEST)
    return {way: seen_in(folder / way) for way in ways}


def seen_in(folder: Path) -> Seen:
    printed = (folder / "printed").read_bytes()
    noted = json.loads((folder / "noted").read_text()) if (folder / "noted").exists() else {}
    after = folder / "afterwards"
    afterwards = json.loads(after.read_text()) if after.exists() else {"printed": len(printed), "left": ["it ended"]}
    until = {**afterwards, **noted}["printed"]  # before what it prints at exit
    early, late = (part.decode(errors="replace") for part in (printed[:until], printed[until:]))
    return Seen(early, late, noted, afterwards["left"])


def a_parameter(plain: Seen) -> str:
    """The first name that a gradient was left in, "" for none."""
    found = sorted(name for name in plain.noted["values"] if name.endswith(".grad"))
    return found[0].removesuffix(".grad") if found else ""


def difference(plain: Seen, seen: Seen, way: str) -> str:
    """What is not as in plain Python, "" for nothing."""
    if way in UP_TO_ITS_STOP:
        return "" if begins(plain.printed, seen) else unlike("printed up to its stop", plain.printed, seen.printed)
    if not seen.noted:
        return f"it does not come to its end:\n{seen.printed[-2000:]}{seen.late[-2000:]}"
    found = [unlike("printed", plain.printed, seen.printed)]
    parts = [part for part in plain.noted if part not in ("printed", VISIBLE)]
    found += [unlike(part, *(lines(one.noted[part]) for one in (plain, seen))) for part in parts]
    late = set(seen.late.splitlines())
    found += [f"not printed after the end: {line}" for line in plain.late.splitlines() if line not in late]
    found += [f"left in torch: {', '.join(seen.left)}"] if seen.left != plain.left else []
    return "\n".join(filter(None, found))


def begins(whole: str, seen: Seen) -> bool:
    """Whether what was printed is the beginning of it, but for the command's own last line."""
    ours = f"\n{seen.printed}".partition("\nError: ")[0]
    return f"\n{whole}".startswith(ours)


def unseen(plain: Seen, seen: Seen) -> str:
    """What code that looks for it sees of gradviz, "" for nothing."""
    return unlike("what is visible", *(lines(one.noted[VISIBLE]) for one in (plain, seen)))


def lines(noted: dict[str, object]) -> str:
    """A part of a journal, with one line for each thing."""
    return "\n".join(f"{key}: {value}" for key, value in noted.items())


def unlike(what: str, expected: str, found: str) -> str:
    """The lines that differ."""
    changed = list(unified_diff(expected.splitlines(), found.splitlines(), "plain", "gradviz", lineterm="", n=0))[2:]
    shown = [line if len(line) <= 150 else f"{line[:149]}…" for line in changed[:16]]
    return "\n".join([f"{what} is otherwise:", *shown]) if changed else ""
