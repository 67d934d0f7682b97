"""What `gradviz render` computes of its own, beside what it imports and what the script does.

    python -m benchmarks.command_line [LAYERS] [REPEATS]

Prints processor seconds, each the best of REPEATS (5) processes with one thread: of samples/gpt.py with LAYERS (12) blocks by
itself, of `render --continue` of it, of importing what render loads and the script does not, and what is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.check import processor_seconds

SCRIPT = str(Path(__file__).parents[1] / "samples" / "gpt.py")

LOADED = """
import atexit, json, runpy, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = sys.argv[1:]
runpy.run_{how}(sys.argv[0], run_name="__main__")
"""
IMPORT = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""


def modules(how: str, *words: str) -> set[str]:
    """The names of the modules that are loaded when a `path` or a `module` has run with its arguments."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(how=how), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def main() -> int:
    """Print the table."""
    os.environ["OMP_NUM_THREADS"] = "1"  # idle threads spin, and that counts as time
    layers, repeats = (*sys.argv[1:], *("12", "5")[len(sys.argv) - 1 :])

    def seconds(*command: str) -> float:
        return min(processor_seconds(*command) for _ in range(int(repeats)))

    with tempfile.TemporaryDirectory() as folder:
        script = (SCRIPT, "--layers", layers)
        picture = f"{folder}/graph.svg"
        render = ("render", "--continue", "-o", picture, SCRIPT, "--", *script[1:])

        of_script = modules("path", *script)
        of_both = of_script | modules("module", "gradviz", *render)
        alone = seconds(*script)
        rendered = seconds("-m", "gradviz", *render)

    imports = seconds("-c", IMPORT, json.dumps(sorted(of_both)))
    imports -= seconds("-c", IMPORT, json.dumps(sorted(of_script)))
    for name, amount in {
        "the script alone": alone,
        "gradviz render": rendered,
        "what only render imports": imports,
        "render beside script and imports": rendered - alone - imports,
    }.items():
        print(f"{name:<34} {amount:>7.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
