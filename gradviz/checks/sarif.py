"""Findings as a SARIF log, for editors and CI. SARIF 2.1.0:
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradviz import __version__
from gradviz.checks.excerpt import Excerpt
from gradviz.checks.finding import Finding, Findings
from gradviz.checks.output import region
from gradviz.checks.pages import EXAMPLE, MEANING, page
from gradviz.checks.registry import Check, checks
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

    driver = {
        "name": "gradviz",
        "version": __version__,
        "rules": [_rule(check) for check in ran],
    }
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
    parts = page(check)
    example = f"**{EXAMPLE}**\n\n```python\n{parts.pop(EXAMPLE)}```"
    plain = [f"{title}: {words}" for title, words in parts.items()]
    marked = [f"**{title}**\n\n{words}" for title, words in parts.items()]
    first_paragraph = parts[MEANING].split("\n\n")[0]
    return {
        "id": check.id,
        "shortDescription": {"text": check.summary},
        "fullDescription": {"text": first_paragraph.replace("\n", " ")},
        "help": {
            "text": "\n\n".join(plain),
            "markdown": "\n\n".join([*marked, example]),
        },
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
        "partialFingerprints": {"gradviz/v1": _fingerprint(finding)},
        "properties": {
            "names": list(map(one_line, finding.names)),
            "call": finding.call,
            "rank": finding.rank,
        },
    }

    others = [
        _location(effect.code, effect.summary)
        for effect in finding.consequences
        if effect.code != finding.code
    ]
    locations = {
        "locations": [_location(finding.code)],
        "relatedLocations": others,
    }
    for key, places in locations.items():
        if any(places):
            result[key] = list(filter(None, places))
    return result


def _location(code: Excerpt | None, message: str = "") -> dict[str, Any] | None:
    """A region of a file, None where there is no file, as for code of a notebook."""
    if code is None or code.file.startswith("<"):
        return None

    notebook = notebook_of(code.file)[0]
    physical: dict[str, Any] = {
        "artifactLocation": {"uri": _uri(notebook or code.file)}
    }
    place = region(code)
    if place is not None:
        line, (begin, end) = place
        physical["region"] = {
            "startLine": line,
            "startColumn": begin,
            "endColumn": end,
            "snippet": {"text": code.text},
        }

    location: dict[str, Any] = {"physicalLocation": physical}
    if notebook:  # whose lines people know by their cell
        location["logicalLocations"] = [{"name": place_text(code.file, code.line)}]
    if message:
        location["message"] = _text(message)
    return location


def _uri(file: str) -> str:
    """Relative to the current folder where the file is below it, so that CI finds it in
    the repository; else absolute.
    """
    path = Path(os.path.abspath(file))
    try:
        return quote(path.relative_to(os.getcwd()).as_posix())
    except ValueError:
        return path.as_uri()


def _fingerprint(finding: Finding) -> str:
    """Stays the same when lines above it come or go."""
    where = finding.code.text.strip() if finding.code is not None else finding.where
    parts = "\0".join((finding.id, *finding.names, where))
    return hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()[:32]
