"""Lines that are found by what their text says they do."""

from __future__ import annotations

from pathlib import Path

from gradviz.source.search import additions, inference_modes
from gradviz.source.statements import body_at


def test_what_puts_something_into_a_container(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "losses, kept, by_step = [1], [], {}\ndel losses[0]\nlosses.append(2)\nkept[:] = losses\n"
        "by_step['a'] = []\nby_step['a'].append(3)\n"
    )
    body = body_at(str(path))
    assert {name: source.line for name, source in additions(body).items()} == {"losses": 3, "kept": 4, "by_step": 6}


def test_where_inference_mode_is_switched_on(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import torch\n@torch.inference_mode()\ndef f():\n    pass\nwith torch.no_grad():\n    pass\n"
        "with torch.inference_mode(False):\n    pass\nwith open('a'), torch.inference_mode():\n    pass\n"
    )
    assert [source.line for source in inference_modes(str(path))] == [2, 9]
