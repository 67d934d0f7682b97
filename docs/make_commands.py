"""Writes a page for each command, with its help and what it prints of a sample: `python docs/make_commands.py FOLDER`."""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path

import click

from gradviz.cli.help import EXAMPLES
from gradviz.cli.main import COMMANDS, cli

SHOWN = {
    "render": "render samples/add.py -o - --format md",
    "tree": "tree samples/resnet.py",
    "summary": "summary samples/resnet.py:model --input 2,3,32,32",
    "saved": "saved samples/gpt.py",
    "tensors": "tensors samples/sgd.py",
    "why": "why samples/chain_rule.py w",
    "flow": "flow samples/mlp_training.py",
    "paths": "paths samples/chain_rule.py --to w",
    "diff": "diff samples/mlp_training.py samples/mlp_training.py --at 1 --at 2",
    "merge": "merge --help",
    "check": "check samples/problems/inplace_saved.py",
    "formula": "formula softmax",
    "demo": "demo",
}
"""What is run for the page of each command."""


def write(folder: Path) -> list[Path]:
    """The pages, and one that lists them."""
    run = runpy.run_path(str(Path(__file__).with_name("make_outputs.py")))["run"]
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["# Commands\n", "| command | |", "|---|---|"]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        (folder / f"{name}.md").write_text(page(name, run), encoding="utf-8")
        rows.append(
            f"| [gradviz {name}]({name}.md) | {command.get_short_help_str(90)} |"
        )
    (folder / "index.md").write_text("\n".join([*rows, ""]), encoding="utf-8")
    return sorted(folder.glob("*.md"))


def page(name: str, run: object) -> str:
    """One command: examples, an output, all options."""
    assert callable(run)
    parts = [f"# gradviz {name}\n"]
    for line, effect, _ in EXAMPLES.get(name, ()):
        parts.append(f"- `gradviz {line}`: {effect}")
    shown = f"gradviz {SHOWN[name]}"
    if "--help" not in shlex.split(shown):
        parts.append(
            f"\n## What it prints\n\n```console\n$ {shown}\n{run(shown).rstrip()}\n```"
        )
    help = run(f"gradviz {name} --help").rstrip()
    parts.append(f"\n## Options\n\n```console\n$ gradviz {name} --help\n{help}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(*write(Path(sys.argv[1])), sep="\n")
