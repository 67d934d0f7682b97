"""Measure gradviz and its peers side by side:

    python -m benchmarks [--small] [--limit SECONDS] [--json FILE] [--only WORD]

Every tool draws every model as SVG, each in a process of its own with a time limit (60 s unless told), counted in processor
seconds so that other work on the machine changes little. Prints a table;
`--json` also writes all numbers to a file. Tools that are not installed are listed as such: benchmarks/requirements.txt
names them. `--small` takes two tiny models and is for tests.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS, SMALL_MODELS
from benchmarks.tools import TOOLS

ROOT = Path(__file__).parent.parent
PATIENCE = 5  # times the limit that a case may take by the clock, when other work slows it down
WIDTH = 120  # of the table in a file
Result = dict[str, Any]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure gradviz beside its peers."
    )
    parser.add_argument("--small", action="store_true", help="two tiny models")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds for each tool and model"
    )
    parser.add_argument("--json", metavar="FILE", help="where to write all numbers")
    parser.add_argument(
        "--only",
        metavar="WORD",
        default="",
        help="only models with this word in their name",
    )
    given = parser.parse_args()
    models = [
        name for name in (SMALL_MODELS if given.small else MODELS) if given.only in name
    ]
    results: list[Result] = []
    for model, tool in ((model, tool) for model in models for tool in TOOLS):
        results.append(measured(model, tool, given.limit))
        if given.json:  # after every case, for a run may take half an hour
            report = {**conditions(), "limit": given.limit, "results": results}
            Path(given.json).write_text(
                json.dumps(report, indent=1) + "\n", encoding="utf-8"
            )
    Console(width=None if sys.stdout.isatty() else WIDTH).print(
        table(results, given.limit)
    )
    return 0


def conditions() -> dict[str, Any]:
    """When, on what and with which versions."""
    packages = [
        "torch",
        *dict.fromkeys(
            tool.package for tool in TOOLS.values() if tool.package.startswith("torch")
        ),
    ]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def measured(model: str, tool: str, limit: float) -> Result:
    """One tool on one model in its own process group, which ends with it."""
    show(f"{model}: {tool}")
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.case", model, tool, str(limit)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=PATIENCE * limit)
        found = (
            json.loads(output.splitlines()[-1])
            if output
            else died(child.returncode, limit)
        )
    except subprocess.TimeoutExpired:
        found = {"error": f"more than {limit:g} s"}
    finally:
        end(child)
        show("")
    return {"model": model, "tool": tool, **found}


def died(code: int, limit: float) -> Result:
    """What to say of a process that ended without a result."""
    over = -code in (signal.SIGXCPU, signal.SIGKILL)
    return {"error": f"more than {limit:g} s" if over else f"ended with code {code}"}


def end(child: subprocess.Popen[str]) -> None:
    """End a process and all it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def show(doing: str) -> None:
    """What is being measured, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{doing}", end="", file=sys.stderr, flush=True)


def table(results: list[Result], limit: float) -> Table:
    """The numbers as a table. The last column compares whole times with gradviz drawing every op."""
    made = Table(
        title=f"Processor seconds from a loss to an SVG file; limit {limit:g} s each"
    )
    for head in ("model", "tool"):
        made.add_column(head, no_wrap=True)
    for head in ("capture s", "draw s", "total s", "MB file", "MB peak", "× gradviz"):
        made.add_column(head, justify="right", no_wrap=True)
    ours = {
        one["model"]: one.get("total")
        for one in results
        if one["tool"] == "gradviz, every op"
    }
    before = ""
    for one in results:
        if before and one["model"] != before:
            made.add_section()
        made.add_row(
            "" if one["model"] == before else one["model"],
            one["tool"],
            *cells(one, ours[one["model"]]),
        )
        before = one["model"]
    return made


def cells(one: Result, ours: float | None) -> list[str]:
    """One row's numbers as text, or what went wrong."""
    if "error" in one:
        return ["", "", one["error"], "", "", ""]
    if not one["bytes"]:
        return [f"{one['capture']:.3f}", "", "", "", f"{one['memory'] / 1e6:.0f}", ""]
    ratio = f"{one['total'] / ours:.2f}" if ours else ""
    times = [f"{one[key]:.2f}" for key in ("capture", "draw", "total")]
    return [*times, f"{one['bytes'] / 1e6:.2f}", f"{one['memory'] / 1e6:.0f}", ratio]


if __name__ == "__main__":
    sys.exit(main())
