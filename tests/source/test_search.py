"""Lines that are found by what their text says they do."""

from __future__ import annotations

from pathlib import Path

from gradviz.source.search import (
    additions,
    freezes,
    sets_attribute,
)
from gradviz.source.statements import body_at, loops_around


def test_what_puts_something_into_a_container(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "losses, kept, by_step = [1], [], {}\ndel losses[0]\nlosses.append(2)\nkept[:] = losses\n"
        "by_step['a'] = []\nby_step['a'].append(3)\n"
    )
    body = body_at(str(path))
    assert {name: source.line for name, source in additions(body).items()} == {"losses": 3, "kept": 4, "by_step": 6}


TEXT = """
# p.requires_grad = False
'''x.requires_grad = False'''
class Net:
    def tie(self):
        self.head.weight = self.body.weight  # as they say
        loss = f(x,
                 reduction = 'none')
for p in parameters:
    try:
        p.requires_grad_(False)
    finally:
        while True:
            group["lr"] *= 0.1
"""


def test_statements_are_found_by_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(TEXT)
    file = str(path)
    found = freezes(file), sets_attribute(file, "head.weight")
    assert [line.line for line in found if line is not None] == [11, 6]
    assert loops_around(file, 14) == (9, 13) and loops_around(file, 6) == ()
