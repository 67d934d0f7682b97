"""Writes findings as SARIF 2.1.0, which editors and CI show at the lines of code.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradviz import __version__
from gradviz.checks.excerpt import Excerpt
from gradviz.checks.finding import Finding, Findings
from gradviz.checks.pages import SECTIONS, page
from gradviz.checks.registry import Check, checks
from gradviz.wording import one_line

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Findings, folder: str | None = None) -> dict[str, Any]:
    """The log of one run, with every check that ran as a rule. Files below `folder` (the current one) are named relative to it."""
    base = os.path.abspath(folder or os.curdir)
    ran = [check for check in checks() if check.id in findings.checked]
    index = {check.id: i for i, check in enumerate(ran)}
    invocation: dict[str, Any] = {"executionSuccessful": not findings.failed}
    if findings.failed:
        message = {"text": f"The script failed: {one_line(findings.failed)}"}
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": message}]
    run = {
        "tool": {"driver": {"name": "gradviz", "version": __version__, "rules": [_rule(check) for check in ran]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(finding, index, base) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check) -> dict[str, Any]:
    text = page(check)
    parts = [("What it means", text.meaning), *((title, getattr(text, key)) for key, title in SECTIONS.items())]
    example = f"**Example**\n\n```python\n{text.example}```"
    return {
        "id": check.id,
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": text.meaning.split("\n\n")[0].replace("\n", " ")},
        "help": {
            "text": "\n\n".join(f"{title}: {words}" for title, words in parts),
            "markdown": "\n\n".join([*(f"**{title}**\n\n{words}" for title, words in parts), example]),
        },
        "defaultConfiguration": {"level": check.severity},
    }


def _result(finding: Finding, index: dict[str, int], base: str) -> dict[str, Any]:
    parts = [
        finding.summary,
        finding.why,
        *(f"So: {consequence.summary}" for consequence in finding.consequences),
        finding.fix,
    ]
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index[finding.id],
        "level": finding.severity,
        "message": {"text": one_line(". ".join(part.rstrip(".") for part in parts if part)) + "."},
        "partialFingerprints": {"gradviz/v1": _fingerprint(finding)},
        "properties": {"names": list(map(one_line, finding.names)), "call": finding.call, "rank": finding.rank},
    }
    location = _location(finding.code, base)
    if location is not None:
        result["locations"] = [location]
    related = [
        _location(consequence.code, base, consequence.summary)
        for consequence in finding.consequences
        if consequence.code != finding.code
    ]
    if any(related):
        result["relatedLocations"] = [place for place in related if place is not None]
    return result


def _location(code: Excerpt | None, base: str, message: str = "") -> dict[str, Any] | None:
    """A region of a file, None where there is no file, as for code of a notebook."""
    if code is None or code.file.startswith("<"):
        return None
    region = {
        "startLine": code.line,
        "startColumn": code.column,
        "endColumn": code.end_column,
        "snippet": {"text": code.text},
    }
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(code.file, base)}, "region": region}}
    return place | ({"message": {"text": one_line(message)}} if message else {})


def _uri(file: str, base: str) -> str:
    """Relative to the folder where the file is below it, so that CI finds it in the repository; else absolute."""
    path = Path(os.path.abspath(file))
    try:
        return quote(path.relative_to(base).as_posix())
    except ValueError:
        return path.as_uri()


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines above it come or go."""
    parts: Sequence[str] = (
        finding.id,
        *finding.names,
        finding.code.text.strip() if finding.code is not None else finding.where,
    )
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
