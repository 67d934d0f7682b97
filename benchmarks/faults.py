"""How many faults `gradviz check` finds by its default flags, on pairs of a broken and a fixed script.

    python -m benchmarks.faults [DIR] [--limit SECONDS] [--json FILE]

DIR (tests/faults) holds scripts and a `manifest.csv` with the columns `script`, `fixed_script`, `expected` (ids of checks, with
` / ` between; other words when no id is agreed on) and `group`; other columns are ignored. A row without `fixed_script` is a
correct script. For each class of faults is printed

    found      of the broken scripts, those for which an error or a warning is reported
    expected   those for which it has one of the expected ids
    line       those for which the first finding that is no note names a line that the fixed script changes
    clean      of the fixed and correct scripts, those without an error or a warning

and then every script that was missed, blamed at another line, or accused falsely. `line` is a strict measure: a fix can be made
elsewhere. Each script runs in a process of its own that begins with torch already imported.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DEFAULT = Path(__file__).parent.parent / "tests" / "faults"
Findings = list[dict[str, Any]]


class Fault(NamedTuple):
    """One row of a manifest. `broken` is "" in a row of a correct script."""

    group: str
    broken: str
    fixed: str
    expected: tuple[str, ...]


class Verdict(NamedTuple):
    """What came of one row; None where the question does not arise."""

    fault: Fault
    found: bool | None
    expected: bool | None
    line: bool | None
    clean: bool
    first: str  # the first alarm of the broken script, or of the correct one


def manifest(folder: Path) -> list[Fault]:
    """The rows of `manifest.csv`."""
    with (folder / "manifest.csv").open(newline="", encoding="utf-8") as file:
        return [_fault(row) for row in csv.DictReader(file)]


def _fault(row: dict[str, str]) -> Fault:
    expected = tuple(
        one
        for one in re.split(r"[/,;]\s*|\s+", row["expected"])
        if re.fullmatch(r"[a-z]+(-[a-z]+)*", one)
    )
    expected = () if row["expected"].startswith("(") else expected
    if row["fixed_script"]:
        return Fault(row["group"], row["script"], row["fixed_script"], expected)
    return Fault(row["group"], "", row["script"], ())


def findings(script: Path, limit: float) -> Findings | None:
    """What `gradviz check` prints for a script; None when it printed nothing within the limit."""
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "findings.json"
        process = context.Process(
            target=_check, args=(str(script.resolve()), str(result))
        )
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
        try:
            return json.loads(result.read_text(encoding="utf-8"))["findings"]
        except (OSError, ValueError):
            return None


def _check(script: str, result: str) -> None:
    """In a process of its own."""
    from gradviz.cli.main import cli

    os.chdir(os.path.dirname(script))
    for stream, file in ((1, result), (2, os.devnull)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    cli(["check", os.path.basename(script), "--json"])


def alarms(found: Findings | None) -> Findings:
    """The errors and warnings."""
    return [one for one in found or [] if one["severity"] != "note"]


def changed_lines(broken: str, fixed: str) -> set[int]:
    """The lines of the broken script that the fixed one changes or drops, and those around what it adds.

    >>> sorted(changed_lines("a\\nb\\nc\\n", "a\\nB\\nc\\nd\\n"))
    [2, 3]
    """
    lines: set[int] = set()
    matcher = difflib.SequenceMatcher(
        None, broken.splitlines(), fixed.splitlines(), autojunk=False
    )
    for kind, start, end, _, _ in matcher.get_opcodes():
        if kind == "insert":
            lines |= {start, start + 1}
        elif kind != "equal":
            lines |= set(range(start + 1, end + 1))
    return lines & set(range(1, len(broken.splitlines()) + 1))


def lines_named(finding: dict[str, Any]) -> set[int]:
    """The lines that a finding points at: that of its code, those of `where`, and those that its advice says to change."""
    text = f"{finding['where']} {finding['fix']}"
    return {int(number) for number in re.findall(r"\.py:(\d+)", text)} | (
        {finding["line"]} - {None}
    )


def judge(folder: Path, fault: Fault, limit: float) -> Verdict:
    """Run the scripts of one row."""
    accused = alarms(findings(folder / fault.fixed, limit))
    if not fault.broken:
        return Verdict(fault, None, None, None, not accused, _told(accused))
    found = alarms(findings(folder / fault.broken, limit))
    expected = (
        any(one["id"] in fault.expected for one in found) if fault.expected else None
    )
    line = None
    if found:
        changed = changed_lines(
            *(
                (folder / name).read_text(encoding="utf-8")
                for name in (fault.broken, fault.fixed)
            )
        )
        line = bool(lines_named(found[0]) & changed)
    return Verdict(fault, bool(found), expected, line, not accused, _told(found))


def _told(found: Findings) -> str:
    return (
        f"{found[0]['id']}: {found[0]['summary']}, {found[0]['where']}" if found else ""
    )


def report(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The table, and the scripts for which something is wrong."""
    yield f"{'class':<28} {'faults':>6} {'found':>9} {'expected':>9} {'line':>9} {'clean':>9}"
    groups = list(dict.fromkeys(one.fault.group for one in verdicts))
    for group in [*groups, "all"]:
        members = [one for one in verdicts if group in (one.fault.group, "all")]
        shares = " ".join(
            f"{_share([getattr(one, key) for one in members]):>9}"
            for key in ("found", "expected", "line", "clean")
        )
        yield f"{group:<28} {sum(bool(one.fault.broken) for one in members):>6} {shares}"
    for title, wrong in {
        "missed": [one.fault.broken for one in verdicts if one.found is False],
        "another line": [
            f"{one.fault.broken}: {one.first}" for one in verdicts if one.line is False
        ],
        "other ids": [
            f"{one.fault.broken}: {one.first}"
            for one in verdicts
            if one.found and one.expected is False
        ],
        "false alarms": [one.fault.fixed for one in verdicts if not one.clean],
    }.items():
        if wrong:
            yield from ("", f"{title}:", *(f"  {name}" for name in wrong))


def _share(answers: Sequence[bool | None]) -> str:
    known = [one for one in answers if one is not None]
    return (
        f"{sum(known)}/{len(known)} {100 * sum(known) / len(known):.0f}%"
        if known
        else "-"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description="Count the faults that are found.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT, metavar="DIR")
    parser.add_argument(
        "--limit",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="for one script (120)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write every verdict"
    )
    options = parser.parse_args(arguments)
    import gradviz.checks.check
    import gradviz.checks.output  # noqa: F401 -- loaded once, for all scripts

    verdicts = [
        judge(options.folder, fault, options.limit)
        for fault in manifest(options.folder)
    ]
    print("\n".join(report(verdicts)))
    if options.json is not None:
        rows = [{**one._asdict(), "fault": one.fault._asdict()} for one in verdicts]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
