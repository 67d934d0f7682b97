from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradviz.errors import TargetError
from gradviz.run.target import Target, parse_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "graph.json", "plain", "notes.ipynb", "picture.svg", "a:b.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.py", Target("script", "train.py")),
        ("train.py:loss", Target("script", "train.py", "loss")),
        ("train.py:outs.0", Target("script", "train.py", "outs.0")),
        ("./src/lib.py:größe", Target("script", "./src/lib.py", "größe")),
        ("plain", Target("script", "plain")),
        ("notes.ipynb:loss", Target("script", "notes.ipynb", "loss")),
        ("a:b.py:x", Target("script", "a:b.py", "x")),
        ("graph.json", Target("graph", "graph.json")),
        ("nowhere:name", Target("module", "nowhere", "name")),
    ],
)
def test_spelling(folder: Path, text: str, expected: Target) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trian.py", "Did you mean train.py?"),
        ("src", "'src' is a folder"),
        ("src/lob.py", "Did you mean lib.py?"),
        ("nowhere/lib.py", "there is no folder 'nowhere'"),
        ("package.module", "package.module:NAME"),
        ("graph.json:loss", "a saved graph, which holds no variable 'loss'"),
        ("picture.svg", "not a Python script (.py), a notebook (.ipynb) or a saved graph"),
        ("train.py:f()", "'f()' after the colon is not a name"),
        ("C:\\none.py", "there is no file"),
    ],
)
def test_a_wrong_target_says_what_to_do(folder: Path, text: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert said in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_link_that_leads_nowhere(folder: Path) -> None:
    for name, target in (("loop.py", "loop.py"), ("dangling.ipynb", "gone.ipynb"), ("a.json", "./b.json")):
        (folder / name).symlink_to(target)
        with pytest.raises(TargetError, match=f"'{name}' is a link to '{target}', where there is no file"):
            parse_target(name)
