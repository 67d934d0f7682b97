"""Whoever asks which tensor a line changes in place gets one answer, for a line alone and for a function's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.graph import SourceLine
from gradviz.source.code_line import in_place
from gradviz.source.search import changes
from gradviz.source.statements import body_around

_LINES = [
    ("h += 1", "h"),
    ("h[0] = 1", "h"),
    ("h[0] *= 2", "h"),
    ("y = h.add_(1) * 2", "h"),
    ("h[0].mul_(2)", "h"),
    ("h.data.mul_(2)", "h"),
    ("h.t_()", "h"),
    ("F.relu(h[0], inplace=True)", "h"),
    ("torch.relu_(h)", "h"),
    ("F.relu_(self.h)", "self.h"),
    ("torch._foreach_add_(h, 1)", "h"),
    ("nn.init.normal_(h, std=0.1)", "h"),
    ("h = h + 1", None),
    ("h.__init__()", None),
    ("h.relu()", None),
]


@pytest.mark.parametrize(("text", "changed"), _LINES)
def test_a_line_and_a_function_are_read_alike(text: str, changed: str | None, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(f"with torch.no_grad():\n    {text}\n")
    body = body_around(str(file), 0)
    found = list(changes(body))
    expected = () if changed is None else (changed,)
    piece = in_place(SourceLine(str(file), 2))
    assert (piece.name if piece else None) == changed
    assert tuple(one.name for one in found) == expected and {one.source.line for one in found} <= {2}


@pytest.mark.parametrize(
    ("text", "line", "changed"),
    [
        ("h.add_(\n    1\n)", 1, "h"),
        ("h.add_(\n    1\n)", 2, "h"),
        ("y = (\n    h.exp()\n    + g.mul_(2)\n)", 3, "g"),
        ("y = (\n    h.exp()\n    + g.mul_(2)\n)", 2, None),
        ("h += (\n    g\n)", 1, "h"),
        ("for h in g.add_(1):\n    y = h.exp()", 2, None),
    ],
)
def test_a_statement_is_read_whole(text: str, line: int, changed: str | None, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(text)
    piece = in_place(SourceLine(str(file), line))
    assert (piece.name if piece else None) == changed
