"""Findings as a SARIF log, for editors and CI. SARIF 2.1.0:
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradviz import __version__
from gradviz.checks.excerpt import Excerpt
from gradviz.checks.finding import Finding, Findings
from gradviz.checks.pages import MEANING, page, page_lines
from gradviz.checks.registry import Check, checks
from gradviz.checks.words import short_path
from gradviz.wording import notebook_of, one_line, place_text

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Findings) -> dict[str, Any]:
    """The log of one run, with every check that ran as a rule. Files below the current
    folder are named relative to it.
    """
    ran = [check for check in checks() if check.id in findings.checked]
    rules = [check.id for check in ran]
    invocation: dict[str, Any] = {"executionSuccessful": not findings.failed}
    if findings.failed:
        message = _text(f"The script failed: {findings.failed}")
        notification = {"level": "error", "message": message}
        invocation["toolExecutionNotifications"] = [notification]

    driver = {"name": "gradviz", "version": __version__, "rules": list(map(_rule, ran))}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(finding, rules) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _text(text: str) -> dict[str, str]:
    return {"text": one_line(text)}


def _rule(check: Check) -> dict[str, Any]:
    first_paragraph = page(check)[MEANING].split("\n\n")[0]
    return {
        "id": check.id,
        "shortDescription": _text(check.summary),
        "fullDescription": _text(first_paragraph.replace("\n", " ")),
        "help": {"text": "\n".join(page_lines(check))},
        "defaultConfiguration": {"level": check.severity},
    }


def _result(finding: Finding, rules: list[str]) -> dict[str, Any]:
    effects = [f"Effect: {effect.summary}" for effect in finding.consequences]
    sentences = [finding.summary, finding.why, *effects, finding.fix]
    text = ". ".join(sentence.rstrip(".") for sentence in sentences if sentence)
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": rules.index(finding.id),
        "level": finding.severity,
        "message": _text(f"{text}."),
        "partialFingerprints": {"gradviz/v1": fingerprint(finding)},
        "properties": {
            "names": list(map(one_line, finding.names)),
            "call": finding.call,
            "rank": finding.rank,
        },
    }
    # code of a live notebook is in no file
    if finding.code is not None and not finding.code.file.startswith("<"):
        result["locations"] = [_location(finding.code)]
    return result


def _location(code: Excerpt) -> dict[str, Any]:
    """Where a line is: in a file, or in a cell, whose lines people know by that."""
    notebook, _ = notebook_of(code.file)
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(notebook or code.file)}}
    if notebook:
        cell = place_text(code.file, code.line)
        return {"physicalLocation": place, "logicalLocations": [{"name": cell}]}
    place["region"] = {
        "startLine": code.line,
        "startColumn": code.column,
        "endColumn": code.end_column,
        "snippet": {"text": code.text},
    }
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    """Relative to the current folder where the file is below it, so that CI finds it in
    the repository; else absolute.
    """
    path = Path(short_path(file))
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def fingerprint(finding: Finding) -> str:
    """Stays the same when lines above it come or go."""
    where = finding.code.text.strip() if finding.code is not None else finding.where
    parts = "\0".join((finding.id, *finding.names, where))
    return hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()[:32]
