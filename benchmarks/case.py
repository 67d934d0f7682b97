"""Measure one tool on one model, in a process of its own:

    python -m benchmarks.case "GPT, 12 blocks" torchviz 60

Prints one line of JSON. Seconds are processor seconds of this process and of those it started, so that other work on
the machine does not count; `wall` is what a clock shows. The limit is in processor seconds too. Memory is the peak of
the largest of these processes.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import os
import resource
import sys
import tempfile
import time
import warnings
from typing import Any

from benchmarks.models import MODELS, SMALL_MODELS, build, tiny
from benchmarks.tools import TOOLS, Tool

SLACK = 10  # seconds for starting and for building the model
KILOBYTE = (
    1024 if sys.platform != "darwin" else 1
)  # ru_maxrss: kilobytes on Linux, bytes on macOS
PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main() -> int:
    """Measure what the command line names."""
    warnings.simplefilter("ignore")
    model, tool, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
    most = math.ceil(limit) + SLACK
    resource.setrlimit(
        resource.RLIMIT_CPU, (most, most)
    )  # holds for each process that is started, too
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some tools write where they stand
        found = measure(model, tool, os.path.join(folder, "graph.svg"))
        if found.get("total", seconds()) > limit:
            found = {"error": f"more than {limit:g} s"}
    print(json.dumps(found))
    return 0


def measure(model: str, name: str, path: str) -> dict[str, Any]:
    """What one tool took for one model; `error` when it did not get there."""
    tool = TOOLS[name]
    if importlib.util.find_spec(tool.package) is None:
        return {"error": "not installed"}
    try:
        warm_up(tool, os.path.join(os.path.dirname(path), "warm.svg"))
        built = build({**MODELS, **SMALL_MODELS}[model], recorded=tool.recorded)
        # a collection of all that torch has loaded takes 0.09 s, and would fall into
        # the time of whichever tool comes to its turn
        gc.collect()
        start, begin = time.perf_counter(), seconds()
        captured = tool.capture(built)
        capture = seconds() - begin
        if tool.draw is not None:
            tool.draw(captured, path)
        total, wall = seconds() - begin, time.perf_counter() - start
    except Exception as error:  # whatever a tool raises is its result
        return {"error": type(error).__name__, "message": str(error)[:300]}
    size = os.path.getsize(path) if tool.draw is not None else 0
    return {
        "capture": capture,
        "draw": total - capture,
        "total": total,
        "wall": wall,
        "memory": memory(),
        "bytes": size,
    }


def warm_up(tool: Tool, path: str) -> None:
    """Use the tool once on next to nothing: what it imports, now or when first used, is no part of what is compared."""
    captured = tool.capture(tiny(recorded=tool.recorded))
    if tool.draw is not None:
        tool.draw(captured, path)


def seconds() -> float:
    """Processor seconds of this process and of those it started and awaited."""
    usage = [resource.getrusage(who) for who in PROCESSES]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def memory() -> int:
    """Peak bytes of the largest process among this one and those it started."""
    return max(resource.getrusage(who).ru_maxrss for who in PROCESSES) * KILOBYTE


if __name__ == "__main__":
    sys.exit(main())
