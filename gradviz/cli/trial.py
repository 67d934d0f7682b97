"""`check --try`: runs the script again in a child process, with the change that a finding advises, and keeps what heals.

The change is made in memory: the child reads other text for one file, and no file is written.
"""

from __future__ import annotations

import io
import linecache
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradviz.cli.progress import progress
from gradviz.run.cells import CHANGES
from gradviz.wording import notebook_of, plural

if TYPE_CHECKING:
    from gradviz.checks.edit import Edit
    from gradviz.checks.finding import Finding, Findings
    from gradviz.cli.target import Source

MOST = 5
"""Changes that are tried for one report."""
LEAST, TIMES = 60.0, 5
"""A child may take this many seconds, or as many times what the first run took."""


def tried(findings: Findings, source: Source, options: Mapping[str, Any], took: float) -> Findings:
    """The findings with what came of their edits, each tried alone; `took` seconds were needed for them."""
    limit, left = max(LEAST, TIMES * took), MOST
    found: list[Finding] = []
    for finding in findings:
        edit = finding.edit if finding.severity != "note" and left else None
        if edit is not None and not os.path.isfile(notebook_of(edit.source.file)[0] or edit.source.file):
            edit = None  # code of no file, such as an interpreter's input
        if edit is not None:
            left -= 1
            with progress(f"trying the fix of line {edit.source.line}"):
                heals = _heals(findings, finding, _run_again(source, options, edit, limit))
            finding = replace(finding, edit=edit._replace(heals=heals))
        found.append(finding)
    healed = sum(one.edit is not None and one.edit.heals is True for one in found)
    note = "Ran nothing again: no fix is a change of a line in a file."
    if left < MOST:
        note = (
            f"Ran the script again in a child process for {plural(MOST - left, 'fix', 'fixes')}: {healed:,} healed it."
        )
    return replace(findings, found=tuple(found), notes=(*findings.notes, note))


def _heals(before: Findings, finding: Finding, after: Findings | None) -> bool:
    """Whether a finding is gone, no other one has come, and the script ended as before, or without its failure."""
    if after is None or (after.failed and after.failed != before.failed):
        return False
    old, new = (Counter((one.id, one.names) for one in every if one.severity != "note") for every in (before, after))
    key = finding.id, finding.names
    return new[key] < old[key] and not Counter(id for id, _ in new.elements()) - Counter(id for id, _ in old.elements())


def _run_again(source: Source, options: Mapping[str, Any], edit: Edit, limit: float) -> Findings | None:
    """What is found in the script with a change; None where that could not be told in time."""
    job = pickle.dumps((source, dict(options), edit))
    command = [sys.executable, "-c", "from gradviz.cli.trial import child; child()"]
    try:
        done = subprocess.run(command, input=job, capture_output=True, timeout=limit)
        findings: Findings = pickle.loads(done.stdout)
    except (subprocess.TimeoutExpired, pickle.UnpicklingError, EOFError):
        return None
    return findings


def child() -> None:
    """In the child: run what standard input says, and write what was found to standard output."""
    source, options, edit = pickle.load(sys.stdin.buffer)
    answer, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    _change(edit)
    findings = source.findings(**options).result
    with os.fdopen(answer, "wb") as file:
        pickle.dump(replace(findings, graphs=()), file)


def _change(edit: Edit) -> None:
    """From now on this process reads the changed text in place of the file."""
    if notebook_of(edit.source.file)[0]:
        CHANGES[edit.source.file] = edit.applied
        return
    path = os.path.realpath(edit.source.file)
    text = edit.applied(Path(path).read_text(encoding="utf-8"))
    linecache.cache[edit.source.file] = len(text), None, text.splitlines(keepends=True), path
    read, loaded = io.open_code, SourceFileLoader.get_data
    stats = SourceFileLoader.path_stats

    def opened(file: str) -> Any:
        return io.BytesIO(text.encode()) if os.path.realpath(file) == path else read(file)

    def data(loader: SourceFileLoader, file: str) -> bytes:
        return text.encode() if os.path.realpath(file) == path else loaded(loader, file)

    def no_bytecode(loader: SourceFileLoader, file: str) -> Any:
        if os.path.realpath(file) == path:
            raise OSError("changed in memory")
        return stats(loader, file)

    io.open_code = opened  # type: ignore[assignment]
    SourceFileLoader.get_data, SourceFileLoader.path_stats = data, no_bytecode  # type: ignore[method-assign,assignment]
