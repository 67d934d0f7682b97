"""Lines that are found by what their text says they do."""

from __future__ import annotations

from pathlib import Path

from gradviz.source.search import addition_to, freezes
from gradviz.source.statements import body_around, loops_around


def test_what_puts_something_into_a_container(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "losses, kept, by_step = [1], [], {}\ndel losses[0]\nlosses.append(2)\nkept[:] = losses\n"
        "by_step['a'] = []\nby_step['a'].append(3)\n"
    )
    found = {name: addition_to(str(path), name) for name in ("losses", "self.kept", "by_step", "other")}
    assert {name: line and line.line for name, line in found.items()} == {
        "losses": 3,
        "self.kept": 4,
        "by_step": 6,
        "other": None,
    }


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
    found = freezes(file)
    assert found is not None and found.line == 11
    assert [loop.lineno for loop in loops_around(file, 14)] == [9, 13] and not loops_around(file, 6)


def test_a_long_chain_of_elif_is_read(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("if x == 0: y = 0\n" + "".join(f"elif x == {i}: y = {i}\n" for i in range(1500)))
    assert len(body_around(str(path), 1200).statements) == 3002
