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


def sarif(found: Findings, folder: str | None = None) -> dict[str, Any]:
    """The log of one run, with every check that ran as a rule. Files below `folder` (the current one) are named relative to it."""
    base = os.path.abspath(folder or os.curdir)
    ran = [one for one in checks() if one.id in found.checked]
    index = {one.id: i for i, one in enumerate(ran)}
    invocation: dict[str, Any] = {"executionSuccessful": not found.failed}
    if found.failed:
        message = {"text": f"The script failed: {one_line(found.failed)}"}
        invocation["toolExecutionNotifications"] = [{"level": "error", "message": message}]
    run = {
        "tool": {"driver": {"name": "gradviz", "version": __version__, "rules": [_rule(one) for one in ran]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(one, index, base) for one in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(one: Check) -> dict[str, Any]:
    text = page(one)
    parts = [("What it means", text.meaning), *((title, getattr(text, key)) for key, title in SECTIONS.items())]
    example = f"**Example**\n\n```python\n{text.example}```"
    return {
        "id": one.id,
        "shortDescription": {"text": one.summary},
        "fullDescription": {"text": text.meaning.split("\n\n")[0].replace("\n", " ")},
        "help": {
            "text": "\n\n".join(f"{title}: {words}" for title, words in parts),
            "markdown": "\n\n".join([*(f"**{title}**\n\n{words}" for title, words in parts), example]),
        },
        "defaultConfiguration": {"level": one.severity},
    }


def _result(one: Finding, index: dict[str, int], base: str) -> dict[str, Any]:
    parts = [one.summary, one.why, *(f"So: {each.summary}" for each in one.consequences), one.fix]
    result: dict[str, Any] = {
        "ruleId": one.id,
        "ruleIndex": index[one.id],
        "level": one.severity,
        "message": {"text": one_line(". ".join(part.rstrip(".") for part in parts if part)) + "."},
        "partialFingerprints": {"gradviz/v1": _fingerprint(one)},
        "properties": {"names": list(map(one_line, one.names)), "call": one.call, "rank": one.rank},
    }
    location = _location(one.code, base)
    if location is not None:
        result["locations"] = [location]
    related = [_location(each.code, base, each.summary) for each in one.consequences if each.code != one.code]
    if any(related):
        result["relatedLocations"] = [each for each in related if each is not None]
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


def _fingerprint(one: Finding) -> str:
    """Stays the same when lines above it come or go."""
    parts: Sequence[str] = (one.id, *one.names, one.code.text.strip() if one.code is not None else one.where)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
