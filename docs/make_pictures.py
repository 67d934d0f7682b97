"""Draws the pictures that the README shows: `python docs/make_pictures.py`, in an environment with gradviz.

Each picture is what one command of the command line draws for one sample.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
SAMPLES = DOCS.parent / "samples"
PICTURES: dict[str, list[str]] = {
    "chain_rule.svg": ["chain_rule.py"],
    "mlp_training.svg": ["mlp_training.py"],
    "lstm.svg": ["lstm.py", "--", "--steps", "100"],
    "gpt.svg": ["gpt.py", "--", "--layers", "12"],
}


def main() -> None:
    """Draw every picture anew."""
    for name, words in PICTURES.items():
        own, script = (
            (words[: words.index("--")], words[words.index("--") :])
            if "--" in words
            else (words, [])
        )
        target, options = own[0], own[1:]
        command = [
            sys.executable,
            "-m",
            "gradviz",
            "render",
            target,
            *options,
            "-o",
            str(DOCS / "pictures" / name),
            *script,
        ]
        subprocess.run(command, cwd=SAMPLES, check=True)


if __name__ == "__main__":
    main()
