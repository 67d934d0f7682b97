"""Runs every command that is listed, with every format and option that needs more than the core: `python every_command.py`.

Knows no list of features: what is listed has to work. Says what did not, and ends with 1.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import click

import gradviz
from gradviz.__main__ import main
from gradviz.cli.main import COMMANDS, cli
from gradviz.draw.output import FORMATS

TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
frozen = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    loss = (model(torch.ones(3, 2)) + frozen(torch.ones(3, 2)).detach().sum()).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OTHER = "import torch\nw = torch.ones(3, requires_grad=True)\n(w * w).sum().backward()\n"

LINES = {
    "render": ("train.py", "g.json -o again.svg"),
    "tree": ("train.py", "g.json"),
    "saved": ("train.py", "g.json", "train.py --budget 1KiB"),
    "tensors": ("train.py",),
    "why": ("train.py model.0.weight", "train.py frozen.weight"),
    "flow": ("train.py",),
    "paths": ("train.py --to model.0.weight",),
    "diff": ("g.json other.json", "train.py --at 1 --at 2"),
    "merge": ("g.json g.json", "g.json g.json -o m.svg"),
    "check": ("train.py", "train.py --sarif", "--explain no-graph"),
    "formula": ("softmax",),
    "demo": ("",),
}
"""What is run of each command; the first one with its options, too."""

PAGES = ("check train.py --html page.html", "diff g.json other.json -o d.html")

CHOICES = ("--color", "--by")
LEFT_OUT = ("--open", "--continue", "--verbose")


def lines() -> Iterator[str]:
    """Command lines in the order in which they are run."""
    yield from ("", "--help", "render train.py -o g.json", "render other.py -o other.json")
    for format in FORMATS.values():
        yield f"render train.py -o g{format.suffixes[0]}"
    for command in COMMANDS:
        yield f"{command} --help"
        yield from (f"{command} {words}" for words in LINES.get(command, ()))
        for words in LINES.get(command, ())[:1]:
            yield from (f"{command} {words} {option}" for option in options(command))
    if "check" in COMMANDS:
        yield "train.py"
    if "html" in FORMATS:
        yield from (line for line in PAGES if line.split()[0] in COMMANDS)


def options(command: str) -> Iterator[str]:
    """Every option that takes no value, and what a feature may have to do with of those that take one of a few."""
    found = cli.get_command(click.Context(cli), command)
    for option in found.params if found is not None else ():
        if isinstance(option, click.Option) and option.is_flag:
            yield from (name for name in option.opts[:1] if name not in LEFT_OUT)
        elif option.opts[0] in CHOICES:
            yield from (f"{option.opts[0]} {value}" for value in getattr(option.type, "choices", ()))


def fails(line: str) -> bool:
    """Whether a command ends in anything but 0 or 1."""
    sys.argv = ["gradviz", *line.split()]
    began = time.perf_counter()
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        code = traceback.format_exc()
    if os.environ.get("SECONDS"):
        print(f"{time.perf_counter() - began:6.2f} s  {line}", file=sys.stderr)
    if code in (0, 1, None):
        return False
    print(f"gradviz {line}: {code}", file=sys.stderr)
    return True


if __name__ == "__main__":
    assert gradviz.__file__.startswith(os.getcwd())
    Path("train.py").write_text(TRAIN)
    Path("other.py").write_text(OTHER)
    Path("listed").write_text("\n".join([*COMMANDS, *FORMATS]))
    wrong = [line for line in lines() if fails(line)]
    for name in dir(gradviz):
        getattr(gradviz, name)
    sys.exit(bool(wrong))
