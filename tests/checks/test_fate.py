"""What becomes of what a line made, and which lines of a class make a part of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from gradviz.checks.collect.lines import dropped, forward_of, made_at
from gradviz.graph import SourceLine


def fate(tmp_path: Path, text: str) -> tuple[str, int | None] | None:
    """Of the line that ends in `# here`: the name, and the line that overwrites it."""
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(text))
    number = next(i for i, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# here"))
    found = dropped(SourceLine(str(path), number))
    return (found.name, found.by.line if found.by is not None else None) if found is not None else None


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = a(x)  # here\ny = b(x)\nreturn y", ("y", 3)),
        ("y = a(x)  # here\nreturn x", ("y", None)),
        ("a(x)  # here\nreturn x", ("", None)),
        ("y = a(x)  # here\nz = b(y)\ny = z\nreturn y", None),
        ("y = a(x)  # here\ny += b(x)\nreturn y", None),
        ("y = a(x)  # here\nreturn lambda: y", None),
        ("y = a(x)  # here\ndef g():\n    return y\nreturn g", None),
        ("for i in x:\n    z = y\n    y = a(x)  # here\nreturn z", None),
        ("y, z = a(x)  # here\nreturn x", None),
        ("self.y = a(x)  # here\nreturn x", None),
        ("y = a(x)  # here\nif y.sum() > 0:\n    y = b(x)\nreturn x", None),
        ("return a(x)  # here", None),
    ],
)
def test_what_becomes_of_a_result(body: str, found: tuple[str, int | None] | None, tmp_path: Path) -> None:
    assert fate(tmp_path, "def forward(self, x):\n" + textwrap.indent(body, "    ")) == found


def test_a_file_that_is_not_there_tells_nothing() -> None:
    assert dropped(SourceLine("nowhere.py", 3)) is None and dropped(None) is None


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Net(Base):
    def build(self) -> None:
        self.second = torch.nn.Linear(1, 1)


def test_the_lines_that_make_a_part_and_use_it() -> None:
    made = [made_at(Net, name) for name in ("first", "second", "third")]
    assert [one.text if one is not None else None for one in made] == [
        "self.first = torch.nn.Linear(1, 1)",
        "self.second = torch.nn.Linear(1, 1)",
        None,
    ]
    forward = forward_of(Net)
    assert forward is not None and forward.text.startswith("def forward(")
