"""What a project does not want to hear of: checks that its `pyproject.toml` ignores, and
a baseline of findings that it knows already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradviz.checks.finding import Findings
from gradviz.checks.sarif import fingerprint
from gradviz.draw.output import write
from gradviz.errors import FormatError
from gradviz.wording import plural

_FORMAT = "gradviz baseline"
_TABLE = "[tool.gradviz]"


def ignored(folder: Path, complain: Callable[[str], object]) -> tuple[str, ...]:
    """The checks that the nearest `pyproject.toml` upwards ignores. Raises FormatError
    for one that cannot be read; where Python has no reader of TOML, `complain` says so.
    """
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            return _ignored_by(file, complain)
    return ()


def _ignored_by(file: Path, complain: Callable[[str], object]) -> tuple[str, ...]:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        if _TABLE in file.read_text(encoding="utf-8", errors="replace"):
            complain(f"{_TABLE} of {file} needs Python 3.11: give --ignore ID instead.")
        return ()
    try:
        tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise FormatError(f"{file} cannot be read: {error}") from None

    table: dict[str, Any] = tools.get("gradviz", {})
    ids = table.get("ignore", [])
    unknown = ", ".join(sorted({*table} - {"ignore"}))
    if unknown or not isinstance(ids, list):
        what = f"has no {unknown}" if unknown else "lists checks in ignore"
        raise FormatError(f'{_TABLE} of {file} {what}. Write: ignore = ["stale-saved"]')
    return tuple(map(str, ids))


def without_known(findings: Findings, path: str) -> Findings:
    """The findings that a baseline does not have; a file that there is not yet gets all
    of them. Raises FormatError for one that is no baseline.
    """
    if not os.path.exists(path):
        rows = [
            {"fingerprint": fingerprint(one), "id": one.id, "summary": one.summary}
            for one in findings
        ]
        text = json.dumps({"format": _FORMAT, "findings": rows}, indent=1)
        write(path, [f"{text}\n".encode()])
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        listed: Any = data["findings"] if data["format"] == _FORMAT else None
        known = {row["fingerprint"] for row in listed}
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{path} is no baseline that gradviz wrote") from None

    found = tuple(one for one in findings if fingerprint(one) not in known)
    left_out = len(findings) - len(found)
    if not left_out:
        return findings
    note = f"{plural(left_out, 'finding')} of {path} left out."
    return replace(findings, found=found, notes=(*findings.notes, note))
